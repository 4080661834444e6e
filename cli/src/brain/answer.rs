//! The lines that go out.

use bma_runtime_tokio::proto::contract::{ErrorCode, Json};
use bma_runtime_tokio::proto::harness::CallError;
use bma_runtime_tokio::proto::rpc::RequestError;
use serde::Serialize;
use tokio::sync::mpsc;

/// Where lines go. A clone goes to the same place.
#[derive(Clone, Debug)]
pub(crate) struct Out(mpsc::Sender<String>);

#[derive(Serialize)]
struct Done<'a, T> {
    id: &'a Json,
    ok: bool,
    #[serde(flatten)]
    answer: &'a T,
}

#[derive(Serialize)]
struct Failed<'a> {
    id: Option<&'a Json>,
    ok: bool,
    error: &'a Fault,
}

#[derive(Serialize)]
struct Event<'a, T> {
    event: &'a str,
    #[serde(flatten)]
    what: &'a T,
}

impl Out {
    pub(crate) fn new(lines: mpsc::Sender<String>) -> Self {
        Self(lines)
    }

    /// The good answer to a request.
    pub(crate) async fn done<T: Serialize>(&self, id: &Json, answer: &T) {
        self.line(&Done { id, ok: true, answer }).await;
    }

    /// The bad answer to a request.
    pub(crate) async fn failed(&self, id: Option<&Json>, fault: &Fault) {
        self.line(&Failed { id, ok: false, error: fault }).await;
    }

    /// Something that happened.
    pub(crate) async fn event<T: Serialize>(&self, event: &str, what: &T) {
        self.line(&Event { event, what }).await;
    }

    /// Waits until nobody reads any more.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Waits while very many lines wait to be read.
    async fn line<T: Serialize>(&self, line: &T) {
        match serde_json::to_string(line) {
            // When nobody reads, the brain ends; nothing is lost by it that anybody wants.
            Ok(line) => drop(self.0.send(line).await),
            // All of them are structs of our own with string keys.
            Err(error) => tracing::error!(%error, "a line has no JSON form"),
        }
    }
}

/// The first line.
#[derive(Serialize)]
pub(crate) struct At {
    /// What executors on this machine dial, or where one is dialled.
    pub(crate) url: String,
}

/// What went wrong: the contract's code, and what a script needs to decide.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fault {
    code: i64,
    /// The cause, or else the code's name.
    reason: String,
    message: String,
    retryable: bool,
    /// What the executor lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    capability: Option<String>,
}

impl Fault {
    /// With the code's own name and retryability.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.number(),
            reason: code.name().to_owned(),
            message: message.into(),
            retryable: code.is_retryable(),
            capability: None,
        }
    }

    pub(crate) fn busy(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ExecutorBusy, message)
    }

    /// Something is not there now, and may be later.
    pub(crate) fn unavailable(reason: &str, message: impl Into<String>) -> Self {
        Self { retryable: true, ..Self::because(ErrorCode::ResourceUnavailable, reason, message) }
    }

    pub(crate) fn is(&self, code: ErrorCode) -> bool {
        self.code == code.number()
    }

    fn because(code: ErrorCode, reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.to_owned(), ..Self::new(code, message) }
    }
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        Self {
            code: error.code(),
            reason: error.reason().to_owned(),
            message: match &error {
                // The executor's own words, without what is known from the code.
                CallError::Request(RequestError::Refused(refused)) => refused.message.clone(),
                other => other.to_string(),
            },
            retryable: error.is_retryable(),
            capability: error.capability().map(str::to_owned),
        }
    }
}
