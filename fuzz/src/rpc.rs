//! Frames, one on each line, into one end of a connection.

use std::time::Duration;

use bma_proto_core::Time;
use bma_proto_core::contract::{AnyParams, Direction, ErrorCode, Kind, Method};
use bma_proto_core::rpc::{Config, Event, Peer, Side};

/// Anything that a harness could write, into an executor's end.
pub fn rpc_accept_executor(data: &[u8]) {
    accept(data, Side::Executor, Method::SessionEnded, r#"{"session_id":"s","reason":""}"#);
}

/// Anything that an executor could write, into a harness's end.
pub fn rpc_accept_harness(data: &[u8]) {
    accept(data, Side::Harness, Method::ProcessList, r#"{"session_id":"s"}"#);
}

fn accept(data: &[u8], side: Side, ours: Method, params: &str) {
    let text = String::from_utf8_lossy(data);
    let mut peer: Peer<usize> = connected(side);
    peer.config_mut().max_inbound = 8;
    // Some requests of ours, with the ids "1" to "4", wait for answers that the text may have.
    let params = AnyParams::read(ours, params).expect("well-formed");
    for tag in 0..4 {
        peer.request_any(Time::ORIGIN, &params, tag, Duration::from_secs(1)).expect("within the bounds");
        peer.next_frame().expect("a request");
    }
    let mut inbound = Vec::new();
    for frame in text.split('\n') {
        let event = peer.accept(frame);
        let answer = peer.next_frame();
        assert!(peer.next_frame().is_none(), "two answers");
        assert!(event.is_none() || answer.is_none(), "taken and refused");
        if let Some(answer) = answer {
            check_answer(side, &answer);
        }
        match event {
            Some(Event::Request { id, params }) => {
                check_params(&params);
                inbound.push(id);
            }
            Some(Event::Notification { params }) => check_params(&params),
            Some(Event::Response { tag, .. }) => assert!(tag < 4),
            None => {}
        }
        assert!(inbound.len() <= 16, "twice the bound, for what has a reserve");
        if inbound.len() > 6 {
            peer.refuse(inbound.remove(0), &ErrorCode::Conflict.error(frame));
            check_answer(side, &peer.next_frame().expect("an answer"));
        }
    }
    let waiting = peer.pending_requests();
    assert_eq!(peer.disconnect().len(), waiting);
}

fn connected<T>(side: Side) -> Peer<T> {
    let mut peer = Peer::new(Config::new(side));
    peer.connect();
    peer
}

fn other(side: Side) -> Side {
    match side {
        Side::Executor => Side::Harness,
        Side::Harness => Side::Executor,
    }
}

/// An answer is a frame that the other end can read, and leads to nothing more.
fn check_answer(side: Side, answer: &str) {
    assert!(answer.len() <= 65_536, "over the limit");
    let mut receiver: Peer<()> = connected(other(side));
    assert!(receiver.accept(answer).is_none());
    assert!(receiver.next_frame().is_none(), "an answer to an answer");
}

/// What came out can be sent, and is read as the same.
fn check_params(params: &AnyParams) {
    let method = params.method();
    let side = if method.direction() == Direction::HarnessToExecutor { Side::Harness } else { Side::Executor };
    let mut sender: Peer<()> = connected(side);
    let sent = match method.kind() {
        Kind::Notification => sender.notify_any(params),
        Kind::Request => sender.request_any(Time::ORIGIN, params, (), Duration::from_secs(1)).map(drop),
    };
    if sent.is_err() {
        return; // written anew it can be longer than it came
    }
    let frame = sender.next_frame().expect("a frame");
    let mut receiver: Peer<()> = connected(other(side));
    match receiver.accept(&frame) {
        Some(Event::Request { params: read, .. } | Event::Notification { params: read }) => {
            assert_eq!(&read, params, "{frame}");
        }
        unread => panic!("{frame} became {unread:?}"),
    }
}
