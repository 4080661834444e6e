//! Frames and tables have limits, and what happens at each is told.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::contract::{
    ExecutorCloseParams, ProcessListResult, ProcessReadResult, SessionStopParams, ToolCancelParams, ToolCancelResult,
    ToolProgressParams,
};
use crate::rpc::Misuse;

/// A frame that is over the limit by its padding.
fn oversized(head: &str) -> String {
    format!(r#"{{{head}"pad":"{}"}}"#, "x".repeat(70_000))
}

#[test]
fn an_oversized_request_is_answered_under_its_id_and_the_connection_lives() {
    let mut peer = executor();
    for id in ["1", r#""a""#, "null"] {
        let frame = oversized(&format!(r#""jsonrpc":"2.0","id":{id},"method":"process.list","params":{{}},"#));
        let message = refused(&mut peer, &frame, serde_json::from_str(id).unwrap(), ErrorCode::PayloadTooLarge);
        assert!(message.contains("65536"), "{message}");
    }
    let unusable = oversized(r#""jsonrpc":"2.0","id":{},"method":"process.list","#);
    refused(&mut peer, &unusable, Value::Null, ErrorCode::PayloadTooLarge);
    refused(&mut peer, &"x".repeat(70_000), Value::Null, ErrorCode::PayloadTooLarge);
    refused(&mut peer, &oversized(""), Value::Null, ErrorCode::PayloadTooLarge);
    assert!(peer.accept(&list("1")).is_some(), "the connection lives");
}

#[test]
fn an_oversized_batch_is_no_answer_to_anything() {
    let mut peer = harness();
    let id = ask(&mut peer, 1);
    // By position the second element would stand where an object's id stands.
    let frame = format!(r#"["2.0",{id},{:?}]"#, "x".repeat(70_000));
    refused(&mut peer, &frame, Value::Null, ErrorCode::PayloadTooLarge);
    assert_eq!(peer.pending_requests(), 1);
}

#[test]
fn an_oversized_notification_is_dropped_and_counted() {
    let mut peer = executor();
    let frame = oversized(r#""jsonrpc":"2.0","method":"executor.close","params":{"reason":"r"},"#);
    assert!(peer.accept(&frame).is_none());
    assert_eq!((peer.next_frame(), peer.counters().ignored_notifications), (None, 1));
}

#[test]
fn an_oversized_answer_ends_its_request() {
    let mut peer = harness();
    let id = ask(&mut peer, 4);
    let frame = oversized(&format!(r#""jsonrpc":"2.0","id":{id},"result":{{"processes":[]}},"#));
    let (tag, error) = failure(peer.accept(&frame));
    assert_eq!(tag, 4);
    assert!(matches!(error, RequestError::Malformed(message) if message.contains("limit is 65536")));
    assert_eq!(peer.next_frame(), None);
}

#[test]
fn f74_a_result_over_the_limit_goes_out_as_an_error() {
    let mut peer = executor();
    let Some(Event::Request { id, .. }) = peer.accept(&list("8")) else { panic!("a request") };
    let text = "x".repeat(80_000);
    let result = ProcessReadResult { data: text, ..ProcessReadResult::default() };
    peer.reply::<methods::ProcessRead>(id, &result);
    let answer = only_frame(&mut peer);
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(8), &json!(-32006)));
}

#[test]
fn an_error_that_quotes_a_long_name_is_cut_to_the_limit() {
    let mut peer = executor();
    let Some(Event::Request { id, .. }) = peer.accept(&list("8")) else { panic!("a request") };
    let error = ErrorCode::NotFound.error("\u{1}".repeat(60_000)).with_capability("c".repeat(60_000));
    peer.refuse(id, &error);
    let frame = peer.next_frame().unwrap();
    assert!(frame.len() < 4096, "{}", frame.len());
    let answer: Value = serde_json::from_str(&frame).unwrap();
    assert_eq!(answer["error"]["code"], -32002);
}

#[test]
fn a_frame_over_the_limit_is_never_sent() {
    let mut peer = harness();
    let params = ToolCancelParams {
        session_id: "s".repeat(70_000).into(),
        tool_call_id: "c".into(),
        ..ToolCancelParams::default()
    };
    let sent = peer.request::<methods::ToolCancel>(Time::ORIGIN, &params, 1);
    assert!(matches!(sent, Err(Misuse::FrameTooLarge { limit: 65_536, .. })), "{sent:?}");
    let sent = peer.notify::<methods::ExecutorClose>(&ExecutorCloseParams { reason: "r".repeat(70_000) });
    assert!(matches!(sent, Err(Misuse::FrameTooLarge { .. })));
    assert_eq!((peer.next_frame(), peer.pending_requests()), (None, 0));
    // The limit is what the two sides agreed on last.
    peer.config_mut().max_frame_bytes = 100_000;
    assert!(peer.request::<methods::ToolCancel>(Time::ORIGIN, &params, 1).is_ok());
}

#[test]
fn requests_past_the_in_flight_bound_wait_their_turn() {
    let mut peer = harness();
    peer.config_mut().max_inflight = 2;
    let params = ProcessListParams { session_id: "s".into() };
    for tag in 1..=4 {
        peer.request::<methods::ProcessList>(Time::ORIGIN, &params, tag).unwrap();
    }
    let mut ids = Vec::new();
    while let Some(frame) = peer.next_frame() {
        ids.push(serde_json::from_str::<Value>(&frame).unwrap()["id"].to_string());
    }
    assert_eq!(ids.len(), 2);
    let answer = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"processes":[]}}}}"#);
    assert!(peer.accept(&answer(&ids[1])).is_some());
    let third = serde_json::from_str::<Value>(&peer.next_frame().unwrap()).unwrap()["id"].to_string();
    assert_eq!(peer.next_frame(), None, "one place was free");
    for id in [&ids[0], &third] {
        assert!(peer.accept(&answer(id)).is_some());
    }
    assert!(peer.next_frame().is_some(), "the fourth");
}

#[test]
fn a_request_that_expires_while_it_waits_frees_no_place() {
    let mut peer = harness();
    peer.config_mut().max_inflight = 1;
    let params = ProcessListParams { session_id: "s".into() };
    let any = AnyParams::ProcessList(params);
    let seconds = Duration::from_secs;
    peer.request_any(Time::ORIGIN, &any, 1, seconds(100)).unwrap();
    peer.request_any(Time::ORIGIN, &any, 2, seconds(1)).unwrap();
    peer.request_any(Time::ORIGIN, &any, 3, seconds(100)).unwrap();
    assert!(peer.next_frame().is_some());
    assert_eq!(peer.next_frame(), None);

    let (tag, error) = failure(peer.expire(Time::from_millis(1000)));
    assert_eq!((tag, error), (2, RequestError::Timeout(seconds(1))));
    assert_eq!(peer.next_frame(), None, "the first is still in flight");
    // Once that is over, the third goes out and the second never does.
    let (tag, _) = failure(peer.expire(Time::from_millis(100_000)));
    assert_eq!(tag, 1);
    assert!(peer.next_frame().unwrap().contains(r#""id":"3""#));
}

#[test]
fn the_line_of_waiting_requests_is_bounded() {
    let mut peer = harness();
    peer.config_mut().max_inflight = 1;
    peer.config_mut().max_waiting = 2;
    let params = ProcessListParams { session_id: "s".into() };
    for tag in 0..3 {
        peer.request::<methods::ProcessList>(Time::ORIGIN, &params, tag).unwrap();
    }
    let refused = peer.request::<methods::ProcessList>(Time::ORIGIN, &params, 9);
    assert_eq!(refused, Err(Misuse::Backlog(2)));
    // What ends something gets through all the same, and at once.
    let stop = SessionStopParams { session_id: "s".into(), ..SessionStopParams::default() };
    peer.request::<methods::SessionStop>(Time::ORIGIN, &stop, 4).unwrap();
    peer.next_frame().unwrap();
    assert!(peer.next_frame().unwrap().contains("session.stop"));
    // One that expired has left the line.
    while peer.expire(Time::from_millis(40_000)).is_some() {}
    assert!(peer.request::<methods::ProcessList>(Time::from_millis(40_000), &params, 9).is_ok());
}

#[test]
fn the_line_of_waiting_requests_is_bounded_in_bytes() {
    let mut peer = harness();
    peer.config_mut().max_inflight = 1;
    peer.config_mut().max_waiting_bytes = 10_000;
    let large = ProcessListParams { session_id: "s".repeat(6_000).as_str().into() };
    let mut last = 0;
    for tag in 0..3 {
        last = peer.request::<methods::ProcessList>(Time::ORIGIN, &large, tag).unwrap();
    }
    let small = ProcessListParams { session_id: "s".into() };
    let ask = |peer: &mut Peer<u32>| peer.request::<methods::ProcessList>(Time::ORIGIN, &small, 9);
    assert_eq!(ask(&mut peer), Err(Misuse::Backlog(2)));
    // Room is there again when one is taken back, and when one has gone out.
    assert_eq!(peer.withdraw(last), Some(2));
    last = ask(&mut peer).unwrap();
    assert_eq!(peer.withdraw(last), Some(9));
    peer.request::<methods::ProcessList>(Time::ORIGIN, &large, 2).unwrap();
    assert_eq!(ask(&mut peer), Err(Misuse::Backlog(2)));
    peer.next_frame().unwrap();
    peer.accept(r#"{"jsonrpc":"2.0","id":"1","result":{"processes":[]}}"#).unwrap();
    assert!(ask(&mut peer).is_ok());
    // Nothing of it is left on the next connection.
    peer.disconnect();
    peer.connect();
    for tag in 0..3 {
        peer.request::<methods::ProcessList>(Time::ORIGIN, &large, tag).unwrap();
    }
    assert_eq!(ask(&mut peer), Err(Misuse::Backlog(2)));
}

/// Neither time-outs nor answers to what was never sent make room for more.
#[test]
fn requests_that_nobody_reads_keep_their_places() {
    for answered in [false, true] {
        let mut peer = harness();
        peer.config_mut().max_inflight = 2;
        peer.config_mut().max_waiting = 3;
        let params = ProcessListParams { session_id: "s".into() };
        let stop = SessionStopParams { session_id: "s".into(), ..SessionStopParams::default() };
        let mut now = Time::ORIGIN;
        for number in 1..100 {
            let _ = peer.request::<methods::ProcessList>(now, &params, number);
            let _ = peer.request::<methods::SessionStop>(now, &stop, number);
            if answered {
                for id in 0..number * 2 {
                    peer.accept(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","error":{{"code":1,"message":""}}}}"#));
                }
            }
            now = now + Duration::from_secs(31);
            while peer.expire(now).is_some() {}
            assert!(peer.queued_frames() <= 2 + 3, "{} frames", peer.queued_frames());
        }
        // Once they are read there is room again.
        while peer.next_frame().is_some() {}
        peer.request::<methods::ProcessList>(now, &params, 0).unwrap();
        assert!(peer.next_frame().is_some());
    }
}

#[test]
fn a_request_that_waits_goes_out_when_one_that_has_ended_was_written() {
    let mut peer = harness();
    peer.config_mut().max_inflight = 1;
    let params = ProcessListParams { session_id: "s".into() };
    peer.request::<methods::ProcessList>(Time::ORIGIN, &params, 1).unwrap();
    assert!(peer.expire(Time::from_millis(31_000)).is_some());
    peer.request::<methods::ProcessList>(Time::from_millis(31_000), &params, 2).unwrap();
    assert!(peer.next_frame().unwrap().contains(r#""id":"1""#));
    assert!(peer.next_frame().unwrap().contains(r#""id":"2""#));
}

#[test]
fn what_must_get_through_has_a_bound_of_its_own() {
    let mut peer = harness();
    peer.config_mut().max_inflight = 1;
    peer.config_mut().max_waiting = 2;
    let stop = SessionStopParams { session_id: "s".into(), ..SessionStopParams::default() };
    let ask = |peer: &mut Peer<u32>| peer.request::<methods::SessionStop>(Time::ORIGIN, &stop, 0);
    for _ in 0..3 {
        ask(&mut peer).unwrap();
    }
    assert_eq!(ask(&mut peer), Err(Misuse::Backlog(2)));
    peer.next_frame().unwrap();
    peer.accept(r#"{"jsonrpc":"2.0","id":"1","result":{"stopped":true}}"#).unwrap();
    assert!(ask(&mut peer).is_ok());
}

#[test]
fn a_peer_that_takes_no_answers_is_not_read_any_more() {
    for (length, most) in [(30_000, 300), (1, 600)] {
        let mut peer = executor();
        let mut answers = 0;
        while !peer.has_too_many_answers() {
            let Some(Event::Request { id, .. }) = peer.accept(&list("1")) else { panic!("within the bound") };
            let result = ProcessReadResult { data: "x".repeat(length), ..ProcessReadResult::default() };
            peer.reply::<methods::ProcessRead>(id, &result);
            answers += 1;
            assert!(answers < most, "{} bytes", peer.queued_bytes());
        }
        assert!(answers > 128, "one that keeps to the bound for requests in flight never gets there");
        peer.next_frame().unwrap();
        assert!(!peer.has_too_many_answers(), "it goes on as soon as there is room");
    }
}

#[test]
fn requests_of_the_other_side_past_the_bound_are_answered_busy() {
    let mut peer = executor();
    peer.config_mut().max_inbound = 2;
    let mut open = Vec::new();
    for id in ["1", "2"] {
        let Some(Event::Request { id, .. }) = peer.accept(&list(id)) else { panic!("within the bound") };
        open.push(id);
    }
    let (id, error) = refusal(&mut peer, &list("3"));
    assert_eq!((id, error.known_code(), error.is_retryable()), (json!(3), Some(ErrorCode::ExecutorBusy), true));
    assert_eq!(peer.counters().busy_answers, 1);

    // A cancel still gets through, up to a reserve of its own.
    let cancel = |id: u32| {
        let params = r#"{"session_id":"s","tool_call_id":"c"}"#;
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tool.cancel","params":{params}}}"#)
    };
    for id in 10..12 {
        let Some(Event::Request { id, .. }) = peer.accept(&cancel(id)) else { panic!("in the reserve") };
        open.push(id);
    }
    refused(&mut peer, &cancel(12), json!(12), ErrorCode::ExecutorBusy);

    // An answer frees a place.
    let last = open.pop().unwrap();
    peer.reply::<methods::ToolCancel>(last, &ToolCancelResult::default());
    peer.next_frame().unwrap();
    assert!(peer.accept(&cancel(13)).is_some());
    assert!(peer.accept(&list("4")).is_none(), "still over the plain bound");
}

#[test]
fn f70_a_backlog_in_one_direction_does_not_hold_up_answers_in_the_other() {
    // The harness has not read for long: 4096 previews and 64 requests of the executor's wait.
    let mut peer = executor();
    let progress = ToolProgressParams { session_id: "s".into(), tool_call_id: "c".into(), message: "m".into() };
    for tag in 0..1000 {
        peer.notify::<methods::ToolProgress>(&progress).unwrap();
        let ended = crate::contract::SessionEndedParams { session_id: "s".into(), reason: String::new() };
        peer.request::<methods::SessionEnded>(Time::ORIGIN, &ended, tag).unwrap();
    }
    // Short calls come in and are answered, each of them.
    for id in 0..100 {
        let Some(Event::Request { id, .. }) = peer.accept(&list(&id.to_string())) else { panic!("taken") };
        peer.reply::<methods::ProcessList>(id, &ProcessListResult::default());
    }
    let mut answers = 0;
    while let Some(frame) = peer.next_frame() {
        answers += usize::from(frame.contains(r#""result""#));
    }
    assert_eq!(answers, 100);
}
