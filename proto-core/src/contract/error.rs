//! Error codes and close codes.

use std::fmt;

use super::enums::ErrorReason;
use super::envelope::{JSONRPCError, JSONRPCErrorData};

/// Declares the contract's error codes.
macro_rules! error_codes {
    ($( $(#[$meta:meta])* $variant:ident = $code:literal, $name:literal; )+) => {
        /// A JSON-RPC error code of the contract (`error_codes`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i64)]
        pub enum ErrorCode { $( $(#[$meta])* $variant = $code, )+ }

        impl ErrorCode {
            /// Every code, with its number and name.
            pub const ALL: &'static [ErrorCode] = &[$(ErrorCode::$variant),+];

            /// The code with this number.
            pub const fn from_number(number: i64) -> Option<Self> {
                match number { $( $code => Some(Self::$variant), )+ _ => None }
            }

            /// The contract's name, which is also the default message.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }
        }
    };
}

error_codes! {
    /// The frame is not JSON.
    ParseError = -32700, "parse_error";
    /// The frame is JSON but no JSON-RPC 2.0 request.
    InvalidRequest = -32600, "invalid_request";
    /// No such method, or not in this direction.
    MethodNotFound = -32601, "method_not_found";
    /// The params lack a member or have one of the wrong shape.
    InvalidParams = -32602, "invalid_params";
    /// Anything the receiver did not foresee.
    InternalError = -32603, "internal_error";
    /// The credential is missing or wrong.
    Unauthorized = -32000, "unauthorized";
    /// The credential does not allow it, or a local policy forbids it.
    Forbidden = -32001, "forbidden";
    /// The thing named does not exist.
    NotFound = -32002, "not_found";
    /// The lease is over.
    LeaseExpired = -32003, "lease_expired";
    /// It took too long. Retryable.
    Timeout = -32004, "timeout";
    /// It was called off.
    Canceled = -32005, "canceled";
    /// A frame or a payload is over its limit.
    PayloadTooLarge = -32006, "payload_too_large";
    /// The session is not one of this executor's active ones.
    SessionNotActive = -32007, "session_not_active";
    /// The MCP server is not there.
    McpUnavailable = -32008, "mcp_unavailable";
    /// No capacity now. Retryable.
    ExecutorBusy = -32009, "executor_busy";
    /// The two sides share no protocol version.
    UnsupportedProtocol = -32010, "unsupported_protocol";
    /// A resource the request needs is not there.
    ResourceUnavailable = -32011, "resource_unavailable";
    /// The executor did not advertise the capability.
    CapabilityUnavailable = -32012, "capability_unavailable";
    /// The request contradicts the state.
    Conflict = -32013, "conflict";
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn number(self) -> i64 {
        self as i64
    }

    /// Whether a bare error of this code may be tried again: `executor_busy` and `timeout`.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::ExecutorBusy | Self::Timeout)
    }

    /// An error of this code with a message that says what happened. The message
    /// reaches the peer and logs: no credential, no content.
    pub fn error(self, message: impl Into<String>) -> JSONRPCError {
        JSONRPCError { code: self.number(), message: message.into(), data: None }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}

impl JSONRPCError {
    /// The contract's code, when it is one of them.
    pub fn known_code(&self) -> Option<ErrorCode> {
        ErrorCode::from_number(self.code)
    }

    /// Whether the request may be tried again: what `data.retryable` says, else what the code means.
    pub fn is_retryable(&self) -> bool {
        let told = self.data.as_ref().and_then(|data| data.retryable);
        told.unwrap_or_else(|| self.known_code().is_some_and(ErrorCode::is_retryable))
    }

    /// The machine-readable cause (`data.reason`).
    pub fn reason(&self) -> Option<&ErrorReason> {
        self.data.as_ref().and_then(|data| data.reason.as_ref())
    }

    /// Adds a machine-readable cause (`data.reason`).
    pub fn with_reason(mut self, reason: ErrorReason) -> Self {
        self.data_mut().reason = Some(reason);
        self
    }

    /// Adds the missing capability (`data.capability`), for example `tool:read`.
    pub fn with_capability(mut self, capability: impl Into<String>) -> Self {
        self.data_mut().capability = Some(capability.into());
        self
    }

    /// Says whether the request may be tried again (`data.retryable`).
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.data_mut().retryable = Some(retryable);
        self
    }

    /// Says what sequence `session.event` shall go on from (`data.expected_sequence`).
    pub fn with_expected_sequence(mut self, sequence: i64) -> Self {
        self.data_mut().expected_sequence = Some(sequence);
        self
    }

    fn data_mut(&mut self) -> &mut JSONRPCErrorData {
        self.data.get_or_insert_default()
    }
}

impl fmt::Display for JSONRPCError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known_code() {
            Some(code) => write!(f, "{} ({}): {}", code.name(), self.code, self.message),
            None => write!(f, "error {}: {}", self.code, self.message),
        }
    }
}

impl std::error::Error for JSONRPCError {}

/// Declares the contract's close codes.
macro_rules! close_codes {
    ($( $(#[$meta:meta])* $variant:ident = $code:literal, $meaning:literal; )+) => {
        /// A WebSocket close code of the contract (`close_codes`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum CloseCode { $( $(#[$meta])* $variant = $code, )+ }

        impl CloseCode {
            /// Every code.
            pub const ALL: &'static [CloseCode] = &[$(CloseCode::$variant),+];

            /// The code with this number.
            pub const fn from_number(number: u16) -> Option<Self> {
                match number { $( $code => Some(Self::$variant), )+ _ => None }
            }

            /// The contract's meaning, which is also the reason that is sent with it.
            pub const fn meaning(self) -> &'static str {
                match self { $( Self::$variant => $meaning, )+ }
            }
        }
    };
}

close_codes! {
    /// The token's time is over: connect again with a fresh one.
    TokenExpired = 4001, "token expired";
    /// The registration was refused. Terminal after five in a row.
    RegistrationRefused = 4002, "registration refused";
    /// The two sides share no protocol version. Terminal.
    UnsupportedProtocol = 4003, "unsupported protocol";
    /// A newer connection of the same executor took over. Terminal.
    Replaced = 4004, "replaced";
    /// The executor was drained and ended in order. Terminal.
    Drained = 4005, "drained";
}

impl CloseCode {
    /// The number on the wire.
    pub const fn number(self) -> u16 {
        self as u16
    }
}
