//! What every error of this crate is in the contract's terms: its JSON-RPC
//! code, a reason for programs, and whether the same may be tried again.

use crate::contract::{ErrorCode, JSONRPCError, Method};
use crate::rpc::{Misuse, RequestError};
use crate::{executor, harness};

/// The three answers about one error.
struct Fault<'a> {
    code: i64,
    reason: &'a str,
    retryable: bool,
}

impl<'a> Fault<'a> {
    /// With the code's own retryability.
    fn new(code: ErrorCode, reason: &'a str) -> Self {
        Self { code: code.number(), reason, retryable: code.is_retryable() }
    }

    /// There is nothing more to say than the code's own name.
    fn plain(code: ErrorCode) -> Self {
        Self::new(code, code.name())
    }

    /// Not there now, and maybe later.
    fn passing(reason: &'a str) -> Self {
        Self { retryable: true, ..Self::new(ErrorCode::ResourceUnavailable, reason) }
    }

    fn answered(error: &'a JSONRPCError) -> Self {
        let name = error.known_code().map_or("unknown_error", ErrorCode::name);
        let reason = error.reason().map_or(name, |reason| reason.as_str());
        Self { code: error.code, reason, retryable: error.is_retryable() }
    }
}

/// Gives an error type its three methods.
macro_rules! fault_methods {
    ($($error:ty),+ $(,)?) => {$(
        impl $error {
            /// The JSON-RPC code that says the same: the peer's own where it answered with one.
            pub fn code(&self) -> i64 {
                self.fault().code
            }

            /// The cause for programs: the peer's own where it gave one, such as
            /// `workspace_boundary`, else a word of ours, such as `disconnected`, or the code's name.
            pub fn reason(&self) -> &str {
                self.fault().reason
            }

            /// Whether asking again can help, once the cause has passed. It says nothing
            /// about what the first asking did: after an error that leaves that open
            /// (no answer in time, a connection that was lost before the answer) the
            /// request may have taken effect. Then ask again only where a second time
            /// does no harm: a method that only reads, or one with the same key
            /// ([`Method::idempotent_by`]), such as a tool call under its `tool_call_id`.
            /// What was never sent, or was answered with an error, may be asked again
            /// in any case.
            pub fn is_retryable(&self) -> bool {
                self.fault().retryable
            }
        }
    )+};
}

fault_methods!(Misuse, RequestError, executor::CallError, harness::CallError);

impl Misuse {
    fn fault(&self) -> Fault<'_> {
        match self {
            Misuse::NotConnected => Fault::passing("disconnected"),
            Misuse::FrameTooLarge { .. } => Fault::plain(ErrorCode::PayloadTooLarge),
            Misuse::WrongWay { .. } => Fault::new(ErrorCode::InvalidRequest, "wrong_way"),
            Misuse::Backlog(_) => Fault::plain(ErrorCode::ExecutorBusy),
            Misuse::Unserializable { .. } => Fault::plain(ErrorCode::InvalidParams),
        }
    }
}

impl RequestError {
    fn fault(&self) -> Fault<'_> {
        match self {
            RequestError::Refused(error) => Fault::answered(error),
            RequestError::Timeout(_) => Fault::plain(ErrorCode::Timeout),
            RequestError::Disconnected => Fault::passing("disconnected"),
            RequestError::Malformed(_) => Fault::new(ErrorCode::InternalError, "malformed_answer"),
        }
    }
}

impl executor::CallError {
    fn fault(&self) -> Fault<'_> {
        match self {
            Self::NoSuchSession(_) => Fault::plain(ErrorCode::SessionNotActive),
            Self::NoSuchCall { .. } => Fault::new(ErrorCode::NotFound, "no_such_call"),
            Self::NotPlain { .. } => Fault::new(ErrorCode::InvalidRequest, "not_plain"),
            Self::Send(misuse) => misuse.fault(),
            Self::Refused(error) => Fault::answered(error),
        }
    }
}

impl harness::CallError {
    fn fault(&self) -> Fault<'_> {
        match self {
            Self::Request(error) => error.fault(),
            Self::Send(misuse) => misuse.fault(),
            Self::AssignRejected => Fault::new(ErrorCode::Conflict, "assign_rejected"),
            Self::SessionEnded { .. } => Fault::plain(ErrorCode::SessionNotActive),
            Self::OutcomeUnknown(_) => Fault::new(ErrorCode::InternalError, "outcome_unknown"),
            Self::ResultForgotten => Fault::new(ErrorCode::NotFound, "result_forgotten"),
            Self::SessionExists(_) => Fault::new(ErrorCode::Conflict, "session_exists"),
            Self::NotPlain { .. } => Fault::new(ErrorCode::InvalidRequest, "not_plain"),
            Self::NotServed { .. } => Fault::plain(ErrorCode::CapabilityUnavailable),
            Self::ExecutorGone(_) => Fault::new(ErrorCode::NotFound, "executor_gone"),
        }
    }

    /// The capability that the executor lacks, when that is what is wrong.
    pub fn capability(&self) -> Option<&str> {
        match self {
            Self::Request(RequestError::Refused(error)) => error.data.as_ref()?.capability.as_deref(),
            Self::NotServed { method, missing } => {
                // It may lack the protocol version instead.
                Method::from_name(method)?.capability().filter(|capability| missing.contains(capability))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ErrorReason;

    #[test]
    fn what_a_peer_says_of_its_error_is_what_the_error_says() {
        let told = ErrorCode::Forbidden.error("no").with_reason(ErrorReason::WorkspaceBoundary).with_retryable(true);
        let error = harness::CallError::Request(RequestError::Refused(Box::new(told)));
        assert_eq!((error.code(), error.reason(), error.is_retryable()), (-32001, "workspace_boundary", true));
        let bare = RequestError::Refused(Box::new(ErrorCode::ExecutorBusy.error("full")));
        assert_eq!((bare.code(), bare.reason(), bare.is_retryable()), (-32009, "executor_busy", true));
        let odd = RequestError::Refused(Box::new(JSONRPCError { code: 7, ..JSONRPCError::default() }));
        assert_eq!((odd.code(), odd.reason(), odd.is_retryable()), (7, "unknown_error", false));
    }

    #[test]
    fn an_unknown_outcome_is_never_retryable_by_itself() {
        let unknown = harness::CallError::OutcomeUnknown("lost".to_owned());
        assert_eq!((unknown.code(), unknown.reason(), unknown.is_retryable()), (-32603, "outcome_unknown", false));
        assert!(harness::CallError::Send(Misuse::NotConnected).is_retryable());
        assert!(executor::CallError::Send(Misuse::Backlog(9)).is_retryable());
    }

    #[test]
    fn a_missing_capability_is_named() {
        let error = harness::CallError::NotServed {
            method: "process.start",
            missing: "it does not advertise process.enabled".to_owned(),
        };
        assert_eq!((error.code(), error.capability()), (-32012, Some("process.enabled")));
    }
}
