//! Methods, error codes, close codes and defaults are the contract's.

use std::any::type_name;
use std::collections::BTreeMap;

use bma_proto_core::contract::methods::*;
use bma_proto_core::contract::{
    Ack, AnyParams, AnyResult, Capabilities, CloseCode, Direction, DisplayCapability, ErrorCode, JSONRPCError, Kind,
    Method, MethodSpec, NotificationMethod, ProtocolVersion, RequestMethod, ToolCancelParams, defaults, read,
};
use serde_json::{Value, json};

use crate::description::{CONTRACT, Extent, object, plain};

/// The last part of a type's name.
fn short<T>() -> &'static str {
    type_name::<T>().rsplit("::").next().unwrap()
}

/// A method as its marker type has it: with its params and, for a request, its result.
type Marked = (Method, &'static str, Option<&'static str>);

fn request<M: RequestMethod>() -> Marked {
    (M::METHOD, short::<M::Params>(), Some(short::<M::Result>()))
}

fn notification<M: NotificationMethod>() -> Marked {
    (M::METHOD, short::<M::Params>(), None)
}

fn marked() -> Vec<Marked> {
    vec![
        request::<ExecutorRegister>(),
        request::<ExecutorHeartbeat>(),
        request::<ExecutorTokenRefresh>(),
        notification::<ExecutorCapabilitiesUpdate>(),
        request::<ExecutorDrain>(),
        notification::<ExecutorClose>(),
        request::<SessionAssign>(),
        request::<SessionReady>(),
        request::<SessionEvent>(),
        notification::<SessionStatus>(),
        request::<SessionStop>(),
        request::<SessionEnded>(),
        request::<ToolCall>(),
        request::<ToolResult>(),
        request::<ToolCancel>(),
        notification::<ToolProgress>(),
        request::<ProcessStart>(),
        request::<ProcessRead>(),
        request::<ProcessWrite>(),
        request::<ProcessInterrupt>(),
        request::<ProcessTerminate>(),
        request::<ProcessList>(),
        notification::<ProcessStatus>(),
        request::<TerminalOpen>(),
        request::<TerminalAttach>(),
        request::<TerminalClose>(),
        request::<SkillInstall>(),
        request::<WorkspaceBackup>(),
        request::<FsMount>(),
        request::<FsUnmount>(),
        request::<TurnStart>(),
        request::<TurnInput>(),
        request::<TurnCancel>(),
        request::<SessionClose>(),
        notification::<SessionEventDelta>(),
        request::<InteractionRequest>(),
        request::<InteractionResponse>(),
        request::<AgentCustomToolResult>(),
        request::<InteractionCancel>(),
        request::<ModelTokenRefresh>(),
        request::<ToolsTokenRefresh>(),
    ]
}

#[test]
fn every_method_is_the_contract_s() {
    let ours: Vec<Value> = marked()
        .into_iter()
        .map(|(method, params, result)| {
            json!({
                "name": method.name(),
                "direction": match method.direction() {
                    Direction::ExecutorToHarness => "executor-to-harness",
                    Direction::HarnessToExecutor => "harness-to-executor",
                    Direction::Bidirectional => "bidirectional",
                },
                "kind": match method.kind() {
                    Kind::Request => "request",
                    Kind::Notification => "notification",
                },
                "since": method.since(),
                "capability": method.capability(),
                "idempotent_by": method.idempotent_by(),
                "params": params,
                "result": result,
            })
        })
        .collect();
    let contracts = CONTRACT["methods"].as_array().unwrap();
    for (ours, contracts) in ours.iter().zip(contracts) {
        assert_eq!(ours, contracts);
    }
    assert_eq!(ours.len(), contracts.len());
}

#[test]
fn no_method_lacks_a_marker_and_each_is_found_by_its_name() {
    assert_eq!(marked().into_iter().map(|(method, ..)| method).collect::<Vec<_>>(), Method::ALL);
    for method in Method::ALL {
        assert_eq!(Method::from_name(method.name()), Some(*method));
    }
    for unknown in ["", "tool", "tool.call ", "TOOL.CALL", "tool.call\0"] {
        assert_eq!(Method::from_name(unknown), None, "{unknown:?}");
    }
}

#[test]
fn params_and_results_are_read_as_their_method_s() {
    for (method, params, result) in marked() {
        let sent = Value::Object(object(params, Extent::Full, &plain));
        let read = AnyParams::read(method, &sent.to_string()).unwrap();
        assert_eq!(read.method(), method);
        assert_eq!(serde_json::to_value(&read).unwrap(), sent);

        let error = AnyParams::read(method, "{}").unwrap_err();
        assert!(!error.member().is_empty(), "{method:?}: {error}");

        match result {
            Some(result) => {
                let sent = Value::Object(object(result, Extent::Full, &plain));
                let read = AnyResult::read(method, &sent.to_string()).unwrap().unwrap();
                assert_eq!(read.method(), method);
                assert_eq!(serde_json::to_value(&read).unwrap(), sent);
            }
            None => assert!(AnyResult::read(method, "{}").is_none(), "{method:?}"),
        }
    }
}

#[test]
fn params_and_results_unwrap_as_their_own_method_s_only() {
    let params = ToolCancelParams { session_id: "s".into(), tool_call_id: "c".into(), reason: None };
    let any = ToolCancel::wrap(params.clone());
    assert_eq!(ToolCancel::unwrap(any.clone()), Some(params));
    assert_eq!(TurnCancel::unwrap(any), None);

    let any = ToolCall::wrap_result(Ack::ACCEPTED);
    assert_eq!(ToolCall::unwrap_result(any.clone()), Some(Ack::ACCEPTED));
    assert_eq!(ToolResult::unwrap_result(any), None, "another method's, though of the same type");
}

#[test]
fn every_error_code_is_the_contract_s() {
    let ours: BTreeMap<String, &str> =
        ErrorCode::ALL.iter().map(|code| (code.number().to_string(), code.name())).collect();
    assert_eq!(json!(ours), CONTRACT["error_codes"]);
    assert_eq!(ours.len(), 19);
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_number(code.number()), Some(*code));
    }
    assert_eq!(ErrorCode::from_number(-32099), None);
}

#[test]
fn an_error_is_retryable_when_it_says_so_or_else_by_its_code() {
    let retryable = |error: &JSONRPCError| error.is_retryable();
    let bare: Vec<ErrorCode> = ErrorCode::ALL.iter().copied().filter(|code| retryable(&code.error(""))).collect();
    assert_eq!(bare, [ErrorCode::Timeout, ErrorCode::ExecutorBusy]);
    assert!(retryable(&ErrorCode::Conflict.error("").with_retryable(true)));
    assert!(!retryable(&ErrorCode::ExecutorBusy.error("").with_retryable(false)));
}

#[test]
fn every_close_code_is_the_contract_s() {
    let ours: BTreeMap<String, &str> =
        CloseCode::ALL.iter().map(|code| (code.number().to_string(), code.meaning())).collect();
    assert_eq!(json!(ours), CONTRACT["close_codes"]);
    for code in CloseCode::ALL {
        assert_eq!(CloseCode::from_number(code.number()), Some(*code));
    }
    assert_eq!(CloseCode::from_number(4000), None);
}

#[test]
fn every_default_is_the_contract_s() {
    let ours: BTreeMap<&str, u64> = defaults::ALL.iter().copied().collect();
    assert_eq!(json!(ours), CONTRACT["defaults"]);
    assert_eq!(ours.len(), defaults::ALL.len(), "none is there twice");
}

#[test]
fn the_protocol_is_the_contract_s() {
    assert_eq!(ProtocolVersion::V1_1.as_str(), CONTRACT["protocol"]);
}

#[test]
fn each_capability_of_the_catalogue_can_be_advertised() {
    let everything: Capabilities =
        read(&Value::Object(object("Capabilities", Extent::Full, &plain)).to_string()).unwrap();
    let nothing = Capabilities::default();
    for capability in Method::ALL.iter().filter_map(|method| method.capability()) {
        assert!(everything.has(capability), "{capability}");
        assert!(!nothing.has(capability), "{capability}");
    }
    for tool in ["tool:bash", "tool:read", "tool:list_files", "tool:computer_action", "process.pty"] {
        assert!(everything.has(tool), "{tool}");
        assert!(!nothing.has(tool), "{tool}");
    }
    assert!(!everything.has("tool:of_my_own") && !everything.has("") && !everything.has("future_thing"));

    let disabled: Capabilities = read(r#"{"process":{"enabled":false,"pty":true},"agent":{"enabled":false}}"#).unwrap();
    assert!(!disabled.has("process.enabled") && !disabled.has("process.pty") && !disabled.has("agent"));
}

#[test]
fn a_display_is_a_boolean_or_an_object() {
    let display = |text: &str| read::<Capabilities>(text).unwrap().display_capability();
    assert_eq!(display("{}"), None);
    assert_eq!(display(r#"{"display":false}"#), None);
    assert_eq!(display(r#"{"display":true}"#), Some(DisplayCapability::default()));
    assert_eq!(
        display(r#"{"display":{"rfb":true,"future":1}}"#),
        Some(DisplayCapability { rfb: Some(true), desktop: None })
    );
}
