//! Async client and harness for the BMA Executor Protocol, bound to no executor.

pub mod cancel;
pub mod runtime;
pub mod sync;
pub mod tool;
pub mod url;

pub use bma_proto_core as proto;
pub use cancel::{CancelReason, Cancellation, Canceler};
pub use runtime::{BoxFuture, Endpoint, Listener, Readiness, Runtime, Stream, Timer};
pub use tool::{BashResult, Captured, ToolError, ToolOutput};
pub use url::{HarnessUrl, UrlError};
