//! The executor end: [`Client`].

mod dispatch;
mod driver;
mod options;
mod tools;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bma_proto_core::contract::{
    AnyParams, AnyResult, Capabilities, ConnectionState, ExecutorDrainParams, ExecutorLoad, ExecutorRegisterResult,
    JSONRPCError, Method, NotificationMethod, RequestMethod, SessionAssignParams, SessionId, SessionStatusParams,
    ToolCallId, ToolCallParams, ToolResultParams,
};
use bma_proto_core::executor::{CallError, End, Executor, StopCause};
use bma_proto_core::rpc::{RequestError, RequestId};

use crate::cancel::{CancelReason, Canceler};
use crate::runtime::{BoxFuture, Runtime};
use crate::sync::{EventSender, Events, Overflow, StateCell, events, oneshot};
use crate::tool::{ToolError, ToolOutput};

pub use options::{ClientOptions, OptionsError, TokenSource, static_token};
pub use tools::{ToolContext, Tools};

/// How many events a reader may be behind before the oldest are dropped.
const EVENTS_KEPT: usize = 256;

/// How long [`Client::stop`] waits for the sessions to be torn down.
const STOP_SESSIONS_WITHIN: std::time::Duration = std::time::Duration::from_secs(30);

/// An executor: it dials a harness, registers, and serves what was asked of it.
///
/// A cheap clone; all clones are the same executor. Register handlers, then
/// [`start`](Client::start). Nothing runs before that, and nothing after
/// [`done`](Client::done) resolves.
///
/// Handlers are polled once inside the executor's own task, and moved to a task
/// of their own only when they wait: an answer that is ready at once leaves in
/// the same write as the acknowledgement. So a handler **must not block**; use
/// [`Runtime::run_blocking`] for work that does.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// A [`Client`] that may be gone.
#[derive(Clone)]
pub struct WeakClient {
    shared: std::sync::Weak<Shared>,
}

impl WeakClient {
    /// The client, while somebody else holds it.
    pub fn upgrade(&self) -> Option<Client> {
        self.shared.upgrade().map(|shared| Client { shared })
    }
}

impl fmt::Debug for WeakClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakClient").finish_non_exhaustive()
    }
}

/// What the handles and the driver share.
pub(crate) struct Shared {
    pub(crate) runtime: Arc<dyn Runtime>,
    token_source: TokenSource,
    locked: Mutex<Locked>,
    handlers: Mutex<Handlers>,
    connection: StateCell<ConnectionState>,
    /// The last registration, and whether it has proven itself.
    registered: StateCell<Option<(ExecutorRegisterResult, bool)>>,
    ended: StateCell<Option<End>>,
    /// Told whenever a session was torn down.
    torn_down: event_listener::Event,
    subscribers: Mutex<Vec<EventSender<ClientEvent>>>,
}

/// What is behind the lock: the machine, and who waits for what.
struct Locked {
    machine: Executor,
    started: bool,
    /// The driver's, while it sleeps. Whoever queues something takes and wakes it.
    waker: Option<Waker>,
    next_token: u64,
    waiting: HashMap<u64, oneshot::Sender<Result<AnyResult, RequestError>>>,
    cancelers: BTreeMap<(SessionId, ToolCallId), Canceler>,
}

type ToolHandler = Arc<dyn Fn(ToolCallParams, ToolContext) -> BoxFuture<Result<ToolOutput, ToolError>> + Send + Sync>;
type MethodHandler = Arc<dyn Fn(AnyParams, RequestContext) -> BoxFuture<Result<AnyResult, JSONRPCError>> + Send + Sync>;
type AssignHandler = Arc<dyn Fn(SessionAssignParams) -> BoxFuture<Result<bool, JSONRPCError>> + Send + Sync>;
type StopHandler = Arc<dyn Fn(SessionStop) -> BoxFuture<bool> + Send + Sync>;
type AcceptHook = Arc<dyn Fn(&ToolCallParams) -> Result<(), JSONRPCError> + Send + Sync>;
type DrainHook = Arc<dyn Fn(&ExecutorDrainParams) + Send + Sync>;
type FinishedHook = Arc<dyn Fn(&SessionId, &ToolCallId) + Send + Sync>;
type LostHook = Arc<dyn Fn(ToolResultParams, RequestError) + Send + Sync>;

#[derive(Default)]
struct Handlers {
    tools: HashMap<String, ToolHandler>,
    methods: HashMap<Method, MethodHandler>,
    assign: Option<AssignHandler>,
    stop: Option<StopHandler>,
    accept: Option<AcceptHook>,
    drain: Option<DrainHook>,
    finished: Option<FinishedHook>,
    lost: Option<LostHook>,
}

/// What happens to a client, for logs and displays.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientEvent {
    /// The connection state changed.
    State(ConnectionState),
    /// A connection could not be made or was lost.
    Reconnecting {
        /// Failed connections in a row.
        attempt: u32,
        /// What went wrong.
        cause: String,
        /// The wait before the next dial.
        wait: std::time::Duration,
    },
    /// The harness took a registration.
    Registered(Box<ExecutorRegisterResult>),
    /// The harness wants no new work done here.
    Drain(ExecutorDrainParams),
}

/// A session that must end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionStop {
    /// The session.
    pub session_id: SessionId,
    /// Why.
    pub cause: StopCause,
    /// How long the harness waits for the answer, when it said so.
    pub within: Option<std::time::Duration>,
}

/// What a method's handler learns about the request it serves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RequestContext {
    /// The JSON-RPC id: the idempotency key of some methods.
    pub request_id: RequestId,
}

/// Why a request of this client has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// It could not be sent: nothing was.
    #[error(transparent)]
    Call(#[from] CallError),
    /// It came to nothing.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The client has ended.
    #[error("the client has ended: {0}")]
    Ended(End),
}

impl Client {
    /// A client that does nothing until [`start`](Client::start).
    ///
    /// # Errors
    /// When an option is not what the contract allows; the error names it.
    pub fn new(runtime: Arc<dyn Runtime>, options: ClientOptions) -> Result<Self, OptionsError> {
        let (config, token_source) = options.into_parts(runtime.seed())?;
        let locked = Locked {
            machine: Executor::new(config),
            started: false,
            waker: None,
            next_token: 1,
            waiting: HashMap::new(),
            cancelers: BTreeMap::new(),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                runtime,
                token_source,
                locked: Mutex::new(locked),
                handlers: Mutex::new(Handlers::default()),
                connection: StateCell::new(ConnectionState::Disconnected),
                registered: StateCell::new(None),
                ended: StateCell::new(None),
                torn_down: event_listener::Event::new(),
                subscribers: Mutex::new(Vec::new()),
            }),
        })
    }

    // What it serves.

    /// The typed slots of the built-in tools: `client.tools().bash(handler)`.
    /// A registered handler advertises `shell` or `files`; after the start the
    /// changed capabilities are sent to the harness.
    pub fn tools(&self) -> Tools<'_> {
        Tools::new(&self.shared)
    }

    /// Serves every request of a method. The handler gets the request's JSON-RPC
    /// id beside the params; its error is answered as it is.
    ///
    /// Advertise the method's capability in [`ClientOptions::capabilities`].
    pub fn handle<M: RequestMethod>(&self, handler: impl MethodFn<M>) {
        let handler: MethodHandler = Arc::new(move |params, context| {
            let answer = M::unwrap(params).map(|params| handler.call(params, context));
            Box::pin(async move {
                match answer {
                    Some(answer) => answer.await.map(M::wrap_result),
                    // The machine pairs params with their method: there is no other way here.
                    None => Err(bma_proto_core::contract::ErrorCode::InternalError.error("params of another method")),
                }
            })
        });
        self.shared.handlers().methods.insert(M::METHOD, handler);
        self.shared.lock().machine.serve_method(M::METHOD);
    }

    /// Decides about offered sessions. `Ok(true)` takes one: the client answers,
    /// and says `session.ready`; do the set-up before. `Ok(false)` or an error
    /// turns it down. Without a handler every session is taken.
    pub fn on_session_assign<F, Fut>(&self, handler: F)
    where
        F: Fn(SessionAssignParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<bool, JSONRPCError>> + Send + 'static,
    {
        self.shared.handlers().assign = Some(Arc::new(move |params| Box::pin(handler(params))));
    }

    /// Tears sessions down. When the handler returns, everything of the session
    /// must be gone (`true`), or the harness is told that it is not (`false`);
    /// then the client answers `session.stop` and reports `session.ended`.
    pub fn on_session_stop<F, Fut>(&self, handler: F)
    where
        F: Fn(SessionStop) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        self.shared.handlers().stop = Some(Arc::new(move |stop| Box::pin(handler(stop))));
    }

    /// Checks every tool call before it is acknowledged. An error is the
    /// answer, and the tool does not run. It must be quick.
    pub fn on_tool_call_accept<F>(&self, hook: F)
    where
        F: Fn(&ToolCallParams) -> Result<(), JSONRPCError> + Send + Sync + 'static,
    {
        self.shared.handlers().accept = Some(Arc::new(hook));
    }

    /// Told when the harness drains this executor.
    pub fn on_drain<F: Fn(&ExecutorDrainParams) + Send + Sync + 'static>(&self, hook: F) {
        self.shared.handlers().drain = Some(Arc::new(hook));
    }

    /// Told when a tool call has its result, which may still be on its way. It must be quick.
    pub fn on_tool_call_finished<F: Fn(&SessionId, &ToolCallId) + Send + Sync + 'static>(&self, hook: F) {
        self.shared.handlers().finished = Some(Arc::new(hook));
    }

    /// A handle that does not keep the client alive, for handlers that need the client itself.
    pub fn downgrade(&self) -> WeakClient {
        WeakClient { shared: Arc::downgrade(&self.shared) }
    }

    /// Given every tool result that the harness did not accept after all
    /// attempts. Keep it, and hand it to [`report_tool_result`](Client::report_tool_result) again.
    pub fn on_tool_result_lost<F: Fn(ToolResultParams, RequestError) + Send + Sync + 'static>(&self, hook: F) {
        self.shared.handlers().lost = Some(Arc::new(hook));
    }

    /// Replaces the configured capabilities; a connected harness is told.
    pub fn set_capabilities(&self, capabilities: Capabilities) {
        self.shared.with(|locked| locked.machine.set_capabilities(capabilities));
    }

    /// What heartbeats report as load from now on.
    pub fn set_load(&self, load: Option<ExecutorLoad>) {
        self.shared.with(|locked| locked.machine.set_load(load));
    }

    // Its life.

    /// Starts, and waits for the first registration. Connections that fail are
    /// tried again with growing waits, as they are later.
    ///
    /// Dropping the future abandons the wait; the client goes on.
    ///
    /// # Errors
    /// How the client ended, when it did before it was registered.
    pub async fn start(&self) -> Result<ExecutorRegisterResult, End> {
        let first = self.shared.with(|locked| {
            let now = self.shared.runtime.now();
            locked.machine.start(now);
            !std::mem::replace(&mut locked.started, true)
        });
        if first {
            self.shared.runtime.spawn(Box::pin(driver::Driver::new(Arc::clone(&self.shared))));
        }
        let registered = self.shared.registered.wait_for(Option::is_some);
        let ended = self.shared.ended.wait_for(Option::is_some);
        match first_of(registered, ended).await {
            (Some(Some((registered, _))), _) => Ok(registered),
            (_, ended) => Err(ended.flatten().unwrap_or(End::Stopped)),
        }
    }

    /// Waits until a registration has held for a heartbeat interval. A harness
    /// that refuses an executor closes right after the registration, so only
    /// this tells a usable one.
    ///
    /// # Errors
    /// How the client ended instead.
    pub async fn wait_ready(&self) -> Result<(), End> {
        let proven = self.shared.registered.wait_for(|registered| matches!(registered, Some((_, true))));
        let ended = self.shared.ended.wait_for(Option::is_some);
        match first_of(proven, ended).await {
            (Some(_), _) => Ok(()),
            (_, ended) => Err(ended.flatten().unwrap_or(End::Stopped)),
        }
    }

    /// Ends in order: no new sessions, the open ones are torn down, what is to be
    /// delivered is delivered, then the connection is closed. Returns how the
    /// client ended. Dropping the future abandons the wait; the end goes on.
    pub async fn stop(&self, reason: &str) -> End {
        let sessions = self.shared.with(|locked| {
            locked.machine.drain();
            for canceler in locked.cancelers.values() {
                canceler.cancel(CancelReason::ClientStopped);
            }
            if locked.started { locked.machine.running_sessions() } else { Vec::new() }
        });
        if !sessions.is_empty() {
            for session_id in sessions {
                let cause = StopCause::ExecutorEnded;
                dispatch::stop_session(&self.shared, SessionStop { session_id, cause, within: None });
            }
            let deadline = self.shared.runtime.now() + STOP_SESSIONS_WITHIN;
            self.wait_until_torn_down(deadline).await;
        }
        let never_started = self.shared.with(|locked| {
            locked.machine.stop(self.shared.runtime.now(), reason);
            !locked.started
        });
        if never_started {
            self.shared.ended.replace(Some(End::Stopped));
        }
        self.done().await
    }

    /// Waits for the stop handlers. What they end is still to be accepted by the
    /// harness: the machine sees to that, as long as it is connected.
    async fn wait_until_torn_down(&self, deadline: bma_proto_core::Time) {
        let mut timer = self.shared.runtime.timer();
        loop {
            let torn_down = self.shared.torn_down.listen();
            let running = self.shared.lock().machine.running_sessions();
            if running.is_empty() || self.shared.runtime.now() >= deadline || self.shared.ended.value().is_some() {
                return;
            }
            timer.set(Some(deadline));
            let _ = crate::connect::before(timer.as_mut(), torn_down).await;
        }
    }

    /// Waits until the client has ended for good, and says how.
    pub async fn done(&self) -> End {
        self.shared.ended.wait_for(Option::is_some).await.unwrap_or(End::Stopped)
    }

    /// How the client ended, once it has.
    pub fn end_state(&self) -> Option<End> {
        self.shared.ended.value()
    }

    /// The connection state.
    pub fn state(&self) -> ConnectionState {
        self.shared.connection.value()
    }

    /// What the last registration said: executor id, connection id, limits.
    pub fn registration(&self) -> Option<ExecutorRegisterResult> {
        self.shared.registered.value().map(|(registered, _)| registered)
    }

    /// The sessions that the harness counts as this executor's.
    pub fn active_sessions(&self) -> Vec<SessionId> {
        self.shared.lock().machine.active_sessions()
    }

    /// What happens from now on. A reader that is slow loses the oldest events, and is told how many.
    pub fn events(&self) -> Events<ClientEvent> {
        let (sender, receiver) = events(EVENTS_KEPT, Overflow::DropOldest);
        self.shared.subscribers().push(sender);
        receiver
    }

    // What it asks and tells.

    /// Sends a request and waits for its result. Dropping the future abandons
    /// the wait: the request may take effect all the same.
    ///
    /// # Errors
    /// When it cannot be sent, is refused, or has no answer in time.
    pub async fn request<M: RequestMethod>(&self, params: M::Params) -> Result<M::Result, ClientError> {
        let answer = {
            let mut locked = self.shared.lock();
            if let Some(end) = locked.machine.end_state() {
                return Err(ClientError::Ended(end.clone()));
            }
            let token = locked.next_token;
            locked.next_token += 1;
            let now = self.shared.runtime.now();
            let timeout = locked.machine.request_timeout();
            locked.machine.request(now, &M::wrap(params), token, timeout)?;
            let (sender, receiver) = oneshot::channel();
            locked.waiting.insert(token, sender);
            receiver
        };
        self.shared.wake();
        match answer.await {
            Ok(Ok(result)) => M::unwrap_result(result)
                .ok_or_else(|| ClientError::Request(RequestError::Malformed("another method's result".to_owned()))),
            Ok(Err(error)) => Err(ClientError::Request(error)),
            Err(_) => Err(ClientError::Ended(self.end_state().unwrap_or(End::Stopped))),
        }
    }

    /// Sends a notification, best effort: `false` when it was dropped, because
    /// nothing is connected or too much waits to be written.
    ///
    /// # Errors
    /// When it can never be sent.
    pub fn notify<M: NotificationMethod>(&self, params: &M::Params) -> Result<bool, CallError> {
        self.shared.with(|locked| locked.machine.notify::<M>(params))
    }

    /// Reports a session's status, best effort.
    ///
    /// # Errors
    /// When it can never be sent.
    pub fn session_status(&self, params: &SessionStatusParams) -> Result<bool, CallError> {
        self.shared.with(|locked| locked.machine.session_status(params))
    }

    /// Says `session.ready` again, or for a session whose set-up went on after it was taken.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn session_ready(&self, session_id: &SessionId) -> Result<(), CallError> {
        let now = self.shared.runtime.now();
        self.shared.with(|locked| locked.machine.session_ready(now, session_id))
    }

    /// Reports that a session has ended by itself. It leaves
    /// [`active_sessions`](Client::active_sessions) once the harness has accepted that.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn session_ended(&self, session_id: &SessionId, reason: &str) -> Result<(), CallError> {
        let now = self.shared.runtime.now();
        self.shared.with(|locked| locked.machine.session_ended(now, session_id, reason))
    }

    /// Reports a tool call's result from outside of its handler: for a call that
    /// is open, or again for one whose delivery was given up. It is sent until
    /// the harness accepts it.
    ///
    /// # Errors
    /// When no such call is known.
    pub fn report_tool_result(&self, result: ToolResultParams) -> Result<(), CallError> {
        let now = self.shared.runtime.now();
        let (session, call) = (result.session_id.clone(), result.tool_call_id.clone());
        self.shared.with(|locked| match locked.machine.finish_tool_call(now, result) {
            Err(CallError::NoSuchCall { .. }) => locked.machine.redeliver_result(now, &session, &call),
            done => done,
        })
    }

    /// The runtime that the client runs on.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.shared.runtime
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Locked> {
        // The machine never panics, and nothing else under the lock is left half done.
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handlers(&self) -> MutexGuard<'_, Handlers> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<EventSender<ClientEvent>>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks something of the machine, and wakes its driver to drain it.
    fn with<T>(&self, ask: impl FnOnce(&mut Locked) -> T) -> T {
        let mut locked = self.lock();
        let answer = ask(&mut locked);
        let waker = locked.waker.take();
        drop(locked);
        if let Some(waker) = waker {
            waker.wake();
        }
        answer
    }

    fn wake(&self) {
        self.with(|_| ());
    }

    fn publish(&self, event: ClientEvent) {
        self.subscribers().retain(|subscriber| subscriber.send(event.clone()).is_ok());
    }
}

/// What serves a method: an async closure over its params and the request's context.
pub trait MethodFn<M: RequestMethod>: Send + Sync + 'static {
    /// Serves one request.
    fn call(&self, params: M::Params, context: RequestContext) -> BoxFuture<Result<M::Result, JSONRPCError>>;
}

impl<M, F, Fut> MethodFn<M> for F
where
    M: RequestMethod,
    F: Fn(M::Params, RequestContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<M::Result, JSONRPCError>> + Send + 'static,
{
    fn call(&self, params: M::Params, context: RequestContext) -> BoxFuture<Result<M::Result, JSONRPCError>> {
        Box::pin(self(params, context))
    }
}

/// The outputs of two futures, of which one is there. Looks at the first one first.
async fn first_of<A: Future, B: Future>(a: A, b: B) -> (Option<A::Output>, Option<B::Output>) {
    use std::task::Poll;
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = a.as_mut().poll(cx) {
            return Poll::Ready((Some(output), None));
        }
        b.as_mut().poll(cx).map(|output| (None, Some(output)))
    })
    .await
}
