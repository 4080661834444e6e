//! How a channel ends, and what a caller may do wrong.

use std::fmt;
use std::time::Duration;

use crate::contract::CloseCode;

/// The end of a channel. Nothing comes after it; what
/// [`transmit`](super::Channel::transmit) still gives should be written before the
/// stream is shut down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The close code: the peer's, or the one sent from here. `None` when there
    /// was none: the stream just ended, a close frame was empty, or the channel never opened.
    pub code: Option<u16>,
    /// The reason that came or went with the code.
    pub reason: String,
    /// How it came about.
    pub how: How,
}

impl Closed {
    /// Whether both ends said goodbye.
    pub fn is_clean(&self) -> bool {
        matches!(self.how, How::Peer | How::Local)
    }

    /// The contract's meaning of the code, when it is one of its own.
    pub fn close_code(&self) -> Option<CloseCode> {
        self.code.and_then(CloseCode::from_number)
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.how)?;
        if let Some(code) = self.code {
            write!(f, " (code {code}")?;
            if !self.reason.is_empty() {
                write!(f, ": {}", self.reason)?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

/// How a channel came to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum How {
    /// The peer closed, and was answered. Also when the two ends closed at once
    /// and the peer's code is of the application range (4000 and up): what it says matters more.
    #[error("the peer closed the connection")]
    Peer,
    /// This end closed, and was answered.
    #[error("this end closed the connection")]
    Local,
    /// This end closed; the stream ended, or the time was over, without an answer.
    #[error("this end closed the connection and had no answer")]
    LocalUnanswered,
    /// The stream ended without a close frame (what other libraries call 1006).
    #[error("the stream ended without a close frame")]
    Lost,
    /// The peer broke the rules, and this end closed for it.
    #[error("closed because of what the peer sent: {0}")]
    Violation(#[source] Violation),
    /// The channel never opened.
    #[error("the WebSocket upgrade failed: {0}")]
    Upgrade(#[source] UpgradeError),
}

/// Why an upgrade failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// Client: the server answered something else than 101. Seen for 401 and 403
    /// when it does not accept the token: see [`is_unauthorized`](UpgradeError::is_unauthorized).
    #[error("the server answered {status} instead of 101{}{body}", if body.is_empty() { "" } else { ": " })]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// What the server said: at most 1 KiB of the body, in one line. Should it repeat the token, that is
        /// blotted out; should it hold a token so short that it can be a word, all of it is left out.
        body: String,
    },
    /// Server: the request was malformed, or the application refused it.
    #[error("refused with {status}: {message}")]
    Refused {
        /// The HTTP status that was answered.
        status: u16,
        /// The message that was answered.
        message: String,
    },
    /// Client: the server says 101, but its answer is no upgrade to WebSocket.
    #[error("the server's answer is no WebSocket upgrade: {0}; is the URL that of a harness?")]
    Answer(&'static str),
    /// Client: the head of the server's answer is longer than [`MAX_HEAD_BYTES`](super::MAX_HEAD_BYTES).
    #[error("the head of the server's answer is longer than {} bytes", super::MAX_HEAD_BYTES)]
    HeadTooLarge,
    /// The upgrade was not over in time.
    #[error("the upgrade was not complete after {} ms", .after.as_millis())]
    Timeout {
        /// The time it had: [`Limits::handshake_timeout`](super::Limits::handshake_timeout).
        after: Duration,
    },
    /// The stream ended first.
    #[error("the connection ended before the upgrade was complete")]
    Ended,
    /// This end called [`close`](super::Channel::close) first.
    #[error("closed from this end before the upgrade was complete")]
    Abandoned,
}

impl UpgradeError {
    /// The HTTP status, when one was read or written.
    pub fn status(&self) -> Option<u16> {
        match self {
            UpgradeError::Rejected { status, .. } | UpgradeError::Refused { status, .. } => Some(*status),
            UpgradeError::Answer(_)
            | UpgradeError::HeadTooLarge
            | UpgradeError::Timeout { .. }
            | UpgradeError::Ended
            | UpgradeError::Abandoned => None,
        }
    }

    /// Whether the credential is the problem: 401 or 403.
    pub fn is_unauthorized(&self) -> bool {
        matches!(self.status(), Some(401 | 403))
    }
}

/// What a peer did against the rules. Its [`Display`](fmt::Display) is the close reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A binary message. Closed with 1003.
    #[error("binary frame: this protocol has text frames only")]
    Binary,
    /// A message or a frame over the limit. Closed with 1009.
    #[error("message over the limit of {limit} bytes")]
    TooLarge {
        /// The limit, in bytes of payload.
        limit: usize,
    },
    /// Text or a close reason that is not UTF-8. Closed with 1007.
    #[error("text that is not UTF-8")]
    NotUtf8,
    /// A frame that RFC 6455 does not allow here. Closed with 1002.
    #[error("{0}")]
    Frame(String),
    /// The two ends share no subprotocol. Closed with 4003.
    #[error("no subprotocol in common: {ours} here")]
    Subprotocol {
        /// What this end accepts or offers, separated by commas.
        ours: String,
    },
}

impl Violation {
    /// The close code that it is answered with.
    pub fn close_code(&self) -> u16 {
        match self {
            Violation::Frame(_) => 1002,
            Violation::Binary => 1003,
            Violation::NotUtf8 => 1007,
            Violation::TooLarge { .. } => 1009,
            Violation::Subprotocol { .. } => CloseCode::UnsupportedProtocol.number(),
        }
    }
}

/// A call that does not fit the channel's state. The channel is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// Text can be sent from [`Output::Open`](super::Output::Open) on.
    #[error("the channel is not open yet: wait for Output::Open before sending")]
    NotOpen,
    /// The channel is closing or closed. Not always a mistake: the peer may have closed meanwhile.
    #[error("the channel is closing or closed: nothing can be sent any more")]
    Closing,
    /// The text is longer than the channel's limit, so the peer would close for it.
    #[error("a text of {bytes} bytes is over the channel's limit of {limit}: shrink it or fail the call")]
    TooLarge {
        /// The text's length in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// No upgrade request waits for an answer: it was answered, or the connection has ended.
    #[error("no upgrade request waits for an answer")]
    NoRequest,
    /// A refusal's status is 400 to 599.
    #[error("{0} is no status to refuse with: use 400 to 599")]
    Status(u16),
    /// RFC 6455 does not allow sending this close code.
    #[error("{0} is no close code to send: use 1000 to 1003, 1007 to 1014 or 3000 to 4999")]
    CloseCode(u16),
}
