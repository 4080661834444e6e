//! How many sessions there may be, and whose they are.

use std::sync::Arc;

use bma_hands_posix::hands::access::{AccessRefused, FileAccessRequest};
use bma_runtime::proto::contract::{
    ErrorCode, JSONRPCError, ListFilesInput, MCPServerConfig, McpConnectionOrigin, SessionAssignParams,
};
use bma_tests::exchange_suite::{assert_code, assignment, refused};

use crate::support::{Setup, bad, call, good, input, open, read, write};

#[track_caller]
fn assert_busy(error: &JSONRPCError) {
    assert_code(error, ErrorCode::ExecutorBusy);
    assert!(error.is_retryable(), "{error:?}");
}

#[test]
fn a_full_machine_is_busy_until_a_session_has_ended() {
    Setup::direct().core(|options, _| options.max_sessions = 2).run(async |hands| {
        let (first, _second) = (hands.session("one").await, hands.session("two").await);
        let error = refused(hands.executor.assign(assignment("three")).await);
        assert_busy(&error);
        assert_eq!(error.message, "all 2 sessions of this machine are taken");
        first.stop("make room").await.unwrap();
        let third = hands.session("three").await;
        assert_eq!(good(third.tools().bash(input("echo in")).await), "in\nexit_code: 0");
        assert_eq!(hands.core.session_count(), 2);
    });
}

#[test]
fn a_brain_has_its_share_and_the_machine_its_whole() {
    let setup = Setup::direct().core(|options, _| {
        options.max_sessions = 3;
        options.max_sessions_per_brain = Some(2);
    });
    setup.run(async |hands| {
        let local = hands.other_brain("local").await;
        let first = hands.session("one").await;
        hands.session("two").await;
        let error = refused(hands.executor.assign(assignment("three")).await);
        assert_busy(&error);
        assert_eq!(error.message, "all 2 sessions for this brain are taken");
        open(&local, assignment("one")).await.unwrap();
        // Its share would allow another one, the machine does not.
        let error = refused(local.assign(assignment("two")).await);
        assert_busy(&error);
        assert_eq!(error.message, "all 3 sessions of this machine are taken");
        first.stop("make room").await.unwrap();
        open(&local, assignment("two")).await.unwrap();
        assert_busy(&refused(hands.executor.assign(assignment("three")).await));
    });
}

#[test]
fn a_set_up_that_fails_gives_its_place_back() {
    let setup = Setup::direct().core(|options, base| {
        options.max_sessions = 1;
        let base = base.to_owned();
        std::fs::write(base.join("a-file"), "").unwrap();
        options.workspace = Some(Arc::new(move |_, id| match id.as_str() {
            "bad" => base.join("a-file/below"),
            id => base.join("chosen").join(id),
        }));
    });
    setup.run(async |hands| {
        for _ in 0..3 {
            let error = refused(hands.executor.assign(assignment("bad")).await);
            assert_code(&error, ErrorCode::ResourceUnavailable);
            assert_eq!(error.reason().unwrap().as_str(), "workspace_unavailable");
            assert!(error.message.starts_with("the workspace cannot be opened: "), "{error:?}");
            assert_eq!(hands.core.session_count(), 0);
        }
        let session = hands.session("good").await;
        good(session.tools().write(write("x", "x")).await);
        assert!(hands.base.join("chosen/good/x").exists());
    });
}

#[test]
fn mcp_servers_are_refused_with_their_capability_and_take_no_place() {
    Setup::direct().core(|options, _| options.max_sessions = 1).run(async |hands| {
        let server = MCPServerConfig {
            server_key: "files".into(),
            connection_origin: McpConnectionOrigin::Environment,
            ..MCPServerConfig::default()
        };
        let params = SessionAssignParams { mcp_servers: vec![server], ..assignment("s") };
        let error = refused(hands.executor.assign(params).await);
        assert_code(&error, ErrorCode::CapabilityUnavailable);
        let capability = error.data.as_ref().and_then(|data| data.capability.as_deref());
        assert_eq!(capability, Some("mcp.stdio"), "{error:?}");
        assert_eq!(hands.core.session_count(), 0);
        hands.session("s").await;
    });
}

#[test]
fn two_brains_with_the_same_session_id_do_not_see_each_other() {
    let agents = |request: &FileAccessRequest<'_>| {
        assert_eq!(request.session_id.as_str(), "s");
        Ok::<_, AccessRefused>(())
    };
    Setup::direct().core(move |options, _| options.file_access = Some(Arc::new(agents))).run(async |hands| {
        let local = hands.other_brain("local").await;
        let (ours, theirs) = (hands.session("s").await, open(&local, assignment("s")).await.unwrap());
        good(ours.tools().write(write("ours.txt", "of the cloud")).await);
        good(theirs.tools().write(write("theirs.txt", "of the machine")).await);
        assert_eq!(good(ours.tools().list_files(ListFilesInput { path: None }).await), "ours.txt");
        assert_eq!(good(theirs.tools().list_files(ListFilesInput { path: None }).await), "theirs.txt");
        let place = hands.base.join("work/local/s/theirs.txt");
        assert!(place.exists());
        let text = bad(ours.tools().read(read(place.to_str().unwrap())).await);
        assert!(text.contains("is outside the workspace"), "{text}");
        let text = bad(ours.tools().read(read("../../local/s/theirs.txt")).await);
        assert!(text.contains("is outside the workspace"), "{text}");

        // The same call id too: each is its own.
        let running = hands.start_bash(&ours, call("c"), "echo > started; sleep 600").await;
        let other = good(theirs.tools().with(call("c")).bash(input("echo mine; sleep 601 > /dev/null 2>&1 &")).await);
        assert!(other.starts_with("mine\nstill running: process "), "{other}");
        hands.until("both sleep", || hands.processes().iter().filter(|name| *name == "sleep").count() == 2).await;
        assert!(!theirs.cancel_tool(&"c".into(), "not ours").await.unwrap(), "it has ended");
        theirs.stop("enough").await.unwrap();
        hands
            .until("one sleep is left", || hands.processes().iter().filter(|name| *name == "sleep").count() == 1)
            .await;
        assert!(hands.core.session("local", &"s".into()).is_none());
        assert!(hands.core.session("cloud", &"s".into()).is_some());
        assert!(ours.cancel_tool(&"c".into(), "enough").await.unwrap());
        crate::support::canceled(running.await);
        assert_eq!(good(ours.tools().read(read("ours.txt")).await), "of the cloud");
    });
}

#[test]
fn a_brain_is_attached_once() {
    Setup::direct().run(async |hands| {
        let error = hands.core.attach("cloud", &hands.client).unwrap_err();
        assert_eq!(error.to_string(), "brain \"cloud\" is attached already: give each brain a name of its own");
    });
}
