//! The executor end: token, dial, register, heartbeat, resume; sessions; tool
//! calls and the delivery of their results.
//!
//! [`Executor`] is one machine for the whole life of an executor, across any
//! number of connections. A driver does what its [`Output`]s say and feeds what
//! happened; an application answers its [`Event`]s with the methods.
//!
//! | the machine says | the driver does | and feeds |
//! |---|---|---|
//! | [`Output::FetchToken`] | gets a fresh token | [`Input::Token`] |
//! | [`Output::Dial`] | connects, upgrades | [`Input::Connected`] or [`Input::DialFailed`] |
//! | [`Output::Frame`] | writes the text frame | [`Input::Frame`] for each that comes |
//! | [`Output::Close`] | closes the connection, or gives up the dial | [`Input::Disconnected`] once it is gone |
//!
//! | the machine tells | the application answers with |
//! |---|---|
//! | [`Event::SessionAssign`] | [`Executor::accept_session`], later [`Executor::session_ready`]; or [`Executor::reject_session`] |
//! | [`Event::SessionStop`] | [`Executor::session_stopped`] and [`Executor::session_ended`], once everything of the session is gone |
//! | [`Event::ToolCall`] | [`Executor::accept_tool_call`], later [`Executor::finish_tool_call`]; or [`Executor::refuse_tool_call`] |
//! | [`Event::ToolCancel`] | ends the tool; [`Executor::finish_tool_call`] says how it ended |
//! | [`Event::Request`] | [`Executor::reply`] or [`Executor::refuse`] |

mod delivery;
mod link;
mod machine;
mod refresh;
mod sessions;
mod shrink;
#[cfg(test)]
mod tests;
mod tool_calls;

use std::fmt;
use std::time::Duration;

use crate::contract::{
    AnyParams, AnyResult, Capabilities, ConnectionState, EnvironmentId, ExecutorDrainParams, ExecutorInfo,
    ExecutorRegisterResult, ExecutorTokenResponse, JSONRPCError, ProtocolVersion, Secret, SessionAssignParams,
    SessionId, ToolCallId, ToolCallParams, ToolResultParams, defaults,
};
use crate::rpc::{InboundId, Misuse, RequestError};

pub use crate::calls::CallState;
pub use machine::Executor;

/// What an executor is made with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Seed of the machine's randomness: back-off jitter.
    pub seed: u64,
    /// What the executor says about itself.
    pub info: ExecutorInfo,
    /// Its environment; empty for a machine-scoped executor.
    pub environment_id: EnvironmentId,
    /// The protocol version to register with.
    pub protocol: ProtocolVersion,
    /// What the executor can do, beside the tools and methods that are served:
    /// those add `shell` and `files` by themselves.
    pub capabilities: Capabilities,
    /// How long a request may stay without an answer.
    pub request_timeout: Duration,
    /// How long the driver may take over a token, and over a dial. Past it the attempt counts as failed.
    pub connect_timeout: Duration,
    /// The executor listens, and the harness dials: a dial takes as long as nobody comes.
    pub listens: bool,
    /// Overrides the interval that the harness gives. Never more than a third of the lease.
    pub heartbeat_interval: Option<Duration>,
    /// The first wait before a new dial. Doubles up to `reconnect_max_delay`;
    /// the wait itself is a random one between half of that and all of it.
    pub reconnect_base_delay: Duration,
    /// The longest wait before a new dial.
    pub reconnect_max_delay: Duration,
    /// Failed connections in a row after which the executor ends with
    /// [`End::ReconnectExhausted`]; 0 means never.
    pub max_reconnect_attempts: u32,
    /// Attempts to deliver a tool result, the first included. A disconnect uses up none.
    /// A readiness or an end of session is tried for as long as there is a connection.
    pub delivery_attempts: u32,
    /// The first wait before another attempt; doubles up to `delivery_max_delay`.
    pub delivery_base_delay: Duration,
    /// The longest wait before another attempt.
    pub delivery_max_delay: Duration,
    /// How long [`Executor::stop`] waits for what is still to be delivered, connected or not.
    pub stop_grace: Duration,
    /// Sessions at a time, those included that are being taken down. At the bound an offer is answered
    /// `executor_busy`, retryable, before the application sees it.
    pub max_sessions: usize,
    /// Tool calls of one session that may be open or undelivered at a time.
    /// At the bound a call is answered `executor_busy`, retryable.
    pub max_open_calls: usize,
    /// Bytes that the tool calls of one session may hold at a time: the input of those that are open, and
    /// the results that the harness has not accepted. A call that comes while there are that many
    /// is answered `executor_busy`, retryable. The result of a call that was taken always is, too.
    pub max_session_bytes: usize,
    /// The same for all sessions together, and for what [`Executor::report_tool_result`] was handed
    /// without a record: that is [`Misuse::Backlog`] at the bound.
    pub max_held_bytes: usize,
}

/// The default of [`Config::max_sessions`].
pub const MAX_SESSIONS: usize = 1024;

/// The default of [`Config::max_open_calls`].
pub const MAX_OPEN_CALLS: usize = 1024;

/// The default of [`Config::max_session_bytes`].
pub const MAX_SESSION_BYTES: usize = 8 << 20;

/// The default of [`Config::max_held_bytes`].
pub const MAX_HELD_BYTES: usize = 32 << 20;

impl Config {
    /// The contract's defaults.
    pub fn new(info: ExecutorInfo, seed: u64) -> Self {
        Self {
            seed,
            info,
            environment_id: EnvironmentId::default(),
            protocol: ProtocolVersion::V1_1,
            capabilities: Capabilities::default(),
            request_timeout: Duration::from_millis(defaults::REQUEST_TIMEOUT_MS),
            connect_timeout: Duration::from_secs(30),
            listens: false,
            heartbeat_interval: None,
            reconnect_base_delay: Duration::from_millis(defaults::RECONNECT_BASE_DELAY_MS),
            reconnect_max_delay: Duration::from_millis(defaults::RECONNECT_MAX_DELAY_MS),
            max_reconnect_attempts: 0,
            delivery_attempts: 5,
            delivery_base_delay: Duration::from_millis(defaults::TOOL_RESULT_RETRY_BASE_DELAY_MS),
            delivery_max_delay: Duration::from_millis(defaults::TOOL_RESULT_RETRY_MAX_DELAY_MS),
            stop_grace: Duration::from_secs(5),
            max_sessions: MAX_SESSIONS,
            max_open_calls: MAX_OPEN_CALLS,
            max_session_bytes: MAX_SESSION_BYTES,
            max_held_bytes: MAX_HELD_BYTES,
        }
    }
}

/// What can happen to an executor.
#[derive(Debug)]
pub enum Input<'a> {
    /// The answer to [`Output::FetchToken`].
    Token(Result<ExecutorTokenResponse, TokenError>),
    /// The connection of [`Output::Dial`] is open, with this subprotocol.
    Connected(ProtocolVersion),
    /// The connection of [`Output::Dial`] could not be opened.
    DialFailed(DialError),
    /// A text frame came.
    Frame(&'a str),
    /// Bytes came that are no whole frame yet: the peer lives.
    Alive,
    /// The connection is gone, with the close code and reason of the peer if it sent any.
    Disconnected {
        /// The WebSocket close code.
        code: Option<u16>,
        /// The close reason, or what broke the connection.
        reason: &'a str,
    },
    /// Only time has passed.
    Tick,
}

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The credential itself was rejected (401, 403): trying again is of no use.
    #[error("the credential was rejected: {0}")]
    CredentialRejected(String),
    /// Anything that may pass.
    #[error("no token: {0}")]
    Unavailable(String),
}

/// Why a dial came to nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// The harness refused the upgrade for the token's sake (401, 403).
    #[error("the harness refused the token: {0}")]
    Unauthorized(String),
    /// The two sides share no subprotocol.
    #[error("the harness does not speak the protocol: {0}")]
    UnsupportedProtocol(String),
    /// Anything that may pass.
    #[error("no connection: {0}")]
    Failed(String),
}

/// What an executor wants done.
#[derive(Debug, Clone)]
pub enum Output {
    /// Get a fresh token, then feed [`Input::Token`]: for the next dial, or to renew that of the open connection. A
    /// fetch that is under way when this comes again is of no use any more.
    FetchToken,
    /// Connect, then feed [`Input::Connected`] or [`Input::DialFailed`].
    Dial(Dial),
    /// Write this text frame.
    Frame(String),
    /// Close the connection, then feed [`Input::Disconnected`].
    Close {
        /// WebSocket close code.
        code: u16,
        /// Close reason.
        reason: String,
    },
    /// Tell the application.
    Event(Event),
}

/// Where and how to connect.
#[derive(Clone, Debug)]
pub struct Dial {
    /// The harness.
    pub ws_url: String,
    /// Goes into the Authorization header of the upgrade, and nowhere else.
    pub token: Secret,
    /// The subprotocol to offer.
    pub protocol: ProtocolVersion,
}

/// What an executor tells its application.
#[derive(Clone, Debug)]
pub enum Event {
    /// The connection state changed.
    State(ConnectionState),
    /// A connection could not be made or was lost; the next one is dialled after the wait.
    Reconnecting {
        /// Failed connections in a row.
        attempt: u32,
        /// What went wrong.
        cause: String,
        /// The wait before the next dial.
        wait: Duration,
    },
    /// The harness took the registration.
    Registered(Box<ExecutorRegisterResult>),
    /// A fresh token could not be had, or the harness did not take it. The connection goes on as it is: it is tried
    /// again while the old token lasts, and a connection that the harness then closes is made anew.
    TokenNotRenewed {
        /// What went wrong.
        cause: String,
    },
    /// The registration has held for a heartbeat interval: it was not one that is about to be refused.
    Proven,
    /// The harness offers a session. No other offer of the same session id comes before this
    /// one was rejected, or [`Executor::session_ended`] was said of it.
    SessionAssign {
        /// Names this offer in the answer: a later one of the same session id has another.
        offer: OfferId,
        /// What is offered.
        params: Box<SessionAssignParams>,
    },
    /// The session must end: stop its tools, processes and servers. Told once for each offer,
    /// whatever reasons come together.
    SessionStop {
        /// The session.
        session_id: SessionId,
        /// The offer that it came from.
        offer: OfferId,
        /// Why.
        reason: StopCause,
        /// When the harness wants its answer, as a wait from now.
        within: Option<Duration>,
    },
    /// The harness asks for a tool. It runs at most once, whatever the connection does.
    ToolCall(Box<ToolCallParams>),
    /// A running tool call must come to its end.
    ToolCancel {
        /// The session.
        session_id: SessionId,
        /// The call.
        tool_call_id: ToolCallId,
        /// Why.
        cause: CancelCause,
    },
    /// Any other request whose method is served.
    Request {
        /// Names the request in the answer.
        id: InboundId,
        /// What the harness asks, with the method.
        params: Box<AnyParams>,
    },
    /// The harness wants no new work done here; open sessions run on.
    Drain(ExecutorDrainParams),
    /// A tool result could not be delivered: the harness refused it, did not accept it in all
    /// attempts, has given its session up, or the executor ends. The application must keep it:
    /// [`Executor::report_tool_result`] sends it again, and so does a repeated `tool.call`.
    ResultLost {
        /// The result.
        result: Box<ToolResultParams>,
        /// Why it was not accepted.
        error: RequestError,
    },
    /// A request of the application has come to its end.
    Response {
        /// The token that was given with the request.
        token: u64,
        /// The result, or why there is none.
        outcome: Result<Box<AnyResult>, RequestError>,
    },
    /// The executor has ended for good. Nothing follows.
    Ended(End),
}

/// One offer of a session, by the session's id and a number that is never used again.
///
/// A session id can be offered anew once the session before it is gone: an answer
/// that belongs to the earlier offer is not taken for the later one's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OfferId {
    session_id: SessionId,
    number: u64,
}

impl OfferId {
    /// The session that is offered.
    pub fn session_id(&self) -> &SessionId {
        &self.session_id
    }
}

impl fmt::Display for OfferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.session_id, self.number)
    }
}

/// Why a session must end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// The harness said so, with this reason.
    Requested(String),
    /// The executor was out of reach for longer than its lease: the harness has given the session up.
    LeaseExpired,
    /// The harness registered this executor anew, under another id: it knows nothing of the earlier one's sessions.
    NotResumed,
    /// The executor ends.
    ExecutorEnded,
}

/// Why a tool call must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelCause {
    /// The harness called it off.
    Canceled,
    /// Its `deadline_ms` has passed.
    Deadline,
    /// Its session ends.
    SessionStopped,
}

/// How an executor ended.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum End {
    /// [`Executor::stop`] was called.
    #[error("stopped")]
    Stopped,
    /// The harness sent `executor.close`.
    #[error("the harness closed the executor: {0}")]
    ClosedByHarness(String),
    /// Close code 4005: drained, and ended in order.
    #[error("drained")]
    Drained,
    /// Close code 4004: a newer connection of this executor took over.
    #[error("replaced by a newer connection of the same executor (4004): stop one of the two")]
    Replaced,
    /// Close code 4003, or -32010 to the registration, or no common subprotocol.
    #[error("the harness does not speak this protocol version: {0}")]
    UnsupportedProtocol(String),
    /// The credential was rejected.
    #[error("{0}")]
    CredentialRejected(String),
    /// The registration was refused several times in a row.
    #[error("the harness refused the registration {attempts} times in a row, the last time: {reason}")]
    RegistrationRefused {
        /// How many times.
        attempts: u32,
        /// What the harness said last.
        reason: String,
    },
    /// [`Config::max_reconnect_attempts`] connections failed in a row.
    #[error("{attempts} connections failed in a row, the last one: {reason}")]
    ReconnectExhausted {
        /// How many.
        attempts: u32,
        /// What went wrong last.
        reason: String,
    },
}

impl End {
    /// Whether this is an orderly end and no failure.
    pub fn is_orderly(&self) -> bool {
        matches!(self, End::Stopped | End::ClosedByHarness(_) | End::Drained)
    }
}

/// An application's call that does not fit the state. Nothing was changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// No such session here, or not in a state for this.
    #[error("session {0} is not one that this can be done to now")]
    NoSuchSession(SessionId),
    /// No such open call in the session.
    #[error("session {session_id} has no open tool call {tool_call_id}")]
    NoSuchCall {
        /// The session.
        session_id: SessionId,
        /// The call.
        tool_call_id: ToolCallId,
    },
    /// The machine keeps account of it: nothing was sent.
    #[error("{method} is not sent as a plain request: {instead}")]
    NotPlain {
        /// The method.
        method: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// The executor is not registered, or what should be sent cannot be.
    #[error(transparent)]
    Send(#[from] Misuse),
    /// The answer is an error that says so to the harness as well.
    #[error(transparent)]
    Refused(Box<JSONRPCError>),
}
