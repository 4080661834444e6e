//! Assigned, ready, stopped, ended; and what a lost connection means to each.

use super::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// The next event, which must be this session's stop.
#[track_caller]
fn stopped(rig: &mut Rig, id: &str) -> StopCause {
    match rig.event() {
        Event::SessionStop { session_id, reason, .. } if session_id == session(id) => reason,
        other => panic!("no stop of {id}: {other:?}"),
    }
}

#[test]
fn a_session_is_accepted_then_ready() {
    let mut rig = Rig::up();
    let asked = rig.ask_assign("s");
    assert!(matches!(rig.event(), Event::SessionAssign { params, .. } if params.work_id.as_str() == "work-s"));
    assert_eq!(rig.answered(&asked), None, "the application decides");
    assert!(rig.active().is_empty());
    rig.accept_offer("s").unwrap();
    rig.drain();
    assert_eq!(rig.answer(&asked)["result"]["accepted"], true);
    assert_eq!(rig.active(), ["s"]);
    rig.executor.session_ready(rig.now, &session("s")).unwrap();
    rig.drain();
    let ready = rig.accept("session.ready");
    assert_eq!(ready, json!({"session_id": "s", "work_id": "work-s", "lease_token": "lease-s"}));
}

#[test]
fn readiness_may_come_before_the_answer_is_written() {
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.accept_offer("s").unwrap();
    rig.executor.session_ready(rig.now, &session("s")).unwrap();
    rig.drain();
    assert!(rig.frames[0].get("result").is_some() && rig.frames[1]["method"] == "session.ready", "in this order");
    assert!(rig.executor.session_ready(rig.now, &session("t")).is_err());
}

#[test]
fn a_session_is_turned_down_with_an_error_or_without() {
    let mut rig = Rig::up();
    let asked = rig.ask_assign("s");
    rig.reject_offer("s", None).unwrap();
    rig.drain();
    assert_eq!(rig.answer(&asked)["result"], json!({"accepted": false, "session_id": "s"}));

    let asked = rig.ask_assign("s");
    let error = ErrorCode::ExecutorBusy.error("16 sessions are here already");
    rig.reject_offer("s", Some(&error)).unwrap();
    rig.drain();
    assert_eq!(rig.code(&asked), -32009);
    assert!(rig.accept_offer("s").is_err(), "it is gone");
    assert!(rig.reject_offer("s", None).is_err());
    assert_eq!(rig.executor.deadline().unwrap().1, Reason::Heartbeat, "no deadline is left of it");
}

#[test]
fn a_repeated_assignment_is_one_session() {
    let mut rig = Rig::up();
    let asked = [rig.ask_assign("s"), rig.ask_assign("s")];
    assert!(matches!(rig.event(), Event::SessionAssign { .. }));
    assert!(rig.events.is_empty(), "no second set-up");
    rig.accept_offer("s").unwrap();
    rig.drain();
    for id in asked {
        assert_eq!(rig.answer(&id)["result"]["accepted"], true);
    }
    // Active and not ready yet: accepted, and nothing else.
    let asked = rig.ask_assign("s");
    assert_eq!(rig.answer(&asked)["result"]["accepted"], true);
    assert!(rig.frames.is_empty());
    rig.executor.session_ready(rig.now, &session("s")).unwrap();
    rig.drain();
    rig.accept("session.ready");
    // Ready: readiness is said again.
    let asked = rig.ask_assign("s");
    assert_eq!(rig.answer(&asked)["result"]["accepted"], true);
    rig.accept("session.ready");
    assert!(rig.events.is_empty() && rig.frames.is_empty());
}

#[test]
fn an_assignment_that_takes_too_long_is_answered_and_called_off() {
    let mut rig = Rig::up();
    let params = json!({"session_id": "s", "work_id": "w", "environment_id": "", "lease": {"token": "t"},
        "deadline_ms": 2000});
    let asked = rig.ask("session.assign", params);
    rig.event();
    assert_eq!(rig.due(), (seconds(2), Reason::SessionDeadline));
    rig.wait(seconds(2));
    let answer = rig.answer(&asked);
    assert_eq!(answer["error"]["code"], ErrorCode::Timeout.number());
    assert!(matches!(stopped(&mut rig, "s"), StopCause::Requested(_)));
    assert!(rig.accept_offer("s").is_err(), "too late");
    rig.end_session("s");
    assert!(rig.frames.is_empty(), "the harness was told already");
}

#[test]
fn a_stop_is_answered_when_everything_is_gone() {
    let mut rig = Rig::with_session("s");
    let asked = rig.ask("session.stop", json!({"session_id": "s", "reason": "done", "deadline_ms": 5000}));
    let Event::SessionStop { reason, within, .. } = rig.event() else { panic!("a stop") };
    assert_eq!((reason, within), (StopCause::Requested("done".to_owned()), Some(seconds(5))));
    assert_eq!(rig.answered(&asked), None);
    rig.executor.session_stopped(&session("s"), true).unwrap();
    rig.drain();
    assert_eq!(rig.answer(&asked)["result"], json!({"stopped": true}));
    assert_eq!(rig.active(), ["s"], "until the harness has accepted its end");
    rig.end_session("s");
    assert_eq!(rig.active(), ["s"]);
    assert_eq!(rig.accept("session.ended"), json!({"session_id": "s", "reason": "over"}));
    assert!(rig.active().is_empty());
    assert!(rig.executor.session_ended(rig.now, &session("s"), "again").is_err());
}

#[test]
fn ending_a_session_answers_its_stop_too() {
    let mut rig = Rig::with_session("s");
    let asked = rig.ask_stop("s");
    rig.end_session("s");
    assert_eq!(rig.answer(&asked)["result"], json!({"stopped": true}));
    let again = rig.ask_stop("s");
    assert_eq!(rig.answer(&again)["result"], json!({"stopped": true}), "it has ended, the harness knows not yet");
    rig.accept("session.ended");
    let late = rig.ask_stop("s");
    assert_eq!(rig.code(&late), ErrorCode::SessionNotActive.number());
}

#[test]
fn a_stop_is_answered_at_its_deadline_at_the_latest() {
    let mut rig = Rig::with_session("s");
    let params = json!({"session_id": "s", "reason": "done", "deadline_ms": 3000});
    let asked = [rig.ask("session.stop", params.clone()), rig.ask("session.stop", params)];
    rig.event();
    assert!(rig.events.is_empty(), "one stop");
    rig.wait(Duration::from_millis(2_999));
    assert_eq!(rig.answered(&asked[0]), None);
    rig.wait(Duration::from_millis(1));
    for id in &asked {
        assert_eq!(rig.answer(id)["result"], json!({"stopped": false}));
    }
    rig.end_session("s");
    rig.accept("session.ended");
    assert!(rig.active().is_empty());
}

#[test]
fn a_stop_of_an_unknown_session_is_told_so() {
    let mut rig = Rig::up();
    let asked = rig.ask_stop("s");
    assert_eq!(rig.code(&asked), ErrorCode::SessionNotActive.number());
}

#[test]
fn a_stop_overtakes_an_assignment() {
    let mut rig = Rig::up();
    let assigned = rig.ask_assign("s");
    rig.event();
    let asked = rig.ask_stop("s");
    assert_eq!(rig.code(&assigned), ErrorCode::Conflict.number());
    assert!(matches!(stopped(&mut rig, "s"), StopCause::Requested(_)));
    assert!(rig.accept_offer("s").is_err(), "the set-up comes too late");
    rig.executor.session_stopped(&session("s"), true).unwrap();
    rig.end_session("s");
    assert_eq!(rig.answer(&asked)["result"], json!({"stopped": true}));
    rig.accept("session.ended");
    assert!(rig.active().is_empty());
}

#[test]
fn a_session_that_is_ending_cannot_be_assigned() {
    let mut rig = Rig::with_session("s");
    rig.ask_stop("s");
    let asked = rig.ask_assign("s");
    assert_eq!(rig.code(&asked), ErrorCode::Conflict.number());
    rig.end_session("s");
    let asked = rig.ask_assign("s");
    assert_eq!(rig.code(&asked), ErrorCode::Conflict.number());
    rig.accept("session.ended");
    rig.events.clear();
    rig.assign("s");
}

#[test]
fn an_end_of_its_own_is_reported_too() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    rig.end_session("s");
    assert!(!rig.has("session.ended"), "results first");
    let result = rig.accept("tool.result");
    assert_eq!((&result["outcome"], &result["is_error"]), (&json!("canceled"), &json!(true)));
    rig.accept("session.ended");
    assert!(rig.active().is_empty());
}

#[test]
fn an_end_is_reported_after_every_result() {
    let mut rig = Rig::with_session("s");
    for id in ["a", "b", "c"] {
        rig.run("s", id);
    }
    rig.finish("s", "a");
    rig.ask_stop("s");
    let canceled = rig.events.iter().filter(|event| matches!(event, Event::ToolCancel { .. })).count();
    assert_eq!(canceled, 2);
    rig.end_session("s");
    for _ in 0..3 {
        assert!(!rig.has("session.ended"));
        rig.accept("tool.result");
    }
    rig.accept("session.ended");
}

#[test]
fn a_lost_connection_makes_an_offer_void() {
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.event();
    rig.disconnect(None);
    assert!(matches!(stopped(&mut rig, "s"), StopCause::Requested(_)));
    assert!(rig.accept_offer("s").is_err());
    assert!(rig.active().is_empty());
}

#[test]
fn a_new_assignment_waits_until_its_predecessor_is_gone() {
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.disconnect(None);
    rig.wait(seconds(2));
    let registration = rig.dial();
    assert_eq!(registration["params"]["resume"].get("active_sessions"), None);
    rig.register(registered());
    rig.events.clear();
    // The harness sends it again; the application still takes the first one down.
    let asked = [rig.ask_assign("s"), rig.ask_assign("s")];
    assert!(rig.events.is_empty(), "{:?}", rig.events);
    assert!(rig.accept_offer("s").is_err());
    rig.executor.session_ended(rig.now, &session("s"), "taken down").unwrap();
    rig.drain();
    assert!(!rig.has("session.ended"), "nobody knows of the first one");
    assert!(matches!(rig.event(), Event::SessionAssign { .. }));
    rig.accept_offer("s").unwrap();
    rig.drain();
    for id in asked {
        assert_eq!(rig.answer(&id)["result"]["accepted"], true);
    }
    assert_eq!(rig.active(), ["s"]);
}

#[test]
fn an_answer_to_an_earlier_offer_is_not_taken_for_a_later_ones() {
    let mut rig = Rig::up();
    rig.ask_assign("s");
    let first = rig.offers[&session("s")].clone();
    rig.reconnect();
    rig.end_session("s");
    rig.events.clear();
    let asked = rig.ask_assign("s");
    assert!(matches!(rig.event(), Event::SessionAssign { .. }));
    assert!(rig.executor.accept_session(&first).is_err());
    assert!(rig.executor.reject_session(&first, None).is_err());
    rig.drain();
    assert_eq!(rig.answered(&asked), None, "the second one is still open");
    assert_ne!(rig.executor.offer_of(&session("s")), Some(first));
    rig.accept_offer("s").unwrap();
    rig.drain();
    assert_eq!(rig.answer(&asked)["result"]["accepted"], true);
}

#[test]
fn an_offer_that_is_accepted_while_draining_is_refused_and_taken_down() {
    let mut rig = Rig::up();
    let asked = rig.ask_assign("s");
    rig.event();
    rig.executor.drain();
    assert!(matches!(rig.accept_offer("s"), Err(CallError::Refused(_))));
    rig.drain();
    let answer = rig.answer(&asked);
    assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["retryable"]), (&json!(-32009), &json!(true)));
    rig.events.retain(|event| !matches!(event, Event::State(_)));
    assert!(matches!(stopped(&mut rig, "s"), StopCause::Requested(_)));
    assert!(rig.active().is_empty());
    rig.end_session("s");
    assert!(rig.executor.sessions.is_empty() && rig.frames.is_empty());
}

#[test]
fn a_repeated_assignment_brings_its_lease() {
    let renewed = json!({"session_id": "s", "work_id": "work-2", "environment_id": "", "lease": {"token": "lease-2"}});
    let ready = json!({"session_id": "s", "work_id": "work-2", "lease_token": "lease-2"});
    // While it is offered.
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.ask("session.assign", renewed.clone());
    rig.accept_offer("s").unwrap();
    rig.executor.session_ready(rig.now, &session("s")).unwrap();
    rig.drain();
    assert_eq!(rig.accept("session.ready"), ready);
    // While it is active.
    let mut rig = Rig::with_session("s");
    rig.ask("session.assign", renewed.clone());
    assert_eq!(rig.accept("session.ready"), ready);
    // While the readiness of the first one is not accepted yet: each lease has its own.
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.accept_offer("s").unwrap();
    rig.executor.session_ready(rig.now, &session("s")).unwrap();
    rig.drain();
    let (id, _) = rig.request("session.ready");
    rig.ask("session.assign", renewed);
    rig.fail(&id, json!({"code": -32009, "message": "busy"}));
    assert_eq!(rig.accept("session.ready"), ready);
    rig.wait(seconds(5));
    assert!(!rig.has("session.ready"), "the stale one is not said again");
}

#[test]
fn a_process_request_for_an_unknown_session_is_told_so() {
    let mut rig = Rig::with_session("s");
    let list = |id: &str| json!({"session_id": id});
    let asked = rig.ask("process.list", list("t"));
    assert_eq!(rig.code(&asked), ErrorCode::CapabilityUnavailable.number(), "nobody serves it");
    rig.executor.serve_method(crate::contract::Method::ProcessList);
    let asked = rig.ask("process.list", list("t"));
    assert_eq!(rig.code(&asked), ErrorCode::SessionNotActive.number());
    rig.ask("process.list", list("s"));
    assert!(matches!(rig.event(), Event::Request { .. }));
}

#[test]
fn any_frame_renews_the_lease() {
    let mut rig = Rig::with_session("s");
    for _ in 0..5 {
        rig.wait(seconds(10));
        let (id, _) = rig.request("executor.heartbeat");
        rig.fail(&id, json!({"code": -32603, "message": "oops"}));
    }
    rig.events.clear();
    rig.disconnect(None);
    // 50 s after the registration: the lease runs from the last answer, not from the last good one.
    rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
    rig.wait(seconds(29));
    assert!(!rig.events.iter().any(|event| matches!(event, Event::SessionStop { .. })));
    rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
    rig.wait(seconds(31));
    assert!(rig.events.iter().any(|event| matches!(event, Event::SessionStop { reason: StopCause::LeaseExpired, .. })));
}

#[test]
fn an_assignment_that_waits_for_its_predecessor_has_a_deadline_and_can_be_stopped() {
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.reconnect();
    rig.events.clear();
    let asked = rig.ask_assign("s");
    rig.wait(seconds(25));
    assert_eq!(rig.code(&asked), ErrorCode::Timeout.number());
    let (asked, stop) = (rig.ask_assign("s"), rig.ask_stop("s"));
    assert_eq!(rig.code(&asked), ErrorCode::Conflict.number());
    assert_eq!(rig.answer(&stop)["result"], json!({"stopped": true}), "nothing of it ever was");
    let stop = rig.ask_stop("s");
    assert_eq!(rig.code(&stop), ErrorCode::SessionNotActive.number());
    // And a lost connection takes it along.
    rig.ask_assign("s");
    rig.reconnect();
    rig.end_session("s");
    assert!(!rig.events.iter().any(|event| matches!(event, Event::SessionAssign { .. })));
    rig.answer_heartbeats();
    rig.events.clear();
    rig.assign("s");
}

#[test]
fn f17_sessions_end_with_the_lease_of_a_connection_that_stays_away() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    rig.wait(seconds(10));
    rig.answer_heartbeats();
    rig.events.clear();
    rig.disconnect(None);
    // The lease began anew with the heartbeat's answer.
    let mut left = seconds(60);
    while left > Duration::ZERO {
        assert!(!rig.events.iter().any(|event| matches!(event, Event::SessionStop { .. })), "{left:?} left");
        rig.wait(seconds(1));
        left -= seconds(1);
        while let Some(Order::FetchToken) = rig.orders.pop_front() {
            rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
        }
    }
    rig.events.retain(|event| matches!(event, Event::SessionStop { .. } | Event::ToolCancel { .. }));
    assert!(matches!(rig.event(), Event::ToolCancel { cause: CancelCause::SessionStopped, .. }));
    assert_eq!(stopped(&mut rig, "s"), StopCause::LeaseExpired);
    assert!(rig.active().is_empty());
    assert!(rig.executor.finish_tool_call(rig.now, result("s", "c")).is_err(), "nobody wants it any more");
    rig.end_session("s");

    rig.wait(seconds(60));
    assert!(matches!(rig.orders.pop_front(), Some(Order::FetchToken)));
    rig.feed(Input::Token(Ok(token(1))));
    rig.orders.clear();
    rig.feed(Input::Connected(ProtocolVersion::V1_1));
    rig.register(registered());
    assert!(rig.frames.is_empty(), "nothing is delivered for it: {:?}", rig.frames);
}

/// What was left of it would be taken for the end, or a result, of a session that is assigned anew under its id.
#[test]
fn f66_a_harness_that_forgot_everything_is_followed_and_the_sessions_end() {
    let mut rig = Rig::with_session("active");
    rig.assign("ended");
    rig.assign("done");
    rig.run("active", "open");
    rig.run("done", "c");
    rig.executor.finish_tool_call(rig.now, result("done", "c")).unwrap();
    rig.end_session("ended");
    rig.events.clear();
    rig.frames.clear();
    let mut other = registered();
    other["executor_id"] = json!("exec_2");
    let registration = rig.reconnect_as(other);
    assert_eq!(registration["params"]["resume"]["active_sessions"], json!(["active", "done", "ended"]));
    assert_eq!(rig.executor.registration().unwrap().executor_id.as_str(), "exec_2");
    let lost = |event: &Event| matches!(event, Event::SessionStop { reason: StopCause::NotResumed, .. });
    assert_eq!(rig.events.iter().filter(|event| lost(event)).count(), 2, "{:?}", rig.events);
    assert!(rig.events.iter().any(|event| matches!(event, Event::ToolCancel { .. })));
    assert!(rig.events.iter().any(|event| matches!(event, Event::ResultLost { .. })), "{:?}", rig.events);
    assert!(rig.frames.is_empty(), "nothing is delivered for them: {:?}", rig.frames);
    assert!(rig.active().is_empty());
    rig.events.clear();
    rig.assign("ended");
    assert_eq!(rig.active(), ["ended"]);
}

#[test]
fn a_session_that_is_told_to_stop_is_told_once() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    rig.ask("session.stop", json!({"session_id": "s", "reason": "done"}));
    let told = |rig: &Rig| {
        let stops = rig.events.iter().filter(|event| matches!(event, Event::SessionStop { .. })).count();
        (stops, rig.events.iter().filter(|event| matches!(event, Event::ToolCancel { .. })).count())
    };
    assert_eq!(told(&rig), (1, 1));
    let mut other = registered();
    other["executor_id"] = json!("exec_2");
    rig.reconnect_as(other);
    assert_eq!(told(&rig), (1, 1), "{:?}", rig.events);
    rig.executor.session_ended(rig.now, &session("s"), "done").unwrap();
    rig.drain();
    assert!(rig.active().is_empty() && !rig.has("session.ended"));
    rig.events.clear();
    rig.assign("s");
}

#[test]
fn a_session_whose_end_was_said_is_not_told_to_stop_again() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    rig.end_session("s");
    rig.disconnect(None);
    rig.events.clear();
    rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
    rig.wait(seconds(61));
    assert!(!rig.events.iter().any(|event| matches!(event, Event::SessionStop { .. })));
    assert!(rig.events.iter().any(|event| matches!(event, Event::ResultLost { .. })));
    assert!(rig.active().is_empty() && rig.executor.sessions.is_empty());
}

#[test]
fn status_is_best_effort() {
    let mut rig = Rig::with_session("s");
    let params = SessionStatusParams { session_id: session("s"), status: "running".into(), detail: None };
    assert!(rig.executor.session_status(&params).unwrap());
    rig.drain();
    rig.request("session.status");
    rig.disconnect(None);
    assert!(!rig.executor.session_status(&params).unwrap());
    assert_eq!(rig.executor.dropped_previews(), 1);
}
