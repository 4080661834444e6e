//! What a fuzzer feeds the protocol's machines with. Each target is a plain
//! function over bytes that panics when something does not hold; a binary for
//! cargo-fuzz wraps each, and an ordinary test replays the corpora.

mod channel;
mod executor;
mod harness;
mod rpc;
mod script;

pub use channel::{channel_client_bytes, channel_server_bytes};
pub use executor::executor_inputs;
pub use harness::{harness_inputs, registration};
pub use rpc::{rpc_accept_executor, rpc_accept_harness};

/// A target.
pub type Target = fn(&[u8]);

/// Every target with its name, which is that of its corpus's folder too.
pub const TARGETS: &[(&str, Target)] = &[
    ("channel_client_bytes", channel_client_bytes),
    ("channel_server_bytes", channel_server_bytes),
    ("executor_inputs", executor_inputs),
    ("harness_inputs", harness_inputs),
    ("registration", registration),
    ("rpc_accept_executor", rpc_accept_executor),
    ("rpc_accept_harness", rpc_accept_harness),
];
