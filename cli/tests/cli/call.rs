//! `bma call` and `bma hand`, as two processes.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::scripted::{Came, Scripted};
use crate::support::{Place, Running, eventually, is_listening, only_entry};

#[test]
fn a_tool_is_called_from_one_process_to_the_other() {
    let place = Place::new();
    let (call, url) = place.call(&["bash", r#"{"command":"echo to stdout; echo to stderr >&2; exit 3"}"#]);
    let hand = place.hand(&url);
    hand.stderr.wait_for_text("registered as exec_");
    let called = call.end();
    called.expect_code(0);
    assert_eq!(called.stdout, "to stdout\nto stderr\nexit_code: 3\n");
    assert!(called.stderr.contains("(testhand)"), "{}", called.stderr);
    assert!(!is_listening(&url));
    // The hands go on: the next harness at this address finds them.
    hand.stderr.wait_for_text("reconnecting in");
    hand.signal("INT");
    let hand = hand.end();
    hand.expect_code(0);
    assert!(hand.stderr.ends_with("bma hand: stopped\n"), "{}", hand.stderr);
    place.assert_nothing_runs();
}

#[test]
fn progress_goes_to_stderr_while_the_tool_runs() {
    let place = Place::new();
    let (call, url) = place.call(&["bash", r#"{"command":"echo half way; until [ -e go ]; do sleep 0.02; done"}"#]);
    let hand = place.hand(&url);
    call.stderr.wait_for_text("bma call: half way");
    // By now there is the one workspace of the one session of the one harness.
    let workspace = only_entry(&only_entry(&place.path("home/.local/state/bma/work")));
    std::fs::write(workspace.join("go"), "").unwrap();
    let called = call.end();
    called.expect_code(0);
    assert_eq!(called.stdout, "half way\nexit_code: 0\n");
    drop(hand);
    place.assert_nothing_runs();
}

#[test]
fn a_tool_error_is_exit_code_1_and_its_text_is_shown() {
    let place = Place::new();
    let reported = place.call_once(&["read", r#"{"path":"nowhere.txt"}"#]);
    reported.expect_code(1);
    assert!(reported.stdout.contains("nowhere.txt"), "{}", reported.stdout);

    let incomplete = place.call_once(&["bash", "{}"]);
    incomplete.expect_code(1);
    assert!(incomplete.stdout.contains("`command`") && incomplete.stderr.contains("failed"), "{}", incomplete.said());

    let overdue = place.call_once(&["--deadline-ms", "300", "bash", r#"{"command":"echo early; sleep 600"}"#]);
    overdue.expect_code(1);
    assert!(overdue.stdout.starts_with("early\n"), "{}", overdue.stdout);
    place.assert_nothing_runs();
}

#[test]
fn f122_a_missing_folder_is_not_reported_as_a_missing_program() {
    let place = Place::new();
    let ended = place.call_once(&["bash", r#"{"command":"true","cwd":"nope"}"#]);
    ended.expect_code(1);
    assert!(ended.stdout.contains("nope") && ended.stdout.contains("does not exist"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("true"), "{}", ended.stdout);
}

#[test]
fn what_is_no_result_is_exit_code_2() {
    let place = Place::new();
    let unknown = place.call_once(&["juggle", "{}"]);
    unknown.expect_code(2);
    assert!(unknown.stderr.contains("no result: ") && unknown.stderr.contains("juggle"), "{}", unknown.stderr);
    assert_eq!(unknown.stdout, "");

    let (alone, url) = place.call(&["--timeout", "0.2", "bash", "{}"]);
    let alone = alone.end();
    alone.expect_code(2);
    assert!(alone.stderr.contains("--timeout: there was no result within 0.2 s"), "{}", alone.stderr);
    assert!(!is_listening(&url));
}

#[test]
fn the_input_can_come_from_stdin_and_a_session_has_its_workspace_again() {
    let place = Place::new();
    let listen = format!("unix://{}", place.text("socket"));
    let token = place.text("token");
    let common = ["call", "--listen", &listen, "--token-file", &token, "--session", "notebook"];
    let hand = place.hand(&listen);

    let mut command = place.bma(&[&common[..], &["write", "-"]].concat());
    command.stdin(Stdio::piped());
    let mut write = Running::start(command);
    write.tell(r#"{"path":"note.txt","#);
    write.tell(r#" "content":"kept\n"}"#);
    write.end_input();
    write.end().expect_code(0);

    let read = Running::start(place.bma(&[&common[..], &["read", r#"{"path":"note.txt"}"#]].concat())).end();
    read.expect_code(0);
    assert_eq!(read.stdout, "kept\n");
    hand.signal("TERM");
    hand.end().expect_code(0);
    assert!(!place.path("socket").exists());
    place.assert_nothing_runs();
}

#[test]
fn a_signal_gives_the_call_up_and_ends_what_it_had_started() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let place = Place::new();
        let (call, url) = place.call(&["bash", r#"{"command":"echo started; sleep 600 & sleep 601"}"#]);
        let hand = place.hand(&url);
        call.stderr.wait_for_text("bma call: started");
        assert_eq!(place.processes().iter().filter(|process| process.starts_with("sleep ")).count(), 2);
        call.signal(signal);
        let called = call.end();
        called.expect_code(code);
        eventually("the sleeps are gone", || {
            let left: Vec<_> = place.processes().into_iter().filter(|process| process.starts_with("sleep")).collect();
            if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
        });
        drop(hand);
        place.assert_nothing_runs();
    }
}

#[test]
fn it_leaves_with_a_close_frame_every_time() {
    let place = Place::new();
    for round in 0..40 {
        let (call, url) = place.call(&["bash", r#"{"command":"echoed"}"#]);
        let mut executor = Scripted::registered(&url, "scripted");
        assert_eq!(executor.serve(), Came::Close(1001), "round {round}");
        executor.close(1001);
        let called = call.end();
        called.expect_code(0);
        assert_eq!(called.stdout, "echoed\n");
    }
}

#[test]
fn it_leaves_with_a_close_frame_whatever_became_of_the_call() {
    let place = Place::new();
    for (last_heard, code) in [("session.assign", 2), ("tool.call", 143)] {
        let (call, url) = place.call(&["bash", r#"{"command":"sleep"}"#]);
        let mut executor = Scripted::registered(&url, "scripted");
        let request = executor.serve_until(last_heard);
        if last_heard == "session.assign" {
            executor.reply(&request, &json!({"accepted": false, "session_id": request["params"]["session_id"]}));
        } else {
            call.signal("TERM");
        }
        assert_eq!(executor.serve(), Came::Close(1001), "{last_heard}");
        executor.close(1001);
        call.end().expect_code(code);
    }
}

#[test]
fn an_executor_that_does_not_answer_the_close_is_not_waited_for_without_end() {
    let place = Place::new();
    let (call, url) = place.call(&["bash", r#"{"command":"echoed"}"#]);
    let mut executor = Scripted::registered(&url, "scripted");
    assert_eq!(executor.serve(), Came::Close(1001));
    let asked = Instant::now();
    call.end().expect_code(0);
    assert!(asked.elapsed() < Duration::from_secs(30));
    assert_eq!(executor.receive(), Came::Nothing);
}

#[test]
fn one_hand_serves_many_calls_in_a_row_without_waiting_longer_each_time() {
    let place = Place::new();
    let listen = format!("unix://{}", place.text("socket"));
    let token = place.text("token");
    let hand = place.hand(&listen);
    hand.stderr.wait_for_text("reconnecting in");
    for round in 1..=4 {
        let arguments = ["call", "--listen", &listen, "--token-file", &token, "bash", r#"{"command":"true"}"#];
        Running::start(place.bma(&arguments)).end().expect_code(0);
        hand.stderr.wait_for_count(round, |line| line.contains("close code 1001") && line.ends_with("(attempt 1)"));
    }
    hand.signal("TERM");
    hand.end().expect_code(0);
    place.assert_nothing_runs();
}
