//! Renewing the token of an open connection, before the harness closes it with 4001.
//!
//! The harness says when that is by its own clock, and tells that clock with each
//! registration and heartbeat: the two are compared with each other, and a clock
//! of this machine that is wrong changes nothing.

use std::time::Duration;

use super::link::jittered;
use super::machine::{Executor, Tag};
use super::{Event, Output, TokenError};
use crate::contract::{
    AnyResult, ErrorCode, ExecutorTokenRefreshParams, ExecutorTokenRefreshResult, ExecutorTokenResponse,
    ProtocolVersion, methods,
};
use crate::rpc::RequestError;
use crate::time::{Reason, Time, unix_time_of};

/// A token is renewed when a quarter of its time is left, and at the latest so long before its end.
const MAX_AHEAD: Duration = Duration::from_secs(300);

/// Tokens are never renewed faster than this, whatever anybody says about their time.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The token that the harness knows, and what is done to renew it.
#[derive(Clone, Debug, Default)]
pub(super) struct TokenLife {
    /// When the harness stops accepting it; `None` when nobody said.
    expires: Option<Time>,
    /// The harness's clock at a moment of ours.
    harness_clock: Option<(Time, Duration)>,
    step: Step,
    /// Attempts that failed in a row.
    failures: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// Nothing is to be done: the token has no end that is known, or it cannot be renewed.
    #[default]
    Rest,
    /// A fresh one is asked for then.
    Due { at: Time },
    /// It was asked for.
    Fetching { until: Time },
    /// The harness was given it. When it ends, by what its source said.
    Asked { expires: Option<Time> },
}

impl TokenLife {
    /// The life of the token that a connection is dialled with.
    pub(super) fn dialled(&mut self, now: Time, token: &ExecutorTokenResponse) {
        *self = TokenLife { expires: end_of(now, token), ..TokenLife::default() };
    }

    /// The harness said what its clock shows. A text that is no time says nothing.
    pub(super) fn harness_clock(&mut self, now: Time, server_time: &str) {
        if let Some(unix_time) = unix_time_of(server_time) {
            self.harness_clock = Some((now, unix_time));
        }
    }

    /// A time by the harness's clock, in ours; `None` when that clock was never told, or the time is over.
    fn by_harness_clock(&self, now: Time, stamp: &str) -> Option<Time> {
        let (told_at, told) = self.harness_clock?;
        let at = told_at + unix_time_of(stamp)?.checked_sub(told)?;
        (at > now).then_some(at)
    }

    /// Waits for the time to renew it, if that will come.
    fn plan(&mut self, now: Time) {
        self.step = match self.expires {
            Some(expires) if expires > now => {
                let left = expires.saturating_since(now);
                Step::Due { at: now + (left - (left / 4).min(MAX_AHEAD)).max(MIN_WAIT) }
            }
            _ => Step::Rest,
        };
    }

    pub(super) fn deadline(&self) -> Option<(Time, Reason)> {
        match self.step {
            Step::Due { at } | Step::Fetching { until: at } => Some((at, Reason::TokenRefresh)),
            Step::Rest | Step::Asked { .. } => None,
        }
    }
}

/// When a token that came now ends, by what its source said.
fn end_of(now: Time, token: &ExecutorTokenResponse) -> Option<Time> {
    let seconds = u64::try_from(token.expires_in).ok().filter(|seconds| *seconds > 0)?;
    Some(now + Duration::from_secs(seconds))
}

impl Executor {
    /// Registered: the token's time runs on this connection.
    pub(super) fn token_in_use(&mut self, protocol: &ProtocolVersion) {
        // The older version has no word for it.
        if *protocol == ProtocolVersion::V1_1 {
            self.token.plan(self.now);
        }
    }

    /// The connection is gone, and with it what was under way to keep it.
    pub(super) fn token_out_of_use(&mut self) {
        self.token.step = Step::Rest;
    }

    pub(super) fn token_tick(&mut self) {
        match self.token.step {
            Step::Due { at } if at <= self.now => {
                self.token.step = Step::Fetching { until: self.now + self.config.connect_timeout };
                self.outputs.push_back(Output::FetchToken);
            }
            Step::Fetching { until } if until <= self.now => {
                let waited = self.config.connect_timeout.as_millis();
                self.refresh_failed(format!("no fresh token came within {waited} ms"));
            }
            _ => {}
        }
    }

    /// A token came while the connection is open.
    pub(super) fn fresh_token_came(&mut self, token: Result<ExecutorTokenResponse, TokenError>) {
        if !matches!(self.token.step, Step::Fetching { .. }) {
            return;
        }
        match token {
            Ok(token) => {
                let expires = end_of(self.now, &token);
                let params = ExecutorTokenRefreshParams { token: token.token };
                self.token.step = Step::Asked { expires };
                let sent = self.peer.request::<methods::ExecutorTokenRefresh>(self.now, &params, Tag::TokenRefresh);
                if let Err(misuse) = sent {
                    self.refresh_failed(misuse.to_string());
                }
            }
            // The connection is good for as long as the harness says: the next dial finds out what this means.
            Err(TokenError::CredentialRejected(cause)) => {
                self.refresh_given_up(TokenError::CredentialRejected(cause).to_string());
            }
            Err(unavailable) => self.refresh_failed(unavailable.to_string()),
        }
    }

    pub(super) fn refresh_answered(&mut self, outcome: Result<AnyResult, RequestError>) {
        let Step::Asked { expires } = self.token.step else { return };
        match outcome {
            Ok(AnyResult::ExecutorTokenRefresh(ExecutorTokenRefreshResult { expires_at })) => {
                self.token.expires = self.token.by_harness_clock(self.now, &expires_at).or(expires);
                self.token.failures = 0;
                self.token.plan(self.now);
            }
            Ok(_) => self.refresh_failed("another method's answer came".to_owned()),
            Err(RequestError::Disconnected) => {} // the next connection has a fresh one
            Err(RequestError::Refused(error)) if error.known_code() == Some(ErrorCode::MethodNotFound) => {
                self.refresh_given_up(format!("the harness renews no tokens: {error}"));
            }
            Err(error) => self.refresh_failed(format!("the harness did not take the fresh token: {error}")),
        }
    }

    /// Tries again for as long as the old token is good. After that the harness closes the connection.
    fn refresh_failed(&mut self, cause: String) {
        self.token.failures += 1;
        let again = self.now + jittered(&self.config, &mut self.rng, self.token.failures);
        if self.token.expires.is_some_and(|expires| expires > again) {
            self.token.step = Step::Due { at: again };
            self.emit(Event::TokenNotRenewed { cause });
        } else {
            self.refresh_given_up(cause);
        }
    }

    /// The connection stays until the harness closes it; then a token is asked for in any case.
    fn refresh_given_up(&mut self, cause: String) {
        self.token.step = Step::Rest;
        self.emit(Event::TokenNotRenewed { cause });
    }
}
