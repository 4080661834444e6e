//! Peers that were written from the contract alone, with other people's
//! WebSocket library and untyped JSON: nothing of this project is at both ends.
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

mod executor;
mod framing;
mod harness;
mod peer;
mod python;
