//! The sessions that an executor was given.

use std::time::Duration;

use super::calls::OpenCall;
use super::peer::{Binding, ExecutorPeer, Tag};
use super::{CallError, Completion, Event};
use crate::calls::CallTable;
use crate::contract::{
    Ack, AnyResult, ErrorCode, Method, Secret, SessionAssignParams, SessionEndedParams, SessionId, SessionReadyParams,
    SessionStopParams, ToolCancelParams, WorkId, methods,
};
use crate::rpc::{InboundId, Misuse, RequestError};
use crate::time::Time;

/// How much longer than asked the executor may take to answer, and after a stop to report the end.
const ALLOWANCE: Duration = Duration::from_secs(5);

/// A session that is bound to this executor.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    /// Which binding it is.
    pub(super) number: u64,
    /// What `session.ready` has to show.
    work_id: WorkId,
    lease_token: Secret,
    phase: Phase,
    ready: bool,
    ready_waiters: Vec<u64>,
    pub(super) calls: CallTable<OpenCall>,
    /// Cancels for when the executor is back, of calls that were open when its connection was lost.
    pub(super) cancels: Vec<ToolCancelParams>,
}

impl Bound {
    /// Why it was told to stop, if it was.
    pub(super) fn stopping(&self) -> Option<&str> {
        match &self.phase {
            Phase::Stopping { params, .. } => Some(&params.reason),
            Phase::Assigning { .. } | Phase::Active => None,
        }
    }
}

#[derive(Clone, Debug)]
enum Phase {
    /// `session.assign` has no answer yet.
    Assigning { params: Box<SessionAssignParams>, token: u64 },
    /// Accepted.
    Active,
    /// Told to stop; `session.ended` ends it.
    Stopping { params: SessionStopParams, tokens: Vec<u64> },
}

impl ExecutorPeer {
    /// Binds a session and sends `session.assign`. It is bound before that is
    /// sent, so that its readiness may come before the answer. A work id and a
    /// lease token are made up when they are empty: the executor shows them when
    /// it is ready, which ties that to this assignment and not to an earlier one
    /// of the same id. While nothing is connected the assignment waits for the
    /// executor's return.
    ///
    /// The answer is waited for as long as for any request, and longer when
    /// `deadline_ms` gives the executor more than that.
    ///
    /// [`Completion::Result`] comes with `token` once it is accepted.
    ///
    /// # Errors
    /// When it cannot be sent: nothing was, and `token` does not come back.
    pub fn assign(&mut self, now: Time, mut params: SessionAssignParams, token: u64) -> Result<(), CallError> {
        self.advance(now);
        self.require_present()?;
        if self.sessions.contains_key(&params.session_id) {
            return Err(CallError::SessionExists(params.session_id));
        }
        if params.work_id.is_empty() {
            params.work_id = self.rng.id("work_");
        }
        if params.lease.token.is_empty() {
            params.lease.token = Secret::new(self.rng.id::<String>("lease_"));
        }
        let session_id = params.session_id.clone();
        let number = self.bindings + 1;
        self.send_assign(&params, number)?;
        self.bindings = number;
        let bound = Bound {
            number,
            work_id: params.work_id.clone(),
            lease_token: params.lease.token.clone(),
            phase: Phase::Assigning { params: Box::new(params), token },
            ready: false,
            ready_waiters: Vec::new(),
            calls: CallTable::new(self.rng.next_u64()),
            cancels: Vec::new(),
        };
        self.sessions.insert(session_id, Box::new(bound));
        Ok(())
    }

    fn send_assign(&mut self, params: &SessionAssignParams, number: u64) -> Result<(), CallError> {
        let tag = Tag::Assign(Binding { session_id: params.session_id.clone(), number });
        let patience = self.patience(params.deadline_ms);
        unless_unconnected(self.peer.request_with(self.now, Method::SessionAssign, params, tag, patience)).map(drop)
    }

    pub(super) fn assign_answered(&mut self, binding: &Binding, outcome: Result<AnyResult, RequestError>) {
        let session_id = &binding.session_id;
        let phase = match self.sessions.get_mut(session_id).map(Box::as_mut) {
            Some(Bound { number, phase: phase @ Phase::Assigning { .. }, .. }) if *number == binding.number => phase,
            Some(_) => return,
            None => {
                // Stopped before it was accepted, and accepted all the same.
                if matches!(&outcome, Ok(AnyResult::SessionAssign(result)) if result.accepted) {
                    self.stop_stray(session_id.clone(), "the assignment was given up");
                }
                return;
            }
        };
        let error = match outcome {
            Ok(AnyResult::SessionAssign(result)) if result.accepted => {
                if let Phase::Assigning { token, .. } = std::mem::replace(phase, Phase::Active) {
                    let result = Box::new(AnyResult::SessionAssign(result));
                    self.done(token, Ok(Completion::Result(result)));
                }
                return;
            }
            Ok(_) => CallError::AssignRejected,
            Err(RequestError::Disconnected) => return, // sent again when the executor is back
            Err(error) => {
                if matches!(error, RequestError::Timeout(_) | RequestError::Malformed(_)) {
                    // The executor may have taken it: it is not wanted any more.
                    self.stop_stray(session_id.clone(), "the assignment was given up");
                }
                CallError::Request(error)
            }
        };
        if let Some(Bound { phase: Phase::Assigning { token, .. }, ready_waiters, calls, .. }) =
            self.sessions.remove(session_id).map(|bound| *bound)
        {
            let may_have_run =
                !matches!(&error, CallError::AssignRejected | CallError::Request(RequestError::Refused(_)));
            self.done(token, Err(error));
            let over = over(session_id, "it was not accepted");
            for waiter in ready_waiters {
                self.done(waiter, Err(over.clone()));
            }
            let unknown = CallError::OutcomeUnknown("the session was not accepted in time".to_owned());
            self.end_calls(calls, &if may_have_run { unknown } else { over });
        }
        self.leave_when_drained();
    }

    /// Tells an executor to stop a session that is not ours. Nobody waits for it.
    fn stop_stray(&mut self, session_id: SessionId, reason: &str) {
        let params = SessionStopParams { session_id, reason: reason.to_owned(), deadline_ms: None };
        // When it cannot be sent, the next registration finds the session again.
        let _ = self.peer.request::<methods::SessionStop>(self.now, &params, Tag::Nobody);
    }

    /// Waits until a session is set up: [`Completion::Ready`] comes with `token`.
    ///
    /// # Errors
    /// When there is no such session; `token` does not come back.
    pub fn wait_ready(&mut self, session_id: &SessionId, token: u64) -> Result<(), CallError> {
        let session = self.sessions.get_mut(session_id).ok_or_else(|| unbound(session_id))?;
        if session.ready {
            self.done(token, Ok(Completion::Ready));
        } else {
            session.ready_waiters.push(token);
        }
        Ok(())
    }

    pub(super) fn ready_came(&mut self, id: InboundId, params: &SessionReadyParams) {
        let Some(session) = self.sessions.get_mut(&params.session_id) else {
            let message = format!("session {} is not bound to this executor", params.session_id);
            return self.peer.refuse(id, &ErrorCode::SessionNotActive.error(message));
        };
        if params.work_id != session.work_id || params.lease_token != session.lease_token {
            let message = format!("session {} is bound by another assignment than this", params.session_id);
            return self.peer.refuse(id, &ErrorCode::SessionNotActive.error(message));
        }
        let first = !std::mem::replace(&mut session.ready, true);
        let waiters = std::mem::take(&mut session.ready_waiters);
        self.peer.reply::<methods::SessionReady>(id, &Ack { accepted: true });
        for token in waiters {
            self.done(token, Ok(Completion::Ready));
        }
        if first {
            self.emit(Event::SessionReady(params.session_id.clone()));
        }
    }

    /// Sends `session.stop`; [`Completion::Ended`] comes with `token` once the
    /// executor reports the session's end. It counts as ended all the same when
    /// that takes more than some seconds longer than asked.
    ///
    /// # Errors
    /// When it cannot be sent: nothing was, and `token` does not come back.
    pub fn stop_session(&mut self, now: Time, params: SessionStopParams, token: u64) -> Result<(), CallError> {
        self.advance(now);
        self.require_present()?;
        let session_id = params.session_id.clone();
        let session = self.sessions.get_mut(&session_id).ok_or_else(|| unbound(&session_id))?;
        if let Phase::Stopping { tokens, .. } = &mut session.phase {
            tokens.push(token);
            return Ok(());
        }
        let number = session.number;
        self.send_stop(&params, number)?;
        let within = self.patience(params.deadline_ms);
        self.stop_deadlines.insert((self.now + within + ALLOWANCE, session_id.clone()));
        let Some(session) = self.sessions.get_mut(&session_id) else { return Ok(()) };
        let before = std::mem::replace(&mut session.phase, Phase::Stopping { params, tokens: vec![token] });
        if let Phase::Assigning { token, .. } = before {
            self.done(token, Err(over(&session_id, "it was stopped before it was accepted")));
        }
        Ok(())
    }

    /// How long the answer to a request with this deadline is waited for.
    fn patience(&self, deadline_ms: Option<i64>) -> Duration {
        let asked = deadline_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        let asked = asked.map_or(Duration::ZERO, |asked| asked.saturating_add(ALLOWANCE));
        self.config.request_timeout.max(asked)
    }

    fn send_stop(&mut self, params: &SessionStopParams, number: u64) -> Result<(), CallError> {
        let tag = Tag::Stop(Binding { session_id: params.session_id.clone(), number });
        let patience = self.patience(params.deadline_ms);
        unless_unconnected(self.peer.request_with(self.now, Method::SessionStop, params, tag, patience)).map(drop)
    }

    pub(super) fn stop_answered(&mut self, binding: &Binding, outcome: Result<AnyResult, RequestError>) {
        let session = self.sessions.get(&binding.session_id);
        let same = session.is_some_and(|session| session.number == binding.number);
        match outcome {
            // `session.ended` is what ends it.
            Ok(_) => {}
            Err(RequestError::Disconnected) => {} // sent again when the executor is back
            Err(error) if same => {
                let reason = format!("it could not be stopped in order: {error}");
                self.drop_session(&binding.session_id, &reason, &error);
            }
            Err(_) => {}
        }
    }

    /// Ends a session whose stop came to nothing; the executor may still have it, unless it says that it has not.
    fn drop_session(&mut self, session_id: &SessionId, reason: &str, error: &RequestError) {
        self.end_session(session_id, reason);
        let unknown_there = matches!(
            error, RequestError::Refused(error) if error.known_code() == Some(ErrorCode::SessionNotActive)
        );
        if !unknown_there {
            self.stop_stray(session_id.clone(), reason);
        }
    }

    pub(super) fn end_overdue_stops(&mut self) {
        while let Some((at, session_id)) = self.stop_deadlines.first().cloned() {
            if at > self.now {
                break;
            }
            self.stop_deadlines.pop_first();
            let reason = "the executor did not report its end in time";
            self.end_session(&session_id, reason);
            self.stop_stray(session_id, reason);
        }
    }

    pub(super) fn ended_came(&mut self, id: InboundId, params: SessionEndedParams) {
        // A session that is not known (any more) is as ended as it can be.
        self.peer.reply::<methods::SessionEnded>(id, &Ack { accepted: true });
        self.end_session(&params.session_id, &params.reason);
    }

    fn end_session(&mut self, session_id: &SessionId, reason: &str) {
        let Some(session) = self.sessions.remove(session_id) else { return };
        self.stop_deadlines.retain(|(_, stopping)| stopping != session_id);
        self.end_calls(session.calls, &CallError::OutcomeUnknown(format!("the session ended ({reason})")));
        for token in session.ready_waiters {
            self.done(token, Err(over(session_id, reason)));
        }
        match session.phase {
            Phase::Assigning { token, .. } => self.done(token, Err(over(session_id, reason))),
            Phase::Active => {}
            Phase::Stopping { tokens, .. } => {
                for token in tokens {
                    self.done(token, Ok(Completion::Ended));
                }
            }
        }
        self.emit(Event::SessionEnded { session_id: session_id.clone(), reason: reason.to_owned() });
        self.leave_when_drained();
    }

    pub(super) fn end_all_sessions(&mut self, reason: &str) {
        let sessions: Vec<_> = self.sessions.keys().cloned().collect();
        for session_id in sessions {
            self.end_session(&session_id, reason);
        }
    }

    /// The sessions bound to this executor.
    pub fn session_ids(&self) -> impl Iterator<Item = &SessionId> {
        self.sessions.keys()
    }

    /// Which binding of its id a session is. An id that is bound again, once its
    /// first session has ended, is another session with another number.
    pub fn binding(&self, session_id: &SessionId) -> Option<u64> {
        self.sessions.get(session_id).map(|session| session.number)
    }

    /// A connection is back: `reported` are the sessions that the executor still has; none when
    /// its program was started anew and does not know of the run before.
    pub(super) fn resume_sessions(&mut self, reported: Option<&[SessionId]>) {
        let started_anew = reported.is_none();
        let reported = reported.unwrap_or_default();
        let ours: Vec<_> = self.sessions.keys().cloned().collect();
        for session_id in &ours {
            let Some(session) = self.sessions.get_mut(session_id) else { continue };
            let number = session.number;
            let here = reported.contains(session_id);
            let sent = match &session.phase {
                // The run before may have taken the session and begun its calls: this one would begin them again.
                Phase::Assigning { .. } if started_anew && session.calls.any(OpenCall::may_have_arrived) => {
                    self.end_session(session_id, "the executor was started anew");
                    continue;
                }
                Phase::Assigning { params, .. } => {
                    let params = params.clone();
                    self.send_assign(&params, number)
                }
                _ if !here => {
                    self.end_session(session_id, "the executor came back without it");
                    continue;
                }
                // A call that never arrived is refused by a session that is stopping, and so
                // known not to have run; one that did arrive gets its result.
                Phase::Stopping { params, .. } => {
                    let params = params.clone();
                    self.send_stop(&params, number)
                }
                Phase::Active => Ok(()),
            };
            match sent {
                Ok(()) => self.resend_calls(session_id),
                Err(error) => {
                    let reason = format!("it could not be resumed: {error}");
                    self.end_session(session_id, &reason);
                    if here {
                        self.stop_stray(session_id.clone(), &reason);
                    }
                }
            }
        }
        for session_id in reported {
            if !ours.contains(session_id) {
                self.stop_stray(session_id.clone(), "the harness does not know the session");
            }
        }
    }
}

/// What cannot be sent for lack of a connection waits for the next one.
pub(super) fn unless_unconnected(sent: Result<u64, Misuse>) -> Result<Option<u64>, CallError> {
    match sent {
        Ok(number) => Ok(Some(number)),
        Err(Misuse::NotConnected) => Ok(None),
        Err(misuse) => Err(CallError::Send(misuse)),
    }
}

pub(super) fn unbound(session_id: &SessionId) -> CallError {
    over(session_id, "it is not bound to this executor")
}

pub(super) fn over(session_id: &SessionId, reason: &str) -> CallError {
    CallError::SessionEnded { session_id: session_id.clone(), reason: reason.to_owned() }
}
