//! One executor as its harness sees it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::events::{Admission, Events};
use super::registry::Registration;
use super::sessions::Bound;
use super::{CallError, Completion, Config, Event, Gone, Input, Output};
use crate::contract::{
    AnyParams, AnyResult, Capabilities, CloseCode, ConnectionId, Direction, ErrorCode, ExecutorDrainResult,
    ExecutorHeartbeatResult, ExecutorId, ExecutorInfo, ExecutorRegisterResult, JSONRPCError, Kind, Method,
    ProtocolVersion, SessionId, ToolCallId, methods,
};
use crate::rng::Rng;
use crate::rpc::{self, InboundId, Misuse, Peer, RequestError, Side};
use crate::time::{Machine, Reason, Time, earliest, rfc3339};

/// Bytes that may wait to be written before notifications are turned down.
const MAX_QUEUED_BYTES_FOR_NOTIFICATIONS: usize = 1 << 20;

/// What a request of ours was for.
#[derive(Clone, Debug)]
pub(super) enum Tag {
    Assign(Binding),
    Call(Binding, ToolCallId),
    Stop(Binding),
    /// Clean-up that nobody waits for.
    Nobody,
    /// `executor.drain` of the application, by its token.
    Drain(u64),
    /// A request of the application, by its token.
    Application(u64),
}

/// One binding of a session. An id that is bound a second time is another
/// session: what was asked about the first one is not about the second.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    pub(super) session_id: SessionId,
    pub(super) number: u64,
}

/// One executor, across its connections. It expires by its lease while nothing is connected.
///
/// Everything that is asked of it takes a token of the caller's choice, which
/// comes back once with [`Event::Done`].
#[derive(Clone, Debug)]
pub struct ExecutorPeer {
    pub(super) config: Arc<Config>,
    pub(super) now: Time,
    pub(super) rng: Rng,
    id: ExecutorId,
    info: ExecutorInfo,
    capabilities: Capabilities,
    protocol: ProtocolVersion,
    connection_id: Option<ConnectionId>,
    pub(super) peer: Peer<Tag>,
    last_heard: Time,
    /// It was asked to take no new sessions, and did not refuse.
    draining: bool,
    gone: Option<Gone>,
    /// Boxed, because a map makes room for eleven entries at a time and most executors have one session.
    pub(super) sessions: BTreeMap<SessionId, Box<Bound>>,
    /// Sessions bound so far.
    pub(super) bindings: u64,
    /// Calls that somebody waits for, over all sessions.
    pub(super) open_calls: usize,
    /// What the calls weigh that are not acknowledged.
    pub(super) unacknowledged_bytes: usize,
    /// Calls that nobody waits for any more, oldest first.
    pub(super) given_up: VecDeque<(Binding, ToolCallId)>,
    /// Sessions that were told to stop, and when they count as ended all the same.
    pub(super) stop_deadlines: BTreeSet<(Time, SessionId)>,
    /// What the wall clock showed, as time since the Unix epoch, and when that was.
    wall_clock: (Duration, Time),
    events: Events,
    pub(super) outputs: VecDeque<Output>,
}

impl ExecutorPeer {
    /// The machine of a new executor, not connected yet.
    pub fn new(config: Arc<Config>, id: ExecutorId, now: Time, seed: u64) -> Self {
        let mut bounds = rpc::Config::new(Side::Harness);
        bounds.request_timeout = config.request_timeout;
        bounds.max_frame_bytes = config.max_control_frame_bytes;
        let inflight = usize::try_from(config.limits.max_inflight_requests).unwrap_or(bounds.max_inflight);
        bounds.max_inflight = inflight.max(1);
        // An executor delivers as many results as it was given calls.
        bounds.max_inbound = bounds.max_inbound.max(inflight.saturating_mul(4));
        let mut rng = Rng::new(seed);
        Self {
            config,
            now,
            events: Events::new(rng.next_u64()),
            rng,
            id,
            info: ExecutorInfo::default(),
            capabilities: Capabilities::default(),
            protocol: ProtocolVersion::default(),
            connection_id: None,
            peer: Peer::new(bounds),
            last_heard: now,
            draining: false,
            gone: None,
            sessions: BTreeMap::new(),
            bindings: 0,
            open_calls: 0,
            unacknowledged_bytes: 0,
            given_up: VecDeque::new(),
            stop_deadlines: BTreeSet::new(),
            wall_clock: (Duration::ZERO, now),
            outputs: VecDeque::new(),
        }
    }

    // What it knows.

    /// The executor's id.
    pub fn id(&self) -> &ExecutorId {
        &self.id
    }

    /// What the executor says about itself.
    pub fn info(&self) -> &ExecutorInfo {
        &self.info
    }

    /// What the executor advertises.
    pub fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    /// The protocol version of the present or the last connection.
    pub fn protocol(&self) -> &ProtocolVersion {
        &self.protocol
    }

    /// The present connection, if there is one.
    pub fn connection_id(&self) -> Option<&ConnectionId> {
        self.connection_id.as_ref()
    }

    /// Tool calls that have no result yet and that somebody waits for, over all sessions.
    pub fn open_calls(&self) -> usize {
        self.open_calls
    }

    /// Why the executor is gone, once it is.
    pub fn gone(&self) -> Option<&Gone> {
        self.gone.as_ref()
    }

    // Connections.

    /// Attaches a connection. One that is there already is given up: its driver
    /// closes it with [`CloseCode::Replaced`]; frames from it must not be fed any more.
    /// `unix_time` is what the wall clock shows, for the stamps in answers.
    ///
    /// An executor that is [`gone`](ExecutorPeer::gone) stays gone: the registration is
    /// refused as one to try again, and the connection closed. Remove it from the
    /// [`Registry`](super::Registry) with [`Event::Gone`], and its next connection is placed anew.
    pub fn attach(&mut self, now: Time, registration: Registration, unix_time: Duration) {
        self.advance(now);
        if self.gone.is_some() {
            let message = "the executor's earlier registration is being given up: try again";
            let refusal = registration.refuse(&ErrorCode::ExecutorBusy.error(message).with_retryable(true));
            self.outputs.push_back(Output::Frame(refusal.frame));
            self.outputs.push_back(Output::Close { code: refusal.code, reason: "try again" });
            return;
        }
        self.wall_clock = (unix_time, self.now);
        self.lose_connection();
        let resumed = self.protocol != ProtocolVersion::default();
        let params = *registration.params;
        if params.resume.is_none() {
            // Another run of the program: what the one before has sent is not repeated.
            self.events.clear();
        }
        self.info = params.executor;
        self.capabilities = params.capabilities;
        self.protocol = params.protocol;
        self.last_heard = self.now;
        // One that no registry has placed gets an id all the same.
        let made_up = || self.rng.id("conn_");
        let connection_id: ConnectionId = registration.connection_id.unwrap_or_else(made_up);
        self.connection_id = Some(connection_id.clone());
        self.peer.connect();
        let id = self.peer.adopt(registration.request);
        let v1_1 = self.protocol == ProtocolVersion::V1_1;
        let result = ExecutorRegisterResult {
            executor_id: self.id.clone(),
            connection_id,
            server_time: self.server_time(),
            heartbeat_interval_ms: millis(self.config.heartbeat_interval),
            lease_ttl_ms: millis(self.config.lease_ttl),
            max_control_frame_bytes: count(self.config.max_control_frame_bytes),
            max_mcp_frame_bytes: count(self.config.max_mcp_frame_bytes),
            drain: self.draining,
            protocol: v1_1.then(|| self.protocol.clone()),
            limits: v1_1.then(|| self.config.limits.clone()),
        };
        self.peer.reply::<methods::ExecutorRegister>(id, &result);
        self.emit(Event::Registered { resumed });
        let reported = params.resume.map(|resume| resume.active_sessions);
        self.resume_sessions(reported.as_deref());
        self.leave_when_drained();
    }

    fn lose_connection(&mut self) {
        self.connection_id = None;
        self.events.connection_lost();
        for tag in self.peer.disconnect() {
            self.request_ended(tag, Err(RequestError::Disconnected));
        }
    }

    /// Ends for good: the executor's sessions end, and what their open calls did is unknown.
    fn leave(&mut self, gone: Gone, code: u16, reason: &'static str) {
        if self.gone.is_some() {
            return;
        }
        while let Some(frame) = self.peer.next_frame() {
            self.outputs.push_back(Output::Frame(frame));
        }
        let connected = self.connection_id.is_some();
        self.gone = Some(gone.clone());
        self.lose_connection();
        self.end_all_sessions(&format!("the executor is gone, {gone}"));
        if connected {
            self.outputs.push_back(Output::Close { code, reason });
        }
        self.emit(Event::Gone(gone));
    }

    /// Ends the executor: it is told to close, and is gone.
    pub fn close(&mut self, now: Time, reason: &str) {
        self.advance(now);
        if self.gone.is_none() && self.peer.is_connected() {
            let params = crate::contract::ExecutorCloseParams { reason: reason.to_owned() };
            // Best effort: the close of the connection says the same.
            let _ = self.peer.notify::<methods::ExecutorClose>(&params);
        }
        self.leave(Gone::Closed(reason.to_owned()), 1000, "closed by the harness");
    }

    // Requests.

    /// Sends a request of a method that executors serve; its result comes with `token`.
    ///
    /// # Errors
    /// When it cannot be sent: nothing was, and `token` does not come back. What
    /// this machine keeps account of is no plain request: sessions and tool calls
    /// have methods of their own here.
    pub fn request(&mut self, now: Time, params: &AnyParams, token: u64, timeout: Duration) -> Result<(), CallError> {
        self.advance(now);
        self.require_present()?;
        require_plain(params.method())?;
        self.require_served(params.method())?;
        let drain = matches!(params, AnyParams::ExecutorDrain(_));
        let tag = if drain { Tag::Drain(token) } else { Tag::Application(token) };
        self.peer.request_any(self.now, params, tag, timeout)?;
        Ok(())
    }

    /// Sends a notification of a method that harnesses send.
    ///
    /// # Errors
    /// When it cannot be sent, or too much waits to be written already: nothing was sent.
    pub fn notify(&mut self, params: &AnyParams) -> Result<(), CallError> {
        self.require_present()?;
        if self.peer.queued_bytes() >= MAX_QUEUED_BYTES_FOR_NOTIFICATIONS {
            return Err(CallError::Send(Misuse::Backlog(self.peer.queued_frames())));
        }
        Ok(self.peer.notify_any(params)?)
    }

    /// Answers an [`Event::Request`].
    pub fn reply(&mut self, id: InboundId, result: &AnyResult) {
        if let AnyResult::SessionEvent(answer) = result {
            for repeated in self.events.answered(&id, answer) {
                self.peer.reply_any(repeated, result);
            }
        }
        self.peer.reply_any(id, result);
    }

    /// Answers an [`Event::Request`] with an error.
    pub fn refuse(&mut self, id: InboundId, error: &JSONRPCError) {
        for repeated in self.events.refused(&id) {
            self.peer.refuse(repeated, error);
        }
        self.peer.refuse(id, error);
    }

    pub(super) fn require_present(&self) -> Result<(), CallError> {
        match self.gone {
            Some(_) => Err(CallError::ExecutorGone(self.id.clone())),
            None => Ok(()),
        }
    }

    /// A method is only sent to an executor that has advertised its capability.
    fn require_served(&self, method: Method) -> Result<(), CallError> {
        let refuse = |missing: &str| CallError::NotServed { method: method.name(), missing: missing.to_owned() };
        if method.since() == ProtocolVersion::V1_1 && self.protocol == ProtocolVersion::V1 {
            return Err(refuse("it speaks bma.executor.v1 only"));
        }
        let Some(capability) = method.capability() else { return Ok(()) };
        if self.capabilities.has(capability) {
            Ok(())
        } else {
            Err(refuse(&format!("it does not advertise {capability}")))
        }
    }

    // Inside.

    pub(super) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(super) fn emit(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(super) fn done(&mut self, token: u64, outcome: Result<Completion, CallError>) {
        self.emit(Event::Done { token, outcome });
    }

    fn frame_came(&mut self, text: &str) {
        self.last_heard = self.now;
        match self.peer.accept(text) {
            Some(rpc::Event::Request { id, params }) => self.request_came(id, params),
            Some(rpc::Event::Notification { params }) => self.notification_came(params),
            Some(rpc::Event::Response { tag, outcome }) => self.request_ended(tag, outcome),
            None => {}
        }
    }

    fn request_came(&mut self, id: InboundId, params: AnyParams) {
        match params {
            AnyParams::ExecutorHeartbeat(_) => {
                let result = ExecutorHeartbeatResult {
                    server_time: self.server_time(),
                    lease_ttl_ms: millis(self.config.lease_ttl),
                    drain: self.draining,
                };
                self.peer.reply::<methods::ExecutorHeartbeat>(id, &result);
            }
            AnyParams::ExecutorRegister(_) => {
                let error = ErrorCode::InvalidRequest.error("this connection is registered already");
                self.peer.refuse(id, &error);
            }
            AnyParams::SessionReady(params) => self.ready_came(id, &params),
            AnyParams::SessionEnded(params) => self.ended_came(id, params),
            AnyParams::ToolResult(params) => self.result_came(id, params),
            AnyParams::SessionEvent(params) => match self.events.admit(id.clone(), &params) {
                Admission::New => self.emit(Event::Request { id, params: Box::new(AnyParams::SessionEvent(params)) }),
                Admission::Waits => {}
                Admission::Answered(id, answer) => self.peer.reply::<methods::SessionEvent>(id, &answer),
            },
            other => self.emit(Event::Request { id, params: Box::new(other) }),
        }
    }

    fn server_time(&self) -> String {
        let (unix_time, at) = self.wall_clock;
        rfc3339(unix_time + self.now.saturating_since(at))
    }

    fn notification_came(&mut self, params: AnyParams) {
        match params {
            AnyParams::ExecutorCapabilitiesUpdate(params) => {
                self.capabilities = params.capabilities;
                self.emit(Event::CapabilitiesChanged);
            }
            AnyParams::ExecutorClose(params) => self.leave(Gone::Closed(params.reason), 1000, "closed"),
            AnyParams::SessionStatus(params) => self.emit(Event::SessionStatus(*params)),
            AnyParams::ToolProgress(params) => self.emit(Event::ToolProgress(params)),
            AnyParams::ProcessStatus(params) => self.emit(Event::ProcessStatus(params)),
            other => self.emit(Event::Notification(Box::new(other))),
        }
    }

    fn request_ended(&mut self, tag: Tag, outcome: Result<AnyResult, RequestError>) {
        match tag {
            Tag::Assign(binding) => self.assign_answered(&binding, outcome),
            Tag::Call(binding, call) => self.call_answered(&binding, &call, outcome),
            Tag::Stop(binding) => self.stop_answered(&binding, outcome),
            Tag::Nobody => {}
            Tag::Drain(token) => {
                let refused = matches!(
                    &outcome,
                    Err(RequestError::Refused(_))
                        | Ok(AnyResult::ExecutorDrain(ExecutorDrainResult { accepted: false, .. }))
                );
                // An executor that is away learns of it when it comes back.
                let away = outcome == Err(RequestError::Disconnected);
                self.draining |= !refused;
                self.request_ended(Tag::Application(token), outcome);
                if !away {
                    self.leave_when_drained();
                }
            }
            Tag::Application(token) => {
                let outcome = outcome.map(|result| Completion::Result(Box::new(result)));
                self.done(token, outcome.map_err(CallError::Request));
            }
        }
    }

    fn lease_deadline(&self) -> Option<(Time, Reason)> {
        match self.gone {
            Some(_) => None,
            None => Some((self.last_heard + self.config.lease_ttl, Reason::LeaseExpiry)),
        }
    }

    fn clock_deadline(&self) -> Option<(Time, Reason)> {
        let stop = self.stop_deadlines.first().map(|(at, _)| (*at, Reason::SessionDeadline));
        earliest(earliest(self.peer.next_expiry(), self.lease_deadline()), stop)
    }

    fn tick(&mut self) {
        while let Some(event) = self.peer.expire(self.now) {
            if let rpc::Event::Response { tag, outcome } = event {
                self.request_ended(tag, outcome);
            }
        }
        self.end_overdue_stops();
        if self.lease_deadline().is_some_and(|(at, _)| at <= self.now) {
            self.leave(Gone::LeaseExpired, 1001, "lease expired");
        }
    }

    /// After a drain: once the last session has ended, the executor is let go.
    pub(super) fn leave_when_drained(&mut self) {
        if self.draining && self.sessions.is_empty() {
            self.leave(Gone::Drained, CloseCode::Drained.number(), CloseCode::Drained.meaning());
        }
    }
}

/// For a driver whose connection takes no more frames just now.
impl ExecutorPeer {
    /// As [`poll`](Machine::poll), but leaves frames where they are while the
    /// connection has no room for them: there they are counted and bounded.
    #[must_use]
    pub fn poll_without_frames(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// As [`deadline`](Machine::deadline), for as long as the frames that wait cannot be taken.
    #[must_use]
    pub fn deadline_without_frames(&self) -> Option<(Time, Reason)> {
        if self.outputs.is_empty() { self.clock_deadline() } else { Some((self.now, Reason::OutputQueued)) }
    }

    /// Whether the peer must take answers before anything more is read: see [`Peer::has_too_many_answers`].
    pub fn has_too_many_answers(&self) -> bool {
        self.peer.has_too_many_answers()
    }
}

impl Machine for ExecutorPeer {
    type Input<'a> = Input<'a>;
    type Output = Output;

    fn feed(&mut self, now: Time, input: Input<'_>) {
        self.advance(now);
        match input {
            Input::Frame(text) if self.connection_id.is_some() => self.frame_came(text),
            Input::Frame(_) => {} // a connection that was given up already
            Input::Alive => self.last_heard = self.now,
            Input::Disconnected if self.connection_id.is_some() => {
                self.lose_connection();
                self.emit(Event::Disconnected);
            }
            Input::Disconnected | Input::Tick => {}
        }
        if self.clock_deadline().is_some_and(|(at, _)| at <= self.now) {
            self.tick();
        }
    }

    fn poll(&mut self) -> Option<Output> {
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        self.peer.next_frame().map(Output::Frame)
    }

    fn deadline(&self) -> Option<(Time, Reason)> {
        if !self.outputs.is_empty() || self.peer.queued_frames() > 0 {
            return Some((self.now, Reason::OutputQueued));
        }
        self.clock_deadline()
    }
}

/// What this machine keeps account of is not to be sent past it.
fn require_plain(method: Method) -> Result<(), CallError> {
    let instead = match method {
        Method::SessionAssign => "assign the session",
        Method::SessionStop => "stop the session",
        Method::ToolCall => "call the session's tool",
        Method::ToolCancel => "cancel the session's tool call",
        other if other.direction() == Direction::ExecutorToHarness => "executors send it",
        other if other.kind() == Kind::Notification => "it has no answer, notify the executor",
        _ => return Ok(()),
    };
    Err(CallError::NotPlain { method: method.name(), instead })
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
