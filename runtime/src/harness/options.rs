//! What a harness is made with.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bma_proto_core::contract::Secret;
use bma_proto_core::harness::{Config, Principal};
use bma_proto_core::websocket::{Limits, UpgradeRequest};

use crate::runtime::BoxFuture;

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

    pub(super) fn authenticate(&self, request: UpgradeRequest) -> BoxFuture<Result<Principal, Unauthorized>> {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_equal_tokens_are_the_same() {
        assert!(same_bytes("abc", "abc"));
        for other in ["", "ab", "abd", "abcd", "Abc"] {
            assert!(!same_bytes("abc", other) && !same_bytes(other, "abc"));
        }
    }
}
