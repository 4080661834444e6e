//! One end of a JSON-RPC connection.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::encode;
use super::id::RequestId;
use super::numbered::Numbered;
use crate::contract::{
    AnyParams, AnyResult, Direction, JSONRPCError, Kind, Method, NotificationMethod, RequestMethod, defaults,
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
        self.other().sends(method)
    }

    /// Whether this side sends a method.
    pub(super) fn sends(self, method: Method) -> bool {
        match method.direction() {
            Direction::ExecutorToHarness => self == Side::Executor,
            Direction::HarnessToExecutor => self == Side::Harness,
            Direction::Bidirectional => true,
        }
    }

    fn other(self) -> Self {
        match self {
            Side::Executor => Side::Harness,
            Side::Harness => Side::Executor,
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Executor => "executor",
            Side::Harness => "harness",
        })
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
    pub(super) id: RequestId,
    pub(super) connection: u64,
    pub(super) slot: usize,
    pub(super) serial: u64,
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
    /// The catalogue has no such request, or no such notification, from this side.
    #[error("{method} is not for the {side} to {act}: it is {}", nature(*.method), method = .method.name(), act = act(*.kind))]
    WrongWay {
        /// The method.
        method: Method,
        /// Who should have sent it.
        side: Side,
        /// What it should have been sent as.
        kind: Kind,
    },
    /// The params have no JSON form.
    #[error("the params of {method} have no JSON form: {reason}", method = .method.name())]
    Unserializable {
        /// The method.
        method: Method,
        /// What the serializer said.
        reason: String,
    },
}

fn act(kind: Kind) -> &'static str {
    match kind {
        Kind::Request => "request",
        Kind::Notification => "notify",
    }
}

fn nature(method: Method) -> String {
    let kind = match method.kind() {
        Kind::Request => "a request",
        Kind::Notification => "a notification",
    };
    match method.direction() {
        Direction::ExecutorToHarness => format!("{kind} of executors"),
        Direction::HarnessToExecutor => format!("{kind} of harnesses"),
        Direction::Bidirectional => format!("{kind} of both sides"),
    }
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
    numbered: Numbered,
    /// The tags of the pending requests, each in the place of its request.
    tags: VecDeque<T>,
    events: VecDeque<Event<T>>,
}

impl<T> Peer<T> {
    /// A peer that is not connected yet.
    pub fn new(config: Config) -> Self {
        Self { numbered: Numbered::new(config), tags: VecDeque::new(), events: VecDeque::new() }
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.numbered.is_connected()
    }

    /// The bounds in force.
    pub fn config(&self) -> &Config {
        &self.numbered.config
    }

    /// Changes the bounds, as a registration does. Holds for frames from now on.
    pub fn config_mut(&mut self) -> &mut Config {
        &mut self.numbered.config
    }

    /// What was dropped so far.
    pub fn counters(&self) -> Counters {
        self.numbered.counters
    }

    /// Requests of ours that have no answer yet.
    pub fn pending_requests(&self) -> usize {
        self.numbered.pending.len()
    }

    /// Frames that wait to be written.
    pub fn queued_frames(&self) -> usize {
        self.numbered.outbox.len()
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.numbered.outbox.bytes()
    }

    /// Whether so many answers wait to be written that nothing more should be read: the other
    /// side must take its answers first. Four times as many as it may have requests in flight, or
    /// the bytes of as many full frames. One that keeps to the bound for requests in flight
    /// never gets there. Requests of ours must not stop the reading: two sides that ask at
    /// once would wait for each other.
    pub fn has_too_many_answers(&self) -> bool {
        self.numbered.has_too_many_answers()
    }

    /// A connection is there. One that was there before is gone.
    pub fn connect(&mut self) {
        self.numbered.connect();
    }

    /// The connection is gone: queued frames are dropped, answers to its
    /// requests will be. Returns the tags of the requests that get no answer
    /// any more, oldest first: [`RequestError::Disconnected`] is their outcome.
    pub fn disconnect(&mut self) -> Vec<T> {
        self.numbered.disconnect();
        std::mem::take(&mut self.tags).into()
    }

    /// Takes one frame. Whatever is wrong with it is answered here; what
    /// comes out is of the contract's shape. Without a connection there is
    /// nobody to have sent it, and nothing happens.
    pub fn accept(&mut self, text: &str) -> Option<Event<T>> {
        let event = self.numbered.accept(text)?;
        self.tagged(event)
    }

    /// An event with the tag of its request.
    fn tagged(&mut self, event: Event<usize>) -> Option<Event<T>> {
        Some(match event {
            Event::Request { id, params } => Event::Request { id, params },
            Event::Notification { params } => Event::Notification { params },
            Event::Response { tag: place, outcome } => Event::Response { tag: self.tags.remove(place)?, outcome },
        })
    }

    /// Takes over a request that came on the present connection but was read
    /// before this peer was known to be its addressee: a registration.
    pub(crate) fn adopt(&mut self, id: RequestId) -> InboundId {
        self.numbered.adopt(id)
    }

    /// Sends a request; its response carries `tag`. It times out after the
    /// configured time. Returns its number, by which it can be
    /// [withdrawn](Peer::withdraw) while it is not on its way.
    ///
    /// # Errors
    /// [`Misuse`]: nothing was sent.
    pub fn request<M: RequestMethod>(&mut self, now: Time, params: &M::Params, tag: T) -> Result<u64, Misuse> {
        self.request_with(now, M::METHOD, params, tag, self.numbered.config.request_timeout)
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
        let encode = |number| encode::request(number, method, params);
        let number = self.numbered.request(now, method, encode, timeout)?;
        self.tags.push_back(tag);
        Ok(number)
    }

    /// Takes back a request that is not on its way yet, and returns its tag:
    /// the other side will never see it. `None` when it has left, or has ended.
    pub fn withdraw(&mut self, number: u64) -> Option<T> {
        let place = self.numbered.withdraw(number)?;
        self.tags.remove(place)
    }

    /// Sends a notification.
    ///
    /// # Errors
    /// [`Misuse`]: nothing was sent.
    pub fn notify<M: NotificationMethod>(&mut self, params: &M::Params) -> Result<(), Misuse> {
        self.numbered.notify(M::METHOD, encode::notification(M::METHOD, params))
    }

    /// Sends a notification of a method that is known only at run time.
    ///
    /// # Errors
    /// [`Misuse`]: nothing was sent.
    pub fn notify_any(&mut self, params: &AnyParams) -> Result<(), Misuse> {
        self.numbered.notify(params.method(), encode::notification(params.method(), params))
    }

    /// Answers a request. A result that is over the frame limit goes out as
    /// error -32006 instead.
    pub fn reply<M: RequestMethod>(&mut self, id: InboundId, result: &M::Result) {
        self.numbered.reply(&id, result);
    }

    /// Answers a request of a method that is known only at run time.
    pub fn reply_any(&mut self, id: InboundId, result: &AnyResult) {
        self.numbered.reply(&id, result);
    }

    /// Answers a request with an error. One that is over the frame limit goes
    /// out with a shorter message and without data.
    pub fn refuse(&mut self, id: InboundId, error: &JSONRPCError) {
        self.numbered.refuse(&id, error);
    }

    /// The next frame to write, oldest first.
    #[must_use]
    pub fn next_frame(&mut self) -> Option<String> {
        self.numbered.next_frame()
    }

    /// When the next request of ours expires.
    #[must_use]
    pub fn next_expiry(&self) -> Option<(Time, Reason)> {
        self.numbered.pending.next_expiry().map(|(at, _)| (at, Reason::RequestTimeout))
    }

    /// Ends one request that is overdue at `now`. Call until `None`.
    #[must_use]
    pub fn expire(&mut self, now: Time) -> Option<Event<T>> {
        let event = self.numbered.expire(now)?;
        self.tagged(event)
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
        self.numbered.now = self.numbered.now.max(now);
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
        if !self.numbered.outbox.is_empty() || !self.events.is_empty() {
            return Some((self.numbered.now, Reason::OutputQueued));
        }
        self.next_expiry()
    }
}
