//! What the machine tells, handed to who serves it. No lock is held while a handler runs.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use bma_proto_core::contract::{
    AnyParams, ErrorCode, JSONRPCError, SessionAssignParams, SessionId, ToolCallParams, ToolResultParams,
};
use bma_proto_core::executor::{CancelCause, Event, OfferId, StopCause};
use bma_proto_core::rpc::{InboundId, RequestError};

use super::shared::{CallKey, Shared, Teardown, cancel_all};
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
        Event::TokenNotRenewed { cause } => {
            tracing::warn!(%cause, "the connection's token was not renewed");
            shared.publish(ClientEvent::TokenNotRenewed { cause });
        }
        Event::Proven => {
            let registered = shared.registered.value();
            shared.registered.replace(registered.map(|(registered, _)| (registered, true)));
        }
        Event::SessionAssign { offer, params } => assign(shared, offer, *params),
        Event::SessionStop { session_id, offer, reason, within } => {
            stop_session(shared, offer, SessionStop { session_id, cause: reason, within });
        }
        Event::ToolCall(params) => tool_call(shared, *params),
        Event::ToolCancel { session_id, tool_call_id, cause } => {
            let reason = match cause {
                CancelCause::Canceled => CancelReason::Canceled,
                CancelCause::Deadline => CancelReason::Deadline,
                CancelCause::SessionStopped => CancelReason::SessionStopped,
            };
            // Cheap clones of the asking end: waking happens outside of the lock. A handler of an
            // earlier session of the same id has been asked already.
            let asked = shared.lock().cancelers_of_call(&session_id, &tool_call_id);
            cancel_all(&asked, reason);
        }
        Event::Request { id, params } => request(shared, id, *params),
        Event::Drain(params) => {
            tracing::info!(reason = %params.reason, "the harness drains this executor");
            for hook in shared.hooks(|handlers| &handlers.drain) {
                run_hook("on_drain", || hook(&params));
            }
            shared.publish(ClientEvent::Drain(params));
        }
        Event::ResultLost { result, error } => result_lost(shared, &result, &error),
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

/// A result that the harness does not have, and will not get by itself.
fn result_lost(shared: &Shared, result: &ToolResultParams, error: &RequestError) {
    let (session_id, tool_call_id) = (&result.session_id, &result.tool_call_id);
    // A brain that was started anew, or has ended the session, has no use for it: nothing is wrong here.
    if error.code() == ErrorCode::SessionNotActive.number() {
        tracing::warn!(%session_id, %tool_call_id, %error, "a tool result was not taken: its session is over");
    } else {
        tracing::error!(%session_id, %tool_call_id, %error, "a tool result could not be delivered");
    }
    for hook in shared.hooks(|handlers| &handlers.lost) {
        let (result, error) = (result.clone(), error.clone());
        run_hook("on_tool_result_lost", || hook(result, error));
    }
}

fn assign(shared: &Arc<Shared>, offer: OfferId, params: SessionAssignParams) {
    let handler = shared.handlers().assign.clone();
    let Some(handler) = handler else { return answer_assign(shared, &offer, Ok(Ok(true))) };
    shared.lock().assigning.insert(offer.clone());
    let done = {
        let shared = Arc::clone(shared);
        move |decided| answer_assign(&shared, &offer, decided)
    };
    task::run(&shared.runtime, move || handler(params), done);
}

fn answer_assign(shared: &Arc<Shared>, offer: &OfferId, decided: Caught<Result<bool, JSONRPCError>>) {
    let (now, session_id) = (shared.runtime.now(), offer.session_id());
    let (answered, stop) = shared.with(|locked| {
        let answered = match decided {
            Ok(Ok(true)) => {
                let accepted = locked.machine.accept_session(offer);
                accepted.and_then(|()| locked.machine.session_ready(now, session_id))
            }
            Ok(Ok(false)) => locked.machine.reject_session(offer, None),
            Ok(Err(error)) => locked.machine.reject_session(offer, Some(&error)),
            Err(panic) => {
                tracing::error!(%session_id, %panic, "the session handler panicked");
                let error = ErrorCode::InternalError.error("the session could not be set up");
                locked.machine.reject_session(offer, Some(&error))
            }
        };
        (answered, locked.assign_ended(offer))
    });
    if let Err(error) = answered {
        // It took too long, the connection went, or this client stops: the machine tells the stop handler.
        tracing::debug!(%session_id, %error, "an assignment was answered too late");
    }
    shared.torn_down.notify(usize::MAX);
    if let Some(stop) = stop {
        stop_session(shared, offer.clone(), stop);
    }
}

/// Tears a session down, unless that is under way already: waits for its assign
/// handler, runs the stop handler, waits for the session's tool handlers, then
/// answers and reports the session's end.
pub(super) fn stop_session(shared: &Arc<Shared>, offer: OfferId, stop: SessionStop) {
    let begun = shared.with(|locked| {
        let assigning = locked.assigning.contains(&offer);
        match locked.teardowns.entry(offer.clone()) {
            Entry::Vacant(vacant) if assigning => {
                vacant.insert(Teardown::Assigning(stop));
                None
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Teardown::Handler);
                Some(stop)
            }
            Entry::Occupied(_) => None,
        }
    });
    let Some(stop) = begun else { return };
    let handler = shared.handlers().stop.clone();
    let cause = stop.cause.clone();
    let Some(handler) = handler else { return session_stopped(shared, &offer, &cause, Ok(true)) };
    let done = {
        let shared = Arc::clone(shared);
        move |stopped| session_stopped(&shared, &offer, &cause, stopped)
    };
    task::run(&shared.runtime, move || handler(stop), done);
}

fn session_stopped(shared: &Shared, offer: &OfferId, cause: &StopCause, stopped: Caught<bool>) {
    let session_id = offer.session_id();
    let stopped = stopped.unwrap_or_else(|panic| {
        tracing::error!(%session_id, %panic, "the session stop handler panicked");
        false
    });
    let reason = match cause {
        StopCause::Requested(reason) => reason.as_str(),
        StopCause::LeaseExpired => "lease_expired",
        StopCause::NotResumed => "not_resumed",
        StopCause::ExecutorEnded => "executor_stopped",
    };
    let now = shared.runtime.now();
    let over = shared.with(|locked| {
        // A session of which something is left has ended as far as it can.
        let waits = stopped && locked.runs_calls_of(offer);
        if waits {
            locked.teardowns.insert(offer.clone(), Teardown::Calls(reason.to_owned()));
        } else {
            locked.end_session(now, offer, reason, stopped);
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
    let refusal = match &handler {
        None => Some(ErrorCode::InternalError.error("the tool has no handler")),
        // The first no counts.
        Some(_) => accept.iter().find_map(|accept| match task::call(|| accept(&params)) {
            Ok(accepted) => accepted.err(),
            Err(panic) => {
                tracing::error!(hook = "on_tool_call_accept", %panic, "a hook panicked");
                Some(ErrorCode::InternalError.error("the call could not be checked"))
            }
        }),
    };
    let (canceler, cancellation) = Canceler::new();
    let accepted = shared.with(|locked| match &refusal {
        Some(error) => {
            // A call whose session has gone meanwhile has nobody to refuse it to.
            let _ = locked.machine.refuse_tool_call(&session_id, &call_id, error);
            None
        }
        None => {
            locked.machine.accept_tool_call(&session_id, &call_id).ok()?;
            let offer = locked.machine.offer_of(&session_id)?;
            locked.cancelers.insert((offer.clone(), call_id.clone()), canceler);
            Some(offer)
        }
    });
    let (Some(offer), Some(handler)) = (accepted, handler) else { return };
    // 0 counts as not given.
    let within = params.deadline_ms.and_then(|ms| u64::try_from(ms).ok()).filter(|ms| *ms > 0);
    let deadline = within.map(|ms| shared.runtime.now() + std::time::Duration::from_millis(ms));
    let context = ToolContext {
        session_id,
        tool_call_id: call_id.clone(),
        permission: params.permission.clone(),
        deadline,
        cancellation,
        offer: offer.clone(),
        shared: Arc::clone(shared),
    };
    let done = {
        let shared = Arc::clone(shared);
        move |output| finish(&shared, (offer, call_id), output)
    };
    task::run(&shared.runtime, move || handler(params, context), done);
}

fn finish(shared: &Shared, key: CallKey, output: Caught<Result<ToolOutput, ToolError>>) {
    let (session_id, tool_call_id) = (key.0.session_id().clone(), key.1.clone());
    let output = match output {
        Ok(output) => output.unwrap_or_else(ToolError::into_output),
        Err(panic) => {
            tracing::error!(%session_id, %tool_call_id, %panic, "a tool handler panicked");
            ToolOutput::failed("the tool's handler failed on this machine: it panicked")
        }
    };
    let now = shared.runtime.now();
    let hooks = shared.hooks(|handlers| &handlers.finished);
    let result = ToolResultParams {
        session_id: session_id.clone(),
        tool_call_id: tool_call_id.clone(),
        outcome: output.outcome,
        is_error: output.is_error,
        content: output.content,
        duration_ms: None,
        artifacts: output.artifacts,
    };
    let (left, torn_down) = shared.with(|locked| {
        locked.cancelers.remove(&key);
        let left = locked.hand_in(now, &key, result);
        let reason = locked.last_call_ended(&key.0);
        if let Some(reason) = &reason {
            locked.end_session(now, &key.0, reason, true);
        }
        (left, reason)
    });
    if let Some(result) = left {
        let error = ErrorCode::SessionNotActive.error("the session was over before the tool was");
        result_lost(shared, &result, &RequestError::Refused(Box::new(error)));
    }
    for hook in hooks {
        run_hook("on_tool_call_finished", || hook(&session_id, &tool_call_id));
    }
    if let Some(reason) = torn_down {
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
