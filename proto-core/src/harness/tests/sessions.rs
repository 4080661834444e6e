//! Sessions: bound, accepted, ready, stopped, ended, resumed.

use super::*;

#[test]
fn a_session_is_bound_before_it_is_sent() {
    let mut rig = Rig::up();
    rig.ask_assign("s", 1);
    assert_eq!(rig.bound(), ["s"]);
    let (id, params) = rig.request("session.assign");
    assert!(params["work_id"].as_str().unwrap().starts_with("work_"));
    assert!(params["lease"]["token"].as_str().unwrap().starts_with("lease_"));
    // Ready, and a call's result, may come before the answer.
    rig.peer.wait_ready(&session("s"), 2).unwrap();
    let ready = json!({"session_id": "s", "work_id": params["work_id"], "lease_token": params["lease"]["token"]});
    assert_eq!(rig.ask("session.ready", ready.clone())["result"], json!({"accepted": true}));
    assert_eq!(rig.done(2), Ok(Completion::Ready));
    assert!(matches!(rig.event(), Event::SessionReady(id) if id == session("s")));
    rig.reply(&id, json!({"accepted": true, "session_id": "s"}));
    assert!(matches!(rig.done(1), Ok(Completion::Result(_))));
    // Said twice, told once.
    assert_eq!(rig.ask("session.ready", ready)["result"], json!({"accepted": true}));
    assert!(rig.events.is_empty());
    rig.peer.wait_ready(&session("s"), 3).unwrap();
    rig.drain();
    assert_eq!(rig.done(3), Ok(Completion::Ready));
}

#[test]
fn one_session_is_bound_once() {
    let mut rig = Rig::with_session("s");
    let params = SessionAssignParams { session_id: session("s"), ..SessionAssignParams::default() };
    assert_eq!(rig.peer.assign(rig.now, params, 9), Err(CallError::SessionExists(session("s"))));
    assert!(rig.peer.wait_ready(&session("t"), 9).is_err());
    assert!(rig.peer.call_tool(rig.now, call_params("t", "c"), 9).is_err());
    assert!(rig.peer.stop_session(rig.now, stop_params("t"), 9).is_err());
    rig.drain();
    assert!(rig.events.is_empty() && rig.frames.is_empty());
}

#[test]
fn an_assignment_that_is_turned_down_leaves_nothing() {
    let mut rig = Rig::up();
    rig.ask_assign("s", 1);
    rig.peer.wait_ready(&session("s"), 2).unwrap();
    let (id, _) = rig.request("session.assign");
    rig.reply(&id, json!({"accepted": false, "session_id": ""}));
    assert_eq!(rig.done(1), Err(CallError::AssignRejected));
    assert!(matches!(rig.done(2), Err(CallError::SessionEnded { .. })));
    rig.ask_assign("s", 3);
    let (id, _) = rig.request("session.assign");
    rig.fail(&id, -32009);
    assert!(matches!(rig.done(3), Err(CallError::Request(error)) if error.is_retryable()));
    assert!(rig.bound().is_empty() && rig.frames.is_empty());
}

#[test]
fn calls_of_a_session_that_was_not_accepted_end_with_it() {
    let mut rig = Rig::up();
    rig.ask_assign("s", 1);
    rig.call("s", "c", 2);
    let (id, _) = rig.request("session.assign");
    rig.fail(&id, -32009);
    assert!(rig.done(1).is_err());
    assert!(matches!(rig.done(2), Err(CallError::SessionEnded { .. })), "it cannot have run");
    assert_eq!(rig.peer.open_calls(), 0);

    rig.ask_assign("s", 3);
    rig.wait(seconds(10));
    rig.call("s", "c", 4);
    rig.wait(seconds(20));
    assert!(rig.done(3).is_err());
    assert!(matches!(rig.done(4), Err(CallError::OutcomeUnknown(_))), "it may have");
    assert_eq!(rig.peer.open_calls(), 0);
}

#[test]
fn an_id_that_is_bound_again_is_another_session() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.stop("s", 3);
    let (stop, _) = rig.request("session.stop");
    rig.ask("session.ended", json!({"session_id": "s", "reason": "over"}));
    rig.events.clear();
    // Bound again, with a call of the same id; neither the stop nor the call of the first has an answer yet.
    rig.wait(seconds(20));
    rig.frames.retain(|frame| frame["method"] == "session.assign");
    rig.assign("s");
    rig.call("s", "c", 4);
    rig.feed(Input::Alive);
    rig.wait(seconds(15));
    assert!(rig.events.is_empty(), "time-outs of the first: {:?}", rig.events);
    rig.fail(&stop, -32007);
    assert_eq!(rig.bound(), ["s"]);
    rig.report("s", "c", "second");
    assert_eq!(text(rig.done(4)), "second");
}

#[test]
fn an_assignment_without_an_answer_is_called_off() {
    let mut rig = Rig::up();
    rig.ask_assign("s", 1);
    let (id, _) = rig.request("session.assign");
    rig.wait(seconds(30));
    assert!(matches!(rig.done(1), Err(CallError::Request(RequestError::Timeout(_)))));
    assert!(rig.bound().is_empty());
    assert_eq!(rig.request("session.stop").1["session_id"], "s", "it may have been taken");
    rig.reply(&id, json!({"accepted": true, "session_id": "s"}));
    assert!(rig.events.is_empty());
    assert_eq!(rig.ask("session.ended", json!({"session_id": "s", "reason": ""}))["result"]["accepted"], true);
    // So is one whose answer cannot be read.
    rig.ask_assign("t", 2);
    let (id, _) = rig.request("session.assign");
    rig.reply(&id, json!(7));
    assert!(matches!(rig.done(2), Err(CallError::Request(RequestError::Malformed(_)))));
    assert!(rig.has("session.stop"));
}

#[test]
fn a_session_stopped_before_it_was_accepted_is_stopped_again_when_it_is() {
    let mut rig = Rig::up();
    rig.ask_assign("s", 1);
    let (assigned, _) = rig.request("session.assign");
    rig.stop("s", 2);
    assert!(matches!(rig.done(1), Err(CallError::SessionEnded { .. })));
    let (stop, _) = rig.request("session.stop");
    rig.fail(&stop, -32007); // not active yet: it knows nothing of it
    assert_eq!(rig.done(2), Ok(Completion::Ended));
    assert!(matches!(rig.event(), Event::SessionEnded { .. }));
    rig.reply(&assigned, json!({"accepted": true, "session_id": "s"}));
    assert_eq!(rig.request("session.stop").1["session_id"], "s");
}

#[test]
fn a_stop_ends_with_the_executors_own_word() {
    let mut rig = Rig::with_session("s");
    rig.stop("s", 2);
    rig.stop("s", 3);
    assert_eq!(rig.accept("session.stop")["reason"], "done");
    assert!(!rig.has("session.stop"), "asked once");
    assert!(rig.events.is_empty());
    assert!(matches!(rig.peer.call_tool(rig.now, call_params("s", "c"), 9), Err(CallError::SessionEnded { .. })));
    rig.ask("session.ended", json!({"session_id": "s", "reason": "over"}));
    assert_eq!((rig.done(2), rig.done(3)), (Ok(Completion::Ended), Ok(Completion::Ended)));
    assert!(matches!(rig.event(), Event::SessionEnded { reason, .. } if reason == "over"));
    assert!(rig.bound().is_empty());
}

#[test]
fn a_stop_that_nobody_obeys_ends_all_the_same() {
    let mut rig = Rig::with_session("s");
    let params = SessionStopParams { deadline_ms: Some(60_000), ..stop_params("s") };
    rig.peer.stop_session(rig.now, params, 2).unwrap();
    rig.drain();
    rig.accept("session.stop");
    for _ in 0..6 {
        rig.wait(seconds(11));
        rig.feed(Input::Alive);
    }
    assert!(rig.events.is_empty(), "within what was asked, and an allowance");
    rig.wait(seconds(5));
    assert_eq!(rig.done(2), Ok(Completion::Ended));
    assert!(matches!(rig.event(), Event::SessionEnded { .. }));
}

#[test]
fn an_end_that_nobody_asked_for_ends_everything_of_the_session() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "a", 2);
    rig.call("s", "b", 3);
    rig.peer.wait_ready(&session("s"), 4).unwrap();
    let answer = rig.ask("session.ended", json!({"session_id": "s", "reason": "crashed"}));
    assert_eq!(answer["result"]["accepted"], true);
    for token in [2, 3] {
        let Err(CallError::OutcomeUnknown(reason)) = rig.done(token) else { panic!("unknown") };
        assert!(reason.contains("crashed"), "{reason}");
    }
    assert!(matches!(rig.done(4), Err(CallError::SessionEnded { .. })));
    assert!(matches!(rig.event(), Event::SessionEnded { .. }));
    // An end that is reported again is accepted again.
    let answer = rig.ask("session.ended", json!({"session_id": "s", "reason": "crashed"}));
    assert_eq!(answer["result"]["accepted"], true);
    assert!(rig.events.is_empty());
}

#[test]
fn what_is_said_about_a_session_of_nobody_is_refused() {
    let mut rig = Rig::up();
    let ready = json!({"session_id": "s", "work_id": "w", "lease_token": "t"});
    assert_eq!(rig.ask("session.ready", ready)["error"]["code"], ErrorCode::SessionNotActive.number());
    assert_eq!(rig.report("s", "c", "x")["error"]["code"], ErrorCode::SessionNotActive.number());
    assert!(rig.events.is_empty());
}

#[test]
fn an_assignment_waits_for_an_executor_that_is_away() {
    let mut rig = Rig::up();
    rig.disconnect();
    rig.event();
    rig.ask_assign("s", 1);
    assert!(rig.frames.is_empty() && rig.events.is_empty());
    rig.attach(resume(&[]));
    let first = rig.accept("session.assign");
    rig.event();
    assert!(rig.done(1).is_ok());
    // One whose answer was lost is sent again, the same to the letter.
    rig.ask_assign("t", 2);
    let sent = rig.request("session.assign").1;
    rig.reconnect(&["s"]);
    assert_eq!(rig.accept("session.assign"), sent);
    assert_ne!(sent["work_id"], first["work_id"]);
    rig.events.retain(|event| matches!(event, Event::Done { .. }));
    assert!(rig.done(2).is_ok());
    assert_eq!(rig.bound(), ["s", "t"]);
}

#[test]
fn a_session_that_the_executor_came_back_without_has_ended() {
    let mut rig = Rig::with_session("s");
    rig.assign("t");
    rig.call("s", "c", 2);
    rig.reconnect(&["t"]);
    rig.events.retain(|event| !matches!(event, Event::Disconnected | Event::Registered { .. }));
    assert!(matches!(rig.done(2), Err(CallError::OutcomeUnknown(_))));
    assert!(matches!(rig.event(), Event::SessionEnded { session_id, .. } if session_id == session("s")));
    assert_eq!(rig.bound(), ["t"]);
}

#[test]
fn f66_sessions_that_nobody_here_knows_are_stopped() {
    let mut rig = Rig::new(Config::default());
    rig.attach(resume(&["old", "older"]));
    assert_eq!(rig.accept("session.stop")["session_id"], "old");
    assert_eq!(rig.accept("session.stop")["session_id"], "older");
    rig.events.clear();
    assert_eq!(rig.ask("session.ended", json!({"session_id": "old", "reason": ""}))["result"]["accepted"], true);
    assert!(rig.events.is_empty(), "it was nobody's");
}

#[test]
fn a_stop_is_sent_again_after_a_reconnect() {
    let mut rig = Rig::with_session("s");
    rig.stop("s", 2);
    rig.reconnect(&["s"]);
    rig.events.clear();
    rig.accept("session.stop");
    rig.ask("session.ended", json!({"session_id": "s", "reason": "over"}));
    assert_eq!(rig.done(2), Ok(Completion::Ended));
    // Asked while nothing is connected it waits.
    let mut rig = Rig::with_session("s");
    rig.disconnect();
    rig.stop("s", 2);
    assert!(rig.frames.is_empty());
    rig.attach(resume(&["s"]));
    rig.accept("session.stop");
}

#[test]
fn an_assignment_is_waited_for_as_long_as_it_was_given() {
    let mut rig = Rig::up();
    let assignment = |id: &str, deadline_ms| SessionAssignParams {
        session_id: session(id),
        deadline_ms: Some(deadline_ms),
        ..SessionAssignParams::default()
    };
    rig.peer.assign(rig.now, assignment("s", 50_000), 1).unwrap();
    rig.peer.assign(rig.now, assignment("t", 1_000), 2).unwrap();
    rig.peer.assign(rig.now, assignment("u", -1), 3).unwrap();
    rig.drain();
    rig.wait(seconds(30));
    assert!(rig.done(2).is_err() && rig.done(3).is_err(), "as any request");
    rig.feed(Input::Alive);
    rig.wait(seconds(24));
    assert!(rig.events.is_empty());
    assert_eq!(rig.accept("session.assign")["session_id"], "s");
    assert!(rig.done(1).is_ok());
    rig.peer.assign(rig.now, assignment("v", 50_000), 4).unwrap();
    for _ in 0..2 {
        rig.feed(Input::Alive);
        rig.wait(seconds(28));
    }
    assert!(rig.done(4).is_err(), "and not for ever");
}

#[test]
fn readiness_shows_the_assignment_that_it_is_about() {
    let mut rig = Rig::up();
    rig.ask_assign("s", 1);
    let first = rig.accept("session.assign");
    rig.stop("s", 2);
    rig.ask("session.ended", json!({"session_id": "s", "reason": ""}));
    rig.ask_assign("s", 3);
    let second = rig.accept("session.assign");
    rig.events.clear();
    let ready = |of: &Value, lease: &Value| json!({"session_id": "s", "work_id": of["work_id"], "lease_token": lease});
    for (of, lease) in
        [(&first, &first["lease"]["token"]), (&second, &first["lease"]["token"]), (&first, &second["lease"]["token"])]
    {
        let answer = rig.ask("session.ready", ready(of, lease));
        assert_eq!(answer["error"]["code"], ErrorCode::SessionNotActive.number(), "{answer}");
        assert!(rig.events.is_empty());
    }
    let answer = rig.ask("session.ready", ready(&second, &second["lease"]["token"]));
    assert_eq!(answer["result"]["accepted"], true);
    assert!(matches!(rig.event(), Event::SessionReady(_)));
}

#[test]
fn each_binding_of_an_id_has_a_number_of_its_own() {
    let mut rig = Rig::with_session("s");
    let first = rig.peer.binding(&session("s"));
    assert!(first.is_some() && rig.peer.binding(&session("t")).is_none());
    rig.ask("session.ended", json!({"session_id": "s", "reason": ""}));
    rig.events.clear();
    assert_eq!(rig.peer.binding(&session("s")), None);
    rig.assign("s");
    assert_ne!(rig.peer.binding(&session("s")), first);
}

#[test]
fn a_session_that_is_dropped_here_is_stopped_there() {
    // The end that was asked for is not reported in time, or the stop has no answer.
    for answered in [true, false] {
        let mut rig = Rig::with_session("s");
        rig.stop("s", 2);
        if answered {
            rig.accept("session.stop");
        } else {
            rig.request("session.stop");
        }
        rig.wait(seconds(36));
        assert_eq!(rig.done(2), Ok(Completion::Ended));
        assert_eq!(rig.request("session.stop").1["session_id"], "s");
    }
    // One that the executor says it does not know is over.
    let mut rig = Rig::with_session("s");
    rig.stop("s", 2);
    let (id, _) = rig.request("session.stop");
    rig.fail(&id, ErrorCode::SessionNotActive.number());
    assert_eq!(rig.done(2), Ok(Completion::Ended));
    assert!(!rig.has("session.stop"));
}
