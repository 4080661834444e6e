//! The tool calls of an executor's sessions.

use std::sync::Arc;

use super::peer::{Binding, ExecutorPeer, Tag};
use super::sessions::{over, unbound, unless_unconnected};
use super::{CallError, Completion};
use crate::calls::{CallTable, Known, Waiters, tool_call_weight};
use crate::contract::{
    Ack, AnyResult, ContentBlock, ErrorCode, SessionId, ToolCallId, ToolCallParams, ToolCancelParams, ToolCancelResult,
    ToolOutcome, ToolResultParams, methods,
};
use crate::rpc::{InboundId, Misuse, RequestError};
use crate::time::Time;

/// Calls that were given up and whose late results are still taken, over all
/// sessions. At the bound the oldest one's late result is refused.
const MAX_GIVEN_UP: usize = 1024;

/// A call that has no result yet.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    delivery: Delivery,
    /// The tokens that get its outcome.
    waiters: Waiters<u64>,
}

/// How far a call is on its way to the executor.
#[derive(Clone, Debug)]
enum Delivery {
    /// Not acknowledged: after a reconnect it is sent again, which is safe because one id never runs twice.
    Unacknowledged {
        params: Box<ToolCallParams>,
        /// Its request on the present connection.
        request: Option<u64>,
        /// It was on its way when an earlier connection was lost.
        may_have_arrived: bool,
    },
    Acknowledged,
    /// Its waiters were told that nothing is known of it. Nothing is sent any
    /// more unless it is asked for again; a result that comes late is taken.
    GivenUp,
}

impl OpenCall {
    /// What it counts against [`Config::max_unacknowledged_bytes`](super::Config::max_unacknowledged_bytes).
    fn unacknowledged_bytes(&self) -> usize {
        match &self.delivery {
            Delivery::Unacknowledged { params, .. } => tool_call_weight(params),
            Delivery::Acknowledged | Delivery::GivenUp => 0,
        }
    }

    /// Whether the executor may know of it.
    pub(super) fn may_have_arrived(&self) -> bool {
        match &self.delivery {
            Delivery::Unacknowledged { may_have_arrived, .. } => *may_have_arrived,
            Delivery::Acknowledged | Delivery::GivenUp => true,
        }
    }

    /// Whether somebody waits for it: only then does it count as open.
    fn counts(&self) -> bool {
        !matches!(self.delivery, Delivery::GivenUp)
    }
}

impl ExecutorPeer {
    /// Sends a tool call; [`Completion::Tool`] comes with `token`. An id is made
    /// up when it is empty, and returned. A repeated id joins the open call or
    /// gets the recorded result; one that had no answer in time is sent again,
    /// which the executor answers without running it twice. While nothing is
    /// connected the call waits for the executor's return.
    ///
    /// # Errors
    /// When it cannot be sent: nothing was, and `token` does not come back.
    pub fn call_tool(&mut self, now: Time, mut params: ToolCallParams, token: u64) -> Result<ToolCallId, CallError> {
        self.advance(now);
        self.require_present()?;
        if params.tool_call_id.is_empty() {
            params.tool_call_id = self.rng.id("call_");
        }
        let (open, max_open) = (self.open_calls, self.config.max_open_calls);
        let call_id = params.tool_call_id.clone();
        let session = self.sessions.get_mut(&params.session_id).ok_or_else(|| unbound(&params.session_id))?;
        let given_up = match session.calls.lookup(&call_id) {
            Known::Open(call) if call.counts() => {
                call.waiters.push(token);
                return Ok(call_id);
            }
            Known::Open(_) => true,
            Known::Done(result) => {
                let result = Arc::clone(result);
                self.done(token, Ok(Completion::Tool(result)));
                return Ok(call_id);
            }
            Known::Forgotten => return Err(CallError::ResultForgotten),
            Known::New => false,
        };
        if let Some(reason) = session.stopping() {
            return Err(over(&params.session_id, reason));
        }
        let much_waits = self.unacknowledged_bytes >= self.config.max_unacknowledged_bytes;
        if open >= max_open || much_waits || (session.calls.is_full() && !given_up) {
            return Err(CallError::Send(Misuse::Backlog(open)));
        }
        let number = session.number;
        let request = self.send_call(&params, number)?;
        if let Some(session) = self.sessions.get_mut(&params.session_id) {
            let delivery = Delivery::Unacknowledged { params: Box::new(params), request, may_have_arrived: given_up };
            let call = OpenCall { delivery, waiters: Waiters::one(token) };
            self.unacknowledged_bytes += call.unacknowledged_bytes();
            session.calls.open(call_id.clone(), call);
            self.open_calls += 1;
        }
        Ok(call_id)
    }

    /// The request's number, if there is a connection to send it on.
    fn send_call(&mut self, params: &ToolCallParams, number: u64) -> Result<Option<u64>, CallError> {
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
        let Delivery::Unacknowledged { request, may_have_arrived, .. } = &mut call.delivery else { return };
        let error = match outcome {
            Ok(AnyResult::ToolCall(Ack { accepted: true })) => {
                self.unacknowledged_bytes -= call.unacknowledged_bytes();
                call.delivery = Delivery::Acknowledged;
                return;
            }
            Ok(_) => ErrorCode::Conflict.error("the executor answered accepted=false"),
            Err(RequestError::Disconnected) => {
                // Sent again when the executor is back.
                *request = None;
                *may_have_arrived = true;
                return;
            }
            Err(RequestError::Refused(error)) => *error,
            Err(error @ (RequestError::Timeout(_) | RequestError::Malformed(_))) => {
                return self.give_up(binding.clone(), call_id, &CallError::Request(error));
            }
        };
        let error = CallError::Request(RequestError::Refused(Box::new(error)));
        self.withdraw_call(&binding.session_id, call_id, &error);
    }

    /// Ends a call of which nothing is known, and may never be: its waiters are
    /// told so, and only a result that comes late is still taken.
    fn give_up(&mut self, binding: Binding, call_id: &ToolCallId, error: &CallError) {
        let session = self.sessions.get_mut(&binding.session_id);
        let Some(call) = session.and_then(|session| session.calls.get_open(call_id)) else { return };
        if call.counts() {
            self.open_calls -= 1;
        }
        self.unacknowledged_bytes -= call.unacknowledged_bytes();
        call.delivery = Delivery::GivenUp;
        for token in call.waiters.take() {
            self.done(token, Err(error.clone()));
        }
        self.given_up.push_back((binding, call_id.clone()));
        if self.given_up.len() <= MAX_GIVEN_UP {
            return;
        }
        let Some((oldest, call_id)) = self.given_up.pop_front() else { return };
        let session = self.sessions.get_mut(&oldest.session_id);
        let Some(session) = session.filter(|session| session.number == oldest.number) else { return };
        if session.calls.get_open(&call_id).is_some_and(|call| !call.counts()) {
            session.calls.withdraw(&call_id);
        }
    }

    /// Ends a call that did not run, as if its id had never come.
    fn withdraw_call(&mut self, session_id: &SessionId, call_id: &ToolCallId, error: &CallError) {
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        let Some(call) = session.calls.withdraw(call_id) else { return };
        self.end_call(call, error);
    }

    fn end_call(&mut self, mut call: OpenCall, error: &CallError) {
        self.unacknowledged_bytes -= call.unacknowledged_bytes();
        if call.counts() {
            self.open_calls -= 1;
        }
        for token in call.waiters.take() {
            self.done(token, Err(error.clone()));
        }
    }

    /// Ends every open call of a session that is no more.
    pub(super) fn end_calls(&mut self, mut calls: CallTable<OpenCall>, error: &CallError) {
        for call_id in calls.open_ids() {
            if let Some(call) = calls.withdraw(&call_id) {
                self.end_call(call, error);
            }
        }
    }

    pub(super) fn result_came(&mut self, id: InboundId, params: Arc<ToolResultParams>) {
        let Some(session) = self.sessions.get_mut(&params.session_id) else {
            let message = format!("session {} is not bound to this executor", params.session_id);
            return self.peer.refuse(id, &ErrorCode::SessionNotActive.error(message));
        };
        if let Known::New = session.calls.lookup(&params.tool_call_id) {
            let message = format!("session {} has no tool call {}", params.session_id, params.tool_call_id);
            return self.peer.refuse(id, &ErrorCode::NotFound.error(message));
        }
        // A result that is recorded already is acknowledged again: the answer was lost.
        self.peer.reply::<methods::ToolResult>(id, &Ack { accepted: true });
        self.record(params);
    }

    /// Ends an open call with its result. One that has ended keeps the result that it has.
    fn record(&mut self, mut result: Arc<ToolResultParams>) {
        let Some((session_id, _)) = self.sessions.get_key_value(&result.session_id) else { return };
        let session_id = session_id.clone();
        let Some(session) = self.sessions.get_mut(&session_id) else { return };
        let Some(call_id) = session.calls.open_id(&result.tool_call_id).cloned() else { return };
        // What is kept shares its ids with the session and the call: the copies that came with it go.
        if let Some(result) = Arc::get_mut(&mut result) {
            result.session_id = session_id;
            result.tool_call_id = call_id.clone();
        }
        let Some(mut call) = session.calls.finish(&call_id, Arc::clone(&result)) else { return };
        session.calls.settle(call_id);
        self.unacknowledged_bytes -= call.unacknowledged_bytes();
        if call.counts() {
            self.open_calls -= 1;
        }
        for token in call.waiters.take() {
            self.done(token, Ok(Completion::Tool(Arc::clone(&result))));
        }
    }

    /// Sends `tool.cancel`; its result comes with `token`. The call still ends
    /// with its own result.
    ///
    /// A call that is not on its way to the executor is canceled here: its
    /// waiters get a result with outcome `canceled`, and it is not sent (again).
    /// An executor that may have got it on an earlier connection is told to
    /// cancel it as soon as it is there.
    ///
    /// # Errors
    /// When it cannot be sent: nothing was, and `token` does not come back.
    pub fn cancel_tool(&mut self, now: Time, params: &ToolCancelParams, token: u64) -> Result<(), CallError> {
        self.advance(now);
        self.require_present()?;
        if !self.sessions.contains_key(&params.session_id) {
            return Err(unbound(&params.session_id));
        }
        if self.cancel_here(params) {
            let result = AnyResult::ToolCancel(ToolCancelResult { canceled: true });
            self.done(token, Ok(Completion::Result(Box::new(result))));
            return Ok(());
        }
        self.peer.request::<methods::ToolCancel>(self.now, params, Tag::Application(token))?;
        Ok(())
    }

    /// Cancels a call that is not on its way on the present connection. Whether it did.
    fn cancel_here(&mut self, params: &ToolCancelParams) -> bool {
        let Some(session) = self.sessions.get_mut(&params.session_id) else { return false };
        let Some(call) = session.calls.get_open(&params.tool_call_id) else { return false };
        let Delivery::Unacknowledged { request, may_have_arrived, .. } = call.delivery else { return false };
        if request.is_some_and(|number| self.peer.withdraw(number).is_none()) {
            return false; // the cancel follows it
        }
        let what = if may_have_arrived {
            session.cancels.push(params.clone());
            "canceled while the executor was away: the tool may have begun"
        } else {
            "canceled before it was sent: the tool did not run"
        };
        self.record(Arc::new(ToolResultParams {
            session_id: params.session_id.clone(),
            tool_call_id: params.tool_call_id.clone(),
            outcome: ToolOutcome::Canceled,
            is_error: true,
            content: vec![ContentBlock::text(what)],
            ..ToolResultParams::default()
        }));
        self.send_cancels(&params.session_id);
        true
    }

    /// Cancels calls that the executor may have got on an earlier connection, once there is one.
    fn send_cancels(&mut self, session_id: &SessionId) {
        if !self.peer.is_connected() {
            return;
        }
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        for params in std::mem::take(&mut session.cancels) {
            // Best effort: its waiters have their outcome, and the session's end ends it at the latest.
            let _ = self.peer.request::<methods::ToolCancel>(self.now, &params, Tag::Nobody);
        }
    }

    /// Sends what was not acknowledged before the connection was lost, and what was canceled meanwhile.
    pub(super) fn resend_calls(&mut self, session_id: &SessionId) {
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        let number = session.number;
        for call_id in session.calls.open_ids() {
            self.resend_call(session_id, number, &call_id);
        }
        self.send_cancels(session_id);
    }

    /// Sends one call again. One that cannot be sent ends, and nothing else with it.
    fn resend_call(&mut self, session_id: &SessionId, number: u64, call_id: &ToolCallId) {
        let open = self.sessions.get_mut(session_id).and_then(|session| session.calls.get_open(call_id));
        let Some(OpenCall { delivery: Delivery::Unacknowledged { params, may_have_arrived, .. }, .. }) = open else {
            return;
        };
        let (params, arrived) = (params.clone(), *may_have_arrived);
        match self.send_call(&params, number) {
            Ok(sent) => {
                let open = self.sessions.get_mut(session_id).and_then(|session| session.calls.get_open(call_id));
                if let Some(OpenCall { delivery: Delivery::Unacknowledged { request, .. }, .. }) = open {
                    *request = sent;
                }
            }
            Err(error) if arrived => {
                let error = CallError::OutcomeUnknown(format!("it could not be sent again ({error})"));
                self.give_up(Binding { session_id: session_id.clone(), number }, call_id, &error);
            }
            Err(error) => self.withdraw_call(session_id, call_id, &error),
        }
    }
}
