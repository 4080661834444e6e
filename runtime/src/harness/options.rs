//! What a harness is made with.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bma_proto_core::contract::Secret;
use bma_proto_core::harness::{Config, Principal};
use bma_proto_core::websocket::{Limits, UpgradeRequest};

use crate::runtime::BoxFuture;

/// The shortest message limit: a registration has room in it.
const MIN_MESSAGE_BYTES: usize = 4 << 10;

/// A connection that is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Unauthorized {
    /// The HTTP status of the answer: 401 or 403.
    pub status: u16,
    /// What the answer says. Never the credential.
    pub message: String,
}

impl Unauthorized {
    /// 401: the credential is missing or wrong.
    pub fn new(message: impl Into<String>) -> Self {
        Self { status: 401, message: message.into() }
    }
}

/// Decides who a connection belongs to.
#[derive(Clone)]
pub struct Authenticator(Arc<dyn Fn(UpgradeRequest) -> BoxFuture<Result<Principal, Unauthorized>> + Send + Sync>);

impl Authenticator {
    /// Runs `authenticate` for every upgrade.
    pub fn new<F, Fut>(authenticate: F) -> Self
    where
        F: Fn(UpgradeRequest) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Principal, Unauthorized>> + Send + 'static,
    {
        Self(Arc::new(move |request| Box::pin(authenticate(request))))
    }

    /// Lets in whoever presents this bearer token.
    pub fn bearer(token: Secret) -> Self {
        Self::new(move |request: UpgradeRequest| {
            let same = request.bearer.is_some_and(|given| same_bytes(given.expose(), token.expose()));
            let answer = if same {
                Ok(Principal::default())
            } else {
                Err(Unauthorized::new("the bearer token is missing or wrong"))
            };
            std::future::ready(answer)
        })
    }

    /// Lets everybody in. Only for a listener that nobody else can reach.
    pub fn anybody() -> Self {
        Self::new(|_| std::future::ready(Ok(Principal::default())))
    }

    pub(crate) fn authenticate(&self, request: UpgradeRequest) -> BoxFuture<Result<Principal, Unauthorized>> {
        (self.0)(request)
    }
}

/// Compares without telling by the time it takes where the difference is.
fn same_bytes(a: &str, b: &str) -> bool {
    let different = a.bytes().zip(b.bytes()).fold(0, |different, (a, b)| different | (a ^ b));
    a.len() == b.len() && std::hint::black_box(different) == 0
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authenticator(..)")
    }
}

/// What a [`Harness`](super::Harness) is made with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HarnessOptions {
    /// Decides about every upgrade.
    pub authenticator: Authenticator,
    /// Heartbeats, leases, limits.
    pub config: Config,
    /// Message limits and handshake times of the connections.
    pub channel: Limits,
    /// Connections that may be in their upgrade or before their registration
    /// at a time; at the bound a new one is dropped. Default 1,024.
    pub max_upgrading: usize,
}

impl HarnessOptions {
    /// The contract's defaults.
    pub fn new(authenticator: Authenticator) -> Self {
        Self { authenticator, config: Config::default(), channel: Limits::default(), max_upgrading: 1024 }
    }

    /// The same, with every value in the range that works: a connection carries
    /// messages of 4 KiB at the least, has time for its handshake (zero stands for
    /// the default), and one at a time may be in its upgrade; the rest is what
    /// [`Config::clamped`] says. [`Harness::new`](super::Harness::new) does it to
    /// what it is given.
    #[must_use]
    pub fn clamped(mut self) -> Self {
        self.channel.max_message_bytes = self.channel.max_message_bytes.max(MIN_MESSAGE_BYTES);
        self.channel.max_mcp_message_bytes = self.channel.max_mcp_message_bytes.max(MIN_MESSAGE_BYTES);
        if self.channel.handshake_timeout.is_zero() {
            self.channel.handshake_timeout = Limits::default().handshake_timeout;
        }
        self.config = self.config.clamped(self.channel.max_message_bytes, self.channel.max_mcp_message_bytes);
        self.max_upgrading = self.max_upgrading.max(1);
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn options_that_would_not_work_are_brought_into_their_range() {
        let mut options = HarnessOptions::new(Authenticator::anybody());
        options.channel.max_message_bytes = 0;
        options.channel.handshake_timeout = Duration::ZERO;
        options.config.max_control_frame_bytes = 1 << 30;
        options.config.lease_ttl = Duration::ZERO;
        options.max_upgrading = 0;
        let options = options.clamped();
        assert_eq!((options.channel.max_message_bytes, options.config.max_control_frame_bytes), (4096, 4096));
        assert_eq!(options.channel.handshake_timeout, Duration::from_secs(10));
        assert_eq!((options.config.lease_ttl, options.max_upgrading), (Duration::from_secs(60), 1));
    }

    #[test]
    fn only_equal_tokens_are_the_same() {
        assert!(same_bytes("abc", "abc"));
        for other in ["", "ab", "abd", "abcd", "Abc"] {
            assert!(!same_bytes("abc", other) && !same_bytes(other, "abc"));
        }
    }
}
