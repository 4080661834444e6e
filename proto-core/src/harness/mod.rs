//! The harness end: who is connected, and one machine for each executor.
//!
//! A driver reads the first frame of an upgraded connection with
//! [`read_registration`], lets the [`Registry`] place it, and attaches it to the
//! executor's [`ExecutorPeer`], which lives on, and counts its lease, while
//! nothing is connected.

mod calls;
mod events;
mod peer;
mod registry;
mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::contract::{
    AnyParams, AnyResult, ExecutorId, Limits, ProcessStatusParams, SessionId, SessionStatusParams, ToolProgressParams,
    ToolResultParams, defaults,
};
use crate::rpc::{InboundId, Misuse, RequestError};

pub use peer::ExecutorPeer;
pub use registry::{Placement, Principal, Refusal, Registration, Registry, read_registration};

/// The shortest lease: less is over before a reconnect can be.
const MIN_LEASE_TTL: Duration = Duration::from_millis(100);

/// The shortest heartbeat interval.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(10);

/// Heartbeats that fit into a lease, at the least.
const HEARTBEATS_PER_LEASE: u32 = 3;

/// The smallest frame limit: a registration and its answer have room in it.
const MIN_FRAME_BYTES: usize = 4 << 10;

/// What a harness gives its executors, and its own times.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The interval that executors send heartbeats at.
    pub heartbeat_interval: Duration,
    /// How long an executor is waited for after its last frame. Then its sessions
    /// end, and what their open calls did is unknown.
    pub lease_ttl: Duration,
    /// How long a request may stay without an answer.
    pub request_timeout: Duration,
    /// The frame limit of the control channel, in bytes.
    pub max_control_frame_bytes: usize,
    /// The frame limit of MCP channels, in bytes.
    pub max_mcp_frame_bytes: usize,
    /// The limits that executors must enforce.
    pub limits: Limits,
    /// Executors known at a time. At the bound a new one is answered `executor_busy`.
    pub max_executors: usize,
    /// Open calls of one executor. At the bound a call is [`Misuse::Backlog`].
    pub max_open_calls: usize,
    /// Bytes of calls of one executor that are kept because it has not acknowledged them: they wait their turn, or
    /// for its return. A call that comes while there are that many is [`Misuse::Backlog`].
    pub max_unacknowledged_bytes: usize,
}

/// The default of [`Config::max_unacknowledged_bytes`]: half of what the frames may hold that wait
/// their turn, so that calls which are sent again on a new connection have room there.
pub const MAX_UNACKNOWLEDGED_BYTES: usize = 8 << 20;

impl Config {
    /// The same, with every value in the range that works:
    ///
    /// - `lease_ttl` is at least 100 ms; zero stands for the default.
    /// - `heartbeat_interval` is at least 10 ms and at most a third of the lease,
    ///   so that a heartbeat or two may be late; zero stands for the default.
    /// - `request_timeout`: zero stands for the default.
    /// - `max_control_frame_bytes` is at least 4 KiB and at most `max_message_bytes`,
    ///   `max_mcp_frame_bytes` at most `max_mcp_message_bytes`: what the
    ///   connection's channel would not carry must not be promised.
    /// - No limit is negative, and `max_inflight_requests` is at least one.
    #[must_use]
    pub fn clamped(mut self, max_message_bytes: usize, max_mcp_message_bytes: usize) -> Self {
        let default = Self::default();
        let unless_zero = |asked: Duration, default: Duration| if asked.is_zero() { default } else { asked };
        self.lease_ttl = unless_zero(self.lease_ttl, default.lease_ttl).max(MIN_LEASE_TTL);
        self.heartbeat_interval = unless_zero(self.heartbeat_interval, default.heartbeat_interval)
            .min(self.lease_ttl / HEARTBEATS_PER_LEASE)
            .max(MIN_HEARTBEAT_INTERVAL);
        self.request_timeout = unless_zero(self.request_timeout, default.request_timeout);
        self.max_control_frame_bytes = self.max_control_frame_bytes.max(MIN_FRAME_BYTES).min(max_message_bytes);
        self.max_mcp_frame_bytes = self.max_mcp_frame_bytes.max(MIN_FRAME_BYTES).min(max_mcp_message_bytes);
        let Limits {
            max_inflight_requests,
            max_concurrent_process_reads,
            max_process_read_bytes,
            max_process_write_bytes,
            max_processes_per_session,
            max_artifact_bytes,
        } = &mut self.limits;
        *max_inflight_requests = (*max_inflight_requests).max(1);
        for limit in [
            max_concurrent_process_reads,
            max_process_read_bytes,
            max_process_write_bytes,
            max_processes_per_session,
            max_artifact_bytes,
        ] {
            *limit = (*limit).max(0);
        }
        self
    }
}

impl Default for Config {
    /// The contract's defaults, and the project's own where it names none.
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(defaults::HARNESS_HEARTBEAT_INTERVAL_MS),
            lease_ttl: Duration::from_millis(defaults::HARNESS_LEASE_TTL_MS),
            request_timeout: Duration::from_millis(defaults::REQUEST_TIMEOUT_MS),
            max_control_frame_bytes: defaults::MAX_CONTROL_FRAME_BYTES,
            max_mcp_frame_bytes: 8 << 20,
            limits: Limits {
                max_inflight_requests: 64,
                max_concurrent_process_reads: 16,
                max_process_read_bytes: 32 << 10,
                max_process_write_bytes: 32 << 10,
                max_processes_per_session: 64,
                max_artifact_bytes: 16 << 20,
            },
            max_executors: 10_000,
            max_open_calls: 4096,
            max_unacknowledged_bytes: MAX_UNACKNOWLEDGED_BYTES,
        }
    }
}

/// What can happen to an [`ExecutorPeer`]. A new connection comes by
/// [`ExecutorPeer::attach`].
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A text frame came on the present connection.
    Frame(&'a str),
    /// Bytes came that are no whole frame yet: the executor lives.
    Alive,
    /// The present connection is gone.
    Disconnected,
    /// Only time has passed.
    Tick,
}

/// What an [`ExecutorPeer`] wants done.
#[derive(Clone, Debug)]
pub enum Output {
    /// Write this text frame to the present connection.
    Frame(String),
    /// Close the present connection, then feed [`Input::Disconnected`].
    Close {
        /// WebSocket close code.
        code: u16,
        /// Close reason.
        reason: &'static str,
    },
    /// Tell the application.
    Event(Event),
}

/// What an [`ExecutorPeer`] tells its application.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection was attached; `resumed` when it is not the executor's first.
    Registered {
        /// Whether the executor was known.
        resumed: bool,
    },
    /// The executor advertises other capabilities.
    CapabilitiesChanged,
    /// The connection is gone. Sessions and calls wait for the executor until its lease is over.
    Disconnected,
    /// The executor is gone for good: nothing follows.
    Gone(Gone),
    /// The executor has set the session up.
    SessionReady(SessionId),
    /// The session is over.
    SessionEnded {
        /// The session.
        session_id: SessionId,
        /// Why.
        reason: String,
    },
    /// A session's status (`session.status`).
    SessionStatus(SessionStatusParams),
    /// A tool's progress (`tool.progress`).
    ToolProgress(ToolProgressParams),
    /// A process changed (`process.status`).
    ProcessStatus(Box<ProcessStatusParams>),
    /// Something that was asked for has come to its end.
    Done {
        /// The token that was given with it.
        token: u64,
        /// How it ended.
        outcome: Result<Completion, CallError>,
    },
    /// A request of the executor: answer it with [`ExecutorPeer::reply`] or [`ExecutorPeer::refuse`].
    Request {
        /// Names the request in the answer.
        id: InboundId,
        /// What the executor asks, with the method.
        params: Box<AnyParams>,
    },
    /// Any other notification of the executor.
    Notification(Box<AnyParams>),
}

/// Why an executor is gone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    /// It was not heard of for as long as its lease.
    #[error("its lease ran out: it was not heard of in time")]
    LeaseExpired,
    /// It said so itself.
    #[error("it closed: {0}")]
    Closed(String),
    /// It was drained, and its last session has ended.
    #[error("it was drained")]
    Drained,
}

/// The good end of something that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Completion {
    /// The result of a request.
    Result(Box<AnyResult>),
    /// The result of a tool call.
    Tool(Arc<ToolResultParams>),
    /// The session is ready.
    Ready,
    /// The session has ended.
    Ended,
}

/// Why something that was asked for has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The request itself came to nothing.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// It could not be sent: nothing was.
    #[error(transparent)]
    Send(#[from] Misuse),
    /// The executor answered `session.assign` with `accepted: false`.
    #[error("the executor rejected the session")]
    AssignRejected,
    /// The session has ended, or never was.
    #[error("session {session_id} is over: {reason}")]
    SessionEnded {
        /// The session.
        session_id: SessionId,
        /// Why.
        reason: String,
    },
    /// The executor was lost before the result came: the tool may have run or not.
    #[error("the outcome is unknown: {0} before the result came, the tool may or may not have run")]
    OutcomeUnknown(String),
    /// The call is over and its result is no longer kept.
    #[error("the result of this call is no longer kept: it was delivered earlier")]
    ResultForgotten,
    /// The executor's session exists already under another assignment.
    #[error("session {0} is bound already: use another session id")]
    SessionExists(SessionId),
    /// It is not asked for by a plain request: nothing was sent.
    #[error("{method} is not sent as a plain request: {instead}")]
    NotPlain {
        /// The method.
        method: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// The executor does not advertise what the method needs, or is too old for it.
    #[error("the executor does not serve {method}: {missing}")]
    NotServed {
        /// The method.
        method: &'static str,
        /// What it lacks.
        missing: String,
    },
    /// The executor is gone.
    #[error("executor {0} is gone")]
    ExecutorGone(ExecutorId),
}
