//! `bma hand --listen`, and a harness that dials it.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::{Place, Running};

fn hand(place: &Place, socket: &str) -> Running {
    let arguments = ["hand", "--listen", socket, "--token-file", &place.text("token"), "--name", "testhand"];
    Running::start(place.bma(&arguments))
}

fn call(place: &Place, socket: &str, command: &str) -> Running {
    let input = serde_json::json!({ "command": command }).to_string();
    let arguments = ["call", "--dial", socket, "--token-file", &place.text("token"), "bash", &input];
    Running::start(place.bma(&arguments))
}

#[test]
fn a_hand_that_listens_serves_one_harness_after_the_other() {
    let place = Place::new();
    let socket = format!("unix://{}", place.text("run/hand.sock"));
    let hand = hand(&place, &socket);
    assert_eq!(hand.listening(), socket);
    for round in 1..=3 {
        let called = call(&place, &socket, "echo here; exit 3").end();
        called.expect_code(0);
        assert_eq!(called.stdout, "here\nexit_code: 3\n");
        assert!(called.stderr.contains("(testhand)") && !called.stderr.contains("LISTEN"), "{}", called.stderr);
        hand.stderr.wait_for_count(round, |line| line.contains("waiting for the next harness"));
    }
    hand.signal("TERM");
    let hand = hand.end();
    hand.expect_code(0);
    assert!(hand.stderr.ends_with("bma hand: stopped\n"), "{}", hand.stderr);
    assert!(!place.path("run/hand.sock").exists());
    place.assert_nothing_runs();
}

#[test]
fn a_brain_dials_until_there_is_a_hand_and_again_when_that_was_killed() {
    let place = Place::new();
    let socket = format!("unix://{}", place.text("run/hand.sock"));
    let arguments = ["brain", "--dial", &socket, "--token-file", &place.text("token")];
    let mut command = place.bma(&arguments);
    command.stdin(std::process::Stdio::piped());
    let mut brain = Running::start(command);
    let first: Value = serde_json::from_str(&brain.stdout.wait_for(|_| true)).unwrap();
    assert_eq!((&first["event"], &first["url"]), (&"dialling".into(), &socket.as_str().into()));
    brain.stderr.wait_for_text(&format!("is there a bma hand --listen {socket}?"));
    let killed = hand(&place, &socket);
    brain.stdout.wait_for_text("executor.registered");
    killed.signal("KILL");
    assert_eq!(killed.end().code(), None);
    assert!(place.path("run/hand.sock").exists(), "nobody was there to remove it");
    // The next one takes the place of what is left of it.
    let hand = hand(&place, &socket);
    brain.stdout.wait_for_count(2, |line| line.contains("executor.registered"));
    brain.tell(r#"{"id":1,"op":"assign","session_id":"s"}"#);
    brain.tell(r#"{"id":2,"op":"stop","session_id":"s"}"#);
    brain.stdout.wait_for_text(r#"{"id":2,"#);
    brain.signal("TERM");
    brain.end().expect_code(0);
    hand.signal("TERM");
    hand.end().expect_code(0);
    place.assert_nothing_runs();
}

#[test]
fn a_wrong_token_is_told_by_the_harness_that_dials() {
    let place = Place::new();
    let socket = format!("unix://{}", place.text("run/hand.sock"));
    let hand = hand(&place, &socket);
    hand.listening();
    place.write_private("wrong", "another-t0ken");
    let arguments = ["call", "--dial", &socket, "--token-file", &place.text("wrong"), "bash", "{}"];
    let call = Running::start(place.bma(&arguments));
    let line = call.stderr.wait_for_text("refused the token");
    assert!(line.contains("401") && line.contains("the one that it was started with"), "{line}");
    call.signal("TERM");
    let call = call.end();
    call.expect_code(143);
    hand.signal("TERM");
    let hand = hand.end();
    for said in [call.said(), hand.said()] {
        assert!(!said.contains("another-t0ken") && !said.contains(crate::support::TOKEN), "{said}");
    }
    place.assert_nothing_runs();
}

#[test]
fn a_place_that_does_not_do_is_refused_with_what_to_do() {
    let place = Place::new();
    let token = place.text("token");
    std::fs::create_dir(place.path("open")).unwrap();
    std::fs::set_permissions(place.path("open"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let open = format!("unix://{}", place.text("open/hand.sock"));
    for (arguments, field, fix) in [
        (["hand", "--listen", "127.0.0.1:0"], "--listen: ", "write unix:///PATH"),
        (["hand", "--listen", "/run/x"], "--listen: ", "unix:///PATH"),
        (["hand", "--listen", &open], "--listen: cannot listen on unix:///", "chmod 700 "),
        (["brain", "--dial", "ws://127.0.0.1:1/"], "--dial: ", "write unix:///PATH"),
        (["brain", "--dial", "unix:///x?y"], "--dial: ", "leave it out"),
    ] {
        let arguments = [&arguments[..], &["--token-file", &token]].concat();
        let ended = Running::start(place.bma(&arguments)).end();
        ended.expect_code(2);
        assert!(ended.stderr.contains(field) && ended.stderr.contains(fix), "{arguments:?}: {}", ended.stderr);
    }
    place.assert_nothing_runs();
}
