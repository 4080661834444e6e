//! Field reports about reading messages, each test named after its row, and the
//! other rules of raw members and tool inputs.

use bma_proto_core::contract::*;
use serde_json::{Value, json};

#[test]
fn f72_an_unknown_event_between_two_known_ones_is_kept_and_the_sequence_goes_on() {
    let events = [
        json!({ "type": "agent.message", "content": [{ "type": "text", "text": "before" }] }),
        json!({ "type": "future_thing", "kind": "future_thing", "extra": { "deep": [1, null] } }),
        json!({ "type": "agent.message", "content": [{ "type": "future_block", "text": "after" }], "extra": 1 }),
    ];
    let mut read_events = Vec::new();
    for (sequence, event) in (1..).zip(&events) {
        let frame = json!({
            "session_id": "s", "turn_id": "t", "event_id": format!("e{sequence}"), "sequence": sequence,
            "event": event, "kind": "future_thing",
        });
        let params: SessionEventParams = read(&frame.to_string()).unwrap();
        assert_eq!(params.sequence, Some(sequence), "the cursor moves");
        assert_eq!(params.event.parse::<Value>().unwrap(), *event, "what is stored is what came");
        read_events.push(AgentEvent::read(&params.event).unwrap());
    }
    let [AgentEvent::Message(before), AgentEvent::Other(kind, raw), AgentEvent::Message(after)] = &read_events[..]
    else {
        panic!("{read_events:?}");
    };
    assert_eq!(before.content, [ContentBlock::text("before")]);
    assert_eq!(kind.as_str(), "future_thing");
    assert_eq!(raw.parse::<Value>().unwrap(), events[1]);
    assert_eq!(after.content[0].r#type.as_str(), "future_block");
}

#[test]
fn f72_an_unknown_enumeration_value_is_kept_wherever_it_stands() {
    let sent = json!({
        "process_id": "p", "state": "hibernating", "cursors": { "stdout": 1, "stderr": 2, "future": 3 },
        "exit_code": null, "exit_signal": null, "stderr": "future_thing",
    });
    let state: ProcessState = read(&sent.to_string()).unwrap();
    assert_eq!(state.state, ProcessStateName::from("hibernating"));
    assert_eq!(serde_json::to_value(&state).unwrap()["state"], "hibernating");
    assert_eq!(serde_json::to_value(&state).unwrap()["stderr"], "future_thing");
}

#[test]
fn f73_whole_numbers_beyond_2_to_the_53_keep_their_digits() {
    let cursor = |number: &str| {
        let text = format!(r#"{{"session_id":"s","process_id":"p","stream":"stdout","cursor":{number}}}"#);
        read::<ProcessReadParams>(&text)
    };
    for number in ["9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808"] {
        let params = cursor(number).unwrap();
        assert_eq!(params.cursor.to_string(), number);
        assert!(serde_json::to_string(&params).unwrap().contains(&format!(r#""cursor":{number}"#)));
    }
}

#[test]
fn f73_a_whole_number_that_does_not_fit_is_refused_and_never_rounded() {
    for number in ["18446744073709551615", "9223372036854775808", "1.5", "1e3", "\"7\""] {
        let text = format!(r#"{{"session_id":"s","process_id":"p","stream":"stdout","cursor":{number}}}"#);
        let error = read::<ProcessReadParams>(&text).unwrap_err();
        assert_eq!(error.member(), "cursor", "{number}: {error}");
    }
    // The one unsigned member of the contract takes them all.
    let result: TerminalAttachResult = read(r#"{"accepted":true,"writer_epoch":18446744073709551615}"#).unwrap();
    assert_eq!(result.writer_epoch, u64::MAX);
}

#[test]
fn f73_raw_members_keep_numbers_of_any_length_as_they_came() {
    let input = r#"{"a":123456789012345678901234567890,"b":1.10,"c":1E400,"d":"\u00e9"}"#;
    let text = format!(r#"{{"session_id":"s","tool_call_id":"c","tool":"of_my_own","input":{input}}}"#);
    let params: ToolCallParams = read(&text).unwrap();
    assert_eq!(params.input.get(), input);
    assert_eq!(serde_json::to_string(&params).unwrap(), text);
}

fn call(tool: &str, input: Value) -> ToolCallParams {
    read(&json!({ "session_id": "s", "tool_call_id": "c", "tool": tool, "input": input }).to_string()).unwrap()
}

#[test]
fn a_tool_input_is_read_by_its_type() {
    let bash: BashInput =
        call("bash", json!({ "command": "ls", "env": { "A": "1" }, "future": 1 })).read_input().unwrap();
    assert_eq!(bash, BashInput { command: "ls".into(), env: TextMap::from([("A", "1")]), ..Default::default() });

    let params = ToolCallParams::new("s".into(), "c".into(), &bash).unwrap();
    assert_eq!(params.tool, ToolName::Bash);
    assert_eq!(params.read_input::<BashInput>().unwrap(), bash);
}

#[test]
fn an_error_of_a_tool_input_names_the_tool_and_the_member() {
    let missing = call("bash", json!({ "cwd": "." })).read_input::<BashInput>().unwrap_err();
    assert_eq!(missing.member(), "command");
    assert_eq!(missing.to_string(), "the input of `bash` cannot be read: `command` is missing");

    let null = call("write", json!({ "path": "f", "content": null })).read_input::<WriteInput>().unwrap_err();
    assert_eq!(null.member(), "content");

    let empty = call("read", json!({ "path": "" })).read_input::<ReadInput>().unwrap_err();
    assert_eq!(empty.to_string(), "the input of `read` cannot be read: `path` must not be empty");

    let nested = call("bash", json!({ "command": "x", "env": { "A": 1 } })).read_input::<BashInput>().unwrap_err();
    assert_eq!(nested.member(), "env.A");

    let list = call("grep", json!(["x"])).read_input::<GrepInput>();
    assert!(list.is_err(), "an input is an object");

    let other = call("read", json!({ "path": "f" })).read_input::<BashInput>().unwrap_err();
    assert_eq!(other.to_string(), "the call is for the tool `read`, not for `bash`");
}

#[test]
fn what_may_be_empty_in_a_tool_input_is() {
    let write: WriteInput = call("write", json!({ "path": "f", "content": "" })).read_input().unwrap();
    assert_eq!(write.content, "");
    let edit = json!({ "path": "f", "old_string": "", "new_string": "" });
    let edit: EditInput = call("edit", edit).read_input().unwrap();
    assert_eq!((edit.old_string, edit.new_string), (String::new(), String::new()));
    let glob: GlobInput = call("glob", json!({ "pattern": "*", "path": "" })).read_input().unwrap();
    assert_eq!(glob.path, None, "the workspace");
    for nothing in [json!(null), json!({})] {
        assert_eq!(call("list_files", nothing).read_input::<ListFilesInput>().unwrap(), ListFilesInput::default());
    }
}

#[test]
fn a_tool_of_ones_own_has_an_input_of_ones_own() {
    #[derive(Debug, serde::Deserialize)]
    struct Weather {
        city: String,
    }
    let weather: Weather = call("weather", json!({ "city": "Rome" })).read_input_as().unwrap();
    assert_eq!(weather.city, "Rome");
    let error = call("weather", json!({})).read_input_as::<Weather>().unwrap_err();
    assert_eq!(error.member(), "city");
}

#[test]
fn an_event_of_a_known_type_with_another_shape_is_an_error_that_names_the_member() {
    let event = |value: Value| AgentEvent::read(&Json::new(&value).unwrap()).unwrap_err();
    assert_eq!(event(json!({ "type": "session.error", "error": {} })).member(), "error.type");
    assert_eq!(event(json!({ "content": [] })).member(), "type");
}
