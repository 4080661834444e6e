//! Sessions: offered, accepted, ready, stopped, ended; and what becomes of them without a connection.

use std::time::Duration;

use super::delivery::Delivery;
use super::link::Link;
use super::machine::Executor;
use super::tool_calls::OpenCall;
use super::{CallError, CancelCause, Event, OfferId, StopCause};
use crate::calls::CallTable;
use crate::contract::{
    ErrorCode, JSONRPCError, Secret, SessionAssignParams, SessionAssignResult, SessionId, SessionStatusParams,
    SessionStopParams, SessionStopResult, ToolResultParams, WorkId, methods,
};
use crate::rpc::InboundId;
use crate::time::{Reason, Time};

/// How long the application may take over an assignment or a stop when the harness names no time.
const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(25);

/// One session of this executor.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// The number of the offer that it came from.
    pub(super) offer: u64,
    pub(super) work_id: WorkId,
    pub(super) lease_token: Secret,
    /// Which lease it is: a repeated assignment can bring another one, and readiness is said for each.
    pub(super) lease_number: u32,
    pub(super) phase: Phase,
    /// Whether `session.ready` was asked for.
    pub(super) ready: bool,
    /// The reason of `session.ended`, once the application has said it.
    pub(super) ended: Option<String>,
    pub(super) calls: CallTable<OpenCall>,
    /// What the open calls weigh.
    pub(super) open_bytes: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// Offered; the application decides.
    Assigning(Vec<InboundId>),
    /// Accepted.
    Active,
    /// Told to end; the requests that wait for it.
    Stopping(Vec<InboundId>),
    /// Nothing to the harness any more: a void offer, or a lease that ran out. The
    /// application was told and still cleans up; a new assignment of the same id
    /// waits until it says that the session has ended.
    Lost(Option<Box<Offer>>),
}

/// An assignment that waits for its predecessor to be gone.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    params: SessionAssignParams,
    requests: Vec<InboundId>,
}

impl Session {
    /// Results that the harness has not accepted yet.
    pub(super) fn undelivered(&self) -> usize {
        self.calls.unsettled_len()
    }

    /// Bytes of its open calls, and of its results that the harness has not accepted yet.
    pub(super) fn held_bytes(&self) -> usize {
        self.open_bytes + self.calls.unsettled_bytes()
    }

    /// Takes over what a repeated assignment says of the work and its lease.
    fn renew(&mut self, params: &SessionAssignParams) {
        if self.work_id != params.work_id || self.lease_token != params.lease.token {
            self.work_id = params.work_id.clone();
            self.lease_token = params.lease.token.clone();
            self.lease_number += 1;
        }
    }
}

impl Executor {
    /// The sessions that the harness counts as ours: accepted, and not yet
    /// accepted as ended.
    pub fn active_sessions(&self) -> Vec<SessionId> {
        let active = |session: &Session| matches!(session.phase, Phase::Active | Phase::Stopping(_));
        self.sessions.iter().filter(|(_, session)| active(session)).map(|(id, _)| id.clone()).collect()
    }

    /// The accepted sessions whose end was not reported yet: what an orderly end has to tear down.
    pub fn running_sessions(&self) -> Vec<SessionId> {
        let running = |session: &Session| session.ended.is_none() && !matches!(session.phase, Phase::Assigning(_));
        self.sessions.iter().filter(|(_, session)| running(session)).map(|(id, _)| id.clone()).collect()
    }

    /// The offer that a session here came from: it tells two sessions of one id, one after the other, apart.
    pub fn offer_of(&self, session_id: &SessionId) -> Option<OfferId> {
        let session = self.sessions.get(session_id)?;
        Some(OfferId { session_id: session_id.clone(), number: session.offer })
    }

    /// Whether the harness counts a session as ours.
    pub(super) fn is_active(&self, session_id: &SessionId) -> bool {
        let session = self.sessions.get(session_id);
        session.is_some_and(|session| matches!(session.phase, Phase::Active | Phase::Stopping(_)))
    }

    pub(super) fn assign_came(&mut self, id: InboundId, params: SessionAssignParams) {
        let full = self.sessions.len() >= self.config.max_sessions;
        let mut known = self.sessions.get_mut(&params.session_id);
        if let Some(session) = &mut known
            && matches!(session.phase, Phase::Assigning(_) | Phase::Active)
        {
            session.renew(&params);
        }
        match known {
            Some(Session { phase: Phase::Assigning(requests), .. }) => requests.push(id),
            Some(Session { phase: Phase::Lost(Some(offer)), .. }) => {
                offer.requests.push(id);
                offer.params = params;
            }
            Some(Session { phase: Phase::Active, ended: None, ready, lease_number, .. }) => {
                let again = ready.then_some(*lease_number);
                let result = SessionAssignResult { accepted: true, session_id: params.session_id.clone() };
                self.peer.reply::<methods::SessionAssign>(id, &result);
                if let Some(lease_number) = again {
                    self.deliver(Delivery::Ready(params.session_id, lease_number));
                }
            }
            Some(Session { phase: Phase::Active | Phase::Stopping(_), .. }) => {
                let message = format!("session {} is ending: assign another one", params.session_id);
                self.peer.refuse(id, &ErrorCode::Conflict.error(message));
            }
            None | Some(Session { phase: Phase::Lost(None), .. }) if self.draining => {
                self.peer.refuse(id, &draining());
            }
            Some(Session { phase: Phase::Lost(offer @ None), .. }) => {
                let within = duration(params.deadline_ms).unwrap_or(DEFAULT_ANSWER_WITHIN);
                self.session_deadlines.insert((self.now + within, params.session_id.clone()));
                *offer = Some(Box::new(Offer { params, requests: vec![id] }));
            }
            None if full => {
                let error = ErrorCode::ExecutorBusy.error("this executor has no room for another session now");
                self.peer.refuse(id, &error.with_retryable(true));
            }
            None => {
                let within = duration(params.deadline_ms).unwrap_or(DEFAULT_ANSWER_WITHIN);
                self.session_deadlines.insert((self.now + within, params.session_id.clone()));
                self.offer_session(Offer { params, requests: vec![id] });
            }
        }
    }

    /// Offers a session to the application.
    fn offer_session(&mut self, Offer { params, requests }: Offer) {
        self.offers += 1;
        let offer = OfferId { session_id: params.session_id.clone(), number: self.offers };
        let session = Session {
            offer: offer.number,
            work_id: params.work_id.clone(),
            lease_token: params.lease.token.clone(),
            lease_number: 0,
            phase: Phase::Assigning(requests),
            ready: false,
            ended: None,
            calls: CallTable::new(self.rng.next_u64()),
            open_bytes: 0,
        };
        self.sessions.insert(params.session_id.clone(), session);
        self.emit(Event::SessionAssign { offer, params: Box::new(params) });
    }

    /// Takes an offered session. Say [`session_ready`](Executor::session_ready) once it is set up.
    ///
    /// # Errors
    /// When the offer is not open any more: it took too long, or the connection went.
    /// [`CallError::Refused`] when the executor has begun to drain since the offer came:
    /// the harness is told so, and [`Event::SessionStop`] asks for what was set up to be taken down.
    pub fn accept_session(&mut self, offer: &OfferId) -> Result<(), CallError> {
        let session_id = &offer.session_id;
        let is_draining = self.draining;
        let session = self.offered(offer)?;
        let Phase::Assigning(requests) = std::mem::replace(&mut session.phase, Phase::Active) else { return Ok(()) };
        self.clear_session_deadline(session_id);
        if is_draining {
            let error = draining();
            for id in requests {
                self.peer.refuse(id, &error);
            }
            self.lose_session(session_id, StopCause::Requested("the executor is draining".to_owned()));
            return Err(CallError::Refused(Box::new(error)));
        }
        for id in requests {
            let result = SessionAssignResult { accepted: true, session_id: session_id.clone() };
            self.peer.reply::<methods::SessionAssign>(id, &result);
        }
        self.has_served();
        Ok(())
    }

    /// Turns an offered session down: with an error, or with `accepted: false`.
    ///
    /// # Errors
    /// When the offer is not open any more.
    pub fn reject_session(&mut self, offer: &OfferId, error: Option<&JSONRPCError>) -> Result<(), CallError> {
        let session_id = &offer.session_id;
        let session = self.offered(offer)?;
        let Phase::Assigning(requests) = &mut session.phase else { return Ok(()) };
        let requests = std::mem::take(requests);
        self.sessions.remove(session_id);
        self.clear_session_deadline(session_id);
        for id in requests {
            match error {
                Some(error) => self.peer.refuse(id, error),
                None => {
                    let result = SessionAssignResult { accepted: false, session_id: session_id.clone() };
                    self.peer.reply::<methods::SessionAssign>(id, &result);
                }
            }
        }
        Ok(())
    }

    /// The session of an open offer.
    fn offered(&mut self, offer: &OfferId) -> Result<&mut Session, CallError> {
        let session = self.sessions.get_mut(&offer.session_id);
        let open = session.filter(|s| s.offer == offer.number && matches!(s.phase, Phase::Assigning(_)));
        open.ok_or_else(|| CallError::NoSuchSession(offer.session_id.clone()))
    }

    /// Reports that an accepted session is set up. Sent until the harness accepts it.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn session_ready(&mut self, now: Time, session_id: &SessionId) -> Result<(), CallError> {
        self.advance(now);
        let session = self.active(session_id)?;
        session.ready = true;
        let delivery = Delivery::Ready(session_id.clone(), session.lease_number);
        self.deliver(delivery);
        Ok(())
    }

    /// Reports a session's status, best effort. `false` when it was dropped.
    ///
    /// # Errors
    /// When it can never be sent.
    pub fn session_status(&mut self, params: &SessionStatusParams) -> Result<bool, CallError> {
        self.notify::<methods::SessionStatus>(params)
    }

    pub(super) fn stop_came(&mut self, id: InboundId, params: SessionStopParams) {
        let within = duration(params.deadline_ms);
        let session_id = params.session_id;
        let offers = match self.sessions.get_mut(&session_id) {
            None | Some(Session { phase: Phase::Lost(None), .. }) => {
                return self.peer.refuse(id, &not_active(&session_id));
            }
            Some(Session { phase: Phase::Lost(offer), .. }) => {
                let offer = offer.take();
                self.clear_session_deadline(&session_id);
                self.refuse_offers(offer.map(|offer| offer.requests).unwrap_or_default(), &session_id);
                return self.peer.reply::<methods::SessionStop>(id, &SessionStopResult { stopped: true });
            }
            Some(Session { ended: Some(_), .. }) => {
                return self.peer.reply::<methods::SessionStop>(id, &SessionStopResult { stopped: true });
            }
            Some(Session { phase: Phase::Stopping(requests), .. }) => {
                requests.push(id);
                return self.answer_stop_within(&session_id, within);
            }
            Some(session) => match std::mem::replace(&mut session.phase, Phase::Stopping(vec![id])) {
                Phase::Assigning(offers) => offers,
                Phase::Active | Phase::Stopping(_) | Phase::Lost(_) => Vec::new(),
            },
        };
        self.refuse_offers(offers, &session_id);
        self.answer_stop_within(&session_id, within);
        self.cancel_open_calls(&session_id);
        self.emit_stop(&session_id, StopCause::Requested(params.reason), within);
    }

    fn emit_stop(&mut self, session_id: &SessionId, reason: StopCause, within: Option<Duration>) {
        if let Some(offer) = self.offer_of(session_id) {
            self.emit(Event::SessionStop { session_id: session_id.clone(), offer, reason, within });
        }
    }

    fn answer_stop_within(&mut self, session_id: &SessionId, within: Option<Duration>) {
        self.clear_session_deadline(session_id);
        let deadline = self.now + within.unwrap_or(DEFAULT_ANSWER_WITHIN);
        self.session_deadlines.insert((deadline, session_id.clone()));
    }

    fn refuse_offers(&mut self, requests: Vec<InboundId>, session_id: &SessionId) {
        for id in requests {
            let message = format!("session {session_id} was stopped before it was accepted");
            self.peer.refuse(id, &ErrorCode::Conflict.error(message));
        }
    }

    /// Answers `session.stop`: `stopped` says whether everything of the session is gone.
    ///
    /// # Errors
    /// When nothing waits for it (the deadline may have answered already).
    pub fn session_stopped(&mut self, session_id: &SessionId, stopped: bool) -> Result<(), CallError> {
        match self.sessions.get_mut(session_id) {
            Some(Session { phase: Phase::Stopping(requests), .. }) => {
                let requests = std::mem::take(requests);
                self.clear_session_deadline(session_id);
                for id in requests {
                    self.peer.reply::<methods::SessionStop>(id, &SessionStopResult { stopped });
                }
                Ok(())
            }
            _ => Err(CallError::NoSuchSession(session_id.clone())),
        }
    }

    /// Reports that everything of a session is gone. Sent once every result of
    /// the session is delivered, and until the harness accepts it; only then
    /// does the session leave [`active_sessions`](Executor::active_sessions).
    /// Calls still open are finished as canceled. It answers `session.stop` too,
    /// where [`session_stopped`](Executor::session_stopped) has not.
    ///
    /// A session that the harness has given up (a void offer, a lease that ran
    /// out) is reported to nobody; this says that its id is free for a new assignment.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn session_ended(&mut self, now: Time, session_id: &SessionId, reason: &str) -> Result<(), CallError> {
        self.advance(now);
        let session = self.sessions.get_mut(session_id);
        let Some(session) = session.filter(|session| !matches!(session.phase, Phase::Assigning(_))) else {
            return Err(CallError::NoSuchSession(session_id.clone()));
        };
        if let Phase::Lost(offer) = &mut session.phase {
            match offer.take() {
                Some(offer) => self.offer_session(*offer),
                None => self.forget_session(session_id),
            }
            return Ok(());
        }
        if session.ended.is_some() {
            return Ok(());
        }
        session.ended = Some(reason.to_owned());
        // The one error is that no stop waits for its answer.
        let _ = self.session_stopped(session_id, true);
        let Some(session) = self.sessions.get(session_id) else { return Ok(()) };
        for call in session.calls.open_ids() {
            let result = ToolResultParams {
                session_id: session_id.clone(),
                tool_call_id: call,
                outcome: crate::contract::ToolOutcome::Canceled,
                is_error: true,
                ..ToolResultParams::default()
            };
            self.finish_tool_call(now, result)?;
        }
        self.end_when_delivered(session_id);
        Ok(())
    }

    /// Sends `session.ended` once no result of the session waits any more.
    pub(super) fn end_when_delivered(&mut self, session_id: &SessionId) {
        let all_delivered = |session: &Session| session.calls.open_len() == 0 && session.undelivered() == 0;
        let session = self.sessions.get(session_id);
        if session.is_some_and(|session| session.ended.is_some() && all_delivered(session)) {
            self.deliver(Delivery::Ended(session_id.clone()));
        }
    }

    pub(super) fn forget_session(&mut self, session_id: &SessionId) {
        let session = self.sessions.remove(session_id);
        self.held_bytes -= session.map_or(0, |session| session.held_bytes());
        self.forget_work(session_id);
    }

    /// Drops every date and delivery of a session.
    fn forget_work(&mut self, session_id: &SessionId) {
        self.clear_session_deadline(session_id);
        self.call_deadlines.retain(|(_, session, _)| session != session_id);
        self.forget_deliveries(session_id);
    }

    /// Nothing is left to be done once the executor has ended.
    pub(super) fn forget_everything(&mut self) {
        for session_id in self.sessions.keys().cloned().collect::<Vec<_>>() {
            self.forget_session(&session_id);
        }
        self.lose_reported();
    }

    /// The harness has given a session up: the application is told, and has the id until it is done with it.
    fn lose_session(&mut self, session_id: &SessionId, reason: StopCause) {
        let Some(session) = self.sessions.get(session_id) else { return };
        let (ended, told) = (session.ended.is_some(), matches!(session.phase, Phase::Stopping(_) | Phase::Lost(_)));
        if !told {
            self.cancel_open_calls(session_id);
        }
        self.lose_results(session_id);
        if ended {
            // The application is done with it already, and there is nobody left to be told.
            return self.forget_session(session_id);
        }
        self.forget_work(session_id);
        let seed = self.rng.next_u64();
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.phase = Phase::Lost(None);
            session.ready = false;
            self.held_bytes -= session.held_bytes();
            session.calls = CallTable::new(seed);
            session.open_bytes = 0;
        }
        if !told {
            self.emit_stop(session_id, reason, None);
        }
    }

    /// A connection is gone: offers that came on it are void, and requests on it get no answer.
    pub(super) fn forget_unanswered(&mut self) {
        let mut void = Vec::new();
        for (session_id, session) in &mut self.sessions {
            session.calls.each_open(|call| drop(call.unanswered.take()));
            match &mut session.phase {
                Phase::Assigning(_) => void.push(session_id.clone()),
                Phase::Active => {}
                Phase::Stopping(requests) => requests.clear(),
                Phase::Lost(offer) => {
                    if offer.take().is_some() {
                        self.session_deadlines.retain(|(_, session)| session != session_id);
                    }
                }
            }
        }
        for session_id in void {
            // The application may be at work on it: it learns that there is nothing to be ready for.
            let reason = "the connection was lost before the assignment was answered";
            self.lose_session(&session_id, StopCause::Requested(reason.to_owned()));
        }
    }

    /// Gives all sessions up: their harness has, or there is none any more.
    pub(super) fn lose_sessions(&mut self, cause: &StopCause) {
        for session_id in self.active_sessions() {
            self.lose_session(&session_id, cause.clone());
        }
    }

    pub(super) fn sessions_tick(&mut self) {
        while let Some((at, session_id, call)) = self.call_deadlines.first().cloned() {
            if at > self.now {
                break;
            }
            self.call_deadlines.pop_first();
            self.cancel_call(&session_id, &call, CancelCause::Deadline);
        }
        while let Some((at, session_id)) = self.session_deadlines.first().cloned() {
            if at > self.now {
                break;
            }
            self.session_deadlines.pop_first();
            self.answer_overdue(&session_id);
        }
        if self.lease_deadline().is_some_and(|(at, _)| at <= self.now) {
            self.history.lease_expires = None;
            self.lose_sessions(&StopCause::LeaseExpired);
        }
    }

    /// The application took too long over an assignment or a stop.
    fn answer_overdue(&mut self, session_id: &SessionId) {
        let late = ErrorCode::Timeout.error("the session was not set up in time");
        match self.sessions.get_mut(session_id).map(|session| &mut session.phase) {
            Some(Phase::Assigning(requests)) => {
                for id in std::mem::take(requests) {
                    self.peer.refuse(id, &late);
                }
                let reason = "the assignment was not answered in time";
                self.lose_session(session_id, StopCause::Requested(reason.to_owned()));
            }
            Some(Phase::Lost(offer)) => {
                for id in offer.take().map(|offer| offer.requests).unwrap_or_default() {
                    self.peer.refuse(id, &late);
                }
            }
            Some(Phase::Stopping(_)) => {
                // The one error is that nothing waits, and then there is nothing to say.
                let _ = self.session_stopped(session_id, false);
            }
            Some(Phase::Active) | None => {}
        }
    }

    /// While nothing is connected: when the harness gives the sessions up.
    pub(super) fn lease_deadline(&self) -> Option<(Time, Reason)> {
        if self.sessions.is_empty() || matches!(self.link, Link::Up(_)) {
            return None;
        }
        self.history.lease_expires.map(|at| (at, Reason::LeaseExpiry))
    }

    fn active(&mut self, session_id: &SessionId) -> Result<&mut Session, CallError> {
        match self.sessions.get_mut(session_id) {
            Some(session) if matches!(session.phase, Phase::Active) => Ok(session),
            _ => Err(CallError::NoSuchSession(session_id.clone())),
        }
    }

    fn clear_session_deadline(&mut self, session_id: &SessionId) {
        self.session_deadlines.retain(|(_, session)| session != session_id);
    }
}

fn draining() -> JSONRPCError {
    ErrorCode::ExecutorBusy.error("the executor is draining: assign the session elsewhere").with_retryable(true)
}

pub(super) fn not_active(session_id: &SessionId) -> JSONRPCError {
    ErrorCode::SessionNotActive.error(format!("session {session_id} is not active on this executor"))
}

/// A time that a peer names: 0 or less says as little as none at all.
pub(super) fn duration(ms: Option<i64>) -> Option<Duration> {
    ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0).map(Duration::from_millis)
}
