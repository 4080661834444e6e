//! All of a peer that does not depend on the tags of its requests: there is one of it in a program,
//! however many kinds of peers there are.

use std::time::Duration;

use serde::Serialize;

use super::decode::{self, Frame, Oversized, Verdict};
use super::encode;
use super::id::{RequestId, own_number};
use super::inbound::Inbound;
use super::outbox::{Outbox, Waiting};
use super::peer::{Config, Counters, Event, InboundId, Misuse, RequestError};
use super::pending::{Open, Pending};
use crate::contract::{AnyParams, AnyResult, ErrorCode, JSONRPCError, Kind, Method};
use crate::time::Time;

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

/// A [`Peer`](super::Peer) whose requests have numbers and no tags. Where an event or a method
/// names a request of ours that has ended, it does so by the place that the request had
/// among the pending ones.
#[derive(Clone, Debug)]
pub(super) struct Numbered {
    pub(super) config: Config,
    pub(super) now: Time,
    connection: Option<u64>,
    connections: u64,
    next_number: u64,
    pub(super) pending: Pending,
    waiting: Waiting,
    inflight: usize,
    inbound: Inbound,
    pub(super) outbox: Outbox,
    pub(super) counters: Counters,
}

impl Numbered {
    pub(super) fn new(config: Config) -> Self {
        Self {
            config,
            now: Time::ORIGIN,
            connection: None,
            connections: 0,
            next_number: 1,
            pending: Pending::default(),
            waiting: Waiting::default(),
            inflight: 0,
            inbound: Inbound::default(),
            outbox: Outbox::default(),
            counters: Counters::default(),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    pub(super) fn has_too_many_answers(&self) -> bool {
        let Config { max_inbound, max_frame_bytes, .. } = self.config;
        let in_flight = max_inbound.saturating_mul(1 + RESERVE);
        self.outbox.answers() > in_flight.saturating_mul(4)
            || self.outbox.answer_bytes() > in_flight.saturating_mul(max_frame_bytes)
    }

    pub(super) fn connect(&mut self) {
        self.forget_connection();
        self.connections += 1;
        self.connection = Some(self.connections);
    }

    /// Ends all pending requests: their tags are to be taken away as well.
    pub(super) fn disconnect(&mut self) {
        self.forget_connection();
        self.pending.clear();
    }

    fn forget_connection(&mut self) {
        self.connection = None;
        self.outbox.clear();
        self.waiting = Waiting::default();
        self.inflight = 0;
        self.inbound = Inbound::default();
    }

    pub(super) fn accept(&mut self, text: &str) -> Option<Event<usize>> {
        self.connection?;
        if text.len() > self.config.max_frame_bytes {
            return self.accept_oversized(text);
        }
        let pending = &self.pending;
        match decode::read(text, self.config.side, &|id| pending.method_of(id)) {
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

    pub(super) fn adopt(&mut self, id: RequestId) -> InboundId {
        let (slot, serial) = self.inbound.open();
        InboundId { id, connection: self.connections, slot, serial }
    }

    fn admit(&mut self, id: RequestId, params: AnyParams) -> Option<Event<usize>> {
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
    fn accept_broken(&mut self, text: &str) -> Option<Event<usize>> {
        let (side, pending) = (self.config.side, &self.pending);
        match decode::diagnose(text, &|method| side.accepts(method), &|id| pending.method_of(id)) {
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
    fn accept_oversized(&mut self, text: &str) -> Option<Event<usize>> {
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

    fn refuse_frame(&mut self, id: &RequestId, error: JSONRPCError) -> Option<Event<usize>> {
        self.counters.refused_frames += 1;
        self.push_failure(id, &error);
        None
    }

    fn settle(&mut self, number: Option<u64>, outcome: Result<AnyResult, RequestError>) -> Option<Event<usize>> {
        let ended = number.and_then(|number| Some((number, self.pending.remove(number)?)));
        let Some((number, place)) = ended else {
            self.counters.unmatched_answers += 1;
            return None;
        };
        if !self.waiting.remove(number) {
            self.free_place();
        }
        Some(Event::Response { tag: place, outcome })
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

    fn require_way(&self, method: Method, kind: Kind) -> Result<(), Misuse> {
        let side = self.config.side;
        let fits = side.sends(method) && method.kind() == kind;
        if fits { Ok(()) } else { Err(Misuse::WrongWay { method, side, kind }) }
    }

    /// Whether a further request can be taken: one that would wait its turn, or one that has a reserve.
    fn require_room(&self, waits: bool) -> Result<(), Misuse> {
        let Config { max_inflight, max_waiting, max_waiting_bytes, .. } = self.config;
        let ahead = if waits { self.waiting.len() } else { self.taken_places().saturating_sub(max_inflight) };
        let has_room = ahead < max_waiting && !(waits && self.waiting.bytes() >= max_waiting_bytes);
        if has_room { Ok(()) } else { Err(Misuse::Backlog(ahead)) }
    }

    /// Sends a request with its frame, or keeps both until there is a place in flight.
    pub(super) fn request(
        &mut self,
        now: Time,
        method: Method,
        encode: impl FnOnce(u64) -> Result<String, String>,
        timeout: Duration,
    ) -> Result<u64, Misuse> {
        self.require_way(method, Kind::Request)?;
        let frame = encode(self.next_number).map_err(|reason| Misuse::Unserializable { method, reason })?;
        self.send(now, method, frame, timeout)
    }

    fn send(&mut self, now: Time, method: Method, frame: String, timeout: Duration) -> Result<u64, Misuse> {
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
        let number = self.next_number;
        self.next_number += 1;
        self.pending.push(Open { number, method, expires: self.now + timeout, timeout });
        if waits {
            self.waiting.push(number, frame);
        } else {
            self.inflight += 1;
            self.outbox.request(number, frame);
        }
        Ok(number)
    }

    /// Takes back a request that is not on its way yet.
    pub(super) fn withdraw(&mut self, number: u64) -> Option<usize> {
        if !self.waiting.remove(number) {
            if !self.outbox.withdraw(number) {
                return None;
            }
            self.free_place();
        }
        self.pending.remove(number)
    }

    pub(super) fn notify(&mut self, method: Method, frame: Result<String, String>) -> Result<(), Misuse> {
        self.require_way(method, Kind::Notification)?;
        if self.connection.is_none() {
            return Err(Misuse::NotConnected);
        }
        let frame = frame.map_err(|reason| Misuse::Unserializable { method, reason })?;
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

    pub(super) fn reply<R: Serialize + ?Sized>(&mut self, id: &InboundId, result: &R) {
        if self.close_inbound(id) {
            self.push_answer(&id.id, encode::success(&id.id, result));
        }
    }

    fn push_answer(&mut self, id: &RequestId, frame: Result<String, String>) {
        let limit = self.config.max_frame_bytes;
        let error = match frame {
            Ok(frame) if frame.len() <= limit => return self.outbox.answer(frame),
            Ok(frame) => {
                let message = format!("the result has {} bytes, the frame limit is {limit}", frame.len());
                ErrorCode::PayloadTooLarge.error(message)
            }
            Err(reason) => ErrorCode::InternalError.error(reason),
        };
        self.push_failure(id, &error);
    }

    pub(super) fn refuse(&mut self, id: &InboundId, error: &JSONRPCError) {
        if self.close_inbound(id) {
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

    #[must_use]
    pub(super) fn next_frame(&mut self) -> Option<String> {
        let frame = self.outbox.pop();
        if self.waiting.len() > 0 {
            self.fill_places();
        }
        frame
    }

    #[must_use]
    pub(super) fn expire(&mut self, now: Time) -> Option<Event<usize>> {
        self.now = self.now.max(now);
        let (at, number) = self.pending.next_expiry()?;
        if at > self.now {
            return None;
        }
        let timeout = self.pending.get(number).map_or(Duration::ZERO, |request| request.timeout);
        self.settle(Some(number), Err(RequestError::Timeout(timeout)))
    }
}
