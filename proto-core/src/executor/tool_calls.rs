//! Tool calls: opened, acknowledged, ended with a result that is kept until it is accepted.

use std::sync::Arc;

use super::delivery::Delivery;
use super::machine::Executor;
use super::sessions::{Phase, duration, not_active};
use super::{CallError, CancelCause, Config, Event};
use crate::calls::{CallState, Known, Waiters, tool_call_weight};
use crate::contract::{
    Ack, ErrorCode, ErrorReason, JSONRPCError, SessionId, ToolCallId, ToolCallParams, ToolCancelParams,
    ToolCancelResult, ToolProgressParams, ToolResultParams, methods,
};
use crate::rpc::InboundId;
use crate::time::Time;

/// A tool call that has no result yet.
#[derive(Clone, Debug)]
pub(super) struct OpenCall {
    /// Requests for it that are not acknowledged: the application decides first.
    pub(super) unanswered: Waiters<InboundId>,
    accepted: bool,
    started: Time,
    deadline: Option<Time>,
    /// What it counts against the bounds in bytes.
    bytes: usize,
}

impl Executor {
    pub(super) fn call_came(&mut self, id: InboundId, params: Box<ToolCallParams>) {
        let served = self.serves_tool(&params.tool);
        let Config { max_open_calls, max_session_bytes, max_held_bytes, .. } = self.config;
        let no_room = self.stopping.is_some() || self.held_bytes >= max_held_bytes;
        let Some(session) = self.sessions.get_mut(&params.session_id) else {
            return self.peer.refuse(id, &not_active(&params.session_id));
        };
        match session.calls.lookup(&params.tool_call_id) {
            Known::Open(call) if call.accepted => {
                self.peer.reply::<methods::ToolCall>(id, &Ack { accepted: true });
                return;
            }
            Known::Open(call) => return call.unanswered.push(id),
            Known::Done(_) => {
                self.peer.reply::<methods::ToolCall>(id, &Ack { accepted: true });
                return self.deliver(Delivery::Result(params.session_id, params.tool_call_id));
            }
            Known::Forgotten => {
                let message = format!("tool call {} has run; its result is no longer kept", params.tool_call_id);
                let error = ErrorCode::Conflict.error(message);
                let error = error.with_reason(ErrorReason::from("idempotency_key_reused"));
                return self.peer.refuse(id, &error);
            }
            Known::New => {}
        }
        if !matches!(session.phase, Phase::Active) || session.ended.is_some() {
            return self.peer.refuse(id, &not_active(&params.session_id));
        }
        if params.tool.as_str().is_empty() {
            return self.peer.refuse(id, &ErrorCode::InvalidParams.error("`params.tool` must not be empty"));
        }
        if !served {
            let message = format!("this executor has no tool {:?}", params.tool);
            let error = ErrorCode::CapabilityUnavailable.error(message);
            return self.peer.refuse(id, &error.with_capability(format!("tool:{}", params.tool)));
        }
        let full = session.calls.open_len() + session.undelivered() >= max_open_calls
            || session.held_bytes() >= max_session_bytes
            || session.calls.is_full();
        if no_room || full {
            let error = ErrorCode::ExecutorBusy.error("no more tool calls can be taken here now");
            return self.peer.refuse(id, &error.with_retryable(!session.calls.is_full()));
        }
        let deadline = duration(params.deadline_ms).map(|within| self.now + within);
        if let Some(deadline) = deadline {
            let key = (deadline, params.session_id.clone(), params.tool_call_id.clone());
            self.call_deadlines.insert(key);
        }
        let bytes = tool_call_weight(&params);
        session.open_bytes += bytes;
        self.held_bytes += bytes;
        let call = OpenCall { unanswered: Waiters::one(id), accepted: false, started: self.now, deadline, bytes };
        session.calls.open(params.tool_call_id.clone(), call);
        self.emit(Event::ToolCall(params));
    }

    /// How far a tool call is; `None` when its session has none of this id.
    pub fn call_state(&self, session_id: &SessionId, tool_call_id: &ToolCallId) -> Option<CallState> {
        self.sessions.get(session_id)?.calls.state(tool_call_id)
    }

    /// Acknowledges a tool call: it will run, and its result will come.
    ///
    /// # Errors
    /// When there is no such open call.
    pub fn accept_tool_call(&mut self, session_id: &SessionId, tool_call_id: &ToolCallId) -> Result<(), CallError> {
        let call = self.open_call(session_id, tool_call_id)?;
        call.accepted = true;
        for id in call.unanswered.take() {
            self.peer.reply::<methods::ToolCall>(id, &Ack { accepted: true });
        }
        Ok(())
    }

    /// Turns a tool call down before it runs. The id counts as never used.
    ///
    /// # Errors
    /// When there is no such call, or it was accepted.
    pub fn refuse_tool_call(
        &mut self,
        session_id: &SessionId,
        tool_call_id: &ToolCallId,
        error: &JSONRPCError,
    ) -> Result<(), CallError> {
        if self.open_call(session_id, tool_call_id)?.accepted {
            return Err(no_call(session_id, tool_call_id));
        }
        let Some(session) = self.sessions.get_mut(session_id) else { return Err(no_call(session_id, tool_call_id)) };
        let Some(mut call) = session.calls.withdraw(tool_call_id) else {
            return Err(no_call(session_id, tool_call_id));
        };
        session.open_bytes -= call.bytes;
        self.held_bytes -= call.bytes;
        self.clear_call_deadline(session_id, tool_call_id, call.deadline);
        for id in call.unanswered.take() {
            self.peer.refuse(id, error);
        }
        Ok(())
    }

    /// Ends a tool call with its result, which is sent until the harness
    /// accepts it. `duration_ms` is filled in when it is absent. A result over
    /// the frame limit is cut, with a notice that counts what was left out.
    ///
    /// # Errors
    /// When there is no such open call.
    pub fn finish_tool_call(&mut self, now: Time, mut result: ToolResultParams) -> Result<(), CallError> {
        self.advance(now);
        let (session_id, call_id) = (result.session_id.clone(), result.tool_call_id.clone());
        let call = self.open_call(&session_id, &call_id)?;
        let (accepted, started) = (call.accepted, call.started);
        if !accepted {
            self.accept_tool_call(&session_id, &call_id)?;
        }
        let elapsed = self.now.saturating_since(started).as_millis();
        result.duration_ms.get_or_insert(i64::try_from(elapsed).unwrap_or(i64::MAX));
        let Some(session) = self.sessions.get_mut(&session_id) else { return Ok(()) };
        let held = session.held_bytes();
        if let Some(call) = session.calls.finish(&call_id, Arc::new(result)) {
            session.open_bytes -= call.bytes;
            self.held_bytes = self.held_bytes - held + session.held_bytes();
            self.clear_call_deadline(&session_id, &call_id, call.deadline);
            self.deliver(Delivery::Result(session_id, call_id));
        }
        Ok(())
    }

    /// Reports a result whatever is known of its call, such as after [`Event::ResultLost`]: an
    /// open call ends with it; a recorded result, which is the one that counts, is sent again;
    /// and without a record the result goes out as it is handed in. It is sent until the harness
    /// accepts it or refuses it for good, which [`Event::ResultLost`] tells.
    ///
    /// # Errors
    /// When the executor has ended, or too many results without a record wait already.
    pub fn report_tool_result(&mut self, now: Time, result: ToolResultParams) -> Result<(), CallError> {
        self.advance(now);
        let (session_id, call_id) = (result.session_id.clone(), result.tool_call_id.clone());
        if self.open_call(&session_id, &call_id).is_ok() {
            return self.finish_tool_call(now, result);
        }
        if self.end_state().is_some() {
            return Err(no_call(&session_id, &call_id));
        }
        let session = self.sessions.get(&session_id);
        if session.and_then(|session| session.calls.result(&call_id)).is_some() {
            self.deliver(Delivery::Result(session_id, call_id));
            return Ok(());
        }
        self.deliver_reported(result)
    }

    /// Reports a tool's progress, best effort: `false` when it was dropped.
    ///
    /// # Errors
    /// When it can never be sent, such as a message over the frame limit.
    pub fn progress(
        &mut self,
        session_id: &SessionId,
        tool_call_id: &ToolCallId,
        message: &str,
    ) -> Result<bool, CallError> {
        self.open_call(session_id, tool_call_id)?;
        self.notify::<methods::ToolProgress>(&ToolProgressParams {
            session_id: session_id.clone(),
            tool_call_id: tool_call_id.clone(),
            message: message.to_owned(),
        })
    }

    pub(super) fn result_settled(&mut self, session_id: &SessionId, call: ToolCallId) {
        if let Some(session) = self.sessions.get_mut(session_id) {
            let held = session.held_bytes();
            session.calls.settle(call);
            self.held_bytes = self.held_bytes - held + session.held_bytes();
            self.end_when_delivered(session_id);
        }
    }

    pub(super) fn cancel_came(&mut self, id: InboundId, params: &ToolCancelParams) {
        let session = self.sessions.get_mut(&params.session_id);
        let Some(session) = session.filter(|session| matches!(session.phase, Phase::Active | Phase::Stopping(_)))
        else {
            return self.peer.refuse(id, &not_active(&params.session_id));
        };
        let open = session.calls.get_open(&params.tool_call_id).is_some();
        self.peer.reply::<methods::ToolCancel>(id, &ToolCancelResult { canceled: open });
        if open {
            self.cancel_call(&params.session_id, &params.tool_call_id, CancelCause::Canceled);
        }
    }

    pub(super) fn cancel_call(&mut self, session_id: &SessionId, tool_call_id: &ToolCallId, cause: CancelCause) {
        let (session_id, tool_call_id) = (session_id.clone(), tool_call_id.clone());
        self.emit(Event::ToolCancel { session_id, tool_call_id, cause });
    }

    pub(super) fn cancel_open_calls(&mut self, session_id: &SessionId) {
        let open = self.sessions.get(session_id).map(|session| session.calls.open_ids()).unwrap_or_default();
        for call in open {
            self.cancel_call(session_id, &call, CancelCause::SessionStopped);
        }
    }

    fn open_call(&mut self, session_id: &SessionId, call: &ToolCallId) -> Result<&mut OpenCall, CallError> {
        let session = self.sessions.get_mut(session_id);
        session.and_then(|session| session.calls.get_open(call)).ok_or_else(|| no_call(session_id, call))
    }

    fn clear_call_deadline(&mut self, session_id: &SessionId, call: &ToolCallId, deadline: Option<Time>) {
        if let Some(at) = deadline {
            self.call_deadlines.remove(&(at, session_id.clone(), call.clone()));
        }
    }
}

fn no_call(session_id: &SessionId, tool_call_id: &ToolCallId) -> CallError {
    CallError::NoSuchCall { session_id: session_id.clone(), tool_call_id: tool_call_id.clone() }
}
