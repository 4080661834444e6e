//! Async client and harness for the BMA Executor Protocol, bound to no executor.

pub mod runtime;

pub use bma_proto_core as proto;
pub use runtime::{BoxFuture, Endpoint, Listener, Readiness, Runtime, Stream, Timer};
