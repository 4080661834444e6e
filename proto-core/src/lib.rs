//! The BMA Executor Protocol (`bma.executor.v1.1`) as pure state machines.
#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]

mod calls;
pub mod contract;
pub mod executor;
pub mod harness;
mod rng;
pub mod rpc;
pub mod time;
#[cfg(feature = "websocket")]
pub mod websocket;

pub use time::{Machine, Reason, Time};
