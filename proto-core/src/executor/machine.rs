//! The executor machine: its state, its three verbs, and the plain requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::delivery::{Attempt, Delivery};
use super::link::{History, Link};
use super::refresh::TokenLife;
use super::sessions::{Session, not_active};
use super::{CallError, Config, End, Event, Input, Output};
use crate::contract::{
    AnyParams, AnyResult, Capabilities, ConnectionState, ErrorCode, ExecutorCapabilitiesUpdateParams,
    ExecutorCloseParams, ExecutorDrainResult, ExecutorLoad, ExecutorRegisterResult, FilesCapability, JSONRPCError,
    Method, NotificationMethod, SessionId, ShellCapability, ToolCallId, ToolName, ToolResultParams, methods,
};
use crate::rng::Rng;
use crate::rpc::{self, InboundId, Misuse, Peer, RequestError, RequestId, Side};
use crate::time::{Machine, Reason, Time, earliest};

/// Frames that may wait before best-effort ones (progress, status) are dropped.
const MAX_QUEUED_FOR_BEST_EFFORT: usize = 256;

/// The same in bytes.
const MAX_QUEUED_BYTES_FOR_BEST_EFFORT: usize = 256 * 1024;

/// What a request of ours was for.
#[derive(Clone, Debug)]
pub(super) enum Tag {
    Register,
    Heartbeat,
    TokenRefresh,
    Delivery(Attempt),
    /// A request of the application, by its token.
    Application(u64),
}

/// The orderly end that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Stopping {
    reason: String,
    deadline: Time,
}

/// The executor end of the protocol. See the [module](super) for how it is driven.
#[derive(Clone, Debug)]
pub struct Executor {
    pub(super) config: Config,
    pub(super) now: Time,
    pub(super) rng: Rng,
    pub(super) peer: Peer<Tag>,
    pub(super) link: Link,
    pub(super) history: History,
    pub(super) token: TokenLife,
    /// What the last registration said.
    pub(super) identity: Option<ExecutorRegisterResult>,
    pub(super) state: ConnectionState,
    pub(super) draining: bool,
    /// Whether the application was told that the harness drains this executor.
    pub(super) drain_told: bool,
    pub(super) stopping: Option<Stopping>,
    pub(super) load: Option<ExecutorLoad>,
    tools: BTreeSet<ToolName>,
    methods: BTreeSet<Method>,
    /// The capabilities that the harness was told last, on the present connection.
    pub(super) advertised: Option<Capabilities>,
    pub(super) sessions: BTreeMap<SessionId, Session>,
    /// Bytes of open calls and of results that are not accepted, over all sessions and of none.
    pub(super) held_bytes: usize,
    /// Offers made to the application so far.
    pub(super) offers: u64,
    /// Results that the application handed in and no session has a record of.
    pub(super) reported: BTreeMap<(SessionId, ToolCallId), Arc<ToolResultParams>>,
    /// When a tool call's own deadline passes.
    pub(super) call_deadlines: BTreeSet<(Time, SessionId, ToolCallId)>,
    /// When an assignment or a stop must be answered.
    pub(super) session_deadlines: BTreeSet<(Time, SessionId)>,
    /// Deliveries that wait for a registration.
    pub(super) held: Vec<Attempt>,
    /// Deliveries that wait for their next attempt.
    pub(super) retries: BTreeSet<(Time, Attempt)>,
    /// Every delivery that is under way: in flight, held, or waiting for its next attempt.
    pub(super) under_way: BTreeSet<Delivery>,
    pub(super) outputs: VecDeque<Output>,
    dropped_previews: u64,
}

impl Executor {
    /// An executor that does nothing until [`start`](Executor::start).
    pub fn new(config: Config) -> Self {
        let mut bounds = rpc::Config::new(Side::Executor);
        bounds.request_timeout = config.request_timeout;
        Self {
            now: Time::ORIGIN,
            rng: Rng::new(config.seed),
            peer: Peer::new(bounds),
            link: Link::Idle,
            history: History::default(),
            token: TokenLife::default(),
            identity: None,
            state: ConnectionState::Disconnected,
            draining: false,
            drain_told: false,
            stopping: None,
            load: None,
            tools: BTreeSet::new(),
            methods: BTreeSet::new(),
            advertised: None,
            sessions: BTreeMap::new(),
            held_bytes: 0,
            offers: 0,
            reported: BTreeMap::new(),
            call_deadlines: BTreeSet::new(),
            session_deadlines: BTreeSet::new(),
            held: Vec::new(),
            retries: BTreeSet::new(),
            under_way: BTreeSet::new(),
            outputs: VecDeque::new(),
            dropped_previews: 0,
            config,
        }
    }

    // What it knows.

    /// The connection state.
    pub fn state(&self) -> &ConnectionState {
        &self.state
    }

    /// What the last registration said: ids, intervals, limits.
    pub fn registration(&self) -> Option<&ExecutorRegisterResult> {
        self.identity.as_ref()
    }

    /// How it ended, once it has.
    pub fn end_state(&self) -> Option<&End> {
        match &self.link {
            Link::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// How long a request may stay without an answer.
    pub fn request_timeout(&self) -> Duration {
        self.config.request_timeout
    }

    /// Best-effort notifications that were dropped because too much waited already.
    pub fn dropped_previews(&self) -> u64 {
        self.dropped_previews
    }

    /// Bytes that open tool calls and undelivered results hold, about: see [`Config::max_held_bytes`].
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// What the executor advertises: the configured capabilities, and those that its tools bring.
    pub fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.config.capabilities.clone();
        if self.tools.contains(&ToolName::Bash) {
            capabilities.shell.get_or_insert(ShellCapability { enabled: true });
        }
        let file_tools =
            [ToolName::Read, ToolName::Write, ToolName::Edit, ToolName::Glob, ToolName::Grep, ToolName::ListFiles];
        if file_tools.iter().any(|tool| self.tools.contains(tool)) {
            capabilities.files.get_or_insert(FilesCapability { enabled: true, ..FilesCapability::default() });
        }
        capabilities
    }

    // What it serves.

    /// Serves a tool from now on: `tool.call` for any other is answered -32012.
    /// Changed capabilities are sent to a harness that is connected.
    pub fn serve_tool(&mut self, tool: ToolName) {
        if self.tools.insert(tool) {
            self.send_changed_capabilities();
        }
    }

    /// Serves a method from now on: requests of it come as [`Event::Request`],
    /// those of any other one are answered -32012 with its capability.
    pub fn serve_method(&mut self, method: Method) {
        self.methods.insert(method);
    }

    /// Replaces the configured capabilities and tells a harness that is connected.
    pub fn set_capabilities(&mut self, capabilities: Capabilities) {
        self.config.capabilities = capabilities;
        self.send_changed_capabilities();
    }

    /// What changes before the registration is answered is sent once it is.
    pub(super) fn send_changed_capabilities(&mut self) {
        let capabilities = self.capabilities();
        if matches!(self.link, Link::Up(_)) && self.advertised.as_ref() != Some(&capabilities) {
            let params = ExecutorCapabilitiesUpdateParams { capabilities: capabilities.clone() };
            // When it cannot be sent now, the next registration says it.
            if self.peer.notify::<methods::ExecutorCapabilitiesUpdate>(&params).is_ok() {
                self.advertised = Some(capabilities);
            }
        }
    }

    /// The load that heartbeats report from now on.
    pub fn set_load(&mut self, load: Option<ExecutorLoad>) {
        self.load = load;
    }

    // Plain requests and notifications.

    /// Sends a request of a method that executors send; [`Event::Response`] brings the answer with `token`.
    ///
    /// # Errors
    /// When it cannot be sent: nothing was. What this machine keeps account of is no plain request:
    /// registration, heartbeats, and what becomes of sessions and tool calls.
    pub fn request(&mut self, now: Time, params: &AnyParams, token: u64, timeout: Duration) -> Result<(), CallError> {
        self.advance(now);
        require_plain(params.method())?;
        self.require_up()?;
        self.peer.request_any(self.now, params, Tag::Application(token), timeout)?;
        Ok(())
    }

    /// Sends a notification. Best effort: `false` when it was dropped, because
    /// nothing is connected or too much waits to be written.
    ///
    /// # Errors
    /// When the notification can never be sent, such as one over the frame limit.
    pub fn notify<M: NotificationMethod>(&mut self, params: &M::Params) -> Result<bool, CallError> {
        let much_waits = self.peer.queued_frames() >= MAX_QUEUED_FOR_BEST_EFFORT
            || self.peer.queued_bytes() >= MAX_QUEUED_BYTES_FOR_BEST_EFFORT;
        if !matches!(self.link, Link::Up(_)) || much_waits {
            self.dropped_previews += 1;
            return Ok(false);
        }
        self.peer.notify::<M>(params)?;
        Ok(true)
    }

    /// Answers an [`Event::Request`].
    pub fn reply(&mut self, id: InboundId, result: &AnyResult) {
        self.peer.reply_any(id, result);
    }

    /// Answers an [`Event::Request`] with an error.
    pub fn refuse(&mut self, id: InboundId, error: &JSONRPCError) {
        self.peer.refuse(id, error);
    }

    pub(super) fn require_up(&self) -> Result<(), CallError> {
        if matches!(self.link, Link::Up(_)) { Ok(()) } else { Err(CallError::Send(Misuse::NotConnected)) }
    }

    /// Takes no new sessions from now on: `session.assign` is answered
    /// `executor_busy`, and so is an offer that is accepted later. Open sessions run on.
    pub fn drain(&mut self) {
        self.begin_drain();
    }

    /// Ends in order: no new sessions or calls; what is still to be delivered
    /// is, for as long as [`Config::stop_grace`], also on a connection that has to be
    /// made first; then `executor.close` goes out and the connection is closed. End
    /// the sessions first. A result that is left is told as [`Event::ResultLost`].
    pub fn stop(&mut self, now: Time, reason: &str) {
        self.advance(now);
        if self.stopping.is_some() || matches!(self.link, Link::Ended(_)) {
            return;
        }
        self.stopping = Some(Stopping { reason: reason.to_owned(), deadline: self.now + self.config.stop_grace });
        self.draining = true;
        self.finish_stop_when_idle();
    }

    /// Completes an orderly end once nothing is left to be delivered, or at its deadline.
    pub(super) fn finish_stop_when_idle(&mut self) {
        let Some(stopping) = &self.stopping else { return };
        if self.has_undelivered() && stopping.deadline > self.now {
            return;
        }
        if matches!(self.link, Link::Up(_)) {
            let params = ExecutorCloseParams { reason: stopping.reason.clone() };
            // Best effort: the close that follows says the same.
            let _ = self.peer.notify::<methods::ExecutorClose>(&params);
            self.flush_frames();
        }
        self.end(End::Stopped);
    }

    // Inside.

    /// Takes the driver's time. Time that runs backwards is clamped.
    pub(super) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(super) fn emit(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(super) fn set_state(&mut self, state: ConnectionState) {
        if self.state != state {
            self.state = state.clone();
            self.emit(Event::State(state));
        }
    }

    /// Frames leave before whatever is queued after them.
    fn flush_frames(&mut self) {
        while let Some(frame) = self.peer.next_frame() {
            self.outputs.push_back(Output::Frame(frame));
        }
    }

    fn frame_came(&mut self, text: &str) {
        self.heard();
        match self.peer.accept(text) {
            Some(rpc::Event::Request { id, params }) => self.request_came(id, params),
            Some(rpc::Event::Notification { params: AnyParams::ExecutorClose(params) }) => {
                self.end(End::ClosedByHarness(params.reason));
            }
            Some(rpc::Event::Notification { .. }) => {} // the contract has no other one in this direction
            Some(rpc::Event::Response { tag, outcome }) => {
                self.request_ended(tag, outcome);
                self.finish_stop_when_idle();
            }
            None => {}
        }
    }

    fn request_came(&mut self, id: InboundId, params: AnyParams) {
        if !matches!(self.link, Link::Up(_)) {
            let error = ErrorCode::SessionNotActive.error("the executor is not registered");
            return self.peer.refuse(id, &error);
        }
        match params {
            AnyParams::SessionAssign(params) => self.assign_came(id, *params),
            AnyParams::SessionStop(params) => self.stop_came(id, params),
            AnyParams::ToolCall(params) => self.call_came(id, params),
            AnyParams::ToolCancel(params) => self.cancel_came(id, &params),
            AnyParams::ExecutorDrain(params) => {
                self.begin_drain();
                let result = ExecutorDrainResult { accepted: true, active_sessions: self.active_sessions() };
                self.peer.reply::<methods::ExecutorDrain>(id, &result);
                self.drain_told = true;
                self.emit(Event::Drain(params));
            }
            other => {
                let method = other.method();
                if self.methods.contains(&method) {
                    if let Some(session_id) = process_session(&other).filter(|id| !self.is_active(id)) {
                        return self.peer.refuse(id, &not_active(session_id));
                    }
                    self.emit(Event::Request { id, params: Box::new(other) });
                } else {
                    let capability = method.capability().unwrap_or(method.name());
                    let message = format!("{} is not served by this executor", method.name());
                    let error = ErrorCode::CapabilityUnavailable.error(message).with_capability(capability);
                    self.peer.refuse(id, &error);
                }
            }
        }
    }

    pub(super) fn serves_tool(&self, tool: &ToolName) -> bool {
        self.tools.contains(tool)
    }

    pub(super) fn request_ended(&mut self, tag: Tag, outcome: Result<AnyResult, RequestError>) {
        match tag {
            Tag::Register => self.registration_answered(outcome),
            Tag::Heartbeat => self.heartbeat_answered(outcome),
            Tag::TokenRefresh => self.refresh_answered(outcome),
            Tag::Delivery(attempt) => self.delivery_answered(attempt, outcome),
            Tag::Application(token) => self.emit(Event::Response { token, outcome: outcome.map(Box::new) }),
        }
    }

    fn tick(&mut self) {
        while let Some(event) = self.peer.expire(self.now) {
            if let rpc::Event::Response { tag, outcome } = event {
                self.request_ended(tag, outcome);
            }
        }
        self.link_tick();
        self.sessions_tick();
        self.retry_due();
        self.finish_stop_when_idle();
    }

    /// The JSON-RPC id of a request that is being served: the idempotency key of some methods.
    pub fn request_id(id: &InboundId) -> &RequestId {
        id.request_id()
    }
}

/// For a driver whose connection takes no more frames just now.
impl Executor {
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

impl Machine for Executor {
    type Input<'a> = Input<'a>;
    type Output = Output;

    fn feed(&mut self, now: Time, input: Input<'_>) {
        self.advance(now);
        match input {
            Input::Token(token) => self.token_came(token),
            Input::Connected(protocol) => self.connected(protocol),
            Input::DialFailed(error) => self.dial_failed(error),
            Input::Frame(text) if matches!(self.link, Link::Registering { .. } | Link::Up(_)) => self.frame_came(text),
            Input::Frame(_) => {} // a connection that was given up already
            Input::Alive => self.heard(),
            Input::Disconnected { code, reason } => self.disconnected(code, reason),
            Input::Tick => {}
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

impl Executor {
    fn clock_deadline(&self) -> Option<(Time, Reason)> {
        let call = self.call_deadlines.first().map(|(at, _, _)| (*at, Reason::ToolDeadline));
        let session = self.session_deadlines.first().map(|(at, _)| (*at, Reason::SessionDeadline));
        let retry = self.next_retry().map(|at| (at, Reason::Retry));
        let stop = self.stopping.as_ref().map(|stopping| (stopping.deadline, Reason::SessionDeadline));
        [self.peer.next_expiry(), self.link_deadline(), self.lease_deadline(), call, session, retry, stop]
            .into_iter()
            .fold(None, earliest)
    }
}

/// What this machine keeps account of is not to be sent past it.
fn require_plain(method: Method) -> Result<(), CallError> {
    let instead = match method {
        Method::ExecutorRegister | Method::ExecutorHeartbeat => "the connection's own machine sends it when it is due",
        Method::SessionReady => "say that the session is ready",
        Method::SessionEnded => "say that the session has ended",
        Method::ToolResult => "finish the tool call, or report its result",
        _ => return Ok(()),
    };
    Err(CallError::NotPlain { method: method.name(), instead })
}

/// The session that a `process.*` request is about: the machine knows whether there is one.
fn process_session(params: &AnyParams) -> Option<&SessionId> {
    match params {
        AnyParams::ProcessStart(params) => Some(&params.session_id),
        AnyParams::ProcessRead(params) => Some(&params.session_id),
        AnyParams::ProcessWrite(params) => Some(&params.session_id),
        AnyParams::ProcessInterrupt(params) | AnyParams::ProcessTerminate(params) => Some(&params.session_id),
        AnyParams::ProcessList(params) => Some(&params.session_id),
        _ => None,
    }
}
