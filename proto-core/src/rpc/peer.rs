//! One end of a JSON-RPC connection.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::Serialize;

use super::decode::{self, Frame, Oversized, Verdict};
use super::encode;
use super::id::{RequestId, own_number};
use super::inbound::Inbound;
use super::outbox::{Outbox, Waiting};
use crate::contract::{
    AnyParams, AnyResult, Direction, ErrorCode, JSONRPCError, Method, NotificationMethod, RequestMethod, defaults,
};
use crate::time::{Machine, Reason, Time};

/// Which end of the protocol a peer is: it decides which methods it sends and takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The machine that dials out.
    Executor,
    /// The one that drives it.
    Harness,
}

impl Side {
    /// Whether this side takes a method from its peer.
    pub(super) fn accepts(self, method: Method) -> bool {
        match method.direction() {
            Direction::ExecutorToHarness => self == Side::Harness,
            Direction::HarnessToExecutor => self == Side::Executor,
            Direction::Bidirectional => true,
        }
    }
}

/// Bounds and times of a [`Peer`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Which end this is.
    pub side: Side,
    /// How long a request of ours may stay without an answer.
    pub request_timeout: Duration,
    /// The largest frame sent, and the largest taken as it is, in bytes.
    /// A larger one that still reaches the peer is answered -32006.
    pub max_frame_bytes: usize,
    /// Requests of ours that may be unanswered at a time. At the bound further
    /// ones wait their turn, and their time-out already runs.
    pub max_inflight: usize,
    /// Requests that may wait their turn. At the bound a request is [`Misuse::Backlog`].
    /// What must get through (cancel, stop, `executor.*`) does not wait: it has the same number for itself.
    pub max_waiting: usize,
    /// Bytes of frames that may wait their turn. A request that comes while there are
    /// that many is [`Misuse::Backlog`].
    pub max_waiting_bytes: usize,
    /// Requests of the other side that may be unanswered at a time. At the bound
    /// they are answered -32009 (retryable); cancel, stop and `executor.*` get
    /// as many again before they are.
    pub max_inbound: usize,
}

/// The default of [`Config::max_waiting_bytes`].
pub const MAX_WAITING_BYTES: usize = 16 << 20;

impl Config {
    /// The contract's limits.
    pub fn new(side: Side) -> Self {
        Self {
            side,
            request_timeout: Duration::from_millis(defaults::REQUEST_TIMEOUT_MS),
            max_frame_bytes: defaults::MAX_CONTROL_FRAME_BYTES,
            max_inflight: 64,
            max_waiting: 4096,
            max_waiting_bytes: MAX_WAITING_BYTES,
            max_inbound: 64,
        }
    }
}

/// A request of the other side that waits for our answer: pass it to
/// [`Peer::reply`] or [`Peer::refuse`]. It is good for one answer on the
/// connection it came on; anything later is dropped without harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundId {
    id: RequestId,
    connection: u64,
    slot: usize,
    serial: u64,
}

impl InboundId {
    /// The JSON-RPC id, which some methods use as their idempotency key.
    pub fn request_id(&self) -> &RequestId {
        &self.id
    }
}

/// What a frame, the clock or a disconnect brought about.
#[derive(Clone, Debug)]
pub enum Event<T> {
    /// The other side asks for something.
    Request {
        /// Names the request in the answer.
        id: InboundId,
        /// What it asks, with the method.
        params: AnyParams,
    },
    /// The other side tells something.
    Notification {
        /// What it tells, with the method.
        params: AnyParams,
    },
    /// One of our requests has come to its end.
    Response {
        /// The tag that was given with the request.
        tag: T,
        /// The result, or why there is none.
        outcome: Result<AnyResult, RequestError>,
    },
}

/// Why a request of ours has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The other side answered with an error.
    #[error("the peer answered {0}")]
    Refused(Box<JSONRPCError>),
    /// No answer came within the request time-out; whether the request took effect is unknown.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// The connection went away first; whether the request took effect is unknown.
    #[error("the connection was lost before the answer")]
    Disconnected,
    /// The answer is not what the contract says.
    #[error("the peer's answer cannot be read: {0}")]
    Malformed(String),
}

/// A call that the caller should not have made, or not now. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// There is no connection.
    #[error("not connected: nothing can be sent now")]
    NotConnected,
    /// The frame would be over the limit.
    #[error("a {method} frame of {bytes} bytes is over the limit of {limit}: send less in one frame", method = .method.name())]
    FrameTooLarge {
        /// The method of the frame.
        method: Method,
        /// Its size.
        bytes: usize,
        /// The limit that the two sides agreed on.
        limit: usize,
    },
    /// Too many requests wait already.
    #[error("{0} requests already wait for the peer: wait for some of them to end")]
    Backlog(usize),
    /// The params have no JSON form.
    #[error("the params of {method} have no JSON form: {reason}", method = .method.name())]
    Unserializable {
        /// The method.
        method: Method,
        /// What the serializer said.
        reason: String,
    },
}

/// Frames that were dropped, by what was wrong with them. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Frames answered with an error by the peer itself.
    pub refused_frames: u64,
    /// Notifications of no use.
    pub ignored_notifications: u64,
    /// Answers to nothing that waits (late ones, mostly).
    pub unmatched_answers: u64,
    /// Requests answered "busy" at the inbound bound.
    pub busy_answers: u64,
}

#[derive(Clone, Debug)]
struct Pending<T> {
    method: Method,
    tag: T,
    expires: Time,
    timeout: Duration,
}

/// One end of a JSON-RPC connection, without the connection.
///
/// It lives through disconnects: request ids are never reused, so an answer
/// cannot be taken for another one's. `T` is the caller's tag for a request,
/// handed back with the response.
///
/// - **Inputs**: [`accept`](Peer::accept) a frame, [`expire`](Peer::expire) what is
///   overdue, [`connect`](Peer::connect), [`disconnect`](Peer::disconnect).
/// - **Calls**: [`request`](Peer::request), [`notify`](Peer::notify),
///   [`reply`](Peer::reply), [`refuse`](Peer::refuse).
/// - **Outputs**: [`next_frame`](Peer::next_frame), oldest first.
/// - **Time**: [`next_expiry`](Peer::next_expiry).
///
/// As a [`Machine`] it does the same through one queue.
#[derive(Clone, Debug)]
pub struct Peer<T> {
    config: Config,
    now: Time,
    connection: Option<u64>,
    connections: u64,
    next_number: u64,
    pending: BTreeMap<u64, Pending<T>>,
    expiries: BTreeSet<(Time, u64)>,
    waiting: Waiting,
    inflight: usize,
    inbound: Inbound,
    outbox: Outbox,
    events: VecDeque<Event<T>>,
    counters: Counters,
}

impl<T> Peer<T> {
    /// A peer that is not connected yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            now: Time::ORIGIN,
            connection: None,
            connections: 0,
            next_number: 1,
            pending: BTreeMap::new(),
            expiries: BTreeSet::new(),
            waiting: Waiting::default(),
            inflight: 0,
            inbound: Inbound::default(),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The bounds in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes the bounds, as a registration does. Holds for frames from now on.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.config
    }

    /// What was dropped so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Requests of ours that have no answer yet.
    pub fn pending_requests(&self) -> usize {
        self.pending.len()
    }

    /// Frames that wait to be written.
    pub fn queued_frames(&self) -> usize {
        self.outbox.len()
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.outbox.bytes()
    }

    /// Whether so many answers wait to be written that nothing more should be read: the other
    /// side must take its answers first. Four times as many as it may have requests in flight, or
    /// the bytes of as many full frames. One that keeps to the bound for requests in flight
    /// never gets there. Requests of ours must not stop the reading: two sides that ask at
    /// once would wait for each other.
    pub fn has_too_many_answers(&self) -> bool {
        let Config { max_inbound, max_frame_bytes, .. } = self.config;
        let in_flight = max_inbound.saturating_mul(1 + RESERVE);
        self.outbox.answers() > in_flight.saturating_mul(4)
            || self.outbox.answer_bytes() > in_flight.saturating_mul(max_frame_bytes)
    }

    /// A connection is there. One that was there before is gone.
    pub fn connect(&mut self) {
        self.forget_connection();
        self.connections += 1;
        self.connection = Some(self.connections);
    }

    /// The connection is gone: queued frames are dropped, answers to its
    /// requests will be. Returns the tags of the requests that get no answer
    /// any more, oldest first: [`RequestError::Disconnected`] is their outcome.
    pub fn disconnect(&mut self) -> Vec<T> {
        self.forget_connection();
        self.expiries.clear();
        std::mem::take(&mut self.pending).into_values().map(|pending| pending.tag).collect()
    }

    fn forget_connection(&mut self) {
        self.connection = None;
        self.outbox.clear();
        self.waiting = Waiting::default();
        self.inflight = 0;
        self.inbound = Inbound::default();
    }

    /// Takes one frame. Whatever is wrong with it is answered here; what
    /// comes out is of the contract's shape. Without a connection there is
    /// nobody to have sent it, and nothing happens.
    pub fn accept(&mut self, text: &str) -> Option<Event<T>> {
        self.connection?;
        if text.len() > self.config.max_frame_bytes {
            return self.accept_oversized(text);
        }
        let pending = &self.pending;
        let method_of =
            |raw: &serde_json::value::RawValue| pending.get(&own_number(raw)?).map(|pending| pending.method);
        match decode::read(text, self.config.side, &method_of) {
            Frame::Request(id, params) => self.admit(id, params),
            Frame::Notification(params) => Some(Event::Notification { params }),
            Frame::Answer(id, outcome) => self.settle(own_number(id), outcome),
            Frame::UnwantedId(id, method) => {
                let message = format!("{} is a notification: send it without an id", method.name());
                self.refuse_frame(&id, ErrorCode::InvalidRequest.error(message))
            }
            Frame::MissingId => {
                self.counters.ignored_notifications += 1;
                None
            }
            Frame::Broken => self.accept_broken(text),
        }
    }

    /// Takes over a request that came on the present connection but was read
    /// before this peer was known to be its addressee: a registration.
    pub(crate) fn adopt(&mut self, id: RequestId) -> InboundId {
        let (slot, serial) = self.inbound.open();
        InboundId { id, connection: self.connections, slot, serial }
    }

    fn admit(&mut self, id: RequestId, params: AnyParams) -> Option<Event<T>> {
        let share = if has_reserve(params.method()) { 1 + RESERVE } else { 1 };
        let bound = self.config.max_inbound.saturating_mul(share);
        if self.inbound.open >= bound {
            self.counters.busy_answers += 1;
            let message = format!("{bound} requests are in flight already: wait for some of them to end");
            return self.refuse_frame(&id, ErrorCode::ExecutorBusy.error(message).with_retryable(true));
        }
        let (slot, serial) = self.inbound.open();
        Some(Event::Request { id: InboundId { id, connection: self.connections, slot, serial }, params })
    }

    #[cold]
    fn accept_broken(&mut self, text: &str) -> Option<Event<T>> {
        let side = self.config.side;
        match decode::diagnose(text, &|method| side.accepts(method)) {
            Verdict::Refuse(id, error) => self.refuse_frame(&id, error),
            Verdict::Ignore => {
                self.counters.ignored_notifications += 1;
                None
            }
            Verdict::BadAnswer(id, told) => {
                let error = told.map_or_else(RequestError::Malformed, |error| RequestError::Refused(Box::new(error)));
                self.settle(own_number(id), Err(error))
            }
        }
    }

    #[cold]
    fn accept_oversized(&mut self, text: &str) -> Option<Event<T>> {
        let (bytes, limit) = (text.len(), self.config.max_frame_bytes);
        let message = format!("the frame has {bytes} bytes, the limit is {limit}");
        match decode::look_at_oversized(text) {
            Oversized::Answer(id) => self.settle(own_number(id), Err(RequestError::Malformed(message))),
            Oversized::Request(id) => self.refuse_frame(&id, ErrorCode::PayloadTooLarge.error(message)),
            Oversized::Unanswerable => {
                self.counters.ignored_notifications += 1;
                None
            }
        }
    }

    fn refuse_frame(&mut self, id: &RequestId, error: JSONRPCError) -> Option<Event<T>> {
        self.counters.refused_frames += 1;
        self.push_failure(id, &error);
        None
    }

    fn settle(&mut self, number: Option<u64>, outcome: Result<AnyResult, RequestError>) -> Option<Event<T>> {
        let Some((number, pending)) = number.and_then(|number| self.pending.remove_entry(&number)) else {
            self.counters.unmatched_answers += 1;
            return None;
        };
        self.expiries.remove(&(pending.expires, number));
        if !self.waiting.remove(number) {
            self.free_place();
        }
        Some(Event::Response { tag: pending.tag, outcome })
    }

    /// One request less is in flight: the next one that waits goes out.
    fn free_place(&mut self) {
        self.inflight = self.inflight.saturating_sub(1);
        self.fill_places();
    }

    fn fill_places(&mut self) {
        while self.taken_places() < self.config.max_inflight {
            let Some((number, frame)) = self.waiting.pop() else { break };
            self.outbox.request(number, frame);
            self.inflight += 1;
        }
    }

    /// A request that has ended has its place for as long as it waits to be written: a peer
    /// that reads nothing does not make room by that.
    fn taken_places(&self) -> usize {
        self.inflight.max(self.outbox.requests())
    }

    /// Sends a request; its response carries `tag`. It times out after the
    /// configured time. Returns its number, by which it can be
    /// [withdrawn](Peer::withdraw) while it is not on its way.
    ///
    /// # Errors
    /// [`Misuse`]: nothing was sent.
    pub fn request<M: RequestMethod>(&mut self, now: Time, params: &M::Params, tag: T) -> Result<u64, Misuse> {
        self.request_with(now, M::METHOD, params, tag, self.config.request_timeout)
    }

    /// Sends a request of a method that is known only at run time.
    ///
    /// # Errors
    /// [`Misuse`]: nothing was sent.
    pub fn request_any(&mut self, now: Time, params: &AnyParams, tag: T, timeout: Duration) -> Result<u64, Misuse> {
        self.request_with(now, params.method(), params, tag, timeout)
    }

    /// Sends a request with a time-out of its own.
    ///
    /// # Errors
    /// [`Misuse`]: nothing was sent.
    pub(crate) fn request_with<P: Serialize + ?Sized>(
        &mut self,
        now: Time,
        method: Method,
        params: &P,
        tag: T,
        timeout: Duration,
    ) -> Result<u64, Misuse> {
        let number = self.next_number;
        let frame =
            encode::request(number, method, params).map_err(|reason| Misuse::Unserializable { method, reason })?;
        // What can never be sent is told first: the caller may keep the rest for the next connection.
        self.check_size(method, &frame)?;
        if self.connection.is_none() {
            return Err(Misuse::NotConnected);
        }
        self.now = self.now.max(now);
        let full = self.taken_places() >= self.config.max_inflight;
        let waits = full && !has_reserve(method);
        if full {
            self.require_room(waits)?;
        }
        self.next_number += 1;
        let expires = self.now + timeout;
        self.expiries.insert((expires, number));
        self.pending.insert(number, Pending { method, tag, expires, timeout });
        if waits {
            self.waiting.push(number, frame);
        } else {
            self.inflight += 1;
            self.outbox.request(number, frame);
        }
        Ok(number)
    }

    /// Whether a further request can be taken: one that would wait its turn, or one that has a reserve.
    fn require_room(&self, waits: bool) -> Result<(), Misuse> {
        let Config { max_inflight, max_waiting, max_waiting_bytes, .. } = self.config;
        let ahead = if waits { self.waiting.len() } else { self.taken_places().saturating_sub(max_inflight) };
        let has_room = ahead < max_waiting && !(waits && self.waiting.bytes() >= max_waiting_bytes);
        if has_room { Ok(()) } else { Err(Misuse::Backlog(ahead)) }
    }

    /// Takes back a request that is not on its way yet, and returns its tag:
    /// the other side will never see it. `None` when it has left, or has ended.
    pub fn withdraw(&mut self, number: u64) -> Option<T> {
        if !self.waiting.remove(number) {
            if !self.outbox.withdraw(number) {
                return None;
            }
            self.free_place();
        }
        let pending = self.pending.remove(&number)?;
        self.expiries.remove(&(pending.expires, number));
        Some(pending.tag)
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// [`Misuse`]: nothing was sent.
    pub fn notify<M: NotificationMethod>(&mut self, params: &M::Params) -> Result<(), Misuse> {
        self.notify_with(M::METHOD, params)
    }

    /// Sends a notification of a method that is known only at run time.
    ///
    /// # Errors
    /// [`Misuse`]: nothing was sent.
    pub fn notify_any(&mut self, params: &AnyParams) -> Result<(), Misuse> {
        self.notify_with(params.method(), params)
    }

    fn notify_with<P: Serialize + ?Sized>(&mut self, method: Method, params: &P) -> Result<(), Misuse> {
        if self.connection.is_none() {
            return Err(Misuse::NotConnected);
        }
        let frame = encode::notification(method, params).map_err(|reason| Misuse::Unserializable { method, reason })?;
        self.check_size(method, &frame)?;
        self.outbox.notification(frame);
        Ok(())
    }

    fn check_size(&self, method: Method, frame: &str) -> Result<(), Misuse> {
        let limit = self.config.max_frame_bytes;
        if frame.len() > limit {
            return Err(Misuse::FrameTooLarge { method, bytes: frame.len(), limit });
        }
        Ok(())
    }

    /// Answers a request. A result that is over the frame limit goes out as
    /// error -32006 instead.
    pub fn reply<M: RequestMethod>(&mut self, id: InboundId, result: &M::Result) {
        self.reply_with(id, result);
    }

    /// Answers a request of a method that is known only at run time.
    pub fn reply_any(&mut self, id: InboundId, result: &AnyResult) {
        self.reply_with(id, result);
    }

    fn reply_with<R: Serialize + ?Sized>(&mut self, id: InboundId, result: &R) {
        if !self.close_inbound(&id) {
            return;
        }
        let limit = self.config.max_frame_bytes;
        let error = match encode::success(&id.id, result) {
            Ok(frame) if frame.len() <= limit => return self.outbox.answer(frame),
            Ok(frame) => {
                let message = format!("the result has {} bytes, the frame limit is {limit}", frame.len());
                ErrorCode::PayloadTooLarge.error(message)
            }
            Err(reason) => ErrorCode::InternalError.error(reason),
        };
        self.push_failure(&id.id, &error);
    }

    /// Answers a request with an error. One that is over the frame limit goes
    /// out with a shorter message and without data.
    pub fn refuse(&mut self, id: InboundId, error: &JSONRPCError) {
        if self.close_inbound(&id) {
            self.push_failure(&id.id, error);
        }
    }

    /// Errors quote names that the other side chose, which can be as long as a frame.
    fn push_failure(&mut self, id: &RequestId, error: &JSONRPCError) {
        const SHORT_MESSAGE_CHARS: usize = 256;
        let mut frame = encode::failure(id, error);
        if frame.len() > self.config.max_frame_bytes {
            let message = error.message.chars().take(SHORT_MESSAGE_CHARS).collect();
            frame = encode::failure(id, &JSONRPCError { code: error.code, message, data: None });
        }
        self.outbox.answer(frame);
    }

    fn close_inbound(&mut self, id: &InboundId) -> bool {
        self.connection == Some(id.connection) && self.inbound.close(id.slot, id.serial)
    }

    /// The next frame to write, oldest first.
    #[must_use]
    pub fn next_frame(&mut self) -> Option<String> {
        let frame = self.outbox.pop();
        if self.waiting.len() > 0 {
            self.fill_places();
        }
        frame
    }

    /// When the next request of ours expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<(Time, Reason)> {
        self.expiries.first().map(|(at, _)| (*at, Reason::RequestTimeout))
    }

    /// Ends one request that is overdue at `now`. Call until `None`.
    #[must_use]
    pub fn expire(&mut self, now: Time) -> Option<Event<T>> {
        self.now = self.now.max(now);
        let (at, number) = *self.expiries.first()?;
        if at > self.now {
            return None;
        }
        let timeout = self.pending.get(&number).map_or(Duration::ZERO, |pending| pending.timeout);
        self.settle(Some(number), Err(RequestError::Timeout(timeout)))
    }
}

/// What must get through may be in flight this many times as often again.
const RESERVE: usize = 1;

/// Methods that must get through when everything else is full.
fn has_reserve(method: Method) -> bool {
    match method {
        Method::ToolCancel
        | Method::TurnCancel
        | Method::InteractionCancel
        | Method::SessionStop
        | Method::SessionClose
        | Method::ProcessInterrupt
        | Method::ProcessTerminate => true,
        other => other.name().starts_with("executor."),
    }
}

/// What can happen to a [`Peer`].
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A connection is there.
    Connected,
    /// A text frame came.
    Frame(&'a str),
    /// The connection is gone.
    Disconnected,
    /// Only time has passed.
    Tick,
}

/// What a [`Peer`] wants done.
#[derive(Clone, Debug)]
pub enum Output<T> {
    /// Write this text frame.
    Frame(String),
    /// Tell whoever it concerns.
    Event(Event<T>),
}

impl<T> Machine for Peer<T> {
    type Input<'a> = Input<'a>;
    type Output = Output<T>;

    fn feed(&mut self, now: Time, input: Input<'_>) {
        self.now = self.now.max(now);
        match input {
            Input::Connected => self.connect(),
            Input::Frame(text) => {
                let event = self.accept(text);
                self.events.extend(event);
            }
            Input::Disconnected => {
                for tag in self.disconnect() {
                    self.events.push_back(Event::Response { tag, outcome: Err(RequestError::Disconnected) });
                }
            }
            Input::Tick => {}
        }
        while let Some(event) = self.expire(now) {
            self.events.push_back(event);
        }
    }

    fn poll(&mut self) -> Option<Output<T>> {
        if let Some(event) = self.events.pop_front() {
            return Some(Output::Event(event));
        }
        self.next_frame().map(Output::Frame)
    }

    fn deadline(&self) -> Option<(Time, Reason)> {
        if !self.outbox.is_empty() || !self.events.is_empty() {
            return Some((self.now, Reason::OutputQueued));
        }
        self.next_expiry()
    }
}
