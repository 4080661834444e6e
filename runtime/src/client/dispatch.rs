//! What the machine tells, handed to who serves it. No lock is held while a handler runs.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use bma_proto_core::contract::{
    AnyParams, ErrorCode, JSONRPCError, SessionAssignParams, SessionId, ToolCallId, ToolCallParams, ToolResultParams,
};
use bma_proto_core::executor::{CancelCause, Event, StopCause};
use bma_proto_core::rpc::InboundId;

use super::shared::{Shared, Teardown};
use super::{ClientEvent, RequestContext, SessionStop, ToolContext};
use crate::cancel::{CancelReason, Canceler};
use crate::task::{self, Caught};
use crate::tool::{ToolError, ToolOutput};

/// Handles one event. The driver drains the machine again afterwards.
pub(super) fn event(shared: &Arc<Shared>, event: Event) {
    match event {
        Event::State(state) => {
            tracing::debug!(?state, "connection state");
            shared.connection.replace(state.clone());
            shared.publish(ClientEvent::State(state));
        }
        Event::Reconnecting { attempt, cause, wait } => {
            tracing::warn!(attempt, %cause, wait_ms = wait.as_millis(), "no connection to the harness");
            shared.publish(ClientEvent::Reconnecting { attempt, cause, wait });
        }
        Event::Registered(registered) => {
            tracing::info!(executor_id = %registered.executor_id, connection_id = %registered.connection_id, "registered");
            shared.registered.replace(Some(((*registered).clone(), false)));
            shared.publish(ClientEvent::Registered(registered));
        }
        Event::Proven => {
            let registered = shared.registered.value();
            shared.registered.replace(registered.map(|(registered, _)| (registered, true)));
        }
        Event::SessionAssign(params) => assign(shared, *params),
        Event::SessionStop { session_id, reason, within } => {
            stop_session(shared, SessionStop { session_id, cause: reason, within });
        }
        Event::ToolCall(params) => tool_call(shared, *params),
        Event::ToolCancel { session_id, tool_call_id, cause } => {
            let reason = match cause {
                CancelCause::Canceled => CancelReason::Canceled,
                CancelCause::Deadline => CancelReason::Deadline,
                CancelCause::SessionStopped => CancelReason::SessionStopped,
            };
            // Cheap clone of the asking end: waking happens outside of the lock.
            let key = (session_id, tool_call_id);
            let canceler = shared.lock().cancelers.get(&key).map(Canceler::share);
            if let Some(canceler) = canceler {
                canceler.cancel(reason);
            }
        }
        Event::Request { id, params } => request(shared, id, *params),
        Event::Drain(params) => {
            tracing::info!(reason = %params.reason, "the harness drains this executor");
            let hook = shared.handlers().drain.clone();
            if let Some(hook) = hook {
                run_hook("on_drain", || hook(&params));
            }
            shared.publish(ClientEvent::Drain(params));
        }
        Event::ResultLost { result, error } => {
            let (session_id, tool_call_id) = (&result.session_id, &result.tool_call_id);
            tracing::error!(%session_id, %tool_call_id, %error, "a tool result could not be delivered");
            let hook = shared.handlers().lost.clone();
            if let Some(hook) = hook {
                run_hook("on_tool_result_lost", || hook(*result, error));
            }
        }
        Event::Response { token, outcome } => {
            let waiting = shared.lock().waiting.remove(&token);
            if let Some(waiting) = waiting {
                // Whoever asked may have stopped waiting.
                let _ = waiting.send(outcome.map(|result| *result));
            }
        }
        // The driver ends with it.
        Event::Ended(_) => {}
    }
}

fn assign(shared: &Arc<Shared>, params: SessionAssignParams) {
    let handler = shared.handlers().assign.clone();
    let session_id = params.session_id.clone();
    let Some(handler) = handler else { return answer_assign(shared, &session_id, Ok(Ok(true))) };
    let done = {
        let (shared, session_id) = (Arc::clone(shared), session_id);
        move |decided| answer_assign(&shared, &session_id, decided)
    };
    task::run(&shared.runtime, move || handler(params), done);
}

fn answer_assign(shared: &Shared, session_id: &SessionId, decided: Caught<Result<bool, JSONRPCError>>) {
    let now = shared.runtime.now();
    let answered = shared.with(|locked| match decided {
        Ok(Ok(true)) => {
            locked.machine.accept_session(session_id)?;
            locked.machine.session_ready(now, session_id)
        }
        Ok(Ok(false)) => locked.machine.reject_session(session_id, None),
        Ok(Err(error)) => locked.machine.reject_session(session_id, Some(&error)),
        Err(panic) => {
            tracing::error!(%session_id, %panic, "the session handler panicked");
            let error = ErrorCode::InternalError.error("the session could not be set up");
            locked.machine.reject_session(session_id, Some(&error))
        }
    });
    if let Err(error) = answered {
        // It took too long, or the connection went: the machine has told the stop handler.
        tracing::debug!(%session_id, %error, "an assignment was answered too late");
    }
}

/// Tears a session down, unless that is under way already: runs the stop
/// handler, waits for the session's tool handlers, then answers and reports the
/// session's end.
pub(super) fn stop_session(shared: &Arc<Shared>, stop: SessionStop) {
    let begun = shared.with(|locked| match locked.teardowns.entry(stop.session_id.clone()) {
        Entry::Vacant(vacant) => {
            vacant.insert(Teardown::Handler);
            true
        }
        Entry::Occupied(_) => false,
    });
    if !begun {
        return;
    }
    let handler = shared.handlers().stop.clone();
    let (session_id, cause) = (stop.session_id.clone(), stop.cause.clone());
    let Some(handler) = handler else { return session_stopped(shared, &session_id, &cause, Ok(true)) };
    let done = {
        let (shared, session_id) = (Arc::clone(shared), session_id);
        move |stopped| session_stopped(&shared, &session_id, &cause, stopped)
    };
    task::run(&shared.runtime, move || handler(stop), done);
}

fn session_stopped(shared: &Shared, session_id: &SessionId, cause: &StopCause, stopped: Caught<bool>) {
    let stopped = stopped.unwrap_or_else(|panic| {
        tracing::error!(%session_id, %panic, "the session stop handler panicked");
        false
    });
    let reason = match cause {
        StopCause::Requested(reason) => reason.as_str(),
        StopCause::LeaseExpired => "lease_expired",
        StopCause::ExecutorEnded => "executor_stopped",
    };
    let now = shared.runtime.now();
    let over = shared.with(|locked| {
        // A session of which something is left has ended as far as it can.
        let waits = stopped && locked.runs_calls_of(session_id);
        if waits {
            locked.teardowns.insert(session_id.clone(), Teardown::Calls(reason.to_owned()));
        } else {
            locked.end_session(now, session_id, reason, stopped);
        }
        !waits
    });
    if over {
        session_over(shared, session_id, reason);
    }
}

fn session_over(shared: &Shared, session_id: &SessionId, reason: &str) {
    shared.torn_down.notify(usize::MAX);
    tracing::info!(%session_id, reason, "session ended");
}

/// Runs a hook of the user's that has no answer.
fn run_hook(name: &'static str, hook: impl FnOnce()) {
    if let Err(panic) = task::call(hook) {
        tracing::error!(hook = name, %panic, "a hook panicked");
    }
}

fn tool_call(shared: &Arc<Shared>, params: ToolCallParams) {
    let (handler, accept) = {
        let handlers = shared.handlers();
        (handlers.tools.get(params.tool.as_str()).cloned(), handlers.accept.clone())
    };
    let (session_id, call_id) = (params.session_id.clone(), params.tool_call_id.clone());
    let refusal = match (&handler, accept) {
        (None, _) => Some(ErrorCode::InternalError.error("the tool has no handler")),
        (Some(_), Some(accept)) => match task::call(|| accept(&params)) {
            Ok(accepted) => accepted.err(),
            Err(panic) => {
                tracing::error!(hook = "on_tool_call_accept", %panic, "a hook panicked");
                Some(ErrorCode::InternalError.error("the call could not be checked"))
            }
        },
        (Some(_), None) => None,
    };
    let (canceler, cancellation) = Canceler::new();
    let accepted = shared.with(|locked| match &refusal {
        Some(error) => locked.machine.refuse_tool_call(&session_id, &call_id, error).map(|()| false),
        None => {
            locked.machine.accept_tool_call(&session_id, &call_id)?;
            locked.cancelers.insert((session_id.clone(), call_id.clone()), canceler);
            Ok(true)
        }
    });
    let (Ok(true), Some(handler)) = (accepted, handler) else { return };
    // 0 counts as not given.
    let within = params.deadline_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
    let deadline = within.map(|ms| shared.runtime.now() + std::time::Duration::from_millis(ms));
    let context = ToolContext {
        session_id: session_id.clone(),
        tool_call_id: call_id.clone(),
        permission: params.permission.clone(),
        deadline,
        cancellation,
        shared: Arc::clone(shared),
    };
    let done = {
        let shared = Arc::clone(shared);
        move |output| finish(&shared, session_id, call_id, output)
    };
    task::run(&shared.runtime, move || handler(params, context), done);
}

fn finish(
    shared: &Shared,
    session_id: SessionId,
    tool_call_id: ToolCallId,
    output: Caught<Result<ToolOutput, ToolError>>,
) {
    let output = match output {
        Ok(output) => output.unwrap_or_else(ToolError::into_output),
        Err(panic) => {
            tracing::error!(%session_id, %tool_call_id, %panic, "a tool handler panicked");
            ToolOutput::failed("the tool's handler failed on this machine: it panicked")
        }
    };
    let now = shared.runtime.now();
    let finished = shared.handlers().finished.clone();
    let told = finished.map(|hook| (hook, session_id.clone(), tool_call_id.clone()));
    let torn_down = shared.with(|locked| {
        let key = (session_id, tool_call_id);
        locked.cancelers.remove(&key);
        let session_id = key.0.clone();
        let result = ToolResultParams {
            session_id: key.0,
            tool_call_id: key.1,
            outcome: output.outcome,
            is_error: output.is_error,
            content: output.content,
            duration_ms: None,
            artifacts: output.artifacts,
        };
        // A session that is gone has nobody to take it; its harness knows that.
        let _ = locked.machine.finish_tool_call(now, result);
        let reason = locked.last_call_ended(&session_id)?;
        locked.end_session(now, &session_id, &reason, true);
        Some((session_id, reason))
    });
    if let Some((hook, session_id, tool_call_id)) = told {
        run_hook("on_tool_call_finished", || hook(&session_id, &tool_call_id));
    }
    if let Some((session_id, reason)) = torn_down {
        session_over(shared, &session_id, &reason);
    }
}

fn request(shared: &Arc<Shared>, id: InboundId, params: AnyParams) {
    let method = params.method();
    let handler = shared.handlers().methods.get(&method).cloned();
    let Some(handler) = handler else {
        let error = ErrorCode::InternalError.error("the method has no handler");
        return shared.with(|locked| locked.machine.refuse(id, &error));
    };
    let context = RequestContext { request_id: id.request_id().clone() };
    let done = {
        let shared = Arc::clone(shared);
        move |answer: Caught<Result<_, JSONRPCError>>| {
            let answer = answer.unwrap_or_else(|panic| {
                tracing::error!(method = method.name(), %panic, "a method handler panicked");
                Err(ErrorCode::InternalError.error("the request's handler failed"))
            });
            shared.with(|locked| match &answer {
                Ok(result) => locked.machine.reply(id, result),
                Err(error) => locked.machine.refuse(id, error),
            });
        }
    };
    task::run(&shared.runtime, move || handler(params, context), done);
}
