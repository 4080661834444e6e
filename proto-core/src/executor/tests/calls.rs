//! Tool calls: acknowledged first, run once, ended once.

use super::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_call_is_acknowledged_first_and_reported_later() {
    let mut rig = Rig::with_session("s");
    let asked = rig.ask_call("s", "c");
    let Event::ToolCall(params) = rig.event() else { panic!("a call") };
    assert_eq!((params.tool, params.input.get()), (ToolName::Bash, r#"{"command":"true"}"#));
    assert_eq!(rig.answered(&asked), None, "the application decides");
    rig.executor.accept_tool_call(&session("s"), &call("c")).unwrap();
    rig.drain();
    assert_eq!(rig.answer(&asked)["result"], json!({"accepted": true}));
    rig.wait(Duration::from_millis(1_234));
    rig.finish("s", "c");
    let reported = rig.accept("tool.result");
    assert_eq!(reported["outcome"], "succeeded");
    assert_eq!(reported["duration_ms"], 1_234);
    assert_eq!(reported["content"], json!([{"type": "text", "text": "exit_code: 0"}]));
    rig.answer_heartbeats();
    assert!(rig.frames.is_empty());
}

#[test]
fn finishing_what_was_not_accepted_accepts_it() {
    let mut rig = Rig::with_session("s");
    let asked = rig.ask_call("s", "c");
    rig.finish("s", "c");
    assert_eq!(rig.frames[0]["id"], asked, "the acknowledgement goes first");
    assert_eq!(rig.answer(&asked)["result"]["accepted"], true);
    rig.accept("tool.result");
}

#[test]
fn f75_a_repeated_call_runs_once_and_its_result_is_sent_again() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    // While it runs: acknowledged, and nothing else.
    let again = rig.ask_call("s", "c");
    assert_eq!(rig.answer(&again)["result"]["accepted"], true);
    assert!(rig.events.is_empty() && rig.frames.is_empty());
    rig.finish("s", "c");
    let first = rig.accept("tool.result");
    // Once it is over: acknowledged, and the recorded result again.
    let again = rig.ask_call("s", "c");
    assert_eq!(rig.answer(&again)["result"]["accepted"], true);
    assert_eq!(rig.accept("tool.result"), first);
    assert!(rig.events.is_empty() && rig.frames.is_empty());
}

#[test]
fn a_repeated_call_before_the_decision_waits_for_it() {
    let mut rig = Rig::with_session("s");
    let asked = [rig.ask_call("s", "c"), rig.ask_call("s", "c")];
    assert!(matches!(rig.event(), Event::ToolCall(_)));
    assert!(rig.events.is_empty());
    rig.executor.accept_tool_call(&session("s"), &call("c")).unwrap();
    rig.drain();
    for id in asked {
        assert_eq!(rig.answer(&id)["result"]["accepted"], true);
    }
}

#[test]
fn a_repeated_call_does_not_multiply_its_result() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    rig.finish("s", "c");
    for _ in 0..50 {
        let again = rig.ask_call("s", "c");
        rig.answer(&again);
    }
    rig.accept("tool.result");
    assert!(!rig.has("tool.result"), "one was under way all the time");
}

#[test]
fn a_call_whose_result_is_no_longer_kept_is_never_run_again() {
    let mut rig = Rig::with_session("s");
    let filler = "x".repeat(48 << 10);
    for n in 0..100 {
        let id = format!("c{n}");
        rig.run("s", &id);
        let mut result = result("s", &id);
        result.content = vec![ContentBlock::text(filler.clone())];
        rig.executor.finish_tool_call(rig.now, result).unwrap();
        rig.drain();
        rig.accept("tool.result");
    }
    let asked = rig.ask_call("s", "c0");
    let answer = rig.answer(&asked);
    assert_eq!(answer["error"]["code"], ErrorCode::Conflict.number());
    assert_eq!(answer["error"]["data"]["reason"], "idempotency_key_reused");
    assert!(rig.events.is_empty(), "it does not run");
}

#[test]
fn a_call_repeated_after_a_reconnect_is_the_same_call() {
    let mut rig = Rig::with_session("s");
    rig.ask_call("s", "c");
    assert!(matches!(rig.event(), Event::ToolCall(_)));
    rig.reconnect();
    rig.events.clear();
    let again = rig.ask_call("s", "c");
    assert!(rig.events.is_empty(), "it is known");
    rig.executor.accept_tool_call(&session("s"), &call("c")).unwrap();
    rig.drain();
    assert_eq!(rig.answer(&again)["result"]["accepted"], true);
}

#[test]
fn calls_of_two_sessions_with_one_id_are_two_calls() {
    let mut rig = Rig::with_session("s");
    rig.assign("t");
    rig.run("s", "c");
    rig.run("t", "c");
    rig.finish("t", "c");
    assert_eq!(rig.accept("tool.result")["session_id"], "t");
    rig.finish("s", "c");
    assert_eq!(rig.accept("tool.result")["session_id"], "s");
}

#[test]
fn what_cannot_run_is_refused_before_anything_does() {
    let mut rig = Rig::with_session("s");
    let asked = rig.ask_call("nowhere", "c");
    assert_eq!(rig.code(&asked), ErrorCode::SessionNotActive.number());

    let mut params = json!({"session_id": "s", "tool_call_id": "c", "tool": "teleport", "input": {}});
    let asked = rig.ask("tool.call", params.clone());
    let answer = rig.answer(&asked);
    assert_eq!(answer["error"]["code"], ErrorCode::CapabilityUnavailable.number());
    assert_eq!(answer["error"]["data"]["capability"], "tool:teleport");
    for (member, value) in [("tool", json!("")), ("tool_call_id", json!("")), ("session_id", json!(""))] {
        let before = std::mem::replace(&mut params[member], value);
        let asked = rig.ask("tool.call", params.clone());
        assert_eq!(rig.code(&asked), ErrorCode::InvalidParams.number(), "{member}");
        params[member] = before;
    }
    assert!(rig.events.is_empty());
    rig.run("s", "c"); // none of it used the id up
}

#[test]
fn a_refused_call_counts_as_never_asked() {
    let mut rig = Rig::with_session("s");
    let asked = rig.ask_call("s", "c");
    rig.event();
    let error = ErrorCode::Forbidden.error("not on this machine");
    rig.executor.refuse_tool_call(&session("s"), &call("c"), &error).unwrap();
    rig.drain();
    assert_eq!(rig.code(&asked), ErrorCode::Forbidden.number());
    rig.run("s", "c");
    assert!(rig.executor.refuse_tool_call(&session("s"), &call("c"), &error).is_err(), "it was accepted");
    rig.finish("s", "c");
    assert!(rig.executor.finish_tool_call(rig.now, result("s", "c")).is_err(), "once");
    assert!(rig.executor.accept_tool_call(&session("s"), &call("c")).is_err());
}

#[test]
fn open_calls_are_bounded() {
    let mut config = config();
    config.max_open_calls = 2;
    let mut rig = Rig::up_with(config, registered());
    rig.assign("s");
    rig.run("s", "a");
    rig.run("s", "b");
    rig.finish("s", "b"); // reported, and not accepted yet: it counts
    let asked = rig.ask_call("s", "c");
    let answer = rig.answer(&asked);
    assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["retryable"]), (&json!(-32009), &json!(true)));
    rig.accept("tool.result");
    rig.run("s", "c");
}

#[test]
fn a_deadline_ends_a_call() {
    let mut rig = Rig::with_session("s");
    let ask = |rig: &mut Rig, id: &str, ms: i64| {
        let params = json!({"session_id": "s", "tool_call_id": id, "tool": "bash", "input": {}, "deadline_ms": ms});
        rig.ask("tool.call", params);
        assert!(matches!(rig.event(), Event::ToolCall(_)));
    };
    ask(&mut rig, "a", 5_000);
    ask(&mut rig, "b", 2_000);
    ask(&mut rig, "c", 3_000);
    rig.finish("s", "c");
    assert_eq!(rig.due(), (seconds(2), Reason::ToolDeadline));
    rig.wait(seconds(6));
    for id in ["b", "a"] {
        let Event::ToolCancel { tool_call_id, cause, .. } = rig.event() else { panic!("a cancel") };
        assert_eq!((tool_call_id, cause), (call(id), CancelCause::Deadline));
    }
    assert!(rig.events.is_empty(), "each once, and none for what is over");
    rig.finish("s", "a");
    // A deadline of nothing says as little as none.
    ask(&mut rig, "d", -1);
    ask(&mut rig, "e", 0);
    assert!(rig.events.is_empty() && rig.executor.call_deadlines.is_empty());
}

#[test]
fn a_cancel_is_answered_at_once_and_the_call_ends_with_its_own_result() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    let params = json!({"session_id": "s", "tool_call_id": "c"});
    let asked = rig.ask("tool.cancel", params.clone());
    assert_eq!(rig.answer(&asked)["result"], json!({"canceled": true}));
    let Event::ToolCancel { tool_call_id, cause, .. } = rig.event() else { panic!("a cancel") };
    assert_eq!((tool_call_id, cause), (call("c"), CancelCause::Canceled));
    let canceled = ToolResultParams { outcome: ToolOutcome::Canceled, ..result("s", "c") };
    rig.executor.finish_tool_call(rig.now, canceled).unwrap();
    rig.drain();
    assert_eq!(rig.accept("tool.result")["outcome"], "canceled");
    let asked = rig.ask("tool.cancel", params);
    assert_eq!(rig.answer(&asked)["result"], json!({"canceled": false}), "it is over");
}

#[test]
fn f77_a_cancel_that_races_with_the_end_gives_one_result() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    rig.ask("tool.cancel", json!({"session_id": "s", "tool_call_id": "c"}));
    rig.event();
    rig.finish("s", "c"); // it had succeeded when the cancel came
    let canceled = ToolResultParams { outcome: ToolOutcome::Canceled, ..result("s", "c") };
    assert!(rig.executor.finish_tool_call(rig.now, canceled).is_err());
    assert_eq!(rig.accept("tool.result")["outcome"], "succeeded");
    assert!(!rig.has("tool.result"));
}

#[test]
fn a_cancel_of_the_unknown() {
    let mut rig = Rig::with_session("s");
    let asked = rig.ask("tool.cancel", json!({"session_id": "s", "tool_call_id": "never"}));
    assert_eq!(rig.answer(&asked)["result"], json!({"canceled": false}));
    let asked = rig.ask("tool.cancel", json!({"session_id": "t", "tool_call_id": "never"}));
    assert_eq!(rig.code(&asked), ErrorCode::SessionNotActive.number());
    assert!(rig.events.is_empty());
}

#[test]
fn no_calls_are_taken_while_a_session_ends() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "old");
    rig.ask_stop("s");
    let asked = rig.ask_call("s", "new");
    assert_eq!(rig.code(&asked), ErrorCode::SessionNotActive.number());
    // One that runs is still known.
    let asked = rig.ask_call("s", "old");
    assert_eq!(rig.answer(&asked)["result"]["accepted"], true);
}

#[test]
fn progress_that_weighs_much_is_dropped_sooner() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    let (session, call) = (session("s"), call("c"));
    let message = "x".repeat(60_000);
    let taken = (0..9).filter(|_| rig.executor.progress(&session, &call, &message).unwrap()).count();
    // Whatever comes while less than 256 KiB wait.
    assert_eq!((taken, rig.executor.dropped_previews()), (5, 4));
    rig.drain();
    assert!(rig.executor.progress(&session, &call, &message).unwrap(), "there is room again");
    rig.finish("s", "c");
    assert!(rig.has("tool.result"), "what must get through does");
}

#[test]
fn progress_is_best_effort_and_belongs_to_an_open_call() {
    let mut rig = Rig::with_session("s");
    rig.run("s", "c");
    let (session, call) = (session("s"), call("c"));
    assert!(rig.executor.progress(&session, &call, "half").unwrap());
    rig.drain();
    assert_eq!(rig.request("tool.progress").1["message"], "half");
    assert!(rig.executor.progress(&session, &call, &"x".repeat(70_000)).is_err(), "over the frame limit");
    // A harness that does not read: the oldest stay, further ones are dropped and counted.
    let mut taken = 0;
    for _ in 0..1_000 {
        taken += usize::from(rig.executor.progress(&session, &call, "more").unwrap());
    }
    assert_eq!((taken, rig.executor.dropped_previews()), (256, 744));
    // F70: what must get through still does.
    let asked = rig.ask_call("s", "c");
    assert_eq!(rig.answer(&asked)["result"]["accepted"], true);
    rig.finish("s", "c");
    assert!(rig.executor.progress(&session, &call, "late").is_err());
}
