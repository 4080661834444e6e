//! What the harness must accept: readiness, results, ends of sessions. Each
//! is sent until it is accepted; a disconnect uses up no attempt.

use std::sync::Arc;
use std::time::Duration;

use super::link::{Link, exponential};
use super::machine::{Executor, Tag};
use super::sessions::Session;
use super::{CallError, Event, shrink};
use crate::calls::result_weight;
use crate::contract::{
    Ack, AnyResult, ErrorCode, SessionEndedParams, SessionId, SessionReadyParams, ToolCallId, ToolResultParams, methods,
};
use crate::rpc::{Misuse, Peer, RequestError};
use crate::time::Time;

/// Something to be accepted by the harness.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delivery {
    /// `session.ready`, for the lease of this number.
    Ready(SessionId, u32),
    /// `tool.result`, as the session has recorded it.
    Result(SessionId, ToolCallId),
    /// `tool.result`, as the application handed it in: no session has a record of it.
    Reported(SessionId, ToolCallId),
    /// `session.ended`.
    Ended(SessionId),
}

impl Delivery {
    /// Whether it goes with this session.
    fn is_of(&self, session_id: &SessionId) -> bool {
        match self {
            Delivery::Ready(id, _) | Delivery::Result(id, _) | Delivery::Ended(id) => id == session_id,
            Delivery::Reported(..) => false,
        }
    }
}

/// A delivery and how often it was tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attempt {
    pub(super) delivery: Delivery,
    pub(super) tried: u32,
}

/// Results without a record that may wait to be accepted.
const MAX_REPORTED: usize = 1024;

impl Executor {
    /// Sends a delivery for the first time, or holds it for the next registration.
    /// One that is under way already goes on as it is.
    pub(super) fn deliver(&mut self, delivery: Delivery) {
        if self.under_way.insert(delivery.clone()) {
            self.attempt(Attempt { delivery, tried: 0 });
        }
    }

    /// After a registration: everything that waits goes out, in its order. The
    /// attempts on the lost connection do not count.
    pub(super) fn resume_deliveries(&mut self) {
        let held = std::mem::take(&mut self.held);
        let waiting = std::mem::take(&mut self.retries).into_iter().map(|(_, attempt)| attempt);
        for attempt in held.into_iter().chain(waiting) {
            self.attempt(Attempt { tried: 0, ..attempt });
        }
    }

    /// Drops what is to be delivered for a session that is no more.
    pub(super) fn forget_deliveries(&mut self, session_id: &SessionId) {
        self.held.retain(|attempt| !attempt.delivery.is_of(session_id));
        self.retries.retain(|(_, attempt)| !attempt.delivery.is_of(session_id));
        self.under_way.retain(|delivery| !delivery.is_of(session_id));
    }

    /// Deliveries whose wait is over.
    pub(super) fn retry_due(&mut self) {
        while let Some((at, _)) = self.retries.first() {
            if *at > self.now {
                break;
            }
            if let Some((_, attempt)) = self.retries.pop_first() {
                self.attempt(attempt);
            }
        }
    }

    fn attempt(&mut self, attempt: Attempt) {
        if !matches!(self.link, Link::Up(_)) {
            self.held.push(attempt);
            return;
        }
        let sent = match &attempt.delivery {
            Delivery::Ready(id, lease) => {
                let current = |session: &&Session| session.ready && session.lease_number == *lease;
                let Some(session) = self.sessions.get(id).filter(current) else {
                    return self.nothing_to_deliver(&attempt.delivery);
                };
                let params = SessionReadyParams {
                    session_id: id.clone(),
                    work_id: session.work_id.clone(),
                    lease_token: session.lease_token.clone(),
                };
                let tag = Tag::Delivery(attempt.clone());
                self.peer.request::<methods::SessionReady>(self.now, &params, tag)
            }
            Delivery::Result(session, call) => {
                let Some(result) = self.sessions.get(session).and_then(|session| session.calls.result(call)) else {
                    return self.nothing_to_deliver(&attempt.delivery);
                };
                send_result(&mut self.peer, self.now, result, &attempt)
            }
            Delivery::Reported(session, call) => {
                let Some(result) = self.reported.get(&(session.clone(), call.clone())) else {
                    return self.nothing_to_deliver(&attempt.delivery);
                };
                send_result(&mut self.peer, self.now, result, &attempt)
            }
            Delivery::Ended(id) => {
                let Some(reason) = self.sessions.get(id).and_then(|session| session.ended.clone()) else {
                    return self.nothing_to_deliver(&attempt.delivery);
                };
                let params = SessionEndedParams { session_id: id.clone(), reason };
                let tag = Tag::Delivery(attempt.clone());
                self.peer.request::<methods::SessionEnded>(self.now, &params, tag)
            }
        };
        match sent {
            Ok(_) => {}
            // Too many requests wait: an own shortage, which passes and uses up no attempt.
            Err(Misuse::Backlog(_)) => self.retry_after(self.config.delivery_base_delay, attempt),
            Err(Misuse::NotConnected) => self.held.push(attempt),
            Err(misuse) => self.undeliverable(attempt, RequestError::Malformed(misuse.to_string())),
        }
    }

    /// The session is not there any more, or it is another one of the same name.
    fn nothing_to_deliver(&mut self, delivery: &Delivery) {
        self.under_way.remove(delivery);
    }

    fn retry_later(&mut self, mut attempt: Attempt) {
        attempt.tried += 1;
        let wait = exponential(self.config.delivery_base_delay, self.config.delivery_max_delay, attempt.tried);
        self.retry_after(wait, attempt);
    }

    /// There is always some wait, so that a tick comes to its end.
    fn retry_after(&mut self, wait: Duration, attempt: Attempt) {
        self.retries.insert((self.now + wait.max(Duration::from_millis(1)), attempt));
    }

    /// The harness has answered a delivery, or will not any more.
    pub(super) fn delivery_answered(&mut self, attempt: Attempt, outcome: Result<AnyResult, RequestError>) {
        if !self.under_way.contains(&attempt.delivery) {
            return; // its session is no more
        }
        let accepted = match &outcome {
            Ok(AnyResult::SessionReady(Ack { accepted }))
            | Ok(AnyResult::ToolResult(Ack { accepted }))
            | Ok(AnyResult::SessionEnded(Ack { accepted })) => *accepted,
            _ => false,
        };
        match outcome {
            Ok(_) if accepted => self.delivered(attempt.delivery),
            Ok(_) => {
                let refused = ErrorCode::Conflict.error("the harness answered accepted=false");
                self.undeliverable(attempt, RequestError::Refused(Box::new(refused)));
            }
            Err(RequestError::Disconnected) => self.held.push(attempt),
            Err(error) if error.is_retryable() && self.may_try_again(&attempt) => self.retry_later(attempt),
            Err(error) => self.undeliverable(attempt, error),
        }
    }

    /// A result is given back to the application after its attempts. Nobody else knows of a
    /// session's readiness or end: they are told for as long as there is a connection.
    fn may_try_again(&self, attempt: &Attempt) -> bool {
        match attempt.delivery {
            Delivery::Result(..) | Delivery::Reported(..) => attempt.tried + 1 < self.config.delivery_attempts,
            Delivery::Ready(..) | Delivery::Ended(_) => true,
        }
    }

    fn delivered(&mut self, delivery: Delivery) {
        self.under_way.remove(&delivery);
        match delivery {
            Delivery::Ready(..) => {}
            Delivery::Result(session_id, call) => self.result_settled(&session_id, call),
            Delivery::Reported(session_id, call) => drop(self.take_reported(&(session_id, call))),
            Delivery::Ended(session_id) => self.forget_session(&session_id),
        }
    }

    fn undeliverable(&mut self, attempt: Attempt, error: RequestError) {
        self.under_way.remove(&attempt.delivery);
        match attempt.delivery {
            // The harness will not have the session: it says so to the next request for it.
            Delivery::Ready(..) => {}
            Delivery::Result(session_id, call) => {
                let result = self.sessions.get(&session_id).and_then(|session| session.calls.result(&call)).cloned();
                if let Some(result) = result {
                    self.result_lost(&result, error);
                }
                self.result_settled(&session_id, call);
            }
            Delivery::Reported(session_id, call) => {
                if let Some(result) = self.take_reported(&(session_id, call)) {
                    self.result_lost(&result, error);
                }
            }
            // A harness that does not know the session has nothing to accept.
            Delivery::Ended(session_id) => self.forget_session(&session_id),
        }
    }

    /// Takes a result that no session has a record of, to be delivered as it is.
    pub(super) fn deliver_reported(&mut self, result: ToolResultParams) -> Result<(), CallError> {
        let key = (result.session_id.clone(), result.tool_call_id.clone());
        let full = self.reported.len() >= MAX_REPORTED || self.held_bytes >= self.config.max_held_bytes;
        if full && !self.reported.contains_key(&key) {
            return Err(CallError::Send(Misuse::Backlog(self.reported.len())));
        }
        self.take_reported(&key);
        self.held_bytes += result_weight(&result);
        self.reported.insert(key.clone(), Arc::new(result));
        self.deliver(Delivery::Reported(key.0, key.1));
        Ok(())
    }

    /// Takes a result back that no session has a record of.
    fn take_reported(&mut self, key: &(SessionId, ToolCallId)) -> Option<Arc<ToolResultParams>> {
        let result = self.reported.remove(key)?;
        self.held_bytes -= result_weight(&result);
        Some(result)
    }

    /// Gives up what a session has recorded and the harness has not accepted.
    pub(super) fn lose_results(&mut self, session_id: &SessionId) {
        let lost = self.sessions.get(session_id).map(|session| session.calls.unsettled()).unwrap_or_default();
        for result in lost {
            self.result_lost(&result, RequestError::Disconnected);
        }
    }

    /// Gives up what was handed in and the harness has not accepted.
    pub(super) fn lose_reported(&mut self) {
        for (key, result) in std::mem::take(&mut self.reported) {
            self.held_bytes -= result_weight(&result);
            self.under_way.remove(&Delivery::Reported(key.0, key.1));
            self.result_lost(&result, RequestError::Disconnected);
        }
        self.held.clear();
        self.retries.clear();
    }

    /// The one way out for a result that is not delivered: nothing is lost in silence.
    fn result_lost(&mut self, result: &ToolResultParams, error: RequestError) {
        self.emit(Event::ResultLost { result: Box::new(result.clone()), error });
    }

    /// Whether anything is left that an orderly end waits for.
    pub(super) fn has_undelivered(&self) -> bool {
        let owes = |session: &Session| session.ended.is_some() || session.undelivered() > 0;
        !self.reported.is_empty() || self.sessions.values().any(owes)
    }

    /// When the next attempt is due.
    pub(super) fn next_retry(&self) -> Option<Time> {
        self.retries.first().map(|(at, _)| *at)
    }
}

/// Sends a result, cut when it is over the frame limit.
fn send_result(peer: &mut Peer<Tag>, now: Time, result: &ToolResultParams, attempt: &Attempt) -> Result<u64, Misuse> {
    let tag = || Tag::Delivery(attempt.clone());
    match peer.request::<methods::ToolResult>(now, result, tag()) {
        Err(Misuse::FrameTooLarge { limit, .. }) => {
            let mut smaller = result.clone();
            shrink::shrink_to_fit(&mut smaller, limit);
            peer.request::<methods::ToolResult>(now, &smaller, tag())
        }
        sent => sent,
    }
}
