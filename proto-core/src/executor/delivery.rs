//! What the harness must accept: readiness, results, ends of sessions. Each
//! is sent until it is accepted; a disconnect uses up no attempt.

use std::time::Duration;

use super::link::{Link, exponential};
use super::machine::{Executor, Tag};
use super::{Event, shrink};
use crate::contract::{
    Ack, AnyResult, ErrorCode, SessionEndedParams, SessionId, SessionReadyParams, ToolCallId, ToolResultParams, methods,
};
use crate::rpc::{Misuse, RequestError};
use crate::time::Time;

/// Something to be accepted by the harness.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delivery {
    /// `session.ready`.
    Ready(SessionId),
    /// `tool.result`.
    Result(SessionId, ToolCallId),
    /// `session.ended`.
    Ended(SessionId),
}

impl Delivery {
    fn session_id(&self) -> &SessionId {
        match self {
            Delivery::Ready(id) | Delivery::Result(id, _) | Delivery::Ended(id) => id,
        }
    }
}

/// A delivery and how often it was tried.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attempt {
    pub(super) delivery: Delivery,
    pub(super) tried: u32,
}

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
        self.held.retain(|attempt| attempt.delivery.session_id() != session_id);
        self.retries.retain(|(_, attempt)| attempt.delivery.session_id() != session_id);
        self.under_way.retain(|delivery| delivery.session_id() != session_id);
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
            Delivery::Ready(id) => {
                let Some(session) = self.sessions.get(id).filter(|session| session.ready) else {
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
                let tag = || Tag::Delivery(attempt.clone());
                match self.peer.request::<methods::ToolResult>(self.now, result, tag()) {
                    Err(Misuse::FrameTooLarge { limit, .. }) => {
                        let mut smaller = ToolResultParams::clone(result);
                        shrink::shrink_to_fit(&mut smaller, limit);
                        self.peer.request::<methods::ToolResult>(self.now, &smaller, tag())
                    }
                    sent => sent,
                }
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
            Err(error) if error.is_retryable() && attempt.tried + 1 < self.config.delivery_attempts => {
                self.retry_later(attempt);
            }
            Err(error) => self.undeliverable(attempt, error),
        }
    }

    fn delivered(&mut self, delivery: Delivery) {
        self.under_way.remove(&delivery);
        match delivery {
            Delivery::Ready(_) => {}
            Delivery::Result(session_id, call) => self.result_settled(&session_id, call),
            Delivery::Ended(session_id) => self.forget_session(&session_id),
        }
    }

    fn undeliverable(&mut self, attempt: Attempt, error: RequestError) {
        self.under_way.remove(&attempt.delivery);
        match attempt.delivery {
            // The harness will not have the session: it says so to the next request for it.
            Delivery::Ready(_) => {}
            Delivery::Result(session_id, call) => {
                let result = self.sessions.get(&session_id).and_then(|session| session.calls.result(&call)).cloned();
                if let Some(result) = result {
                    self.emit(Event::ResultLost { result: Box::new(ToolResultParams::clone(&result)), error });
                }
                self.result_settled(&session_id, call);
            }
            // A harness that does not know the session has nothing to accept.
            Delivery::Ended(session_id) => self.forget_session(&session_id),
        }
    }

    /// When the next attempt is due.
    pub(super) fn next_retry(&self) -> Option<Time> {
        self.retries.first().map(|(at, _)| *at)
    }
}
