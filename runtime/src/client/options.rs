//! What a client is made with.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bma_proto_core::contract::{
    Capabilities, EnvironmentId, ExecutorInfo, ExecutorTokenResponse, ProtocolVersion, Secret, defaults,
};
use bma_proto_core::executor::{Config, TokenError};

use super::listener::ExecutorListener;
use super::transport::Transport;
use crate::runtime::BoxFuture;
use crate::url::HarnessUrl;

/// Where tokens come from: asked anew for every dial.
#[derive(Clone)]
pub struct TokenSource(Arc<dyn Fn() -> BoxFuture<Result<ExecutorTokenResponse, TokenError>> + Send + Sync>);

impl TokenSource {
    /// A source that runs `fetch` for every dial.
    pub fn new<F, Fut>(fetch: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ExecutorTokenResponse, TokenError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(fetch())))
    }

    pub(super) fn fetch(&self) -> BoxFuture<Result<ExecutorTokenResponse, TokenError>> {
        (self.0)()
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource(..)")
    }
}

/// A token that never changes, for a harness that is reached directly. It may
/// be empty when the harness asks for none.
pub fn static_token(ws_url: impl Into<String>, token: Secret) -> TokenSource {
    let ws_url = ws_url.into();
    TokenSource::new(move || {
        let token =
            ExecutorTokenResponse { ws_url: ws_url.clone(), token: token.clone(), ..ExecutorTokenResponse::default() };
        std::future::ready(Ok(token))
    })
}

/// What a [`Client`](super::Client) is made with. Start from [`ClientOptions::new`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Where tokens, and with them the harness's URL, come from.
    pub token_source: TokenSource,
    /// How it comes to its connections: it dials, unless this says otherwise.
    pub transport: Transport,
    /// The executor's name, as people see it: at most 1,024 bytes.
    pub name: String,
    /// Labels that the machine's owner gives it: at most 32, each of 1 to 64
    /// characters out of `a-z 0-9 . _ -`.
    pub labels: Vec<String>,
    /// The environment it belongs to; empty for a machine-scoped executor.
    pub environment_id: EnvironmentId,
    /// What it can do, beside what registered tools add.
    pub capabilities: Capabilities,
    /// The protocol version to register with.
    pub protocol: ProtocolVersion,
    /// How long a request may stay without an answer. Default 30 s.
    pub request_timeout: Duration,
    /// Overrides the heartbeat interval that the harness gives.
    pub heartbeat_interval: Option<Duration>,
    /// The first wait before a new dial; doubles up to `reconnect_max_delay`. Default 1 s.
    pub reconnect_base_delay: Duration,
    /// The longest wait before a new dial. Default 60 s.
    pub reconnect_max_delay: Duration,
    /// Failed connections in a row after which the client ends; 0, the default, means never.
    pub max_reconnect_attempts: u32,
    /// Attempts to deliver a result, the first included. Default 5.
    pub delivery_attempts: u32,
}

impl ClientOptions {
    /// The defaults of the contract.
    pub fn new(name: impl Into<String>, token_source: TokenSource) -> Self {
        let millis = Duration::from_millis;
        Self {
            token_source,
            transport: Transport::dial(),
            name: name.into(),
            labels: Vec::new(),
            environment_id: EnvironmentId::default(),
            capabilities: Capabilities::default(),
            protocol: ProtocolVersion::V1_1,
            request_timeout: millis(defaults::REQUEST_TIMEOUT_MS),
            heartbeat_interval: None,
            reconnect_base_delay: millis(defaults::RECONNECT_BASE_DELAY_MS),
            reconnect_max_delay: millis(defaults::RECONNECT_MAX_DELAY_MS),
            max_reconnect_attempts: 0,
            delivery_attempts: 5,
        }
    }

    /// For a harness that is reached directly.
    ///
    /// # Errors
    /// When the URL is not one.
    pub fn direct(name: impl Into<String>, ws_url: &str, token: Secret) -> Result<Self, crate::url::UrlError> {
        HarnessUrl::parse(ws_url)?;
        Ok(Self::new(name, static_token(ws_url, token)))
    }

    /// For an executor that listens, and whose brain is the next harness of its machine that dials.
    ///
    /// A brain that goes is no failure, and waiting for the next one bothers nobody: the executor is there for it
    /// again within a second at most.
    pub fn listening(name: impl Into<String>, listener: ExecutorListener) -> Self {
        let token_source = static_token(listener.url(), Secret::default());
        Self {
            transport: Transport::listen(listener),
            reconnect_base_delay: Duration::from_millis(50),
            reconnect_max_delay: Duration::from_secs(1),
            ..Self::new(name, token_source)
        }
    }

    pub(super) fn into_parts(self, seed: u64) -> Result<(Config, TokenSource, Transport), OptionsError> {
        check_labels(&self.labels)?;
        if self.name.trim().is_empty() {
            return Err(OptionsError::Name);
        }
        if self.name.len() > NAME_MAX_BYTES {
            return Err(OptionsError::NameTooLong(self.name.len()));
        }
        let info = ExecutorInfo {
            name: self.name,
            os: os_name().to_owned(),
            arch: arch_name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: self.labels,
        };
        let mut config = Config::new(info, seed);
        config.environment_id = self.environment_id;
        config.capabilities = self.capabilities;
        config.protocol = self.protocol;
        config.request_timeout = self.request_timeout;
        config.heartbeat_interval = self.heartbeat_interval;
        config.reconnect_base_delay = self.reconnect_base_delay;
        config.reconnect_max_delay = self.reconnect_max_delay;
        config.max_reconnect_attempts = self.max_reconnect_attempts;
        config.delivery_attempts = self.delivery_attempts;
        config.listens = self.transport.listens();
        Ok((config, self.token_source, self.transport))
    }
}

/// How long a name may be.
const NAME_MAX_BYTES: usize = 1024;

fn check_labels(labels: &[String]) -> Result<(), OptionsError> {
    if labels.len() > defaults::LABELS_MAX {
        return Err(OptionsError::TooManyLabels(labels.len()));
    }
    let fits = |label: &str| {
        (1..=defaults::LABEL_MAX_CHARS).contains(&label.len())
            && label.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
    };
    match labels.iter().find(|label| !fits(label)) {
        Some(label) => Err(OptionsError::Label(label.clone())),
        None => Ok(()),
    }
}

/// The contract's names are those of the other SDKs: `darwin`, not `macos`.
fn os_name() -> &'static str {
    match std::env::consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

fn arch_name() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An option that the contract does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// The name is empty.
    #[error("name: it is empty, give the executor a name")]
    Name,
    /// The name has too many bytes: with a long enough one no registration would fit a frame.
    #[error("name: it has {0} bytes, at most {max} are allowed", max = NAME_MAX_BYTES)]
    NameTooLong(usize),
    /// Too many labels.
    #[error("labels: there are {0}, at most {max} are allowed", max = defaults::LABELS_MAX)]
    TooManyLabels(usize),
    /// A label with other characters, or of another length.
    #[error("labels: {0:?} is not 1 to {max} characters out of a-z 0-9 . _ -", max = defaults::LABEL_MAX_CHARS)]
    Label(String),
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    fn options(labels: Vec<String>) -> Result<(), OptionsError> {
        let mut options = ClientOptions::direct("m", "ws://127.0.0.1:1/", Secret::default()).unwrap();
        options.labels = labels;
        options.into_parts(0).map(drop)
    }

    #[test]
    fn a_name_is_neither_empty_nor_endless() {
        let named = |name: String| {
            let options = ClientOptions::direct(name, "ws://127.0.0.1:1/", Secret::default()).unwrap();
            options.into_parts(0).err()
        };
        assert_eq!(named("n".repeat(NAME_MAX_BYTES)), None);
        assert_eq!(named("n".repeat(NAME_MAX_BYTES + 1)), Some(OptionsError::NameTooLong(NAME_MAX_BYTES + 1)));
        assert_eq!(named(" ".into()), Some(OptionsError::Name));
    }

    #[test]
    fn labels_are_checked_and_the_error_names_the_bad_one() {
        assert!(options(vec!["gpu".into(), "zone.a_1-b".into()]).is_ok());
        assert_eq!(options(vec!["Ä".into()]).err(), Some(OptionsError::Label("Ä".into())));
        assert_eq!(options(vec![String::new()]).err(), Some(OptionsError::Label(String::new())));
        assert_eq!(options(vec!["a".repeat(65)]).err(), Some(OptionsError::Label("a".repeat(65))));
        assert_eq!(options(vec!["a".into(); 33]).err(), Some(OptionsError::TooManyLabels(33)));
    }
}
