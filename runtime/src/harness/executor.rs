//! One registered executor, as a handle.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use bma_proto_core::contract::{
    AnyParams, AnyResult, Capabilities, ConnectionId, ExecutorDrainParams, ExecutorDrainResult, ExecutorId,
    ExecutorInfo, ProcessStatusParams, ProtocolVersion, RequestMethod, SessionAssignParams, SessionId,
    SessionStatusParams, ToolProgressParams, methods,
};
use bma_proto_core::harness::{CallError, Completion, ExecutorPeer, Gone, Registration};
use bma_proto_core::rpc::RequestError;

use super::session::Session;
use super::{Harness, Shared, driver};
use crate::runtime::Runtime;
use crate::sync::{Events, StateCell, Subscribers, oneshot};
use crate::wire::Wire;

/// How many events a reader may be behind before the oldest are dropped.
const EVENTS_KEPT: usize = 1024;

/// One registered executor. It outlives its connections: one that comes back
/// within its lease is the same executor, with its sessions and open calls.
///
/// A cheap clone. Dropping a future of one of its methods abandons the wait and
/// nothing else: the request may take effect all the same.
#[derive(Clone)]
pub struct Executor {
    shared: Arc<ExecutorShared>,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("executor_id", &self.shared.id).finish_non_exhaustive()
    }
}

pub(super) struct ExecutorShared {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) harness: Weak<Shared>,
    id: ExecutorId,
    locked: Mutex<Locked>,
    departure: StateCell<Option<Departure>>,
    subscribers: Subscribers<ExecutorEvent>,
}

/// How far an executor that is gone has gone.
#[derive(Clone)]
struct Departure {
    gone: Gone,
    /// Its last connection is closed as well: the closing handshake is done, or was given up.
    parted: bool,
}

/// What is behind the lock: the machine, and who waits for what.
pub(super) struct Locked {
    pub(super) machine: ExecutorPeer,
    /// The driver's, while it sleeps. Whoever queues something takes and wakes it.
    pub(super) waker: Option<Waker>,
    /// A connection that the driver has not taken over yet. A newer one replaces it.
    pub(super) incoming: Option<(Wire, Registration)>,
    /// One that was replaced before it was taken over.
    pub(super) replaced: Vec<Wire>,
    /// It is to be let go, for this reason.
    pub(super) released: Option<String>,
    /// The driver has ended: nobody takes connections over any more.
    pub(super) finished: bool,
    next_token: u64,
    pub(super) waiting: HashMap<u64, Waiter>,
}

pub(super) type Waiter = oneshot::Sender<Result<Completion, CallError>>;

/// What an executor reports, best effort.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ExecutorEvent {
    /// A session is set up.
    SessionReady(SessionId),
    /// A session is over.
    SessionEnded {
        /// The session.
        session_id: SessionId,
        /// Why.
        reason: String,
    },
    /// `session.status`.
    SessionStatus(SessionStatusParams),
    /// `tool.progress`.
    ToolProgress(ToolProgressParams),
    /// `process.status`.
    ProcessStatus(ProcessStatusParams),
    /// The executor advertises other capabilities.
    CapabilitiesChanged,
    /// Any other notification.
    Notification(Box<AnyParams>),
}

impl Executor {
    pub(super) fn new(harness: &Arc<Shared>, id: ExecutorId) -> Self {
        let runtime = Arc::clone(&harness.runtime);
        let machine = ExecutorPeer::new(Arc::clone(&harness.config), id.clone(), runtime.now(), runtime.seed());
        let locked = Locked {
            machine,
            waker: None,
            incoming: None,
            replaced: Vec::new(),
            released: None,
            finished: false,
            next_token: 1,
            waiting: HashMap::new(),
        };
        Self {
            shared: Arc::new(ExecutorShared {
                runtime,
                harness: Arc::downgrade(harness),
                id,
                locked: Mutex::new(locked),
                departure: StateCell::new(None),
                subscribers: Subscribers::new(EVENTS_KEPT),
            }),
        }
    }

    pub(super) fn from_shared(shared: Arc<ExecutorShared>) -> Self {
        Self { shared }
    }

    /// Hands a connection to the executor's task; gives it back when that has ended.
    pub(super) fn connect(&self, wire: Wire, registration: Registration) -> Option<(Wire, Registration)> {
        self.shared.with(|locked| {
            if locked.finished {
                return Some((wire, registration));
            }
            if let Some((wire, _)) = locked.incoming.replace((wire, registration)) {
                locked.replaced.push(wire);
            }
            None
        })
    }

    /// Wakes the executor's task, for it to look around.
    pub(super) fn wake(&self) {
        self.shared.wake();
    }

    /// Starts the executor's task.
    pub(super) fn drive(&self, harness: &Arc<Shared>) {
        harness.runtime.spawn(Box::pin(driver::Driver::new(Arc::clone(&self.shared))));
    }

    /// The executor's id.
    pub fn id(&self) -> &ExecutorId {
        &self.shared.id
    }

    /// What the executor says about itself.
    pub fn info(&self) -> ExecutorInfo {
        self.shared.lock().machine.info().clone()
    }

    /// What the executor advertises now.
    pub fn capabilities(&self) -> Capabilities {
        self.shared.lock().machine.capabilities().clone()
    }

    /// The protocol version it speaks.
    pub fn protocol(&self) -> ProtocolVersion {
        self.shared.lock().machine.protocol().clone()
    }

    /// The id of its present connection, if it is connected.
    pub fn connection_id(&self) -> Option<ConnectionId> {
        self.shared.lock().machine.connection_id().cloned()
    }

    /// Whether it is connected now.
    pub fn is_connected(&self) -> bool {
        self.shared.lock().machine.connection_id().is_some()
    }

    /// The sessions that are bound to it.
    pub fn session_ids(&self) -> Vec<SessionId> {
        self.shared.lock().machine.session_ids().cloned().collect()
    }

    /// A handle to one of its sessions, such as one that was assigned by another part of the program.
    pub fn session(&self, session_id: &SessionId) -> Option<Session> {
        let binding = self.shared.lock().machine.binding(session_id)?;
        Some(Session::new(self.clone(), session_id.clone(), binding))
    }

    /// Binds a session and waits until the executor has accepted it. A work id
    /// and a lease token are made up when they are empty. Wait for
    /// [`Session::ready`] before calling tools.
    ///
    /// # Errors
    /// When the executor rejects it, or the assignment comes to nothing.
    pub async fn assign(&self, params: SessionAssignParams) -> Result<Session, CallError> {
        let session_id = params.session_id.clone();
        let mut binding = None;
        let asked = self.ask(|locked, now, token| {
            locked.machine.assign(now, params, token)?;
            binding = locked.machine.binding(&session_id);
            Ok(())
        });
        asked.await?;
        // An assignment that was taken in is bound, under the same lock.
        let binding = binding.ok_or_else(|| over(&session_id, "it was not bound"))?;
        Ok(Session::new(self.clone(), session_id, binding))
    }

    /// Sends a request of any method that is not driven by a call of its own.
    ///
    /// # Errors
    /// When it cannot be sent, is refused, or has no answer in time.
    pub async fn call<M: RequestMethod>(&self, params: M::Params) -> Result<M::Result, CallError> {
        let result = self.call_any(&M::wrap(params)).await?;
        let malformed = || RequestError::Malformed("another method's result".to_owned());
        M::unwrap_result(result).ok_or_else(|| CallError::Request(malformed()))
    }

    /// Sends a request of a method that is known only at run time.
    ///
    /// # Errors
    /// As [`call`](Executor::call).
    pub async fn call_any(&self, params: &AnyParams) -> Result<AnyResult, CallError> {
        let harness = self.shared.harness.upgrade();
        let timeout = harness.map_or(Duration::from_secs(30), |harness| harness.config.request_timeout);
        match self.ask(|locked, now, token| locked.machine.request(now, params, token, timeout)).await? {
            Completion::Result(result) => Ok(*result),
            _ => Err(CallError::Request(RequestError::Malformed("no result".to_owned()))),
        }
    }

    /// Sends a notification of any method.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub fn notify(&self, params: &AnyParams) -> Result<(), CallError> {
        self.shared.with(|locked| match locked.finished {
            true => Err(CallError::ExecutorGone(self.shared.id.clone())),
            false => locked.machine.notify(params),
        })
    }

    /// Asks the executor to take no new sessions. Once the open ones have ended, it is let go.
    ///
    /// # Errors
    /// As [`call`](Executor::call).
    pub async fn drain(&self, reason: &str) -> Result<ExecutorDrainResult, CallError> {
        let params = ExecutorDrainParams { reason: reason.to_owned(), deadline_ms: None };
        self.call::<methods::ExecutorDrain>(params).await
    }

    /// Tells the executor to close, and waits until it is gone and its connection is closed, which takes five
    /// seconds at most. Its sessions end.
    pub async fn close(&self, reason: &str) -> Gone {
        self.start_close(reason);
        self.parted().await
    }

    /// As [`close`](Self::close), and waits for nothing.
    pub(super) fn start_close(&self, reason: &str) {
        let now = self.shared.runtime.now();
        self.shared.with(|locked| locked.machine.close(now, reason));
    }

    /// Lets the executor go: see [`Harness::release`]. Waits for nothing.
    pub(super) fn start_release(&self, reason: &str) {
        self.shared.with(|locked| locked.released = Some(reason.to_owned()));
    }

    /// Waits until the executor is gone for good, and says why.
    pub async fn gone(&self) -> Gone {
        self.departed(Option::is_some).await
    }

    /// As [`gone`](Self::gone), and until its last connection is closed.
    pub(super) async fn parted(&self) -> Gone {
        self.departed(|departure| departure.as_ref().is_some_and(|departure| departure.parted)).await
    }

    async fn departed(&self, wanted: impl FnMut(&Option<Departure>) -> bool) -> Gone {
        let departure = self.shared.departure.wait_for(wanted).await;
        // Nothing else is waited for than that there is one.
        departure.map_or(Gone::LeaseExpired, |departure| departure.gone)
    }

    /// What it reports from now on, up to its end: session status, tool
    /// progress, process status. A reader that is slow loses the oldest events,
    /// and is told how many.
    pub fn events(&self) -> Events<ExecutorEvent> {
        self.shared.subscribers.subscribe()
    }

    /// The harness, while it is there.
    pub fn harness(&self) -> Option<Harness> {
        self.shared.harness.upgrade().map(|shared| Harness { shared })
    }

    /// Asks something about one binding of a session, and waits for its end.
    pub(super) async fn ask_bound<F>(
        &self,
        session_id: &SessionId,
        binding: u64,
        ask: F,
    ) -> Result<Completion, CallError>
    where
        F: FnOnce(&mut Locked, bma_proto_core::Time, u64) -> Result<(), CallError>,
    {
        let asked = self.ask(|locked, now, token| match locked.machine.binding(session_id) {
            Some(bound) if bound != binding => {
                Err(over(session_id, "its id is bound again, and this is a handle of the earlier session"))
            }
            // One that is not bound at all is refused by the machine.
            _ => ask(locked, now, token),
        });
        asked.await
    }

    /// Asks something of the machine and waits for its end.
    pub(super) async fn ask<F>(&self, ask: F) -> Result<Completion, CallError>
    where
        F: FnOnce(&mut Locked, bma_proto_core::Time, u64) -> Result<(), CallError>,
    {
        let now = self.shared.runtime.now();
        let asked = self.shared.with(|locked| {
            if locked.finished {
                return Err(CallError::ExecutorGone(self.shared.id.clone()));
            }
            let token = locked.next_token;
            locked.next_token += 1;
            ask(locked, now, token)?;
            let (sender, receiver) = oneshot::channel();
            locked.waiting.insert(token, sender);
            Ok::<_, CallError>(receiver)
        });
        let receiver = asked?;
        let _taken = Taken(&self.shared);
        receiver.await.unwrap_or_else(|_| Err(CallError::ExecutorGone(self.shared.id.clone())))
    }
}

/// Wakes the driver once an outcome was taken, or is waited for no more: it holds frames back until then.
struct Taken<'a>(&'a ExecutorShared);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.wake();
    }
}

fn over(session_id: &SessionId, reason: &str) -> CallError {
    CallError::SessionEnded { session_id: session_id.clone(), reason: reason.to_owned() }
}

impl ExecutorShared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Locked> {
        // The machine never panics, and nothing else under the lock is left half done.
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Wakes the driver, for it to look around.
    pub(super) fn wake(&self) {
        self.with(|_| ());
    }

    /// The executor is gone: whoever waits for that, or for what it tells, knows it now.
    pub(super) fn end(&self, gone: Gone) {
        self.departure.replace(Some(Departure { gone, parted: false }));
        self.subscribers.end();
    }

    /// Its last connection is closed: whoever waits for that knows it now.
    pub(super) fn parted(&self) {
        let parted = self.departure.value().map(|departure| Departure { parted: true, ..departure });
        self.departure.replace(parted);
    }

    pub(super) fn publish(&self, event: &ExecutorEvent) {
        self.subscribers.publish(event);
    }
}
