//! What an executor says that it can do, and what it serves.

use super::*;
use crate::contract::{Capabilities, FilesCapability, Method};

#[test]
fn a_tool_brings_its_capability() {
    let mut executor = Executor::new(config());
    assert_eq!(executor.capabilities(), Capabilities::default());
    executor.serve_tool(ToolName::Read);
    assert!(executor.capabilities().files.unwrap().enabled);
    assert_eq!(executor.capabilities().shell, None);
    executor.serve_tool(ToolName::Bash);
    assert!(executor.capabilities().shell.unwrap().enabled);
    // What the configuration says of it stands.
    let files = FilesCapability { enabled: true, ..FilesCapability::default() };
    let configured = Capabilities { files: Some(files.clone()), ..Capabilities::default() };
    executor.set_capabilities(configured);
    assert_eq!(executor.capabilities().files, Some(files));
    // A tool that is nobody's capability.
    let before = executor.capabilities();
    executor.serve_tool("teleport".into());
    assert_eq!(executor.capabilities(), before);
}

#[test]
fn a_change_is_told_once_and_only_when_it_is_one() {
    let mut rig = Rig::up();
    rig.executor.serve_tool(ToolName::Bash);
    rig.executor.serve_tool("teleport".into());
    rig.drain();
    assert!(rig.frames.is_empty());
    rig.executor.serve_tool(ToolName::Read);
    rig.executor.serve_tool(ToolName::Write);
    rig.drain();
    let (_, params) = rig.request("executor.capabilities.update");
    assert!(params["capabilities"]["files"]["enabled"].as_bool().unwrap());
    assert!(rig.frames.is_empty());
}

#[test]
fn a_change_while_the_registration_is_under_way_is_told_after_it() {
    let mut rig = Rig::new(config());
    rig.dial();
    rig.executor.serve_tool(ToolName::Read);
    rig.drain();
    assert!(!rig.has("executor.capabilities.update"));
    rig.register(registered());
    let (_, params) = rig.request("executor.capabilities.update");
    assert!(params["capabilities"]["files"]["enabled"].as_bool().unwrap());
}

#[test]
fn a_change_while_nothing_is_connected_is_told_by_the_registration() {
    let mut rig = Rig::up();
    rig.disconnect(None);
    rig.executor.serve_tool(ToolName::Read);
    rig.wait(Duration::from_secs(2));
    let registration = rig.dial();
    assert!(registration["params"]["capabilities"]["files"]["enabled"].as_bool().unwrap());
    rig.register(registered());
    assert!(!rig.has("executor.capabilities.update"));
}

#[test]
fn a_method_that_is_served_comes_as_a_request() {
    let mut rig = Rig::with_session("s");
    rig.executor.serve_method(Method::ProcessList);
    let asked = rig.ask("process.list", json!({"session_id": "s"}));
    let Event::Request { id, params } = rig.event() else { panic!("a request") };
    assert_eq!(params.method(), Method::ProcessList);
    assert_eq!(Executor::request_id(&id).as_json(), asked.to_string());
    rig.executor.reply(id, &AnyResult::ProcessList(Box::default()));
    rig.drain();
    assert_eq!(rig.answer(&asked)["result"], json!({"processes": []}));

    let asked = rig.ask("process.list", json!({"session_id": "s"}));
    let Event::Request { id, .. } = rig.event() else { panic!("a request") };
    rig.executor.refuse(id, &ErrorCode::NotFound.error("no"));
    rig.drain();
    assert_eq!(rig.code(&asked), ErrorCode::NotFound.number());
}

#[test]
fn a_method_that_is_not_served_is_refused_with_its_capability() {
    let mut rig = Rig::up();
    let params = json!({"session_id": "s"});
    for (method, params, capability) in [
        ("process.list", params.clone(), "process.enabled"),
        ("fs.unmount", json!({"session_id": "s", "view": "v"}), "fs.fuse"),
        ("session.close", json!({"session_id": "s", "reason": ""}), "agent"),
    ] {
        let asked = rig.ask(method, params);
        let answer = rig.answer(&asked);
        assert_eq!(answer["error"]["code"], ErrorCode::CapabilityUnavailable.number(), "{method}: {answer}");
        assert_eq!(answer["error"]["data"]["capability"], capability);
    }
    assert!(rig.events.is_empty());
}

#[test]
fn a_request_of_the_application_brings_its_token_back() {
    let mut rig = Rig::up();
    let params = crate::contract::ExecutorTokenRefreshParams { token: "fresh".into() };
    let params = AnyParams::ExecutorTokenRefresh(params);
    let timeout = rig.executor.request_timeout();
    for token in [7, 8, 9] {
        rig.executor.request(rig.now, &params, token, timeout).unwrap();
    }
    rig.drain();
    let (id, params_sent) = rig.request("executor.token.refresh");
    assert_eq!(params_sent, json!({"token": "fresh"}));
    rig.reply(&id, json!({"expires_at": "2026-01-01T00:00:00Z"}));
    assert!(matches!(rig.event(), Event::Response { token: 7, outcome: Ok(_) }));
    let (id, _) = rig.request("executor.token.refresh");
    rig.fail(&id, json!({"code": -32001, "message": "no"}));
    assert!(matches!(rig.event(), Event::Response { token: 8, outcome: Err(RequestError::Refused(_)) }));
    rig.disconnect(None);
    assert!(matches!(rig.event(), Event::Response { token: 9, outcome: Err(RequestError::Disconnected) }));
    let refused = rig.executor.request(rig.now, &params, 10, timeout);
    assert_eq!(refused, Err(CallError::Send(Misuse::NotConnected)));
}

#[test]
fn what_the_machine_keeps_account_of_is_no_plain_request() {
    let mut rig = Rig::up();
    let timeout = rig.executor.request_timeout();
    for params in [
        AnyParams::ExecutorRegister(Box::default()),
        AnyParams::ExecutorHeartbeat(Box::default()),
        AnyParams::SessionReady(Default::default()),
        AnyParams::SessionEnded(Default::default()),
        AnyParams::ToolResult(Default::default()),
    ] {
        let asked = rig.executor.request(rig.now, &params, 1, timeout);
        let Err(error @ CallError::NotPlain { .. }) = asked else { panic!("{params:?}: {asked:?}") };
        assert!(error.to_string().contains(params.method().name()), "{error}");
    }
    // Nor is what harnesses send.
    let asked = rig.executor.request(rig.now, &AnyParams::ToolCall(Box::default()), 1, timeout);
    assert!(matches!(asked, Err(CallError::Send(Misuse::WrongWay { .. }))), "{asked:?}");
    rig.drain();
    assert!(rig.frames.is_empty() && rig.events.is_empty());
}
