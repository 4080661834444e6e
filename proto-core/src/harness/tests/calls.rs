//! Tool calls: one id is one call, and every result is recorded once.

use super::*;
use crate::contract::ToolCancelParams;

#[test]
fn a_call_ends_with_its_result() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    assert_eq!(rig.accept("tool.call")["tool_call_id"], "c");
    assert!(rig.events.is_empty(), "the acknowledgement is no result");
    assert_eq!(rig.report("s", "c", "hello")["result"], json!({"accepted": true}));
    assert_eq!(text(rig.done(2)), "hello");
    assert_eq!(rig.peer.open_calls(), 0);
}

#[test]
fn an_id_is_made_up_when_there_is_none() {
    let mut rig = Rig::with_session("s");
    let id = rig.peer.call_tool(rig.now, call_params("s", ""), 2).unwrap();
    let other = rig.peer.call_tool(rig.now, call_params("s", ""), 3).unwrap();
    assert!(id.as_str().starts_with("call_"));
    assert_ne!(id, other);
    rig.drain();
    assert_eq!(rig.request("tool.call").1["tool_call_id"], id.as_str());
}

#[test]
fn a_result_may_come_before_the_acknowledgement() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.report("s", "c", "hello");
    assert_eq!(text(rig.done(2)), "hello");
    rig.accept("tool.call");
    assert!(rig.events.is_empty());
}

#[test]
fn a_repeated_id_joins_the_call_or_gets_its_result() {
    let mut rig = Rig::with_session("s");
    for token in [2, 3, 4] {
        rig.call("s", "c", token);
    }
    rig.accept("tool.call");
    assert!(!rig.has("tool.call"), "sent once");
    rig.report("s", "c", "hello");
    for token in [2, 3, 4] {
        assert_eq!(text(rig.done(token)), "hello");
    }
    rig.call("s", "c", 5);
    assert_eq!(text(rig.done(5)), "hello");
    assert!(rig.frames.is_empty());
}

#[test]
fn a_result_that_comes_twice_is_acknowledged_twice_and_recorded_once() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.report("s", "c", "first");
    assert_eq!(rig.report("s", "c", "second")["result"], json!({"accepted": true}));
    assert_eq!(text(rig.done(2)), "first");
    assert!(rig.events.is_empty());
    rig.call("s", "c", 3);
    assert_eq!(text(rig.done(3)), "first");
}

#[test]
fn a_result_of_an_unknown_call_is_refused() {
    let mut rig = Rig::with_session("s");
    assert_eq!(rig.report("s", "never", "x")["error"]["code"], ErrorCode::NotFound.number());
    assert!(rig.events.is_empty());
}

#[test]
fn a_refused_call_is_told_and_its_id_is_free_again() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.call("s", "c", 3);
    let (id, _) = rig.request("tool.call");
    rig.fail(&id, -32009);
    for token in [2, 3] {
        assert!(matches!(rig.done(token), Err(CallError::Request(RequestError::Refused(_)))));
    }
    rig.call("s", "c", 4);
    let (id, _) = rig.request("tool.call");
    rig.reply(&id, json!({"accepted": false}));
    assert!(matches!(rig.done(4), Err(CallError::Request(RequestError::Refused(_)))));
    assert_eq!(rig.peer.open_calls(), 0);
}

#[test]
fn f76_a_call_without_an_acknowledgement_is_told_and_not_sent_again_by_itself() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.request("tool.call");
    rig.wait(seconds(30));
    assert!(matches!(rig.done(2), Err(CallError::Request(RequestError::Timeout(_)))));
    rig.feed(Input::Alive);
    rig.wait(seconds(30));
    assert!(!rig.has("tool.call"));
    // It ran all the same: its result is kept for who asks for it.
    assert_eq!(rig.report("s", "c", "late")["result"], json!({"accepted": true}));
    assert!(rig.events.is_empty());
    rig.call("s", "c", 3);
    assert_eq!(text(rig.done(3)), "late");
}

#[test]
fn calls_that_were_not_acknowledged_are_sent_again_after_a_reconnect() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "acknowledged", 2);
    rig.accept("tool.call");
    rig.call("s", "open", 3);
    let sent = rig.request("tool.call").1;
    rig.reconnect(&["s"]);
    assert_eq!(rig.accept("tool.call"), sent);
    assert!(!rig.has("tool.call"), "the other one was acknowledged");
    rig.events.retain(|event| matches!(event, Event::Done { .. }));
    rig.report("s", "open", "a");
    rig.report("s", "acknowledged", "b");
    assert_eq!((text(rig.done(3)), text(rig.done(2))), ("a".to_owned(), "b".to_owned()));
}

/// The run before may have taken the session without its answer having come, and begun the call.
#[test]
fn a_program_that_was_started_anew_does_not_get_what_the_run_before_may_have_begun() {
    for (sent, known) in [(true, false), (true, true), (false, false)] {
        let mut rig = Rig::up();
        rig.ask_assign("s", 1);
        if sent {
            rig.call("s", "c", 2);
        }
        rig.disconnect();
        rig.frames.clear();
        rig.events.clear();
        rig.attach(if known { resume(&[]) } else { Value::Null });
        rig.request_answered("r");
        rig.events.retain(|event| matches!(event, Event::Done { .. }));
        if !sent || known {
            // The same program keeps account of what it has begun.
            assert!(rig.has("session.assign"));
            assert_eq!((rig.has("tool.call"), rig.events.len()), (sent, 0));
            continue;
        }
        assert!(rig.frames.is_empty() && rig.bound().is_empty(), "{:?}", rig.frames);
        let outcomes: Vec<_> = rig.events.drain(..).collect();
        assert_eq!(outcomes.len(), 2, "{outcomes:?}");
        let unknown =
            |event: &Event| matches!(event, Event::Done { token: 2, outcome: Err(CallError::OutcomeUnknown(_)) });
        assert!(outcomes.iter().any(unknown), "{outcomes:?}");
    }
}

#[test]
fn a_call_waits_for_an_executor_that_is_away() {
    let mut rig = Rig::with_session("s");
    rig.disconnect();
    rig.call("s", "c", 2);
    assert!(rig.frames.is_empty());
    rig.attach(resume(&["s"]));
    rig.accept("tool.call");
    rig.events.clear();
    rig.report("s", "c", "back");
    assert_eq!(text(rig.done(2)), "back");
}

#[test]
fn open_calls_are_bounded_over_all_sessions() {
    let mut rig = Rig::new(Config { max_open_calls: 2, ..Config::default() });
    rig.attach(Value::Null);
    rig.events.clear();
    rig.assign("s");
    rig.assign("t");
    rig.call("s", "a", 2);
    rig.call("t", "b", 3);
    let refused = rig.peer.call_tool(rig.now, call_params("s", "c"), 4);
    assert_eq!(refused, Err(CallError::Send(Misuse::Backlog(2))));
    rig.call("s", "a", 5); // joining one is no further one
    rig.report("s", "a", "x");
    rig.call("s", "c", 6);
    rig.ask("session.ended", json!({"session_id": "t", "reason": ""}));
    assert_eq!(rig.peer.open_calls(), 1);
}

#[test]
fn a_call_over_the_frame_limit_is_refused_here() {
    let mut rig = Rig::with_session("s");
    let mut params = call_params("s", "c");
    params.input = crate::contract::Json::new(&"x".repeat(70_000)).unwrap();
    let refused = rig.peer.call_tool(rig.now, params, 2);
    assert!(matches!(refused, Err(CallError::Send(Misuse::FrameTooLarge { .. }))));
    assert_eq!(rig.peer.open_calls(), 0);
    rig.call("s", "c", 3);
    assert!(rig.has("tool.call"), "the id was not used up");
}

#[test]
fn a_cancel_has_an_answer_and_the_call_its_own_end() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.accept("tool.call");
    let params = ToolCancelParams { session_id: session("s"), tool_call_id: call("c"), ..ToolCancelParams::default() };
    rig.peer.cancel_tool(rig.now, &params, 3).unwrap();
    rig.drain();
    let (id, _) = rig.request("tool.cancel");
    rig.reply(&id, json!({"canceled": true}));
    assert!(matches!(rig.done(3), Ok(Completion::Result(_))));
    rig.report("s", "c", "half");
    assert_eq!(text(rig.done(2)), "half");
    rig.disconnect();
    assert_eq!(rig.peer.cancel_tool(rig.now, &params, 4), Err(CallError::Send(Misuse::NotConnected)));
    let elsewhere = ToolCancelParams { session_id: session("t"), ..params };
    assert!(matches!(rig.peer.cancel_tool(rig.now, &elsewhere, 5), Err(CallError::SessionEnded { .. })));
}

#[test]
fn a_result_that_is_no_longer_kept_is_told_so() {
    let mut rig = Rig::with_session("s");
    let filler = "x".repeat(48 << 10);
    for n in 0..100 {
        rig.call("s", &format!("c{n}"), 2);
        rig.accept("tool.call");
        rig.report("s", &format!("c{n}"), &filler);
        assert!(rig.done(2).is_ok());
    }
    let repeated = rig.peer.call_tool(rig.now, call_params("s", "c0"), 3);
    assert_eq!(repeated, Err(CallError::ResultForgotten));
    assert_eq!(rig.report("s", "c0", "again")["result"], json!({"accepted": true}));
}

fn cancel_params(session_id: &str, id: &str) -> ToolCancelParams {
    ToolCancelParams { session_id: session(session_id), tool_call_id: call(id), ..ToolCancelParams::default() }
}

/// Cancels a call that the machine takes back by itself.
#[track_caller]
fn cancel_here(rig: &mut Rig, id: &str, token: u64) {
    rig.peer.cancel_tool(rig.now, &cancel_params("s", id), token).unwrap();
    rig.drain();
    let waiters = rig.events.len() - 1;
    let last = rig.events.remove(waiters);
    let Some(Event::Done { token: told, outcome: Ok(Completion::Result(result)) }) = last else {
        panic!("{last:?}");
    };
    assert_eq!(told, token);
    assert!(matches!(*result, AnyResult::ToolCancel(result) if result.canceled));
}

#[track_caller]
fn canceled(outcome: Result<Completion, CallError>) -> String {
    let Ok(Completion::Tool(result)) = &outcome else { panic!("{outcome:?}") };
    assert_eq!((&result.outcome, result.is_error), (&crate::contract::ToolOutcome::Canceled, true));
    text(outcome)
}

fn with_bound(max_open_calls: usize) -> Rig {
    let mut rig = Rig::new(Config { max_open_calls, ..Config::default() });
    rig.attach(Value::Null);
    rig.request_answered("r");
    rig.events.clear();
    rig.assign("s");
    rig
}

/// A call with 10 KB of input.
fn ask_large(rig: &mut Rig, id: &str, token: u64) -> Result<ToolCallId, CallError> {
    let mut params = call_params("s", id);
    params.input = crate::contract::Json::new(&"x".repeat(10_000)).unwrap();
    let asked = rig.peer.call_tool(rig.now, params, token);
    rig.drain();
    asked
}

#[test]
fn calls_that_are_not_acknowledged_are_bounded_in_bytes() {
    let mut rig = Rig::new(Config { max_unacknowledged_bytes: 20_000, ..Config::default() });
    rig.attach(Value::Null);
    rig.request_answered("r");
    rig.events.clear();
    rig.assign("s");
    ask_large(&mut rig, "a", 1).unwrap();
    ask_large(&mut rig, "b", 2).unwrap();
    let busy = Err(CallError::Send(Misuse::Backlog(2)));
    assert_eq!(ask_large(&mut rig, "c", 3), busy);
    // Once it is acknowledged nothing is kept of it; nor when its result overtakes that.
    rig.accept("tool.call");
    ask_large(&mut rig, "c", 3).unwrap();
    assert_eq!(ask_large(&mut rig, "d", 4), Err(CallError::Send(Misuse::Backlog(3))));
    rig.report("s", "b", "done");
    ask_large(&mut rig, "d", 4).unwrap();
    // While nothing is connected the same holds.
    rig.disconnect();
    assert!(ask_large(&mut rig, "e", 5).is_err());
    let cancel = ToolCancelParams { session_id: session("s"), tool_call_id: call("d"), ..ToolCancelParams::default() };
    rig.peer.cancel_tool(rig.now, &cancel, 6).unwrap();
    ask_large(&mut rig, "e", 5).unwrap();
    assert!(ask_large(&mut rig, "f", 7).is_err());
    // What ends without a result counts no longer.
    rig.attach(resume(&["s"]));
    rig.wait(seconds(31));
    ask_large(&mut rig, "f", 7).unwrap();
}

/// What was taken is sent again on a new connection, all of it.
#[test]
fn calls_up_to_the_bound_are_all_sent_again() {
    let mut rig = Rig::with_session("s");
    rig.disconnect();
    let mut taken = 0;
    while ask_large(&mut rig, &format!("c{taken:04}"), taken).is_ok() {
        taken += 1;
        assert!(taken < 4_000);
    }
    rig.events.clear();
    rig.attach(resume(&["s"]));
    for n in 0..taken {
        assert_eq!(rig.accept("tool.call")["tool_call_id"], format!("c{n:04}"));
    }
    assert_eq!(rig.peer.open_calls() as u64, taken);
}

#[test]
fn a_call_that_can_never_be_sent_is_refused_also_while_the_executor_is_away() {
    let mut rig = Rig::with_session("s");
    rig.disconnect();
    let mut params = call_params("s", "c");
    params.input = crate::contract::Json::new(&"x".repeat(70_000)).unwrap();
    let refused = rig.peer.call_tool(rig.now, params, 2);
    assert!(matches!(refused, Err(CallError::Send(Misuse::FrameTooLarge { .. }))));
    rig.call("s", "d", 3);
    rig.attach(resume(&["s"]));
    assert_eq!(rig.bound(), ["s"]);
    assert_eq!(rig.accept("tool.call")["tool_call_id"], "d");
}

#[test]
fn a_call_that_cannot_be_sent_again_ends_alone() {
    const FITS: u64 = 64 + 4096;
    let mut rig = with_bound(10_000);
    rig.disconnect();
    for n in 0..FITS + 10 {
        rig.call("s", &format!("c{n:04}"), n);
    }
    rig.ask_assign("t", 9_000);
    rig.events.clear();
    rig.attach(resume(&["s", "t"]));
    rig.request_answered("r");
    assert!(matches!(rig.event(), Event::Registered { .. }));
    for n in FITS..FITS + 10 {
        assert_eq!(rig.done(n), Err(CallError::Send(Misuse::Backlog(4096))), "nothing was sent");
    }
    // The assignment has no place either. The executor says that it has the session: it is told to stop it.
    assert!(matches!(rig.done(9_000), Err(CallError::SessionEnded { .. })));
    assert!(matches!(rig.event(), Event::SessionEnded { .. }));
    assert_eq!(rig.request("session.stop").1["session_id"], "t");
    assert_eq!((rig.bound(), rig.peer.open_calls()), (vec!["s".to_owned()], 4160));
    // Those that may have arrived are not known to have not: a result that comes late is taken.
    rig.disconnect();
    rig.frames.clear();
    rig.call("s", "a", 8_000);
    rig.events.clear();
    rig.attach(resume(&["s"]));
    rig.request_answered("r");
    rig.event();
    assert!(matches!(rig.done(FITS - 1), Err(CallError::OutcomeUnknown(_))));
    assert_eq!(rig.peer.open_calls(), 4160);
    assert_eq!(rig.report("s", "c4159", "late")["result"], json!({"accepted": true}));
    assert_eq!(rig.request("tool.call").1["tool_call_id"], "a");
    assert_eq!(rig.report("s", "a", "x")["result"], json!({"accepted": true}));
    assert_eq!(text(rig.done(8_000)), "x");
    rig.call("s", "c4159", 8_001);
    assert_eq!(text(rig.done(8_001)), "late");
}

#[test]
fn a_cancel_takes_back_a_call_that_waits_for_its_turn() {
    let mut rig = with_bound(10_000);
    for n in 0..70 {
        rig.call("s", &format!("c{n}"), n);
    }
    rig.events.clear();
    cancel_here(&mut rig, "c69", 100);
    assert!(canceled(rig.done(69)).contains("did not run"));
    assert!(!rig.has("tool.cancel"), "the executor has never heard of it");
    assert_eq!(rig.peer.open_calls(), 69);
    let sent: Vec<_> = (0..69).map(|_| rig.accept("tool.call")["tool_call_id"].clone()).collect();
    assert!(!sent.contains(&json!("c69")) && !rig.has("tool.call"));
    // One id is one call, and this was its end.
    rig.call("s", "c69", 101);
    canceled(rig.done(101));
    // One that is on its way is followed by its cancel.
    rig.call("s", "d", 102);
    rig.peer.cancel_tool(rig.now, &cancel_params("s", "d"), 103).unwrap();
    rig.drain();
    let order: Vec<_> = rig.frames.iter().map(|frame| frame["method"].clone()).collect();
    assert_eq!(order, ["tool.call", "tool.cancel"]);
}

#[test]
fn a_cancel_while_the_executor_is_away_is_the_end_of_a_call_that_was_not_acknowledged() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "sent", 2);
    rig.call("s", "acknowledged", 3);
    rig.request("tool.call");
    rig.accept("tool.call");
    rig.disconnect();
    rig.call("s", "unsent", 4);
    rig.events.clear();
    cancel_here(&mut rig, "unsent", 10);
    assert!(canceled(rig.done(4)).contains("did not run"));
    cancel_here(&mut rig, "sent", 11);
    assert!(canceled(rig.done(2)).contains("may have begun"));
    let asked = rig.peer.cancel_tool(rig.now, &cancel_params("s", "acknowledged"), 12);
    assert_eq!(asked, Err(CallError::Send(Misuse::NotConnected)), "the executor runs it and must be asked");
    assert_eq!(rig.peer.open_calls(), 1);
    rig.attach(resume(&["s"]));
    rig.events.clear();
    assert!(!rig.has("tool.call"), "neither is sent again");
    let (id, params) = rig.request("tool.cancel");
    assert_eq!(params["tool_call_id"], "sent", "it may have arrived, and is to end then");
    assert!(!rig.has("tool.cancel"));
    rig.reply(&id, json!({"canceled": true}));
    // What it says of it after all is acknowledged; the call has its end.
    assert_eq!(rig.report("s", "sent", "half")["result"], json!({"accepted": true}));
    assert!(rig.events.is_empty());
    rig.call("s", "sent", 13);
    canceled(rig.done(13));
    // Said once.
    rig.reconnect(&["s"]);
    assert!(!rig.has("tool.cancel"));
}

#[test]
fn a_call_that_was_given_up_is_sent_again_only_for_who_asks_again() {
    for malformed in [false, true] {
        let mut rig = Rig::with_session("s");
        rig.call("s", "c", 2);
        let (id, _) = rig.request("tool.call");
        if malformed {
            rig.reply(&id, json!(7));
        } else {
            rig.wait(seconds(30));
        }
        assert!(matches!(rig.done(2), Err(CallError::Request(_))));
        assert_eq!(rig.peer.open_calls(), 0, "nobody waits for it");
        rig.reconnect(&["s"]);
        rig.events.clear();
        assert!(!rig.has("tool.call"), "its caller does not know of it any more");
        // A second try under the same id is the same call.
        rig.call("s", "c", 3);
        rig.accept("tool.call");
        assert_eq!(rig.peer.open_calls(), 1);
        rig.report("s", "c", "once");
        assert_eq!(text(rig.done(3)), "once");
        assert_eq!(rig.peer.open_calls(), 0);
    }
}

#[test]
fn calls_that_were_given_up_are_bounded_and_take_nobodys_place() {
    let mut rig = with_bound(64);
    for n in 0..1_088 {
        rig.call("s", &format!("c{n}"), 2);
        let (id, _) = rig.request("tool.call");
        rig.reply(&id, json!(7));
    }
    assert_eq!(rig.peer.open_calls(), 0);
    assert_eq!(rig.report("s", "c63", "late")["error"]["code"], ErrorCode::NotFound.number());
    assert_eq!(rig.report("s", "c64", "late")["result"], json!({"accepted": true}));
    rig.ask("session.ended", json!({"session_id": "s", "reason": ""}));
    assert_eq!(rig.peer.open_calls(), 0);
}
