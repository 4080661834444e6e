//! What is sent until the harness has accepted it.

use super::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A session with one call whose result is on its way.
fn reporting() -> Rig {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    rig.finish("s", "c");
    rig
}

#[test]
fn a_result_is_tried_five_times_with_growing_waits_and_then_lost_aloud() {
    let mut rig = reporting();
    for wait in [250, 500, 1_000, 2_000] {
        let (id, _) = rig.request("tool.result");
        rig.fail(&id, json!({"code": -32009, "message": "busy"}));
        assert_eq!(rig.due(), (millis(wait), Reason::Retry));
        rig.wait(millis(wait));
        assert!(rig.events.is_empty());
    }
    let (id, sent) = rig.request("tool.result");
    rig.fail(&id, json!({"code": -32009, "message": "busy"}));
    let Event::ResultLost { result, error } = rig.event() else { panic!("it is told") };
    assert_eq!(serde_json::to_value(&result).unwrap(), sent);
    assert!(matches!(error, RequestError::Refused(_)));
    assert!(!rig.has("tool.result"));

    // The application kept it, and may try again; so may the harness.
    rig.executor.report_tool_result(rig.now, *result).unwrap();
    rig.drain();
    assert_eq!(rig.accept("tool.result"), sent);
    rig.ask_call("s", "c");
    assert_eq!(rig.accept("tool.result"), sent);
    // What was recorded counts, whatever else is handed in for it.
    rig.executor
        .report_tool_result(rig.now, ToolResultParams { content: Vec::new(), ..super::result("s", "c") })
        .unwrap();
    rig.drain();
    assert_eq!(rig.accept("tool.result"), sent);
}

#[test]
fn waits_between_attempts_are_capped() {
    let mut config = config();
    config.delivery_attempts = 12;
    let mut rig = Rig::up_with(config, registered());
    rig.assign("s");
    rig.run("s", "c");
    rig.finish("s", "c");
    let mut wait = 250;
    for _ in 0..11 {
        let (id, _) = rig.request("tool.result");
        rig.fail(&id, json!({"code": -32004, "message": "slow"}));
        let due = rig.executor.retries.first().unwrap().0.saturating_since(rig.now);
        assert_eq!(due, millis(wait));
        rig.wait(due);
        rig.answer_heartbeats();
        wait = (wait * 2).min(10_000);
    }
}

#[test]
fn an_error_that_is_not_retryable_ends_it_at_once() {
    for error in [
        json!({"code": -32002, "message": "no such call"}),
        json!({"code": -32009, "message": "busy", "data": {"retryable": false}}),
    ] {
        let mut rig = reporting();
        let (id, _) = rig.request("tool.result");
        rig.fail(&id, error);
        assert!(matches!(rig.event(), Event::ResultLost { .. }));
    }
    // What says that it is retryable is, whatever its code.
    let mut rig = reporting();
    let (id, _) = rig.request("tool.result");
    rig.fail(&id, json!({"code": -32603, "message": "oops", "data": {"retryable": true}}));
    assert!(rig.events.is_empty());
    rig.wait(millis(250));
    rig.accept("tool.result");
    // And an answer that says no is a refusal.
    let mut rig = reporting();
    let (id, _) = rig.request("tool.result");
    rig.reply(&id, json!({"accepted": false}));
    assert!(matches!(rig.event(), Event::ResultLost { .. }));
}

#[test]
fn a_disconnect_uses_up_no_attempt() {
    let mut rig = reporting();
    for _ in 0..20 {
        rig.request("tool.result");
        rig.reconnect();
    }
    assert!(!rig.events.iter().any(|event| matches!(event, Event::ResultLost { .. })));
    rig.accept("tool.result");
}

#[test]
fn attempts_on_a_connection_that_died_do_not_count() {
    let mut rig = reporting();
    for _ in 0..5 {
        // Nothing comes back: the requests time out, then the connection is given up.
        rig.wait_for_order();
        rig.orders.clear();
        rig.frames.clear();
        rig.reconnect();
    }
    assert!(!rig.events.iter().any(|event| matches!(event, Event::ResultLost { .. })));
    rig.accept("tool.result");
    rig.wait(seconds(5));
    assert!(!rig.has("tool.result"), "once");
}

#[test]
fn what_ends_while_nothing_is_connected_is_delivered_at_the_next_registration() {
    let mut rig = Rig::with_session("s");
    for id in ["a", "b"] {
        rig.run("s", id);
    }
    rig.disconnect(None);
    rig.finish("s", "b");
    rig.finish("s", "a");
    rig.end_session("s");
    assert!(rig.frames.is_empty());
    rig.wait(seconds(1));
    let registration = rig.dial();
    assert_eq!(registration["params"]["resume"]["active_sessions"], json!(["s"]), "its end is not accepted yet");
    rig.register(registered());
    assert_eq!(rig.accept("tool.result")["tool_call_id"], "b");
    assert!(!rig.has("session.ended"));
    assert_eq!(rig.accept("tool.result")["tool_call_id"], "a");
    rig.accept("session.ended");
    assert!(rig.active().is_empty());
}

#[test]
fn f74_a_result_over_the_frame_limit_is_cut_and_never_poisons_a_connection() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    let mut large = result("s", "c");
    large.content = vec![ContentBlock::text("\u{1}é".repeat(60_000)), ContentBlock::text("kept")];
    rig.executor.finish_tool_call(rig.now, large).unwrap();
    for _ in 0..3 {
        // Sent as it can be, on each of three connections.
        let Some(Output::Frame(frame)) = rig.executor.poll() else { panic!("a frame") };
        assert!(frame.len() <= 65_536, "{}", frame.len());
        let frame: Value = serde_json::from_str(&frame).unwrap();
        assert_eq!(frame["method"], "tool.result");
        assert_eq!(
            (&frame["params"]["outcome"], &frame["params"]["content"][1]["text"]),
            (&json!("succeeded"), &json!("kept"))
        );
        let text = frame["params"]["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("bytes left out"), "the cut is told");
        rig.disconnect(None);
        rig.wait_for_order();
        rig.dial();
        let (id, _) = rig.request("executor.register");
        // Fed without draining: the next round looks at the very frame.
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": registered()}).to_string();
        rig.executor.feed(rig.now, Input::Frame(&answer));
        while matches!(rig.executor.outputs.front(), Some(Output::Event(_))) {
            let _ = rig.executor.poll();
        }
    }
    rig.drain();
    rig.accept("tool.result");
}

#[test]
fn a_result_that_no_cut_makes_fit_is_lost_aloud() {
    let mut rig = Rig::with_session("s");
    // An id is kept whatever happens, and this one fills the frame.
    let id = "c".repeat(40_000);
    rig.run("s", &id);
    let mut large = result("s", &id);
    large.artifacts = vec![crate::contract::ArtifactRef { name: Some("n".repeat(70_000)), ..Default::default() }];
    rig.executor.finish_tool_call(rig.now, large).unwrap();
    rig.drain();
    let sent = rig.accept("tool.result");
    assert!(sent["content"][0]["text"].as_str().unwrap().contains("left out"));

    let mut answer = registered();
    answer["max_control_frame_bytes"] = json!(4_096);
    let mut rig = Rig::up_with(config(), answer);
    rig.assign("s");
    let id = "c".repeat(3_900);
    rig.run("s", &id);
    rig.executor.finish_tool_call(rig.now, result("s", &id)).unwrap();
    rig.drain();
    assert!(matches!(rig.event(), Event::ResultLost { error: RequestError::Malformed(_), .. }));
}

#[test]
fn readiness_is_sent_until_it_is_accepted() {
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.accept_offer("s").unwrap();
    rig.executor.session_ready(rig.now, &session("s")).unwrap();
    rig.drain();
    let (id, _) = rig.request("session.ready");
    rig.fail(&id, json!({"code": -32009, "message": "busy"}));
    rig.wait(millis(250));
    assert!(rig.has("session.ready"));
    rig.reconnect();
    rig.request("session.ready"); // the one on the lost connection
    rig.accept("session.ready");
    rig.wait(seconds(5));
    assert!(!rig.has("session.ready"));
}

#[test]
fn what_waits_for_its_next_attempt_does_not_speak_for_a_later_session_of_the_same_name() {
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.accept_offer("s").unwrap();
    rig.executor.session_ready(rig.now, &session("s")).unwrap();
    rig.drain();
    let (id, _) = rig.request("session.ready");
    rig.fail(&id, json!({"code": -32009, "message": "busy"}));
    rig.end_session("s");
    rig.accept("session.ended");
    rig.events.clear();
    // The same name again, and it is not set up yet.
    rig.ask_assign("s");
    rig.accept_offer("s").unwrap();
    rig.drain();
    rig.wait(seconds(1));
    assert!(!rig.has("session.ready"));
}

#[test]
fn an_end_that_the_harness_will_not_have_is_an_end_all_the_same() {
    let mut rig = Rig::with_session("s");
    rig.end_session("s");
    let (id, _) = rig.request("session.ended");
    rig.fail(&id, json!({"code": -32007, "message": "no such session"}));
    assert!(rig.active().is_empty());
}

#[test]
fn an_end_is_told_for_as_long_as_there_is_a_connection() {
    let mut rig = Rig::up();
    rig.ask_assign("s");
    rig.accept_offer("s").unwrap();
    rig.executor.session_ready(rig.now, &session("s")).unwrap();
    rig.drain();
    for what in ["session.ready", "session.ended"] {
        for _ in 0..12 {
            let (id, _) = rig.request(what);
            rig.fail(&id, json!({"code": -32004, "message": "slow"}));
            for _ in 0..2 {
                rig.wait(seconds(5));
                rig.answer_heartbeats();
            }
        }
        assert_eq!(rig.active(), ["s"]);
        rig.accept(what);
        if what == "session.ready" {
            rig.end_session("s");
        }
    }
    assert!(rig.active().is_empty());
}

/// The results that were given back since the last look.
fn given_back(rig: &mut Rig) -> Vec<ToolResultParams> {
    let lost = rig.events.drain(..).filter_map(|event| match event {
        Event::ResultLost { result, .. } => Some(*result),
        _ => None,
    });
    lost.collect()
}

/// Two results that were never accepted, and nothing is connected.
fn holding() -> Rig {
    let mut rig = Rig::with_session("s");
    for id in ["b", "a"] {
        rig.run("s", id);
        rig.finish("s", id);
    }
    rig.frames.clear();
    rig.disconnect(None);
    rig.events.clear();
    rig
}

#[test]
fn a_result_that_is_dropped_with_its_session_is_given_back() {
    let ids = |lost: Vec<ToolResultParams>| lost.iter().map(|lost| lost.tool_call_id.to_string()).collect::<Vec<_>>();
    // With the lease.
    let mut rig = holding();
    rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
    rig.wait(seconds(61));
    let lost = given_back(&mut rig);
    assert_eq!(ids(lost.clone()), ["a", "b"]);
    // They can be handed in again: nobody has a record of them now.
    rig.end_session("s");
    for result in lost {
        rig.executor.report_tool_result(rig.now, result).unwrap();
    }
    rig.orders.clear();
    rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
    rig.back_off();
    rig.dial();
    rig.register(registered());
    assert_eq!(rig.accept("tool.result")["tool_call_id"], "a");
    let (id, sent) = rig.request("tool.result");
    assert_eq!((&sent["tool_call_id"], &sent["content"][0]["text"]), (&json!("b"), &json!("exit_code: 0")));
    rig.events.clear();
    rig.fail(&id, json!({"code": -32007, "message": "no such session"}));
    assert_eq!(ids(given_back(&mut rig)), ["b"], "given back once more");
    assert!(!rig.has("tool.result"));

    // With the executor's end.
    let mut rig = holding();
    rig.wait(seconds(1));
    rig.dial();
    rig.disconnect(Some(4004));
    assert_eq!(ids(given_back(&mut rig)), ["a", "b"]);
}

#[test]
fn a_result_whose_record_is_gone_goes_out_as_it_is_handed_in() {
    let mut rig = Rig::up();
    rig.executor.report_tool_result(rig.now, result("gone", "c")).unwrap();
    rig.drain();
    let (id, sent) = rig.request("tool.result");
    assert_eq!(sent["session_id"], "gone");
    rig.fail(&id, json!({"code": -32009, "message": "busy"}));
    rig.wait(millis(250));
    rig.frames.clear();
    rig.reconnect();
    rig.accept("tool.result");
    assert!(rig.executor.reported.is_empty() && rig.executor.under_way.is_empty());
    // There is a bound, and what waits already may be handed in again.
    rig.disconnect(None);
    for n in 0..1_024 {
        rig.executor.report_tool_result(rig.now, result("gone", &format!("c{n}"))).unwrap();
    }
    assert!(rig.executor.report_tool_result(rig.now, result("gone", "more")).is_err());
    assert!(rig.executor.report_tool_result(rig.now, result("gone", "c0")).is_ok());
    rig.executor.stop(rig.now, "enough");
    rig.wait(seconds(5));
    assert_eq!(given_back(&mut rig).len(), 1_024);
    assert!(rig.executor.report_tool_result(rig.now, result("gone", "late")).is_err(), "it has ended");
}

#[test]
fn stopping_during_a_blip_delivers_on_the_next_connection() {
    let mut rig = holding();
    rig.executor.stop(rig.now, "enough");
    rig.drain();
    assert_eq!(rig.executor.end_state(), None);
    rig.wait(seconds(1));
    rig.dial();
    rig.register(registered());
    for _ in 0..2 {
        rig.accept("tool.result");
    }
    assert_eq!(rig.executor.end_state(), Some(&End::Stopped));
    assert!(given_back(&mut rig).is_empty());
    // Within the grace, or not at all.
    let mut rig = holding();
    rig.executor.stop(rig.now, "enough");
    rig.wait(millis(4_999));
    assert_eq!(rig.executor.end_state(), None);
    rig.wait(millis(1));
    assert_eq!(rig.executor.end_state(), Some(&End::Stopped));
    assert_eq!(given_back(&mut rig).len(), 2);
}

#[test]
fn too_much_at_once_goes_out_piece_by_piece() {
    let mut rig = Rig::with_session("s");
    rig.executor.peer.config_mut().max_inflight = 2;
    rig.executor.peer.config_mut().max_waiting = 3;
    for n in 0..20 {
        rig.run("s", &format!("c{n}"));
    }
    for n in 0..20 {
        rig.finish("s", &format!("c{n}"));
    }
    rig.end_session("s");
    let mut accepted = 0;
    for _ in 0..1_000 {
        if !rig.has("tool.result") {
            rig.wait(millis(250));
            rig.answer_heartbeats();
            if rig.has("session.ended") {
                break;
            }
            continue;
        }
        rig.accept("tool.result");
        accepted += 1;
    }
    assert_eq!(accepted, 20, "none is lost for an own shortage");
    assert!(!rig.events.iter().any(|event| matches!(event, Event::ResultLost { .. })));
    rig.accept("session.ended");
}

#[test]
fn stopping_waits_for_what_is_to_be_delivered_but_not_for_ever() {
    let mut rig = reporting();
    rig.executor.stop(rig.now, "enough");
    rig.drain();
    assert!(rig.orders.is_empty());
    let asked = rig.ask_call("s", "d");
    assert_eq!(rig.code(&asked), -32009, "no new calls");
    rig.accept("tool.result");
    assert!(matches!(rig.orders.pop_front(), Some(Order::Close(1000))));
    assert_eq!(rig.executor.end_state(), Some(&End::Stopped));

    let mut rig = reporting();
    rig.executor.stop(rig.now, "enough");
    rig.drain();
    rig.wait(millis(4_999));
    assert_eq!(rig.executor.end_state(), None);
    rig.wait(millis(1));
    assert_eq!(rig.executor.end_state(), Some(&End::Stopped));
    let told = rig.events.iter().filter(|event| matches!(event, Event::Ended(_))).count();
    assert_eq!((told, rig.orders.len()), (1, 1), "it ends once, and closes once");
}

#[test]
fn f63_heartbeats_go_on_until_the_result_is_acknowledged() {
    let mut config = config();
    config.stop_grace = seconds(90);
    let mut rig = Rig::up_with(config, registered());
    rig.assign("s");
    rig.run("s", "c");
    // The program is asked to end: it drains, and stops once its call is over.
    rig.executor.drain();
    for _ in 0..6 {
        rig.wait(seconds(10));
        assert_eq!(rig.answer_heartbeats(), 1);
    }
    rig.finish("s", "c");
    rig.executor.stop(rig.now, "asked to end");
    rig.drain();
    let (id, _) = rig.request("tool.result");
    for _ in 0..2 {
        rig.wait(seconds(10));
        assert_eq!(rig.answer_heartbeats(), 1, "still alive to its harness");
    }
    assert_eq!(rig.executor.end_state(), None);
    rig.reply(&id, json!({"accepted": true}));
    assert_eq!(rig.executor.end_state(), Some(&End::Stopped));
}
