//! The connection's life: token, dial, register, heartbeat, back-off.

use std::time::Duration;

use super::machine::{Executor, Tag};
use super::{Config, Dial, DialError, End, Event, Output, StopCause, TokenError};
use crate::contract::{
    AnyResult, CloseCode, ConnectionState, ErrorCode, ErrorReason, ExecutorDrainParams, ExecutorHeartbeatParams,
    ExecutorHeartbeatResult, ExecutorRegisterParams, ExecutorRegisterResult, ExecutorResume, ExecutorTokenResponse,
    JSONRPCError, ProtocolVersion, defaults, methods,
};
use crate::rng::Rng;
use crate::rpc::RequestError;
use crate::time::{Reason, Time, earliest};

/// Registrations refused in a row after which trying again is of no use.
const MAX_REFUSALS: u32 = 5;

/// Closes by which a peer says that it is done, or goes away (RFC 6455, section 7.4.1).
const ORDERLY_CLOSES: [u16; 2] = [1000, 1001];

/// The lease of a harness that names none.
const DEFAULT_LEASE: Duration = Duration::from_millis(defaults::HARNESS_LEASE_TTL_MS);

/// The heartbeat interval of a harness that names none.
const DEFAULT_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(defaults::HARNESS_HEARTBEAT_INTERVAL_MS);

/// Heartbeats are never sent faster than this, whatever anybody says.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(10);

/// Hard bounds for what a registration may set the frame limit to.
const FRAME_LIMITS: std::ops::RangeInclusive<usize> = 4096..=1 << 20;

/// Where the connection is in its life.
#[derive(Clone, Debug)]
pub(super) enum Link {
    /// Not started.
    Idle,
    /// A token was asked for.
    Token { until: Time },
    /// A dial is under way, or a harness is waited for.
    Dialing { until: Option<Time> },
    /// Connected; the registration waits for its answer.
    Registering {
        /// The subprotocol of the connection.
        protocol: ProtocolVersion,
    },
    /// Registered.
    Up(Up),
    /// Waiting for the next dial.
    BackingOff { until: Time },
    /// The connection is being closed, and dialled again once it is gone. When the
    /// registration's answer has refused it, the close code says the same again and does not count.
    Closing { cause: String, refused: bool },
    /// Over for good.
    Ended(End),
}

/// A registered connection.
#[derive(Clone, Debug)]
pub(super) struct Up {
    /// What the configuration or the harness wants.
    wanted_interval: Duration,
    lease: Duration,
    next_heartbeat: Time,
    /// Set when a heartbeat went out, cleared by whatever comes back.
    silent_after: Option<Time>,
    /// When the registration counts as one that holds; cleared then.
    proven_at: Option<Time>,
    /// A session that the harness offered on this connection was taken.
    served: bool,
}

impl Up {
    /// A lease has room for three heartbeats, so that a lost one costs nothing.
    fn heartbeat_interval(&self) -> Duration {
        self.wanted_interval.min(self.lease / 3).max(MIN_HEARTBEAT_INTERVAL)
    }
}

/// What outlives a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Connections that failed or were lost in a row. One that was proven, or that served and was then
    /// closed in order, ends the row.
    failures: u32,
    /// Registrations refused in a row.
    refusals: u32,
    /// When the harness gives the sessions up if it hears nothing.
    pub(super) lease_expires: Option<Time>,
}

impl History {
    /// The connection was good: what went wrong before it counts no more.
    fn forgive(&mut self) {
        self.failures = 0;
        self.refusals = 0;
    }
}

impl Executor {
    /// Starts: the first token is asked for. Once; later calls change nothing.
    pub fn start(&mut self, now: Time) {
        self.advance(now);
        if matches!(self.link, Link::Idle) {
            self.ask_for_token();
        }
    }

    fn ask_for_token(&mut self) {
        self.link = Link::Token { until: self.now + self.config.connect_timeout };
        self.set_state(ConnectionState::Connecting);
        self.outputs.push_back(Output::FetchToken);
    }

    pub(super) fn token_came(&mut self, token: Result<ExecutorTokenResponse, TokenError>) {
        match self.link {
            Link::Token { .. } => {}
            Link::Up(_) => return self.fresh_token_came(token),
            _ => return,
        }
        match token {
            Ok(token) => {
                self.token.dialled(self.now, &token);
                let until = (!self.config.listens).then(|| self.now + self.config.connect_timeout);
                self.link = Link::Dialing { until };
                let protocol = self.config.protocol.clone();
                self.outputs.push_back(Output::Dial(Dial { ws_url: token.ws_url, token: token.token, protocol }));
            }
            Err(TokenError::Unavailable(cause)) => self.connection_failed(TokenError::Unavailable(cause).to_string()),
            Err(rejected) => self.end(End::CredentialRejected(rejected.to_string())),
        }
    }

    pub(super) fn dial_failed(&mut self, error: DialError) {
        if !matches!(self.link, Link::Dialing { .. }) {
            return;
        }
        match error {
            DialError::Failed(_) => self.connection_failed(error.to_string()),
            DialError::UnsupportedProtocol(cause) => self.end(End::UnsupportedProtocol(cause)),
            // A token can have run out on the way: a fresh one may do better, but not for ever.
            DialError::Unauthorized(_) => {
                self.history.refusals += 1;
                if self.history.refusals >= MAX_REFUSALS {
                    self.end(End::CredentialRejected(error.to_string()));
                } else {
                    self.connection_failed(error.to_string());
                }
            }
        }
    }

    pub(super) fn connected(&mut self, protocol: ProtocolVersion) {
        if !matches!(self.link, Link::Dialing { .. }) {
            return;
        }
        self.link = Link::Registering { protocol: protocol.clone() };
        self.peer.connect();
        let resume = self.identity.as_ref().map(|registered| ExecutorResume {
            executor_id: Some(registered.executor_id.clone()),
            last_connection_id: Some(registered.connection_id.clone()),
            active_sessions: self.active_sessions(),
        });
        let capabilities = self.capabilities();
        self.advertised = Some(capabilities.clone());
        let params = ExecutorRegisterParams {
            protocol,
            environment_id: self.config.environment_id.clone(),
            executor: self.config.info.clone(),
            capabilities,
            resume,
        };
        if let Err(misuse) = self.peer.request::<methods::ExecutorRegister>(self.now, &params, Tag::Register) {
            self.give_up_connection(format!("the registration cannot be sent: {misuse}"));
        }
    }

    pub(super) fn registration_answered(&mut self, outcome: Result<AnyResult, RequestError>) {
        let Link::Registering { protocol } = &self.link else { return };
        let protocol = protocol.clone();
        match outcome {
            Ok(AnyResult::ExecutorRegister(registered)) => self.registered(&protocol, *registered),
            Ok(_) => self.give_up_connection("the registration got another method's answer".to_owned()),
            Err(RequestError::Refused(error)) => {
                if error.known_code() == Some(ErrorCode::UnsupportedProtocol) {
                    return self.end(End::UnsupportedProtocol(error.message));
                }
                if is_refusal(&error) && self.registration_refused(&error.message) {
                    return;
                }
                self.close_connection(format!("the registration was refused: {error}"), true);
            }
            Err(RequestError::Disconnected) => {} // whoever lost the connection goes on from there
            Err(error) => self.give_up_connection(format!("the registration failed: {error}")),
        }
    }

    /// Counts a refusal; true when it was one too many.
    fn registration_refused(&mut self, reason: &str) -> bool {
        self.history.refusals += 1;
        if self.history.refusals >= MAX_REFUSALS {
            self.end(End::RegistrationRefused { attempts: self.history.refusals, reason: reason.to_owned() });
            return true;
        }
        false
    }

    fn registered(&mut self, protocol: &ProtocolVersion, registered: ExecutorRegisterResult) {
        let lease = positive(registered.lease_ttl_ms).unwrap_or(DEFAULT_LEASE);
        let told = positive(registered.heartbeat_interval_ms).unwrap_or(DEFAULT_HEARTBEAT_INTERVAL);
        let wanted_interval = self.config.heartbeat_interval.unwrap_or(told);
        let bounds = self.peer.config_mut();
        if let Ok(limit) = usize::try_from(registered.max_control_frame_bytes) {
            bounds.max_frame_bytes = limit.clamp(*FRAME_LIMITS.start(), *FRAME_LIMITS.end());
        }
        let inflight = registered.limits.as_ref().and_then(|limits| usize::try_from(limits.max_inflight_requests).ok());
        if let Some(inflight) = inflight.filter(|inflight| *inflight > 0) {
            bounds.max_inbound = inflight.min(4096);
            bounds.max_inflight = inflight.min(4096);
        }
        let mut up = Up {
            wanted_interval,
            lease,
            next_heartbeat: self.now,
            silent_after: None,
            proven_at: Some(self.now),
            served: false,
        };
        let first = self.now + up.heartbeat_interval();
        up.next_heartbeat = first;
        up.proven_at = Some(first);
        self.link = Link::Up(up);
        self.history.lease_expires = Some(self.now + lease);
        self.token.harness_clock(self.now, &registered.server_time);
        self.token_in_use(protocol);
        self.draining |= registered.drain;
        let drain = registered.drain;
        if self.identity.as_ref().is_some_and(|earlier| earlier.executor_id != registered.executor_id) {
            self.lose_sessions(&StopCause::NotResumed);
        }
        self.identity = Some(registered.clone());
        self.set_state(if self.draining { ConnectionState::Draining } else { ConnectionState::Ready });
        self.emit(Event::Registered(Box::new(registered)));
        if drain {
            self.drained_by_harness();
        }
        self.send_changed_capabilities();
        self.resume_deliveries();
    }

    fn send_heartbeat(&mut self) {
        let Some(connection_id) = self.identity.as_ref().map(|registered| registered.connection_id.clone()) else {
            return;
        };
        let params =
            ExecutorHeartbeatParams { connection_id, active_sessions: self.active_sessions(), load: self.load.clone() };
        let timeout = self.config.request_timeout;
        let sent = self.peer.request::<methods::ExecutorHeartbeat>(self.now, &params, Tag::Heartbeat);
        let now = self.now;
        if let Link::Up(up) = &mut self.link {
            up.next_heartbeat = now + up.heartbeat_interval();
            // Silence since an earlier heartbeat goes on counting.
            up.silent_after.get_or_insert(now + timeout.min(up.lease / 2));
        }
        if let Err(misuse) = sent {
            self.give_up_connection(format!("a heartbeat cannot be sent: {misuse}"));
        }
    }

    pub(super) fn heartbeat_answered(&mut self, outcome: Result<AnyResult, RequestError>) {
        let Ok(AnyResult::ExecutorHeartbeat(ExecutorHeartbeatResult { lease_ttl_ms, drain, server_time })) = outcome
        else {
            return; // an error answer is life as well, and was counted as such
        };
        self.token.harness_clock(self.now, &server_time);
        if let Link::Up(up) = &mut self.link {
            up.lease = positive(lease_ttl_ms).unwrap_or(up.lease);
            up.next_heartbeat = up.next_heartbeat.min(self.now + up.heartbeat_interval());
            self.history.lease_expires = Some(self.now + up.lease);
        }
        if drain {
            self.drained_by_harness();
        }
    }

    /// Something came from the peer, whatever it says: it lives, and its lease of the sessions begins anew.
    pub(super) fn heard(&mut self) {
        if let Link::Up(up) = &mut self.link {
            up.silent_after = None;
            self.history.lease_expires = Some(self.now + up.lease);
        }
    }

    /// A session was taken: the harness has put this connection to use.
    pub(super) fn has_served(&mut self) {
        if let Link::Up(up) = &mut self.link {
            up.served = true;
        }
    }

    pub(super) fn disconnected(&mut self, code: Option<u16>, reason: &str) {
        let (cause, refused) = match &self.link {
            Link::Closing { cause, refused } => (cause.clone(), *refused),
            Link::Ended(_) | Link::Idle | Link::Token { .. } | Link::BackingOff { .. } => return,
            _ => {
                let what = code.map_or("the connection was lost".to_owned(), |code| {
                    format!("the harness closed the connection (close code {code})")
                });
                (if reason.is_empty() { what } else { format!("{what}: {reason}") }, false)
            }
        };
        let proven = matches!(&self.link, Link::Up(up) if up.proven_at.is_none());
        // The harness had a use for this machine, and says that it is done: nothing has failed. Without
        // the use, one that accepts and closes at once would be dialled in a loop.
        if matches!(&self.link, Link::Up(up) if up.served) && code.is_some_and(|code| ORDERLY_CLOSES.contains(&code)) {
            self.history.forgive();
        }
        self.lose_connection();
        match code.filter(|_| !refused).and_then(CloseCode::from_number) {
            Some(CloseCode::UnsupportedProtocol) => self.end(End::UnsupportedProtocol(cause)),
            Some(CloseCode::Replaced) => self.end(End::Replaced),
            Some(CloseCode::Drained) => self.end(End::Drained),
            Some(CloseCode::RegistrationRefused) if self.registration_refused(&cause) => {}
            // A proven connection whose token's time is over: nothing is wrong.
            Some(CloseCode::TokenExpired) if proven && !self.has_nothing_to_return_for() => self.ask_for_token(),
            _ => self.connection_failed(cause),
        }
    }

    /// What a lost connection means for what was on it.
    fn lose_connection(&mut self) {
        for tag in self.peer.disconnect() {
            self.request_ended(tag, Err(RequestError::Disconnected));
        }
        self.forget_unanswered();
        self.token_out_of_use();
    }

    /// Closes a connection that is of no use, to dial again.
    pub(super) fn give_up_connection(&mut self, cause: String) {
        self.close_connection(cause, false);
    }

    fn close_connection(&mut self, cause: String, refused: bool) {
        self.lose_connection();
        self.outputs.push_back(Output::Close { code: 1000, reason: String::new() });
        self.link = Link::Closing { cause, refused };
    }

    /// An orderly end makes a new connection only for what is still to be delivered.
    fn has_nothing_to_return_for(&self) -> bool {
        self.stopping.is_some() && !self.has_undelivered()
    }

    fn connection_failed(&mut self, cause: String) {
        if self.has_nothing_to_return_for() {
            return self.end(End::Stopped);
        }
        self.history.failures += 1;
        let attempts = self.history.failures;
        let max = self.config.max_reconnect_attempts;
        if max > 0 && attempts >= max {
            return self.end(End::ReconnectExhausted { attempts, reason: cause });
        }
        let wait = jittered(&self.config, &mut self.rng, attempts);
        self.link = Link::BackingOff { until: self.now + wait };
        self.set_state(ConnectionState::Disconnected);
        self.emit(Event::Reconnecting { attempt: attempts, cause, wait });
    }

    pub(super) fn begin_drain(&mut self) {
        if !self.draining {
            self.draining = true;
            if matches!(self.link, Link::Up(_)) {
                self.set_state(ConnectionState::Draining);
            }
        }
    }

    /// An answer says that the harness drains this executor, as `executor.drain` does. Told once.
    fn drained_by_harness(&mut self) {
        self.begin_drain();
        if !std::mem::replace(&mut self.drain_told, true) {
            self.emit(Event::Drain(ExecutorDrainParams::default()));
        }
    }

    /// Ends for good. Sessions are told to the application first.
    pub(super) fn end(&mut self, end: End) {
        let was_connected = self.peer.is_connected();
        self.lose_connection();
        if was_connected {
            self.outputs.push_back(Output::Close { code: 1000, reason: String::new() });
        }
        self.link = Link::Ended(end.clone());
        self.stopping = None;
        self.lose_sessions(&StopCause::ExecutorEnded);
        self.forget_everything();
        self.set_state(ConnectionState::Closed);
        self.emit(Event::Ended(end));
    }

    pub(super) fn link_tick(&mut self) {
        let waited = self.config.connect_timeout.as_millis();
        match &mut self.link {
            Link::BackingOff { until } if *until <= self.now => self.ask_for_token(),
            Link::Token { until } if *until <= self.now => {
                self.connection_failed(TokenError::Unavailable(format!("none came within {waited} ms")).to_string());
            }
            Link::Dialing { until: Some(until) } if *until <= self.now => {
                self.give_up_connection(DialError::Failed(format!("none within {waited} ms")).to_string());
            }
            Link::Up(up) => {
                if up.silent_after.is_some_and(|at| at <= self.now) {
                    let cause = "the harness has not answered a heartbeat in time".to_owned();
                    return self.give_up_connection(cause);
                }
                if up.proven_at.is_some_and(|at| at <= self.now) {
                    up.proven_at = None;
                    self.history.forgive();
                    self.outputs.push_back(Output::Event(Event::Proven));
                }
                if up.next_heartbeat <= self.now {
                    self.send_heartbeat();
                }
                self.token_tick();
            }
            _ => {}
        }
    }

    pub(super) fn link_deadline(&self) -> Option<(Time, Reason)> {
        match &self.link {
            Link::BackingOff { until } | Link::Token { until } => Some((*until, Reason::Reconnect)),
            Link::Dialing { until } => until.map(|until| (until, Reason::Reconnect)),
            Link::Up(up) => {
                let beat = Some((up.next_heartbeat, Reason::Heartbeat));
                let proven = up.proven_at.map(|at| (at, Reason::Heartbeat));
                let silent = up.silent_after.map(|at| (at, Reason::PeerSilent));
                earliest(earliest(beat, proven), earliest(silent, self.token.deadline()))
            }
            _ => None,
        }
    }
}

/// Whether an answer to the registration is a no that stands. A harness that is full or in
/// trouble itself may think otherwise the next time.
fn is_refusal(error: &JSONRPCError) -> bool {
    let own_trouble = matches!(error.known_code(), None | Some(ErrorCode::InternalError));
    error.reason() == Some(&ErrorReason::CapabilityMissing) || !(own_trouble || error.is_retryable())
}

/// A time that the harness names: 0 or less says as little as none at all.
fn positive(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
}

/// The wait after a failure: doubles with each up to the maximum; the wait is a random one from
/// the upper half, so that many executors do not come back in one instant.
pub(super) fn jittered(config: &Config, rng: &mut Rng, failures: u32) -> Duration {
    let full = exponential(config.reconnect_base_delay, config.reconnect_max_delay, failures);
    let half = full / 2;
    half + Duration::from_nanos(rng.up_to(u64::try_from(half.as_nanos()).unwrap_or(u64::MAX)))
}

/// `base` doubled for each of `attempts` after the first, up to `max`.
pub(super) fn exponential(base: Duration, max: Duration, attempts: u32) -> Duration {
    let doublings = attempts.saturating_sub(1).min(31);
    base.saturating_mul(1 << doublings).min(max)
}
