//! The WebSocket channel, seen from its bytes: both ends joined in memory, and
//! either end against bytes that no channel would send.
#![cfg(feature = "websocket")]
// A test panics on purpose.
#![allow(clippy::unwrap_used)]

mod closing;
mod frames;
mod random;
mod requests;
mod responses;
mod support;
mod upgrade;
