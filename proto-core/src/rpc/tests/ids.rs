//! Ids go back exactly as they came, or nothing runs.

use serde_json::Value;

use super::*;

/// Answers the request with this id, and gives the id of the answer as JSON text.
fn echoed(id: &str) -> String {
    let mut peer = executor();
    let Some(Event::Request { id: inbound, .. }) = peer.accept(&list(id)) else { panic!("{id} is a usable id") };
    assert_eq!(inbound.request_id().as_json(), id);
    peer.reply::<methods::ProcessList>(inbound, &Default::default());
    let frame = peer.next_frame().unwrap();
    let rest = frame.strip_prefix(r#"{"jsonrpc":"2.0","id":"#).unwrap();
    rest.strip_suffix(r#","result":{"processes":[]}}"#).unwrap().to_owned()
}

#[test]
fn f68_an_id_goes_back_with_type_and_value_unchanged() {
    let ids = [
        "7",
        r#""7""#,
        r#""a-b""#,
        "0",
        "-1",
        "-0",
        "null",
        r#""""#,
        "18446744073709551616",
        "9007199254740993",
        r#""\u0041\n\"\\ \ud83d\ude00""#,
        r#""a b""#,
        "123456789012345678901234567890",
    ];
    for id in ids {
        assert_eq!(echoed(id), id);
    }
}

/// Ids on both sides of the length up to which they are kept in place, with a character across it.
#[test]
fn ids_of_every_length_go_back_and_are_told_apart() {
    let mut ids: Vec<String> = (18..27).map(|len| format!("\"{}\"", "a".repeat(len))).collect();
    ids.extend((18..27).map(|len| "1".repeat(len)));
    ids.extend((17..23).map(|len| format!("\"{}\u{e4}\"", "a".repeat(len))));
    let mut seen = std::collections::BTreeSet::new();
    let mut hashed = std::collections::HashSet::with_hasher(foldhash::fast::FixedState::with_seed(1));
    for id in &ids {
        assert_eq!(echoed(id), *id);
        let mut peer = executor();
        let Some(Event::Request { id: inbound, .. }) = peer.accept(&list(id)) else { panic!("{id} is a usable id") };
        let copy = inbound.request_id().clone();
        assert_eq!((&copy, copy.as_json()), (inbound.request_id(), id.as_str()));
        assert!(hashed.insert(copy.clone()) && seen.insert(copy.clone()), "{id} is an id of its own");
        assert!(!hashed.insert(copy.clone()) && !seen.insert(copy), "{id} is the same id again");
    }
    assert_eq!(seen.len(), ids.len());
}

#[test]
fn f68_a_number_and_a_string_are_two_ids() {
    let mut peer = executor();
    let mut inbound = Vec::new();
    for id in ["7", r#""7""#] {
        let Some(Event::Request { id, .. }) = peer.accept(&list(id)) else { panic!("a request") };
        inbound.push(id);
    }
    assert_ne!(inbound[0].request_id(), inbound[1].request_id());
    // Answered in the other order, each under its own.
    for id in inbound.into_iter().rev() {
        peer.reply::<methods::ProcessList>(id, &Default::default());
    }
    let first: Value = serde_json::from_str(&peer.next_frame().unwrap()).unwrap();
    let second: Value = serde_json::from_str(&peer.next_frame().unwrap()).unwrap();
    assert_eq!((&first["id"], &second["id"]), (&Value::from("7"), &Value::from(7)));
}

#[test]
fn f69_an_unusable_id_is_refused_before_anything_runs_and_the_connection_lives() {
    let mut peer = executor();
    let call = |id: &str| {
        let params = r#"{"session_id":"s","tool_call_id":"c","tool":"bash","input":{"command":"touch f"}}"#;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tool.call","params":{params}}}"#)
    };
    for id in ["{}", r#"{"a":1}"#, "[]", "[1]", "true", "false", "1.5", "1e3", "1E3", "1.0", "-1.5", "-1e-3"] {
        let message = refused(&mut peer, &call(id), Value::Null, ErrorCode::InvalidRequest);
        assert!(message.contains("`id`"), "{message}");
    }
    let Some(Event::Request { params: AnyParams::ToolCall(params), .. }) = peer.accept(&call("1")) else {
        panic!("the connection lives")
    };
    assert_eq!(params.tool_call_id.as_str(), "c");
}

#[test]
fn an_id_is_bounded() {
    let mut peer = executor();
    let usable = format!(r#""{}""#, "x".repeat(1022));
    assert_eq!(echoed(&usable), usable);
    for id in [format!(r#""{}""#, "x".repeat(1023)), "9".repeat(1025)] {
        refused(&mut peer, &list(&id), Value::Null, ErrorCode::InvalidRequest);
    }
}

#[test]
fn a_notification_with_an_id_is_told_so() {
    let mut peer = executor();
    let frame = r#"{"jsonrpc":"2.0","id":4,"method":"executor.close","params":{"reason":"x"}}"#;
    let message = refused(&mut peer, frame, Value::from(4), ErrorCode::InvalidRequest);
    assert!(message.contains("without an id"), "{message}");
    let frame = r#"{"jsonrpc":"2.0","id":{},"method":"executor.close","params":{"reason":"x"}}"#;
    refused(&mut peer, frame, Value::Null, ErrorCode::InvalidRequest);
}

#[test]
fn a_request_without_an_id_is_no_request() {
    let mut peer = executor();
    let frame = r#"{"jsonrpc":"2.0","method":"process.list","params":{"session_id":"s"}}"#;
    assert!(peer.accept(frame).is_none());
    assert_eq!(peer.next_frame(), None, "there is nobody to answer");
    assert_eq!(peer.counters().ignored_notifications, 1);
}

#[test]
fn our_own_ids_are_strings_and_never_used_again() {
    let mut peer = harness();
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..3 {
        for tag in 0..5 {
            let id = ask(&mut peer, tag);
            assert!(id.starts_with('"'), "{id}");
            assert!(seen.insert(id), "round {round}");
        }
        peer.disconnect();
        peer.connect();
    }
}

#[test]
fn an_answer_is_matched_by_the_exact_id() {
    let mut peer = harness();
    let id = ask(&mut peer, 9);
    let number = id.trim_matches('"');
    for wrong in [number.to_owned(), format!(r#""+{number}""#), format!(r#""0{number}""#), format!(r#"" {number}""#)] {
        assert!(peer.accept(&format!(r#"{{"jsonrpc":"2.0","id":{wrong},"result":{{"processes":[]}}}}"#)).is_none());
    }
    assert_eq!((peer.counters().unmatched_answers, peer.next_frame()), (4, None));
    let right = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"processes":[]}}}}"#);
    assert!(matches!(peer.accept(&right), Some(Event::Response { tag: 9, outcome: Ok(_) })));
}
