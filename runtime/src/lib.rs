//! Async client and harness for the BMA Executor Protocol, bound to no executor.

pub mod cancel;
pub mod client;
mod connect;
pub mod harness;
mod listening;
pub mod runtime;
mod served;
pub mod sync;
pub mod task;
pub mod tool;
mod upgrade;
pub mod url;
mod wire;

pub use bma_proto_core as proto;
pub use cancel::{CancelReason, Canceler, Cancellation};
pub use client::{
    Client, ClientError, ClientEvent, ClientOptions, ExecutorListener, HandlerTaken, RequestContext, SessionStop,
    TokenSource, ToolContext, Transport, WeakClient, static_token,
};
pub use harness::{
    Authenticator, CallToolOptions, DialExecutorError, Executor, ExecutorEvent, Harness, HarnessEvent, HarnessOptions,
    ListenError, Listening, Session, SessionTools, Unauthorized,
};
pub use runtime::{BoxFuture, Endpoint, Listener, Readiness, Runtime, Stream, Timer};
pub use served::{HarnessMethod, ServedMethod};
pub use tool::{BashResult, Captured, ToolError, ToolOutput};
pub use url::{HarnessUrl, UrlError};
