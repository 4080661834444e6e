//! What a channel is made from.

use std::fmt;
use std::time::Duration;

use super::target::{Target, push_encoded};
use super::{Role, http};
use crate::contract::{ProtocolVersion, Secret};

/// A channel's limits. The same on every runtime, and in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest message on a control channel, in bytes of its text. It bounds
    /// each frame of a message as well. Default 1 MiB: the hard bound, above the
    /// contract's own limit for control frames, which `rpc` answers with an error.
    pub max_message_bytes: usize,
    /// The same on an MCP channel. Default 8 MiB.
    pub max_mcp_message_bytes: usize,
    /// The time from the channel's creation until it must be open. Default 10 s.
    pub handshake_timeout: Duration,
    /// The time that the peer has to answer a close frame. Default 5 s.
    pub close_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_message_bytes: 1 << 20,
            max_mcp_message_bytes: 8 << 20,
            handshake_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// The message limit on a channel of this target.
    pub fn max_message_bytes_for(&self, target: &Target) -> usize {
        match target {
            Target::Control => self.max_message_bytes,
            Target::Mcp { .. } => self.max_mcp_message_bytes,
        }
    }
}

/// What the dialling end says in its upgrade request.
#[derive(Clone)]
pub struct ClientConfig {
    /// The `Host` header: the URL's host, and its port unless it is the scheme's own.
    pub host: String,
    /// Path and query of the URL, beginning with `/`. Characters beyond ASCII are percent-encoded.
    pub path_and_query: String,
    /// What the connection is for; merged into the query.
    pub target: Target,
    /// The subprotocols offered, in order of preference. Default: both versions, the newer first.
    pub protocols: Vec<String>,
    /// The token. It stands in the `Authorization` header and nowhere else; an empty one is left out.
    pub bearer: Option<Secret>,
    /// Further headers, for example `User-Agent`. Those that belong to the upgrade itself are refused.
    pub headers: Vec<(String, String)>,
    /// Limits and times.
    pub limits: Limits,
}

impl ClientConfig {
    /// A configuration with the default subprotocols and limits, and no token.
    pub fn new(host: impl Into<String>, path_and_query: impl Into<String>, target: Target) -> Self {
        Self {
            host: host.into(),
            path_and_query: path_and_query.into(),
            target,
            protocols: default_protocols(),
            bearer: None,
            headers: Vec::new(),
            limits: Limits::default(),
        }
    }

    /// The request's target, percent-encoded where needed, with [`target`](Self::target) merged in.
    pub(super) fn request_target(&self) -> Result<String, ConfigError> {
        if !self.path_and_query.starts_with('/') {
            return Err(ConfigError::Path("it must begin with /"));
        }
        let mut encoded = String::with_capacity(self.path_and_query.len());
        for byte in self.path_and_query.bytes() {
            match byte {
                b'#' => return Err(ConfigError::Path("a fragment (#) is not sent to a server")),
                b'!'..=b'~' => encoded.push(char::from(byte)),
                0x80.. => push_encoded(byte, &mut encoded),
                _ => return Err(ConfigError::Path("spaces and control characters must be percent-encoded")),
            }
        }
        Ok(self.target.merge_into(&encoded))
    }

    /// Checks what would break or forge the request.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let host_byte = |byte: u8| byte.is_ascii_graphic() && !b"/?#@\\\"<>^`{|}".contains(&byte);
        if self.host.is_empty() || !self.host.bytes().all(host_byte) {
            return Err(ConfigError::Host);
        }
        if self.protocols.is_empty() {
            return Err(ConfigError::NoProtocol);
        }
        for (place, protocol) in self.protocols.iter().enumerate() {
            if !http::is_token(protocol.as_bytes()) || self.protocols[..place].contains(protocol) {
                return Err(ConfigError::Protocol(protocol.clone()));
            }
        }
        if let Some(bearer) = &self.bearer
            && !bearer.expose().bytes().all(|byte| byte.is_ascii_graphic())
        {
            return Err(ConfigError::Bearer);
        }
        for (name, value) in &self.headers {
            let free = http::is_token(name.as_bytes()) && !http::is_reserved(name);
            if !free || !value.bytes().all(http::is_value_byte) {
                return Err(ConfigError::Header(name.clone()));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ClientConfig {
    /// Leaves out what may be a credential: the query and the values of headers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path_and_query.split('?').next().unwrap_or_default();
        let headers: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("ClientConfig")
            .field("host", &self.host)
            .field("path", &path)
            .field("target", &self.target)
            .field("protocols", &self.protocols)
            .field("bearer", &self.bearer)
            .field("headers", &headers)
            .field("limits", &self.limits)
            .finish()
    }
}

/// What the accepting end serves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The subprotocols accepted, in order of preference: the first one that the
    /// client offers as well is chosen. Default: both versions, the newer first.
    pub protocols: Vec<String>,
    /// Limits and times.
    pub limits: Limits,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self { protocols: default_protocols(), limits: Limits::default() }
    }
}

/// A WebSocket that somebody else has upgraded, such as an HTTP server with routes of its own.
#[derive(Clone, Debug)]
pub struct Upgraded {
    /// Which end this is.
    pub role: Role,
    /// The subprotocol that was agreed on.
    pub protocol: String,
    /// What the connection is for.
    pub target: Target,
    /// Limits and times.
    pub limits: Limits,
}

fn default_protocols() -> Vec<String> {
    [ProtocolVersion::V1_1, ProtocolVersion::V1].map(|version| version.as_str().to_owned()).into()
}

/// A [`ClientConfig`] from which no request can be made. No message shows a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `host` is empty or has characters that a `Host` header cannot carry.
    #[error("host: give the URL's host and port, such as example.com:8080")]
    Host,
    /// `path_and_query` cannot be a request's target.
    #[error("path_and_query: {0}")]
    Path(&'static str),
    /// `protocols` is empty.
    #[error("protocols: offer at least one subprotocol")]
    NoProtocol,
    /// One of `protocols` is no HTTP token, or stands twice.
    #[error("protocols: {0:?} is no token or stands twice")]
    Protocol(String),
    /// The token has characters that a header cannot carry.
    #[error("bearer: the token has a space, a line break or another character that a header cannot carry")]
    Bearer,
    /// A further header is malformed, or belongs to the upgrade itself.
    #[error("headers: {0:?} is malformed or belongs to the upgrade itself")]
    Header(String),
    /// The request would be longer than [`MAX_HEAD_BYTES`](super::MAX_HEAD_BYTES), which servers refuse.
    #[error("the upgrade request would be {bytes} bytes, over the {} that a server reads", super::MAX_HEAD_BYTES)]
    TooLarge {
        /// The length it would have.
        bytes: usize,
    },
}
