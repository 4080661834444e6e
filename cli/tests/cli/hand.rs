//! `bma hand`: how it ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use base64::Engine as _;
use sha1::{Digest as _, Sha1};

use crate::support::{Place, Running, is_listening};

#[test]
fn sigterm_during_a_sleep_ends_everything_in_order() {
    let place = Place::new();
    let (call, url) = place.call(&["bash", r#"{"command":"echo started; sleep 600 & setsid sleep 601 & sleep 602"}"#]);
    let hand = place.hand(&url);
    call.stderr.wait_for_text("bma call: started");
    hand.signal("TERM");
    let hand = hand.end();
    hand.expect_code(0);
    assert!(hand.stderr.contains("SIGTERM: stopping, 1 open sessions"), "{}", hand.stderr);
    assert!(hand.stderr.ends_with("bma hand: stopped\n"), "{}", hand.stderr);
    // In order: the harness was told what became of the call.
    let called = call.end();
    called.expect_code(1);
    assert!(called.stdout.starts_with("started\n") && called.stderr.contains("canceled"), "{}", called.said());
    place.assert_nothing_runs();
    assert!(!is_listening(&url));
}

#[test]
fn nothing_of_killed_hands_lives_on() {
    let place = Place::new();
    let (call, url) = place.call(&["bash", r#"{"command":"echo started; sleep 600 & setsid sleep 601 & sleep 602"}"#]);
    let hand = place.hand(&url);
    call.stderr.wait_for_text("bma call: started");
    hand.signal("KILL");
    assert_eq!(hand.end().code(), None);
    call.signal("KILL");
    assert_eq!(call.end().code(), None);
    place.assert_nothing_runs();
}

#[test]
fn a_second_signal_ends_it_at_once() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let place = Place::new();
        // A command that does not want to end: an orderly end takes two seconds and more.
        let (call, url) =
            place.call(&["bash", r#"{"command":"trap '' TERM INT; echo started; while :; do sleep 1; done"}"#]);
        let hand = place.hand(&url);
        call.stderr.wait_for_text("bma call: started");
        hand.signal(signal);
        hand.stderr.wait_for_text("once more ends at once");
        hand.signal(signal);
        hand.end().expect_code(code);
        drop(call);
        place.assert_nothing_runs();
    }
}

#[test]
fn hands_that_never_reach_a_harness_stop_as_well() {
    let place = Place::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hand = place.hand(&format!("ws://{free}/"));
    hand.stderr.wait_for_text("reconnecting in");
    hand.signal("TERM");
    hand.end().expect_code(0);
    place.assert_nothing_runs();
}

#[test]
fn an_end_by_the_harness_is_told_with_what_to_do() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    // A harness that upgrades and speaks no version of the protocol.
    let harness = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut key = String::new();
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let line = line.unwrap();
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("sec-websocket-key")
            {
                key = value.trim().to_owned();
            }
            if line.is_empty() {
                break;
            }
        }
        let digest = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
        let accept = base64::engine::general_purpose::STANDARD.encode(digest);
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
        write!(stream, "{head}Sec-WebSocket-Accept: {accept}\r\n\r\n").unwrap();
        stream
    });
    let hand = place.hand(&url).end();
    hand.expect_code(1);
    let last = hand.stderr.lines().last().unwrap();
    assert!(last.starts_with("bma hand: ended: ") && last.contains("protocol"), "{last}");
    assert!(last.ends_with("use versions of bma and the harness that fit"), "{last}");
    drop(harness.join().unwrap());
    place.assert_nothing_runs();
}

#[test]
fn a_wrong_token_is_told_in_a_line_that_does_not_hold_it() {
    let place = Place::new();
    place.write_private("wrong", "another-t0ken");
    let (call, url) = place.call(&["bash", "{}"]);
    let hand = Running::start(place.bma(&["hand", "--url", &url, "--token-file", &place.text("wrong")]));
    let line = hand.stderr.wait_for_text("refused the token");
    assert!(line.contains("401") && line.contains("reconnecting"), "{line}");
    // A token that is renewed in its file is used at the next dial.
    std::fs::remove_file(place.path("wrong")).unwrap();
    place.write_private("wrong", crate::support::TOKEN);
    hand.stderr.wait_for_text("registered as exec_");
    call.end().expect_code(1);
    hand.signal("TERM");
    let hand = hand.end();
    hand.expect_code(0);
    assert!(!hand.said().contains("another-t0ken"), "{}", hand.said());
}

#[test]
fn a_token_that_is_a_word_like_any_other_garbles_no_line() {
    for (token, told) in
        [("token", "left out"), ("missing", "left out"), ("of-my-own", "the bearer token is missing or wrong")]
    {
        let place = Place::new();
        place.write_private("wrong", token);
        let (call, url) = place.call(&["bash", "{}"]);
        let hand = Running::start(place.bma(&["hand", "--url", &url, "--token-file", &place.text("wrong")]));
        let line = hand.stderr.wait_for_text("refused the token");
        assert!(line.contains("answered 401") && line.contains(told) && !line.contains("(token)"), "{line}");
        drop((hand, call));
        place.assert_nothing_runs();
    }
}
