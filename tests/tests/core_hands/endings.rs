//! The end of sessions: by a stop, by themselves, by the end of the client or of the core.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bma_hands_posix::hands::access::{AccessRefused, FileAccessRequest};
use bma_runtime::ExecutorEvent;
use bma_runtime::proto::contract::{SessionAssignParams, ToolOutcome};
use bma_runtime::proto::executor::End;
use bma_runtime::sync::{Event, Events};
use bma_tests::exchange_suite::{Count, assignment, eventually};
use serde_json::{Value, json};

use crate::bash::on_both;
use crate::script::{Script, scripted};
use crate::support::{Hands, Setup, call, canceled, good, input, long_grep, open, read, seen, text, write};

on_both! {
    a_stopped_session_is_gone_with_everything_of_it
    a_client_that_stops_ends_everything_in_order
    a_core_that_closes_ends_everything
}

/// What the executor says next about the end of a session: its id and the reason.
async fn next_end(events: &mut Events<ExecutorEvent>) -> (String, String) {
    loop {
        match events.next().await.expect("the executor is there") {
            Event::Item(ExecutorEvent::SessionEnded { session_id, reason }) => {
                return (session_id.as_str().to_owned(), reason);
            }
            Event::Item(_) | Event::Lagged(_) => {}
        }
    }
}

const TREE: &str = "sleep 600 & setsid sleep 601 & echo > started; wait";

async fn a_stopped_session_is_gone_with_everything_of_it(hands: &Hands) {
    let mut events = hands.executor.events();
    let (session, other) = (hands.session("s").await, hands.session("other").await);
    good(session.tools().bash(input("sleep 602 > /dev/null 2>&1 & echo")).await);
    let running = hands.start_bash(&session, call("tree"), TREE).await;
    let others = hands.start_bash(&other, call("tree"), "echo > started; exec sleep 603").await;
    hands.until("all have started", || hands.processes().iter().filter(|name| *name == "sleep").count() == 4).await;
    session.stop("enough").await.unwrap();
    assert_eq!(hands.processes(), ["sleep"], "the other session's goes on");
    let text = canceled(running.await);
    assert!(text.starts_with("session stopped after "), "{text}");
    assert_eq!(next_end(&mut events).await, ("s".to_owned(), "enough".to_owned()));
    assert!(session.tools().bash(input("true")).await.is_err());
    assert_eq!(hands.core.session_count(), 1);
    assert!(other.cancel_tool(&"tree".into(), "enough").await.unwrap());
    canceled(others.await);
}

async fn a_client_that_stops_ends_everything_in_order(hands: &Hands) {
    let mut events = hands.executor.events();
    let session = hands.session("s").await;
    let running = hands.start_bash(&session, call("tree"), TREE).await;
    hands.until("all have started", || hands.processes().len() >= 3).await;
    assert!(matches!(hands.client.stop("enough").await, End::Stopped));
    assert_eq!(hands.processes(), [""; 0]);
    assert_eq!(hands.core.session_count(), 0);
    let (outcome, _, text) = seen(running.await);
    assert_eq!(outcome, ToolOutcome::Canceled, "{text}");
    assert_eq!(next_end(&mut events).await, ("s".to_owned(), "executor_stopped".to_owned()));
}

async fn a_core_that_closes_ends_everything(hands: &Hands) {
    let session = hands.session("s").await;
    good(session.tools().bash(input("sleep 602 > /dev/null 2>&1 & echo")).await);
    let running = hands.start_bash(&session, call("tree"), TREE).await;
    hands.until("all have started", || hands.processes().iter().filter(|name| *name == "sleep").count() == 3).await;
    assert!(hands.core.close().await, "all is gone");
    assert_eq!(hands.processes(), [""; 0]);
    assert_eq!(hands.core.session_count(), 0);
    canceled(running.await);
    // The brain was not told: its calls fail, and say why.
    let (outcome, _, text) = seen(session.tools().read(read("x")).await);
    assert_eq!((outcome, text.as_str()), (ToolOutcome::Failed, "session s is not open here"));
}

/// Waits in a thread of its own.
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "this did not come about: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stop_is_answered_after_the_results_and_before_the_end() {
    let asked = Count::default();
    let hook = {
        let asked = asked.clone();
        move |_: &FileAccessRequest<'_>| {
            asked.add();
            Ok::<_, AccessRefused>(())
        }
    };
    Setup::direct().core(|options, _| options.file_access = Some(Arc::new(hook))).run(async |hands| {
        let place = hands.base.join("work/script/s");
        let began = { move || asked.value() >= 1 };
        scripted(hands, move |listener| stop_with_running_calls(Script::register(listener), &place, &began)).await;
        assert_eq!(hands.processes(), [""; 0]);
    });
}

fn stop_with_running_calls(mut script: Script, place: &Path, searching: &dyn Fn() -> bool) {
    script.assign("s");
    let grep = long_grep(place);
    script.call("s", "bash-1", "bash", json!({ "command": TREE }));
    script.call("s", "bash-2", "bash", json!({ "command": "trap '' TERM; echo > stubborn; sleep 604; sleep 605" }));
    script.call("s", "grep", "grep", serde_json::to_value(&grep).unwrap());
    wait_until("all are under way", || {
        place.join("started").exists() && place.join("stubborn").exists() && searching()
    });
    script.ask("stop", "session.stop", json!({ "session_id": "s", "reason": "enough" }));
    let mut order = Vec::new();
    let mut outcomes = Vec::new();
    while order.last().is_none_or(|last| last != "session.ended") {
        let frame = script.next_accepted();
        if frame["method"] == "tool.result" {
            outcomes.push(frame["params"]["outcome"].clone());
        }
        order.push(frame["method"].as_str().or(frame["id"].as_str()).unwrap().to_owned());
        if frame["id"] == "stop" {
            assert_eq!(frame["result"], json!({ "stopped": true }));
        }
    }
    assert_eq!(order, ["tool.result", "tool.result", "tool.result", "stop", "session.ended"]);
    assert_eq!(outcomes, vec![Value::from("canceled"); 3]);
    script.close();
}

/// Sessions whose work says so carry one call.
fn single(options: &mut bma_hands_posix::hands::CoreOptions) {
    options.end_after_tool_call =
        Some(Arc::new(|params: &SessionAssignParams| params.metadata.get("one").is_some_and(|one| one == "yes")));
}

#[test]
fn a_session_of_one_call_ends_by_itself_once_and_others_do_not() {
    Setup::direct().core(|options, _| single(options)).run(async |hands| {
        let mut events = hands.executor.events();
        let lasting = hands.session("lasting").await;
        for round in 0..3 {
            let mut params = assignment("s");
            params.metadata.insert("one".to_owned(), "yes".to_owned());
            let session = open(&hands.executor, params).await.unwrap();
            let text = match round {
                0 => good(session.tools().write(write("x", "x")).await),
                1 => good(session.tools().bash(input("sleep 600 > /dev/null 2>&1 & cat x")).await),
                _ => text(&session.tools().read(read("missing")).await.unwrap()),
            };
            assert!(!text.is_empty());
            assert_eq!(next_end(&mut events).await, ("s".to_owned(), "completed".to_owned()));
            assert_eq!(hands.processes(), [""; 0]);
            eventually(&hands.runtime, "its place is free", || hands.core.session_count() == 1).await;
        }
        good(lasting.tools().write(write("x", "x")).await);
        good(lasting.tools().write(write("y", "y")).await);
        lasting.stop("enough").await.unwrap();
        assert_eq!(next_end(&mut events).await, ("lasting".to_owned(), "enough".to_owned()));
    });
}

#[test]
fn a_session_of_one_call_ends_after_its_result_was_accepted() {
    Setup::direct().core(|options, _| single(options)).run(async |hands| {
        scripted(hands, |listener| {
            let mut script = Script::register(listener);
            let params = json!({
                "session_id": "s", "work_id": "w", "environment_id": "", "lease": { "token": "t" },
                "metadata": { "one": "yes" }
            });
            script.ask("assign", "session.assign", params);
            assert_eq!(script.next()["result"]["accepted"], true);
            assert_eq!(script.next_accepted()["method"], "session.ready");
            script.call("s", "c", "bash", json!({ "command": "echo done" }));
            let result = script.next();
            assert_eq!(result["method"], "tool.result", "{result}");
            // As long as the result is not accepted, all that comes is the answer to this.
            script.ask("probe", "tool.cancel", json!({ "session_id": "s", "tool_call_id": "c" }));
            let probe = script.next();
            assert_eq!((&probe["id"], &probe["result"]["canceled"]), (&json!("probe"), &json!(false)), "{probe}");
            script.answer(&result, json!({ "accepted": true }));
            let ended = script.next_accepted();
            assert_eq!(ended["method"], "session.ended", "{ended}");
            assert_eq!(ended["params"]["reason"], "completed", "{ended}");
            script.close();
        })
        .await;
    });
}
