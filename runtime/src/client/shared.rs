//! What a client's handles and its driver share.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bma_proto_core::Time;
use bma_proto_core::contract::{
    AnyParams, AnyResult, ConnectionState, ExecutorDrainParams, ExecutorRegisterResult, JSONRPCError, Method,
    SessionAssignParams, SessionId, ToolCallId, ToolCallParams, ToolResultParams,
};
use bma_proto_core::executor::{CallState, End, Executor, OfferId, StopCause};
use bma_proto_core::rpc::RequestError;

use super::{ClientEvent, HandlerTaken, RequestContext, SessionStop, TokenSource, ToolContext, Transport, dispatch};
use crate::cancel::{CancelReason, Canceler};
use crate::runtime::{BoxFuture, Runtime};
use crate::sync::{StateCell, Subscribers, oneshot};
use crate::tool::{ToolError, ToolOutput};

/// How long an end of the client waits for the handlers that run.
pub(super) const STOP_SESSIONS_WITHIN: Duration = Duration::from_secs(30);

/// What the handles and the driver share.
pub(crate) struct Shared {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(super) token_source: TokenSource,
    pub(super) locked: Mutex<Locked>,
    pub(super) handlers: Mutex<Handlers>,
    pub(super) connection: StateCell<ConnectionState>,
    /// The last registration, and whether it has proven itself.
    pub(super) registered: StateCell<Option<(ExecutorRegisterResult, bool)>>,
    pub(super) ended: StateCell<Option<End>>,
    /// Told whenever a session was torn down.
    pub(super) torn_down: event_listener::Event,
    pub(super) subscribers: Subscribers<ClientEvent>,
}

/// What is behind the lock: the machine, and who waits for what.
pub(super) struct Locked {
    pub(super) machine: Executor,
    /// The driver has it once there is one.
    pub(super) transport: Option<Transport>,
    pub(super) started: bool,
    /// The driver's, while it sleeps. Whoever queues something takes and wakes it.
    pub(super) waker: Option<Waker>,
    pub(super) next_token: u64,
    pub(super) waiting: HashMap<u64, oneshot::Sender<Result<AnyResult, RequestError>>>,
    /// One for each tool handler that runs.
    pub(super) cancelers: BTreeMap<CallKey, Canceler>,
    /// The sessions whose assign handler runs.
    pub(super) assigning: BTreeSet<OfferId>,
    /// The sessions that are being torn down. The machine offers a session id anew only
    /// once the one before it has ended, so that it ends with its own teardown.
    pub(super) teardowns: BTreeMap<OfferId, Teardown>,
    /// An orderly end was asked for.
    pub(super) stopping: bool,
}

/// A call by the offer that its session came from. A session id can come again, and a call id
/// with it: what a handler of the earlier one still has to say must not reach the later one.
pub(super) type CallKey = (OfferId, ToolCallId);

/// How far a session's end is.
pub(super) enum Teardown {
    /// Its assign handler runs still: the stop handler comes after it, for what it has set up.
    Assigning(SessionStop),
    /// The stop handler runs.
    Handler,
    /// It has returned, and tool handlers of the session still run. Then it ends, with this reason.
    Calls(String),
}

impl Locked {
    /// Whether a tool handler of a session runs.
    pub(super) fn runs_calls_of(&self, offer: &OfferId) -> bool {
        let first = (offer.clone(), ToolCallId::default());
        self.cancelers.range(first..).next().is_some_and(|((of, _), _)| of == offer)
    }

    /// Whether a session is the one of its id that there is.
    pub(super) fn is_current(&self, offer: &OfferId) -> bool {
        self.machine.offer_of(offer.session_id()).as_ref() == Some(offer)
    }

    /// Ends a call with its result. Gives the result back when there is nobody to take it: the session was given up.
    pub(super) fn hand_in(
        &mut self,
        now: Time,
        (offer, call): &CallKey,
        result: ToolResultParams,
    ) -> Option<ToolResultParams> {
        if !self.is_current(offer) {
            return Some(result);
        }
        match self.machine.call_state(offer.session_id(), call) {
            Some(CallState::Open) => {
                // An open call takes it.
                let _ = self.machine.finish_tool_call(now, result);
                None
            }
            // It was reported from elsewhere, and that one counts.
            Some(CallState::Ended) => None,
            None => Some(result),
        }
    }

    /// The reason of a session's end that waited for just this call.
    pub(super) fn last_call_ended(&self, offer: &OfferId) -> Option<String> {
        match self.teardowns.get(offer)? {
            Teardown::Calls(reason) if !self.runs_calls_of(offer) => Some(reason.clone()),
            Teardown::Assigning(_) | Teardown::Calls(_) | Teardown::Handler => None,
        }
    }

    /// The assign handler of a session has returned: the stop that waited for it.
    pub(super) fn assign_ended(&mut self, offer: &OfferId) -> Option<SessionStop> {
        self.assigning.remove(offer);
        match self.teardowns.remove(offer)? {
            Teardown::Assigning(stop) => Some(stop),
            other => {
                self.teardowns.insert(offer.clone(), other);
                None
            }
        }
    }

    /// Answers `session.stop` and reports the end.
    pub(super) fn end_session(&mut self, now: Time, offer: &OfferId, reason: &str, stopped: bool) {
        self.teardowns.remove(offer);
        if self.is_current(offer) {
            // Sessions that the machine has forgotten (a lease that ran out) have nobody to answer.
            let _ = self.machine.session_stopped(offer.session_id(), stopped);
            let _ = self.machine.session_ended(now, offer.session_id(), reason);
        }
    }

    /// Asks the tool handlers of a session, or all of them, to end. The askers are to be used outside of the lock.
    pub(super) fn cancelers_of(&self, session_id: Option<&SessionId>) -> Vec<Canceler> {
        let of_it = |offer: &OfferId| session_id.is_none_or(|wanted| wanted == offer.session_id());
        self.cancelers.iter().filter(|((offer, _), _)| of_it(offer)).map(|(_, canceler)| canceler.share()).collect()
    }

    /// The same for one call.
    pub(super) fn cancelers_of_call(&self, session_id: &SessionId, call: &ToolCallId) -> Vec<Canceler> {
        let of_it = |(offer, id): &CallKey| id == call && offer.session_id() == session_id;
        self.cancelers.iter().filter(|(key, _)| of_it(key)).map(|(_, canceler)| canceler.share()).collect()
    }
}

pub(super) type ToolHandler =
    Arc<dyn Fn(ToolCallParams, ToolContext) -> BoxFuture<Result<ToolOutput, ToolError>> + Send + Sync>;
pub(super) type MethodHandler =
    Arc<dyn Fn(AnyParams, RequestContext) -> BoxFuture<Result<AnyResult, JSONRPCError>> + Send + Sync>;
pub(super) type AssignHandler = Arc<dyn Fn(SessionAssignParams) -> BoxFuture<Result<bool, JSONRPCError>> + Send + Sync>;
pub(super) type StopHandler = Arc<dyn Fn(SessionStop) -> BoxFuture<bool> + Send + Sync>;
pub(super) type AcceptHook = Arc<dyn Fn(&ToolCallParams) -> Result<(), JSONRPCError> + Send + Sync>;
pub(super) type DrainHook = Arc<dyn Fn(&ExecutorDrainParams) + Send + Sync>;
pub(super) type FinishedHook = Arc<dyn Fn(&SessionId, &ToolCallId) + Send + Sync>;
pub(super) type LostHook = Arc<dyn Fn(ToolResultParams, RequestError) + Send + Sync>;

#[derive(Default)]
pub(super) struct Handlers {
    pub(super) tools: HashMap<String, ToolHandler>,
    pub(super) methods: HashMap<Method, MethodHandler>,
    pub(super) assign: Option<AssignHandler>,
    pub(super) stop: Option<StopHandler>,
    pub(super) accept: Vec<AcceptHook>,
    pub(super) drain: Vec<DrainHook>,
    pub(super) finished: Vec<FinishedHook>,
    pub(super) lost: Vec<LostHook>,
}

impl Handlers {
    /// Registers handlers that decide about sessions: all that are given, or none.
    pub(super) fn decide(
        &mut self,
        assign: Option<AssignHandler>,
        stop: Option<StopHandler>,
    ) -> Result<(), HandlerTaken> {
        if assign.is_some() && self.assign.is_some() {
            return Err(HandlerTaken { hook: "on_session_assign" });
        }
        if stop.is_some() && self.stop.is_some() {
            return Err(HandlerTaken { hook: "on_session_stop" });
        }
        self.assign = assign.or(self.assign.take());
        self.stop = stop.or(self.stop.take());
        Ok(())
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        // The machine never panics, and nothing else under the lock is left half done.
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handlers(&self) -> MutexGuard<'_, Handlers> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hooks of one kind, to be run without the lock.
    pub(super) fn hooks<T: Clone>(&self, which: impl FnOnce(&Handlers) -> &Vec<T>) -> Vec<T> {
        which(&self.handlers()).clone()
    }

    /// Asks something of the machine, and wakes its driver to drain it.
    pub(super) fn with<T>(&self, ask: impl FnOnce(&mut Locked) -> T) -> T {
        let mut locked = self.lock();
        let answer = ask(&mut locked);
        let waker = locked.waker.take();
        drop(locked);
        if let Some(waker) = waker {
            waker.wake();
        }
        answer
    }

    pub(super) fn wake(&self) {
        self.with(|_| ());
    }

    /// The orderly end, in a task of its own: it goes on when nobody waits for it.
    pub(super) async fn stop_in_order(self: Arc<Self>, reason: &str) {
        let (offers, running) = self.with(|locked| {
            locked.machine.drain();
            let sessions = locked.machine.running_sessions();
            let offers: Vec<_> = sessions.iter().filter_map(|id| locked.machine.offer_of(id)).collect();
            (offers, locked.cancelers_of(None))
        });
        cancel_all(&running, CancelReason::ClientStopped);
        for offer in offers {
            let session_id = offer.session_id().clone();
            let stop = SessionStop { session_id, cause: StopCause::ExecutorEnded, within: None };
            dispatch::stop_session(&self, offer, stop);
        }
        self.wait_until_torn_down(self.runtime.now() + STOP_SESSIONS_WITHIN).await;
        self.with(|locked| locked.machine.stop(self.runtime.now(), reason));
    }

    /// Waits for the handlers. What they end is still to be accepted by the
    /// harness: the machine sees to that, as long as it is connected.
    pub(super) async fn wait_until_torn_down(&self, deadline: Time) {
        let mut timer = self.runtime.timer();
        loop {
            let torn_down = self.torn_down.listen();
            let idle = {
                let locked = self.lock();
                locked.assigning.is_empty() && locked.machine.running_sessions().is_empty()
            };
            if idle || self.runtime.now() >= deadline || self.ended.value().is_some() {
                return;
            }
            timer.set(Some(deadline));
            let _ = crate::connect::before(timer.as_mut(), torn_down).await;
        }
    }

    /// The client is over: whoever waits for that, or for what it tells, knows it now.
    pub(super) fn end(&self, end: End) {
        self.ended.replace(Some(end));
        self.subscribers.end();
    }

    pub(super) fn publish(&self, event: ClientEvent) {
        self.subscribers.publish(&event);
    }
}

pub(super) fn cancel_all(cancelers: &[Canceler], reason: CancelReason) {
    for canceler in cancelers {
        canceler.cancel(reason);
    }
}
