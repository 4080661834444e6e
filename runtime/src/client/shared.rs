//! What a client's handles and its driver share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use bma_proto_core::Time;
use bma_proto_core::contract::{
    AnyParams, AnyResult, ConnectionState, ExecutorDrainParams, ExecutorRegisterResult, JSONRPCError, Method,
    SessionAssignParams, SessionId, ToolCallId, ToolCallParams, ToolResultParams,
};
use bma_proto_core::executor::{End, Executor, StopCause};
use bma_proto_core::rpc::RequestError;

use super::{ClientEvent, RequestContext, SessionStop, TokenSource, ToolContext, dispatch};
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
    pub(super) started: bool,
    /// The driver's, while it sleeps. Whoever queues something takes and wakes it.
    pub(super) waker: Option<Waker>,
    pub(super) next_token: u64,
    pub(super) waiting: HashMap<u64, oneshot::Sender<Result<AnyResult, RequestError>>>,
    /// One for each tool handler that runs.
    pub(super) cancelers: BTreeMap<(SessionId, ToolCallId), Canceler>,
    /// The sessions that are being torn down.
    pub(super) teardowns: BTreeMap<SessionId, Teardown>,
    /// An orderly end was asked for.
    pub(super) stopping: bool,
}

/// How far a session's end is.
pub(super) enum Teardown {
    /// The stop handler runs.
    Handler,
    /// It has returned, and tool handlers of the session still run. Then it ends, with this reason.
    Calls(String),
}

impl Locked {
    pub(super) fn runs_calls_of(&self, session_id: &SessionId) -> bool {
        let first = (session_id.clone(), ToolCallId::default());
        self.cancelers.range(first..).next().is_some_and(|((session, _), _)| session == session_id)
    }

    /// The reason of a session's end that waited for just this call.
    pub(super) fn last_call_ended(&self, session_id: &SessionId) -> Option<String> {
        match self.teardowns.get(session_id)? {
            Teardown::Calls(reason) if !self.runs_calls_of(session_id) => Some(reason.clone()),
            Teardown::Calls(_) | Teardown::Handler => None,
        }
    }

    /// Answers `session.stop` and reports the end.
    pub(super) fn end_session(&mut self, now: Time, session_id: &SessionId, reason: &str, stopped: bool) {
        self.teardowns.remove(session_id);
        // Sessions that the machine has forgotten (a lease that ran out) have nobody to answer.
        let _ = self.machine.session_stopped(session_id, stopped);
        let _ = self.machine.session_ended(now, session_id, reason);
    }

    /// Asks the tool handlers of a session, or all of them, to end. The askers are to be used outside of the lock.
    pub(super) fn cancelers_of(&self, session_id: Option<&SessionId>) -> Vec<Canceler> {
        let of_it = |session: &SessionId| session_id.is_none_or(|wanted| wanted == session);
        self.cancelers.iter().filter(|((session, _), _)| of_it(session)).map(|(_, canceler)| canceler.share()).collect()
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
    pub(super) accept: Option<AcceptHook>,
    pub(super) drain: Option<DrainHook>,
    pub(super) finished: Option<FinishedHook>,
    pub(super) lost: Option<LostHook>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        // The machine never panics, and nothing else under the lock is left half done.
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn handlers(&self) -> MutexGuard<'_, Handlers> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
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
        let (sessions, running) = self.with(|locked| {
            locked.machine.drain();
            (locked.machine.running_sessions(), locked.cancelers_of(None))
        });
        cancel_all(&running, CancelReason::ClientStopped);
        for session_id in sessions {
            dispatch::stop_session(&self, SessionStop { session_id, cause: StopCause::ExecutorEnded, within: None });
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
            let running = self.lock().machine.running_sessions();
            if running.is_empty() || self.runtime.now() >= deadline || self.ended.value().is_some() {
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
