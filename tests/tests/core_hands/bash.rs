//! Commands: how they end, and that nothing of them is left.

use std::time::Duration;

use bma_runtime::proto::contract::{BashInput, ToolOutcome};
use bma_runtime::sync::Event;
use bma_runtime::{CallToolOptions, ExecutorEvent};

use crate::support::{Hands, Setup, bad, call, call_within, canceled, good, input, seen};

/// Makes two tests of each case: commands as children of this program, and of a keeper.
macro_rules! on_both {
    ($($case:ident)*) => {
        mod direct {
            $(#[test] fn $case() { crate::support::Setup::direct().run(super::$case); })*
        }
        #[cfg(target_os = "linux")]
        mod by_keeper {
            $(#[test] fn $case() { crate::support::Setup::with_keeper().run(super::$case); })*
        }
    };
}
pub(crate) use on_both;

on_both! {
    a_time_out_ends_the_whole_tree_and_says_so
    a_deadline_is_told_apart_from_a_time_out
    a_cancel_is_reported_when_the_whole_tree_is_gone
    what_outlives_its_command_ends_with_the_session
    a_command_that_ignores_its_end_is_killed
}

/// The seconds in `timed out after 1.2 s (...)`, and the text after them.
#[track_caller]
fn timed_out(notice: &str) -> (f64, &str) {
    let rest = notice.split_once("timed out after ").expect(notice).1;
    let (seconds, rest) = rest.split_once(" s ").expect(notice);
    (seconds.parse().expect(notice), rest)
}

const TREE: &str = "echo so far; sleep 600 & (sleep 601 & sleep 602) & echo > started; wait";

async fn a_time_out_ends_the_whole_tree_and_says_so(hands: &Hands) {
    let session = hands.session("s").await;
    let limited = BashInput { timeout_ms: Some(1_000), ..input(TREE) };
    let (outcome, is_error, text) = seen(session.tools().bash(limited).await);
    assert_eq!((outcome, is_error), (ToolOutcome::Succeeded, true), "{text}");
    let (seconds, rest) = timed_out(&text);
    assert!((1.0..4.0).contains(&seconds), "{text}");
    let fate = "the command and everything it had started were ended";
    assert!(rest.starts_with(&format!("(timeout_ms was 1000 ms); {fate}\nexit_code: ")), "{text}");
    assert!(text.starts_with("so far\n"), "{text}");
    assert_eq!(hands.processes(), [""; 0]);
}

async fn a_deadline_is_told_apart_from_a_time_out(hands: &Hands) {
    let session = hands.session("s").await;
    // The earlier one of two limits is the one that is told.
    let limited = BashInput { timeout_ms: Some(60_000), ..input(TREE) };
    let text = bad(session.tools().with(call_within(1_000)).bash(limited).await);
    let (seconds, rest) = timed_out(&text);
    assert!((1.0..4.0).contains(&seconds), "{text}");
    assert!(rest.starts_with("(the deadline of the call was "), "{text}");
    assert!(text.starts_with("so far\n"), "{text}");
    assert_eq!(hands.processes(), [""; 0]);

    let limited = BashInput { timeout_ms: Some(1_000), ..input("sleep 600") };
    let text = bad(session.tools().with(call_within(60_000)).bash(limited).await);
    assert!(timed_out(&text).1.starts_with("(timeout_ms was 1000 ms)"), "{text}");
}

async fn a_cancel_is_reported_when_the_whole_tree_is_gone(hands: &Hands) {
    let session = hands.session("s").await;
    let running = hands.start_bash(&session, call("tree"), TREE).await;
    hands.until("the tree has grown", || hands.processes().len() >= 4).await;
    assert!(session.cancel_tool(&"tree".into(), "enough").await.unwrap());
    let text = canceled(running.await);
    assert_eq!(hands.processes(), [""; 0]);
    assert!(text.starts_with("so far\ncanceled after ") && text.contains("exit_code: "), "{text}");
    // A second cancel finds nothing, and the session goes on.
    assert!(!session.cancel_tool(&"tree".into(), "enough").await.unwrap());
    assert_eq!(good(session.tools().bash(input("echo on")).await), "on\nexit_code: 0");
}

async fn what_outlives_its_command_ends_with_the_session(hands: &Hands) {
    let session = hands.session("s").await;
    let text = good(session.tools().bash(input("sleep 600 > /dev/null 2>&1 & setsid sleep 601 & echo done")).await);
    assert!(text.starts_with("done\nstill running: process "), "{text}");
    assert!(text.contains("it is ended with the session") && text.ends_with("\nexit_code: 0"), "{text}");
    hands.until("both go on", || hands.processes() == ["sleep"; 2]).await;
    session.stop("enough").await.unwrap();
    assert_eq!(hands.processes(), [""; 0]);
    assert_eq!(hands.core.session_count(), 0);
}

async fn a_command_that_ignores_its_end_is_killed(hands: &Hands) {
    let session = hands.session("s").await;
    let stubborn = "trap '' TERM INT HUP; echo > started; while :; do sleep 1; done";
    let running = hands.start_bash(&session, call("stubborn"), stubborn).await;
    let begun = hands.runtime.now();
    assert!(session.cancel_tool(&"stubborn".into(), "enough").await.unwrap());
    let text = canceled(running.await);
    assert!(text.ends_with("exit_code: 137"), "{text}");
    let took = hands.runtime.now().saturating_since(begun);
    assert!((Duration::from_secs(2)..Duration::from_secs(10)).contains(&took), "TERM, a grace, KILL: {took:?}");
    assert_eq!(hands.processes(), [""; 0]);
}

#[test]
fn a_deadline_longer_than_the_default_time_out_holds() {
    let setup = Setup::direct().core(|options, _| options.bash_timeout = Duration::from_millis(300));
    setup.run(async |hands| {
        let session = hands.session("s").await;
        let text = bad(session.tools().bash(input("sleep 600")).await);
        assert!(timed_out(&text).1.starts_with("(timeout_ms was 300 ms)"), "{text}");
        let text = good(session.tools().with(call_within(60_000)).bash(input("sleep 1; echo done")).await);
        assert_eq!(text, "done\nexit_code: 0");
    });
}

#[test]
fn progress_shows_the_newest_output_while_a_command_runs() {
    Setup::direct().run(async |hands| {
        let session = hands.session("s").await;
        let mut events = hands.executor.events();
        let command = "echo half way; echo > started; until [ -e go ]; do sleep 0.02; done; echo all the way";
        let running = hands.start_bash(&session, call("long"), command).await;
        let message = loop {
            if let Some(Event::Item(ExecutorEvent::ToolProgress(progress))) = events.next().await {
                assert_eq!((progress.session_id.as_str(), progress.tool_call_id.as_str()), ("s", "long"));
                break progress.message;
            }
        };
        assert_eq!(message, "half way");
        std::fs::write(hands.workspace("s").join("go"), "").unwrap();
        assert_eq!(good(running.await), "half way\nall the way\nexit_code: 0");
    });
}

#[test]
fn an_id_runs_its_command_once_however_often_it_comes() {
    Setup::direct().run(async |hands| {
        let session = hands.session("s").await;
        let once = || session.tools().with(CallToolOptions { ..call("once") });
        let running = hands.start_bash(&session, call("once"), "echo > started; echo x >> log; cat log").await;
        let again = good(once().bash(input("echo > started; echo x >> log; cat log")).await);
        assert_eq!((good(running.await), again.as_str()), (again.clone(), "x\nexit_code: 0"));
        assert_eq!(good(once().bash(input("echo > started; echo x >> log; cat log")).await), again);
    });
}
