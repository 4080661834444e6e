//! The closing handshake, from either end, answered or not.

use std::slice::from_ref;
use std::time::Duration;

use bma_proto_core::contract::CloseCode;
use bma_proto_core::websocket::{Channel, How, Limits, Misuse, Role, Violation};
use bma_proto_core::{Reason, Time};

use crate::support::*;

const NOW: Time = Time::ORIGIN;

#[test]
fn close_codes_are_carried_with_their_reasons_from_either_end() {
    for code in [1000, 1001, 1011, 3000, 4001, 4002, 4003, 4004, 4005, 4999] {
        for from_client in [true, false] {
            let mut pair = Pair::open(Limits::default());
            let (closer, peer) =
                if from_client { (&mut pair.client, &mut pair.server) } else { (&mut pair.server, &mut pair.client) };
            closer.close(pair.now, code, "grüße").unwrap();
            // The first close counts.
            closer.close(pair.now, 1000, "again").unwrap();
            assert!(!closer.is_open() && peer.is_open());
            assert_eq!(closer.send_text("late", &mut Vec::new()), Err(Misuse::Closing));
            pair.settle();
            let (closer, peer) = if from_client {
                (&pair.client_said, &pair.server_said)
            } else {
                (&pair.server_said, &pair.client_said)
            };
            assert_eq!(closer, &[closed(code, "grüße", How::Local)]);
            assert_eq!(peer, &[closed(code, "grüße", How::Peer)]);
            let Said::Closed(closed) = &peer[0] else { unreachable!() };
            assert!(closed.is_clean());
            assert_eq!(closed.close_code(), CloseCode::from_number(code));
        }
    }
}

#[test]
fn codes_that_must_not_be_sent_are_refused() {
    let mut channel = opened(Role::Server, Limits::default());
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000, 65_535] {
        assert_eq!(channel.close(NOW, code, ""), Err(Misuse::CloseCode(code)));
    }
    assert!(channel.is_idle());
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let mut pair = Pair::open(Limits::default());
    pair.server.close(pair.now, 4002, &"ü".repeat(100)).unwrap();
    pair.settle();
    assert_eq!(pair.client_said, [closed(4002, &"ü".repeat(61), How::Peer)]);
}

#[test]
fn messages_still_arrive_between_our_close_and_the_answer() {
    let mut pair = Pair::open(Limits::default());
    pair.client.close(pair.now, 1001, "").unwrap();
    pair.server.send_text("already under way", &mut pair.to_client).unwrap();
    pair.settle();
    assert_eq!(pair.client_said, [Said::Text("already under way".into()), closed(1001, "", How::Local)]);
}

#[test]
fn a_peer_that_never_answers_is_given_up_at_the_deadline() {
    let limits = Limits { close_timeout: Duration::from_secs(2), ..Limits::default() };
    let mut channel = opened(Role::Client, limits);
    let start = Time::from_millis(500);
    channel.close(start, 4005, "drained").unwrap();
    assert_eq!(channel.deadline(), Some((start, Reason::OutputQueued)));
    assert_eq!(close_sent(&transmitted(&mut channel)), (4005, "drained".into()));
    assert_eq!(channel.deadline(), Some((Time::from_millis(2_500), Reason::HandshakeTimeout)));
    // It goes on talking, which is no answer; pings are not answered any more.
    channel.receive(Time::from_millis(2_000), &frame(0x81, b"still here", false));
    channel.receive(Time::from_millis(2_000), &frame(0x89, b"ping", false));
    assert_eq!(drain(&mut channel), [Said::Text("still here".into())]);
    assert!(transmitted(&mut channel).is_empty());
    channel.tick(Time::from_millis(2_500));
    assert_eq!(drain(&mut channel), [closed(4005, "drained", How::LocalUnanswered)]);
    assert_eq!(channel.deadline(), None);
}

#[test]
fn a_clock_that_runs_backwards_shortens_no_time() {
    let mut channel = opened(Role::Server, Limits::default());
    channel.tick(Time::from_millis(2_000));
    channel.close(Time::from_millis(100), 1000, "").unwrap();
    transmitted(&mut channel);
    assert_eq!(channel.deadline(), Some((Time::from_millis(7_000), Reason::HandshakeTimeout)));
}

#[test]
fn a_stream_that_ends_is_lost_or_unanswered() {
    let end = |prepare: fn(&mut Channel)| {
        let mut channel = opened(Role::Server, Limits::default());
        prepare(&mut channel);
        channel.end_of_stream(NOW);
        channel.end_of_stream(NOW);
        let said = drain(&mut channel);
        assert!(channel.is_over());
        said
    };
    let lost = closed(None, "", How::Lost);
    assert_eq!(end(|_| {}), from_ref(&lost));
    assert_eq!(end(|channel| channel.receive(NOW, &frame(0x81, b"whole", true)[..7])), from_ref(&lost));
    assert_eq!(end(|channel| channel.receive(NOW, &frame(0x01, b"fragment", true))), [lost]);
    assert_eq!(end(|channel| channel.close(NOW, 1000, "").unwrap()), [closed(1000, "", How::LocalUnanswered)]);
}

#[test]
fn a_peer_that_closes_is_answered_with_its_code() {
    for (payload, answer, code, reason) in [
        (&b"\x0f\xa4gone"[..], vec![0x0f, 0xa4], Some(4004), "gone"),
        (b"", vec![], None, ""),
        // Codes that may not stand on the wire are answered as what they are.
        (b"\x03\xed", vec![0x03, 0xea], Some(1002), "Protocol violation"),
    ] {
        let mut server = opened(Role::Server, Limits::default());
        server.receive(NOW, &[frame(0x88, payload, true), frame(0x81, b"too late", true)].concat());
        assert_eq!(drain(&mut server), [closed(code, reason, How::Peer)]);
        assert_eq!(read_frames(&transmitted(&mut server)), [(8, answer)]);
        assert_eq!(server.deadline(), None);
        assert_eq!(server.send_text("x", &mut Vec::new()), Err(Misuse::Closing));
    }
}

#[test]
fn when_both_close_at_once_an_application_code_of_the_peer_counts() {
    let crossing = |ours: u16, theirs: u16| {
        let mut pair = Pair::open(Limits::default());
        pair.client.close(pair.now, ours, "ours").unwrap();
        pair.server.close(pair.now, theirs, "theirs").unwrap();
        pair.settle();
        (pair.client_said.remove(0), pair.server_said.remove(0))
    };
    let replaced = closed(4004, "theirs", How::Peer);
    assert_eq!(crossing(1001, 4004), (replaced, closed(4004, "theirs", How::Local)));
    assert_eq!(crossing(1001, 1000), (closed(1001, "ours", How::Local), closed(1000, "theirs", How::Local)));
}

#[test]
fn a_violation_ends_with_the_peers_close_the_end_or_the_deadline() {
    let violation = Violation::Binary;
    let ended = closed(1003, &violation.to_string(), How::Violation(violation));
    let broken = || {
        let mut channel = opened(Role::Server, Limits::default());
        channel.receive(NOW, &frame(0x82, b"binary", true));
        assert!(drain(&mut channel).is_empty());
        channel
    };
    let mut answered = broken();
    answered.receive(NOW, &frame(0x81, b"ignored", true));
    answered.receive(NOW, &frame(0x88, b"", true));
    assert_eq!(drain(&mut answered), from_ref(&ended));
    let mut cut = broken();
    cut.end_of_stream(NOW);
    assert_eq!(drain(&mut cut), from_ref(&ended));
    let mut silent = broken();
    silent.tick(NOW + Duration::from_secs(5));
    assert_eq!(drain(&mut silent), from_ref(&ended));
    // All in one read.
    let mut at_once = opened(Role::Server, Limits::default());
    at_once.receive(NOW, &[frame(0x82, b"binary", true), frame(0x88, b"", true)].concat());
    assert_eq!(drain(&mut at_once), [ended]);
}

#[test]
fn rubbish_after_our_close_changes_nothing_about_it() {
    let mut channel = opened(Role::Server, Limits::default());
    channel.close(NOW, 4001, "token expired").unwrap();
    channel.receive(NOW, &frame(0x82, b"binary", true));
    assert!(drain(&mut channel).is_empty());
    channel.receive(NOW, &frame(0x88, &4001u16.to_be_bytes(), true));
    assert_eq!(drain(&mut channel), [closed(4001, "token expired", How::Local)]);
    assert_eq!(read_frames(&transmitted(&mut channel)).len(), 1);
}
