//! Frames that are wrong, each with the error that it deserves.

use serde_json::{Value, json};

use super::*;
use crate::contract::{Direction, Kind, Method};

#[test]
fn what_is_no_json_is_a_parse_error() {
    let mut peer = executor();
    for text in ["", " ", "{", "nonsense", r#"{"jsonrpc":"2.0""#, "{} {}", "\u{feff}{}", r#"{"a":"\x"}"#, "{'a':1}"] {
        let message = refused(&mut peer, text, Value::Null, ErrorCode::ParseError);
        assert!(message.contains("not JSON"), "{message}");
    }
    assert!(peer.accept(&list("1")).is_some(), "the connection lives");
}

#[test]
fn a_batch_gets_one_clear_error() {
    let mut peer = executor();
    let batch = format!("[{},{}]", list("1"), list("2"));
    for text in [batch.as_str(), "[]", "[1]", &format!(" {batch}")] {
        let message = refused(&mut peer, text, Value::Null, ErrorCode::InvalidRequest);
        assert!(message.contains("batches are not supported"), "{message}");
    }
}

#[test]
fn what_is_no_object_is_no_request() {
    let mut peer = executor();
    for text in ["7", "null", r#""text""#, "true", "1.5"] {
        refused(&mut peer, text, Value::Null, ErrorCode::InvalidRequest);
    }
    refused(&mut peer, "{}", Value::Null, ErrorCode::InvalidRequest);
    refused(&mut peer, r#"{"jsonrpc":"2.0","id":5}"#, json!(5), ErrorCode::InvalidRequest);
    refused(&mut peer, r#"{"jsonrpc":"2.0","id":[]}"#, Value::Null, ErrorCode::InvalidRequest);
}

#[test]
fn the_version_must_be_there_once_and_right() {
    let mut peer = executor();
    let rest = r#""id":3,"method":"process.list","params":{"session_id":"s"}"#;
    for version in ["", r#""jsonrpc":"1.0","#, r#""jsonrpc":2.0,"#, r#""jsonrpc":null,"#, r#""jsonrpc":"2.00","#] {
        let message = refused(&mut peer, &format!("{{{version}{rest}}}"), json!(3), ErrorCode::InvalidRequest);
        assert!(message.contains("jsonrpc"), "{message}");
    }
    let twice = format!(r#"{{"jsonrpc":"2.0","jsonrpc":"2.0",{rest}}}"#);
    refused(&mut peer, &twice, Value::Null, ErrorCode::InvalidRequest);
}

#[test]
fn a_member_that_stands_there_twice_is_refused() {
    let mut peer = executor();
    let frames = [
        r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"process.list","params":{"session_id":"s"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"process.list","method":"tool.call","params":{"session_id":"s"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"process.list","params":{"session_id":"s"},"params":{"session_id":"t"}}"#,
    ];
    for frame in frames {
        let message = refused(&mut peer, frame, Value::Null, ErrorCode::InvalidRequest);
        assert!(message.contains("is there twice"), "{message}");
    }
    let inside = r#"{"jsonrpc":"2.0","id":1,"method":"process.list","params":{"session_id":"s","session_id":"t"}}"#;
    let message = refused(&mut peer, inside, json!(1), ErrorCode::InvalidParams);
    assert!(message.contains("session_id"), "{message}");
}

#[test]
fn an_unknown_method_is_told_apart_from_one_of_the_wrong_direction_by_nothing() {
    let mut peer = executor();
    for method in ["no.such", "", "process.List", "session.ready", "executor.heartbeat", "executor.register"] {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{}}}}"#);
        let message = refused(&mut peer, &frame, json!("q"), ErrorCode::MethodNotFound);
        assert!(message.contains(&format!("{method:?}")), "{message}");
    }
    let other = r#"{"jsonrpc":"2.0","id":"q","method":7,"params":{}}"#;
    refused(&mut peer, other, json!("q"), ErrorCode::InvalidRequest);
    // A name of any length does not make an answer of any length.
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "m".repeat(60_000));
    assert!(refused(&mut peer, &long, json!(1), ErrorCode::MethodNotFound).len() < 200);
}

#[test]
fn every_method_is_taken_from_one_side_only_and_names_what_it_misses() {
    for method in Method::ALL {
        for side in [Side::Executor, Side::Harness] {
            let takes = match method.direction() {
                Direction::ExecutorToHarness => side == Side::Harness,
                Direction::HarnessToExecutor => side == Side::Executor,
                Direction::Bidirectional => true,
            };
            let mut peer = connected(side);
            let frame = |id: &str| format!(r#"{{"jsonrpc":"2.0",{id}"method":"{}","params":{{}}}}"#, method.name());
            if !takes {
                refused(&mut peer, &frame(r#""id":1,"#), json!(1), ErrorCode::MethodNotFound);
                continue;
            }
            let message = refused(&mut peer, &frame(r#""id":1,"#), json!(1), ErrorCode::InvalidParams);
            assert!(message.starts_with("`params.") && message.ends_with("` is missing"), "{method:?}: {message}");
            // Without params the same member is missing.
            let without = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, method.name());
            assert_eq!(refused(&mut peer, &without, json!(1), ErrorCode::InvalidParams), message);
            // Sent as a notification the same mistake is nobody's.
            assert!(peer.accept(&frame("")).is_none());
            assert_eq!((peer.next_frame(), peer.counters().ignored_notifications), (None, 1), "{method:?}");
            assert_eq!(method.kind() == Kind::Request, crate::contract::AnyResult::read(*method, "{}").is_some());
        }
    }
}

/// What is said of these params of a method of the harness's.
fn invalid(method: &str, params: &str) -> String {
    let frame = format!(r#"{{"jsonrpc":"2.0","id":"p","method":"{method}","params":{params}}}"#);
    refused(&mut executor(), &frame, json!("p"), ErrorCode::InvalidParams)
}

#[test]
fn invalid_params_name_the_member() {
    assert_eq!(invalid("process.list", r#"{"session_id":""}"#), "`params.session_id` must not be empty");
    let number = invalid("process.list", r#"{"session_id":5}"#);
    assert_eq!(number, "`params.session_id` must be a string, not a whole number");
    assert!(
        invalid("tool.call", r#"{"session_id":"s","tool_call_id":"c","tool":"bash"}"#)
            .contains("`params.input` is missing")
    );
    let assign = r#"{"session_id":"s","work_id":"w","environment_id":"","lease":{"token":"t"},
        "mcp_servers":[{"server_key":7}]}"#;
    assert!(invalid("session.assign", assign).contains("`params.mcp_servers[0].server_key` must be a string"));
    let deadline = r#"{"session_id":"s","tool_call_id":"c","tool":"bash","input":{},"deadline_ms":"soon"}"#;
    assert!(invalid("tool.call", deadline).contains("`params.deadline_ms`"));
    let beyond = r#"{"session_id":"s","tool_call_id":"c","tool":"bash","input":{},"deadline_ms":9223372036854775808}"#;
    assert!(invalid("tool.call", beyond).contains("`params.deadline_ms`"));
}

#[test]
fn params_are_an_object() {
    for params in ["null", "[]", r#"["s"]"#, "7", r#""s""#, "true"] {
        let message = invalid("process.list", params);
        assert!(message.starts_with("`params` must be an object, not "), "{message}");
    }
}

#[test]
fn members_may_come_in_any_order() {
    let mut peer = executor();
    let frame = r#"{"params":{"session_id":"s"},"extra":[{}],"method":"process.list","id":1,"jsonrpc":"2.0"}"#;
    assert!(matches!(peer.accept(frame), Some(Event::Request { params: AnyParams::ProcessList(_), .. })));
    let wrong = r#"{"params":{"session_id":""},"method":"process.list","id":1,"jsonrpc":"2.0"}"#;
    refused(&mut peer, wrong, json!(1), ErrorCode::InvalidParams);

    let mut peer = harness();
    let id = ask(&mut peer, 1);
    let answer = format!(r#"{{"result":{{"processes":null}},"id":{id},"jsonrpc":"2.0"}}"#);
    let Some(Event::Response { tag: 1, outcome: Ok(result) }) = peer.accept(&answer) else { panic!("an answer") };
    assert_eq!(result, crate::contract::AnyResult::ProcessList(Box::default()));
}

#[test]
fn wrong_notifications_are_ignored() {
    let mut peer = executor();
    for frame in [
        r#"{"jsonrpc":"2.0","method":"executor.close","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"executor.close"}"#,
        r#"{"jsonrpc":"2.0","method":"no.such","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"tool.progress","params":{"session_id":"s","tool_call_id":"c","message":""}}"#,
    ] {
        assert!(peer.accept(frame).is_none());
        assert_eq!(peer.next_frame(), None, "{frame}");
    }
    assert_eq!(peer.counters().ignored_notifications, 4);
}

/// What becomes of a request of ours whose answer goes on like this.
fn answered(rest: &str) -> Result<crate::contract::AnyResult, RequestError> {
    let mut peer = harness();
    let id = ask(&mut peer, 1);
    let event = peer.accept(&format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#));
    assert_eq!(peer.next_frame(), None, "an answer is never answered");
    assert_eq!(peer.pending_requests(), 0);
    let Some(Event::Response { tag: 1, outcome }) = event else { panic!("{rest}: {event:?}") };
    outcome
}

#[test]
fn answers_that_are_almost_right_are_read() {
    assert!(answered(r#""result":{"processes":[]},"error":null"#).is_ok());
    assert!(answered(r#""error":null,"result":{"processes":[]},"more":1"#).is_ok());
    let both = answered(r#""result":null,"error":{"code":-32002,"message":"gone"}"#);
    let Err(RequestError::Refused(error)) = both else { panic!("{both:?}") };
    assert_eq!((error.known_code(), error.message.as_str()), (Some(ErrorCode::NotFound), "gone"));
}

#[test]
fn error_data_of_any_shape_leaves_the_error_readable() {
    for data in ["null", "7", r#""because""#, "[1]", "{}", r#"{"retryable":"yes"}"#, r#"{"retryable":null,"x":[]}"#] {
        let outcome = answered(&format!(r#""error":{{"code":-32009,"message":"busy","data":{data}}}"#));
        let Err(RequestError::Refused(error)) = outcome else { panic!("{data}: {outcome:?}") };
        assert_eq!((error.code, error.message.as_str()), (-32009, "busy"), "{data}");
        assert!(RequestError::Refused(error).is_retryable(), "{data}");
    }
    let outcome = answered(r#""error":{"code":5}"#);
    assert!(matches!(outcome, Err(RequestError::Refused(error)) if error.code == 5 && error.message.is_empty()));
}

#[test]
fn answers_that_cannot_be_read_end_their_request() {
    let cases = [
        (r#""result":{}"#, "`result.processes` is missing"),
        (r#""result":{"processes":7}"#, "`result.processes` must be an array"),
        (r#""result":{"processes":[{"process_id":"p"}]}"#, "`result.processes[0].state` is missing"),
        (r#""result":null"#, "`result` must be an object"),
        (r#""result":"text""#, "`result` must be an object"),
        (r#""result":[]"#, "`result` must be an object"),
        (r#""result":null,"error":null"#, "`result` must be an object"),
        (r#""result":{},"error":null"#, "`result.processes` is missing"),
        (r#""error":7"#, "error object cannot be read"),
        (r#""error":{"code":"x","message":"m"}"#, "error object cannot be read"),
        (r#""result":{"processes":[]},"error":{"code":1,"message":"m"}"#, "both"),
    ];
    for (rest, expected) in cases {
        match answered(rest) {
            Err(RequestError::Malformed(message)) => assert!(message.contains(expected), "{rest}: {message}"),
            other => panic!("{rest}: {other:?}"),
        }
    }
}

#[test]
fn an_answer_of_another_version_ends_its_request() {
    let mut peer = harness();
    let id = ask(&mut peer, 1);
    let (tag, error) = failure(peer.accept(&format!(r#"{{"id":{id},"result":{{"processes":[]}}}}"#)));
    assert_eq!(tag, 1);
    assert!(matches!(error, RequestError::Malformed(message) if message.contains("jsonrpc")));
}

#[test]
fn two_sides_never_go_on_answering_answers() {
    let mut peer = harness();
    for answer in [
        r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":"","error":{"code":-32600,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":{},"error":{"code":-32600,"message":"m"}}"#,
        r#"{"jsonrpc":"2.0","id":99,"result":{}}"#,
        r#"{"jsonrpc":"2.0","result":{}}"#,
        r#"{"id":"1","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"1","result":{},"error":7}"#,
    ] {
        assert!(peer.accept(answer).is_none(), "{answer}");
        assert_eq!(peer.next_frame(), None, "{answer}");
    }
}

#[test]
fn f67_unicode_line_separators_stay_inside_their_value() {
    // Raw in one text frame: nothing splits it, and the value stays as it was.
    let value = "a\u{2028}b\u{2029}c\u{85}d";
    let mut peer = executor();
    let input = format!(r#"{{"command":"{value}"}}"#);
    let params = format!(r#"{{"session_id":"s","tool_call_id":"c","tool":"bash","input":{input}}}"#);
    let frame = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{params}}}"#);
    let Some(Event::Request { params: AnyParams::ToolCall(params), .. }) = peer.accept(&frame) else {
        panic!("one request")
    };
    assert_eq!(params.input.get(), input);
    let parsed: Value = params.input.parse().unwrap();
    assert_eq!(parsed["command"], value);
}

#[test]
fn no_error_quotes_what_was_sent() {
    const SECRET: &str = "hunter2 at line 7, expected \\\"x\\\" at line 3";
    let needle = "hunter2";
    let frames = [
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tool.cancel","params":"{SECRET}"}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tool.cancel","params":{{"session_id":["{SECRET}"]}}}}"#),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{{"session_id":"s","tool_call_id":"c","tool":"t",
            "input":{{}},"deadline_ms":"{SECRET}"}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"session.assign","params":{{"session_id":"s","work_id":"w",
            "environment_id":"e","lease":"{SECRET}"}}}}"#
        ),
        format!(r#"{{"jsonrpc":"{SECRET}","id":1,"method":"tool.cancel","params":{{}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":["{SECRET}"],"method":"tool.cancel","params":{{}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":["{SECRET}"],"params":{{}}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":1,"token":"{SECRET}"}}"#),
        format!(r#""{SECRET}""#),
        format!(r#"{{"token":"{SECRET}""#),
    ];
    for frame in &frames {
        let (_, error) = refusal(&mut executor(), frame);
        assert!(!error.message.contains(needle), "{}", error.message);
        assert!(error.data.is_none());
    }
    let number = r#"{"jsonrpc":"2.0","id":1,"method":"session.assign","params":{"session_id":4111111111111111}}"#;
    assert!(!refusal(&mut executor(), number).1.message.contains("4111"));

    for rest in [
        format!(r#""result":"{SECRET}""#),
        format!(r#""result":{{"processes":"{SECRET}"}}"#),
        format!(r#""error":"{SECRET}""#),
        format!(r#""error":{{"code":"{SECRET}","message":"m"}}"#),
    ] {
        let Err(error) = answered(&rest) else { panic!("{rest}") };
        assert!(!format!("{error} {error:?}").contains(needle), "{error}");
    }
}
