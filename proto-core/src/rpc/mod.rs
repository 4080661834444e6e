//! JSON-RPC 2.0 as a machine: ids, pending requests and their deadlines,
//! in-flight bounds, replies, and an exact answer to every malformed frame.
//!
//! [`Peer`] is one end. It knows the catalogue, so the params of a frame are
//! read once, straight into their type; only when that fails is the frame
//! looked at a second time, to find the error code it deserves.
//!
//! ```
//! use bma_proto_core::Time;
//! use bma_proto_core::contract::{AnyParams, ProcessListParams, ProcessListResult, methods};
//! use bma_proto_core::rpc::{Config, Event, Peer, Side};
//!
//! let mut harness: Peer<&str> = Peer::new(Config::new(Side::Harness));
//! let mut executor: Peer<()> = Peer::new(Config::new(Side::Executor));
//! harness.connect();
//! executor.connect();
//!
//! // Our request goes out with a tag of ours ...
//! let params = ProcessListParams { session_id: "s1".into() };
//! harness.request::<methods::ProcessList>(Time::ORIGIN, &params, "my listing").unwrap();
//! let frame = harness.next_frame().unwrap();
//!
//! // ... the other side gets it typed and answers ...
//! let Some(Event::Request { id, params: AnyParams::ProcessList(params) }) = executor.accept(&frame) else { panic!() };
//! assert_eq!(params.session_id.as_str(), "s1");
//! executor.reply::<methods::ProcessList>(id, &ProcessListResult::default());
//!
//! // ... and the answer comes back with the tag.
//! let Some(Event::Response { tag, outcome }) = harness.accept(&executor.next_frame().unwrap()) else { panic!() };
//! assert_eq!(tag, "my listing");
//! assert!(outcome.is_ok());
//! ```

mod decode;
mod encode;
mod id;
mod inbound;
mod numbered;
mod outbox;
mod peer;
mod pending;
#[cfg(test)]
mod tests;

pub use id::RequestId;
pub use peer::{
    Config, Counters, Event, InboundId, Input, MAX_WAITING_BYTES, Misuse, Output, Peer, RequestError, Side,
};
