//! What one end of a connection makes of whatever the other one writes.
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

mod bounds;
mod ids;
mod malformed;
mod properties;
mod requests;

use serde_json::Value;

use super::{Config, Event, Peer, RequestError, Side};
use crate::Time;
use crate::contract::{AnyParams, ErrorCode, JSONRPCError, ProcessListParams, methods};

/// A connected peer of this side, with numbers for tags.
fn connected(side: Side) -> Peer<u32> {
    let mut peer = Peer::new(Config::new(side));
    peer.connect();
    peer
}

fn executor() -> Peer<u32> {
    connected(Side::Executor)
}

fn harness() -> Peer<u32> {
    connected(Side::Harness)
}

/// A request of which every executor knows the method.
fn list(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"process.list","params":{{"session_id":"s"}}}}"#)
}

/// Sends a request of the harness with this tag, and gives the frame's id as JSON text.
fn ask(peer: &mut Peer<u32>, tag: u32) -> String {
    let params = ProcessListParams { session_id: "s".into() };
    peer.request::<methods::ProcessList>(Time::ORIGIN, &params, tag).unwrap();
    let frame: Value = serde_json::from_str(&peer.next_frame().unwrap()).unwrap();
    frame["id"].to_string()
}

/// The one frame that waits to be written.
fn only_frame(peer: &mut Peer<u32>) -> Value {
    let frame = peer.next_frame().expect("an answer");
    assert_eq!(peer.next_frame(), None, "a frame gets one answer");
    serde_json::from_str(&frame).unwrap()
}

/// Feeds a frame that must be answered with an error and nothing else.
fn refusal(peer: &mut Peer<u32>, frame: &str) -> (Value, JSONRPCError) {
    assert!(peer.accept(frame).is_none(), "nothing comes out for {frame}");
    let answer = only_frame(peer);
    assert_eq!(answer["jsonrpc"], "2.0");
    assert!(answer.get("result").is_none());
    let error = serde_json::from_value(answer["error"].clone()).unwrap();
    (answer["id"].clone(), error)
}

/// Feeds a frame that must be answered with this code under this id.
#[track_caller]
fn refused(peer: &mut Peer<u32>, frame: &str, id: Value, code: ErrorCode) -> String {
    let (answered, error) = refusal(peer, frame);
    assert_eq!(error.known_code(), Some(code), "{frame}: {error}");
    assert_eq!(answered, id, "{frame}: {error}");
    error.message
}

/// The tag and the error of a response that is a failure.
#[track_caller]
fn failure(event: Option<Event<u32>>) -> (u32, RequestError) {
    match event {
        Some(Event::Response { tag, outcome: Err(error) }) => (tag, error),
        other => panic!("no failed response: {other:?}"),
    }
}

#[test]
fn events_stay_small() {
    // They are moved several times on their way; what is large is boxed.
    assert!(size_of::<AnyParams>() <= 136, "{}", size_of::<AnyParams>());
    assert!(size_of::<crate::contract::AnyResult>() <= 80, "{}", size_of::<crate::contract::AnyResult>());
    assert!(size_of::<Event<u64>>() <= 192, "{}", size_of::<Event<u64>>());
}
