//! The sessions that an executor was given, and their tool calls.

use std::sync::Arc;
use std::time::Duration;

use super::peer::{Binding, ExecutorPeer, Tag};
use super::{CallError, Completion, Event};
use crate::calls::{CallTable, Known};
use crate::contract::{
    Ack, AnyResult, ErrorCode, Secret, SessionAssignParams, SessionEndedParams, SessionId, SessionReadyParams,
    SessionStopParams, ToolCallId, ToolCallParams, ToolCancelParams, ToolResultParams, methods,
};
use crate::rpc::{InboundId, Misuse, RequestError};
use crate::time::Time;

/// How much longer than asked a stop may take before the session counts as ended.
const STOP_ALLOWANCE: Duration = Duration::from_secs(5);

/// A session that is bound to this executor.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    /// Which binding it is.
    number: u64,
    phase: Phase,
    ready: bool,
    ready_waiters: Vec<u64>,
    calls: CallTable<OpenCall>,
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

/// A call that has no result yet.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    /// Kept until the executor has acknowledged the call: after a reconnect it
    /// is sent again, which is safe because one id never runs twice.
    unacknowledged: Option<Box<ToolCallParams>>,
    waiter: Option<u64>,
    more_waiters: Vec<u64>,
}

impl OpenCall {
    fn take_waiters(&mut self) -> impl Iterator<Item = u64> + use<> {
        self.waiter.take().into_iter().chain(std::mem::take(&mut self.more_waiters))
    }
}

impl ExecutorPeer {
    /// Binds a session and sends `session.assign`. It is bound before that is
    /// sent, so that its readiness may come before the answer. A work id and a
    /// lease token are made up when they are empty. While nothing is connected
    /// the assignment waits for the executor's return.
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
            params.work_id = self.rng.id("work_").into();
        }
        if params.lease.token.is_empty() {
            params.lease.token = Secret::new(self.rng.id("lease_"));
        }
        let session_id = params.session_id.clone();
        let number = self.bindings + 1;
        self.send_assign(&params, number)?;
        self.bindings = number;
        let bound = Bound {
            number,
            phase: Phase::Assigning { params: Box::new(params), token },
            ready: false,
            ready_waiters: Vec::new(),
            calls: CallTable::new(self.rng.next_u64()),
        };
        self.sessions.insert(session_id, bound);
        Ok(())
    }

    fn send_assign(&mut self, params: &SessionAssignParams, number: u64) -> Result<(), CallError> {
        let tag = Tag::Assign(Binding { session_id: params.session_id.clone(), number });
        unless_unconnected(self.peer.request::<methods::SessionAssign>(self.now, params, tag))
    }

    pub(super) fn assign_answered(&mut self, binding: &Binding, outcome: Result<AnyResult, RequestError>) {
        let session_id = &binding.session_id;
        let phase = match self.sessions.get_mut(session_id) {
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
            self.sessions.remove(session_id)
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

    /// Ends every open call of a session that is no more.
    fn end_calls(&mut self, mut calls: CallTable<OpenCall>, error: &CallError) {
        for call_id in calls.open_ids() {
            let Some(mut call) = calls.withdraw(&call_id) else { continue };
            self.open_calls -= 1;
            for token in call.take_waiters() {
                self.done(token, Err(error.clone()));
            }
        }
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

    /// Sends a tool call; [`Completion::Tool`] comes with `token`. An id is made
    /// up when it is empty, and returned. A repeated id joins the open call or
    /// gets the recorded result: nothing is sent twice. While nothing is
    /// connected the call waits for the executor's return.
    ///
    /// # Errors
    /// When it cannot be sent: nothing was, and `token` does not come back.
    pub fn call_tool(&mut self, now: Time, mut params: ToolCallParams, token: u64) -> Result<ToolCallId, CallError> {
        self.advance(now);
        self.require_present()?;
        if params.tool_call_id.is_empty() {
            params.tool_call_id = self.rng.id("call_").into();
        }
        let (open, max_open) = (self.open_calls, self.config.max_open_calls);
        let call_id = params.tool_call_id.clone();
        let session = self.sessions.get_mut(&params.session_id).ok_or_else(|| unbound(&params.session_id))?;
        match session.calls.lookup(&call_id) {
            Known::Open(call) => {
                call.more_waiters.push(token);
                return Ok(call_id);
            }
            Known::Done(result) => {
                let result = Arc::clone(result);
                self.done(token, Ok(Completion::Tool(result)));
                return Ok(call_id);
            }
            Known::Forgotten => return Err(CallError::ResultForgotten),
            Known::New => {}
        }
        if let Phase::Stopping { params, .. } = &session.phase {
            return Err(over(&params.session_id, &params.reason));
        }
        if open >= max_open || session.calls.is_full() {
            return Err(CallError::Send(Misuse::Backlog(open)));
        }
        let number = session.number;
        self.send_call(&params, number)?;
        let call = OpenCall { unacknowledged: Some(Box::new(params)), waiter: Some(token), more_waiters: Vec::new() };
        let session_id = call.unacknowledged.as_ref().map(|params| params.session_id.clone());
        if let Some(session) = session_id.and_then(|id| self.sessions.get_mut(&id)) {
            session.calls.open(call_id.clone(), call);
            self.open_calls += 1;
        }
        Ok(call_id)
    }

    fn send_call(&mut self, params: &ToolCallParams, number: u64) -> Result<(), CallError> {
        let binding = Binding { session_id: params.session_id.clone(), number };
        let tag = Tag::Call(binding, params.tool_call_id.clone());
        unless_unconnected(self.peer.request::<methods::ToolCall>(self.now, params, tag))
    }

    pub(super) fn call_answered(
        &mut self,
        binding: &Binding,
        call_id: &ToolCallId,
        outcome: Result<AnyResult, RequestError>,
    ) {
        let session = self.sessions.get_mut(&binding.session_id);
        let Some(session) = session.filter(|session| session.number == binding.number) else { return };
        let Some(call) = session.calls.get_open(call_id) else { return };
        let error = match outcome {
            Ok(AnyResult::ToolCall(Ack { accepted: true })) => {
                call.unacknowledged = None;
                return;
            }
            Ok(_) => ErrorCode::Conflict.error("the executor answered accepted=false"),
            Err(RequestError::Disconnected) => return, // sent again when the executor is back
            Err(RequestError::Refused(error)) => *error,
            // It may run all the same: the waiters learn that nothing is known, the result is still taken.
            Err(error) => {
                for token in call.take_waiters() {
                    self.done(token, Err(CallError::Request(error.clone())));
                }
                return;
            }
        };
        if let Some(mut call) = session.calls.withdraw(call_id) {
            self.open_calls -= 1;
            for token in call.take_waiters() {
                self.done(token, Err(CallError::Request(RequestError::Refused(Box::new(error.clone())))));
            }
        }
    }

    pub(super) fn result_came(&mut self, id: InboundId, params: ToolResultParams) {
        let (session_id, call_id) = (params.session_id.clone(), params.tool_call_id.clone());
        let Some(session) = self.sessions.get_mut(&session_id) else {
            let message = format!("session {session_id} is not bound to this executor");
            return self.peer.refuse(id, &ErrorCode::SessionNotActive.error(message));
        };
        if let Known::New = session.calls.lookup(&call_id) {
            let message = format!("session {session_id} has no tool call {call_id}");
            return self.peer.refuse(id, &ErrorCode::NotFound.error(message));
        }
        // A result that is recorded already is acknowledged again: the answer was lost.
        self.peer.reply::<methods::ToolResult>(id, &Ack { accepted: true });
        let result = Arc::new(params);
        if let Some(mut call) = session.calls.finish(&call_id, Arc::clone(&result)) {
            session.calls.settle(call_id);
            self.open_calls -= 1;
            for token in call.take_waiters() {
                self.done(token, Ok(Completion::Tool(Arc::clone(&result))));
            }
        }
    }

    /// Sends `tool.cancel`; its result comes with `token`. The call still ends with its own result.
    ///
    /// # Errors
    /// When it cannot be sent: nothing was, and `token` does not come back.
    pub fn cancel_tool(&mut self, now: Time, params: &ToolCancelParams, token: u64) -> Result<(), CallError> {
        self.advance(now);
        self.require_present()?;
        if !self.sessions.contains_key(&params.session_id) {
            return Err(unbound(&params.session_id));
        }
        self.peer.request::<methods::ToolCancel>(self.now, params, Tag::Application(token))?;
        Ok(())
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
        let within = self.stop_timeout(&params);
        self.stop_deadlines.insert((self.now + within + STOP_ALLOWANCE, session_id.clone()));
        let Some(session) = self.sessions.get_mut(&session_id) else { return Ok(()) };
        let before = std::mem::replace(&mut session.phase, Phase::Stopping { params, tokens: vec![token] });
        if let Phase::Assigning { token, .. } = before {
            self.done(token, Err(over(&session_id, "it was stopped before it was accepted")));
        }
        Ok(())
    }

    fn stop_timeout(&self, params: &SessionStopParams) -> Duration {
        let asked = params.deadline_ms.and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis);
        self.config.request_timeout.max(asked.unwrap_or_default() + STOP_ALLOWANCE)
    }

    fn send_stop(&mut self, params: &SessionStopParams, number: u64) -> Result<(), CallError> {
        let tag = Tag::Stop(Binding { session_id: params.session_id.clone(), number });
        let timeout = self.stop_timeout(params);
        let method = crate::contract::Method::SessionStop;
        unless_unconnected(self.peer.request_with(self.now, method, params, tag, timeout))
    }

    pub(super) fn stop_answered(&mut self, binding: &Binding, outcome: Result<AnyResult, RequestError>) {
        let session = self.sessions.get(&binding.session_id);
        let same = session.is_some_and(|session| session.number == binding.number);
        match outcome {
            // `session.ended` is what ends it.
            Ok(_) => {}
            Err(RequestError::Disconnected) => {} // sent again when the executor is back
            Err(error) if same => {
                self.end_session(&binding.session_id, &format!("it could not be stopped in order: {error}"));
            }
            Err(_) => {}
        }
    }

    pub(super) fn end_overdue_stops(&mut self) {
        while let Some((at, session_id)) = self.stop_deadlines.first().cloned() {
            if at > self.now {
                break;
            }
            self.stop_deadlines.pop_first();
            self.end_session(&session_id, "the executor did not report its end in time");
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

    /// A connection is back: `reported` are the sessions that the executor still has.
    pub(super) fn resume_sessions(&mut self, reported: &[SessionId]) {
        let ours: Vec<_> = self.sessions.keys().cloned().collect();
        for session_id in &ours {
            let Some(session) = self.sessions.get_mut(session_id) else { continue };
            let number = session.number;
            let sent = match &session.phase {
                Phase::Assigning { params, .. } => {
                    let params = params.clone();
                    self.send_assign(&params, number).and_then(|()| self.resend_calls(session_id))
                }
                _ if !reported.contains(session_id) => {
                    self.end_session(session_id, "the executor came back without it");
                    continue;
                }
                Phase::Stopping { params, .. } => {
                    let params = params.clone();
                    // A call that never arrived is refused by a session that is stopping, and so
                    // known not to have run; one that did arrive gets its result.
                    self.send_stop(&params, number).and_then(|()| self.resend_calls(session_id))
                }
                Phase::Active => self.resend_calls(session_id),
            };
            if let Err(error) = sent {
                self.end_session(session_id, &format!("it could not be resumed: {error}"));
            }
        }
        for session_id in reported {
            if !ours.contains(session_id) {
                self.stop_stray(session_id.clone(), "the harness does not know the session");
            }
        }
    }

    /// Calls that were not acknowledged before the connection was lost.
    fn resend_calls(&mut self, session_id: &SessionId) -> Result<(), CallError> {
        let Some(session) = self.sessions.get_mut(session_id) else { return Ok(()) };
        let number = session.number;
        let mut unacknowledged = Vec::new();
        for id in session.calls.open_ids() {
            unacknowledged.extend(session.calls.get_open(&id).and_then(|call| call.unacknowledged.clone()));
        }
        unacknowledged.iter().try_for_each(|params| self.send_call(params, number))
    }
}

/// What cannot be sent for lack of a connection waits for the next one.
fn unless_unconnected(sent: Result<u64, Misuse>) -> Result<(), CallError> {
    match sent {
        Ok(_) | Err(Misuse::NotConnected) => Ok(()),
        Err(misuse) => Err(CallError::Send(misuse)),
    }
}

fn unbound(session_id: &SessionId) -> CallError {
    over(session_id, "it is not bound to this executor")
}

fn over(session_id: &SessionId, reason: &str) -> CallError {
    CallError::SessionEnded { session_id: session_id.clone(), reason: reason.to_owned() }
}
