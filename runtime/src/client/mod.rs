//! The executor end: [`Client`].

mod dispatch;
mod driver;
mod listener;
mod options;
mod private_folder;
mod shared;
mod tools;
mod transport;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};

use bma_proto_core::contract::{
    Capabilities, ConnectionState, ExecutorDrainParams, ExecutorLoad, ExecutorRegisterResult, JSONRPCError,
    NotificationMethod, RequestMethod, SessionAssignParams, SessionId, SessionStatusParams, ToolCallId, ToolCallParams,
    ToolResultParams,
};
use bma_proto_core::executor::{CallError, End, Executor, StopCause};
use bma_proto_core::rpc::{RequestError, RequestId};

use crate::cancel::CancelReason;
use crate::runtime::{BoxFuture, Runtime};
use crate::sync::{Events, StateCell, Subscribers, oneshot};

use shared::{AssignHandler, Handlers, Locked, MethodHandler, Shared, StopHandler, cancel_all};

pub use crate::served::ServedMethod;
pub use listener::ExecutorListener;
pub use options::{ClientOptions, OptionsError, TokenSource, static_token};
pub use tools::{ToolContext, Tools};
pub use transport::Transport;

/// How many events a reader may be behind before the oldest are dropped.
const EVENTS_KEPT: usize = 256;

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
    /// The token of the open connection could not be renewed. The connection goes on; when the harness closes it in
    /// the end, the next one is made with a fresh token.
    TokenNotRenewed {
        /// What went wrong.
        cause: String,
    },
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
        let (config, token_source, transport) = options.into_parts(runtime.seed())?;
        let locked = Locked {
            machine: Executor::new(config),
            transport: Some(transport),
            started: false,
            waker: None,
            next_token: 1,
            waiting: HashMap::new(),
            cancelers: BTreeMap::new(),
            assigning: BTreeSet::new(),
            teardowns: BTreeMap::new(),
            stopping: false,
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
                subscribers: Subscribers::new(EVENTS_KEPT),
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
    /// Advertise the method's capability in [`ClientOptions::capabilities`]. Registering again
    /// replaces the earlier handler. A `process.*` request reaches its handler only while its
    /// session is one of this client's; for others the client answers -32007.
    ///
    /// What has hooks of its own cannot be registered:
    ///
    /// ```compile_fail
    /// # use bma_runtime::{Client, RequestContext};
    /// # use bma_runtime::proto::contract::{Ack, ToolCallParams, methods};
    /// fn serve(client: &Client) {
    ///     client.handle::<methods::ToolCall>(|_: ToolCallParams, _: RequestContext| async { Ok(Ack { accepted: true }) });
    /// }
    /// ```
    pub fn handle<M: ServedMethod>(&self, handler: impl MethodFn<M>) {
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
    ///
    /// A session that must end while its handler runs is torn down once the handler has returned.
    ///
    /// # Errors
    /// [`HandlerTaken`]: there is one already, and there can be only one. It stays.
    pub fn on_session_assign<F, Fut>(&self, handler: F) -> Result<(), HandlerTaken>
    where
        F: Fn(SessionAssignParams) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<bool, JSONRPCError>> + Send + 'static,
    {
        self.shared.handlers().decide(Some(assign_handler(handler)), None)
    }

    /// Tears sessions down. The session's tool handlers have been asked to end.
    /// When this handler returns, everything that it answers for must be gone
    /// (`true`), or the harness is told that it is not (`false`). Then the client
    /// waits for the session's tool handlers, answers `session.stop` and reports
    /// `session.ended`. A session is torn down once, whatever reasons come together.
    ///
    /// It never runs beside the session's assign handler, and it runs also for a session that
    /// came to nothing.
    ///
    /// # Errors
    /// [`HandlerTaken`]: there is one already, and there can be only one. It stays.
    pub fn on_session_stop<F, Fut>(&self, handler: F) -> Result<(), HandlerTaken>
    where
        F: Fn(SessionStop) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = bool> + Send + 'static,
    {
        self.shared.handlers().decide(None, Some(stop_handler(handler)))
    }

    /// [`on_session_assign`](Client::on_session_assign) and [`on_session_stop`](Client::on_session_stop)
    /// at once: both handlers, or neither.
    ///
    /// # Errors
    /// [`HandlerTaken`]: there is one of the two already. Nothing was changed.
    pub fn on_sessions<A, Assigned, S, Stopped>(&self, assign: A, stop: S) -> Result<(), HandlerTaken>
    where
        A: Fn(SessionAssignParams) -> Assigned + Send + Sync + 'static,
        Assigned: Future<Output = Result<bool, JSONRPCError>> + Send + 'static,
        S: Fn(SessionStop) -> Stopped + Send + Sync + 'static,
        Stopped: Future<Output = bool> + Send + 'static,
    {
        self.shared.handlers().decide(Some(assign_handler(assign)), Some(stop_handler(stop)))
    }

    /// Checks every tool call before it is acknowledged. An error is the
    /// answer, and the tool does not run. It must be quick. Of several checks all must agree.
    pub fn on_tool_call_accept<F>(&self, hook: F)
    where
        F: Fn(&ToolCallParams) -> Result<(), JSONRPCError> + Send + Sync + 'static,
    {
        self.shared.handlers().accept.push(Arc::new(hook));
    }

    /// Told when the harness drains this executor. There can be several.
    pub fn on_drain<F: Fn(&ExecutorDrainParams) + Send + Sync + 'static>(&self, hook: F) {
        self.shared.handlers().drain.push(Arc::new(hook));
    }

    /// Told when a tool call has its result, which may still be on its way. It must be quick.
    /// There can be several.
    pub fn on_tool_call_finished<F: Fn(&SessionId, &ToolCallId) + Send + Sync + 'static>(&self, hook: F) {
        self.shared.handlers().finished.push(Arc::new(hook));
    }

    /// A handle that does not keep the client alive, for handlers that need the client itself.
    pub fn downgrade(&self) -> WeakClient {
        WeakClient { shared: Arc::downgrade(&self.shared) }
    }

    /// Given every tool result that the harness did not accept: it refused it, all attempts came to
    /// nothing, it has given the session up, or the client ends. Keep it, and hand it to
    /// [`report_tool_result`](Client::report_tool_result) again. There can be several.
    pub fn on_tool_result_lost<F: Fn(ToolResultParams, RequestError) + Send + Sync + 'static>(&self, hook: F) {
        self.shared.handlers().lost.push(Arc::new(hook));
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
            locked.started = true;
            locked.transport.take()
        });
        if let Some(transport) = first {
            self.shared.runtime.spawn(Box::pin(driver::Driver::new(Arc::clone(&self.shared), transport)));
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
    /// delivered is delivered, then the connection is closed. Handlers get 30 s
    /// to end. Returns how the client ended. Dropping the future abandons the
    /// wait; the end goes on.
    pub async fn stop(&self, reason: &str) -> End {
        let (first, started) = self.shared.with(|locked| {
            let first = !std::mem::replace(&mut locked.stopping, true);
            if !locked.started {
                locked.machine.stop(self.shared.runtime.now(), reason);
                locked.transport = None;
            }
            (first, locked.started)
        });
        if !started {
            self.shared.end(End::Stopped);
        } else if first {
            let (shared, reason) = (Arc::clone(&self.shared), reason.to_owned());
            self.shared.runtime.spawn(Box::pin(async move { shared.stop_in_order(&reason).await }));
        }
        self.done().await
    }

    /// Waits until the client has ended for good, its handlers included (they get
    /// 30 s for that), and says how.
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

    /// What happens from now on, up to the client's end. A reader that is slow
    /// loses the oldest events, and is told how many.
    pub fn events(&self) -> Events<ClientEvent> {
        self.shared.subscribers.subscribe()
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

    /// Reports that a session has ended by itself. Calls that are still open end as
    /// canceled, and their handlers are asked to end. The session leaves
    /// [`active_sessions`](Client::active_sessions) once the harness has accepted that.
    /// A session that is being stopped ends with its stop, and is left to that.
    ///
    /// # Errors
    /// When there is no such session.
    pub fn session_ended(&self, session_id: &SessionId, reason: &str) -> Result<(), CallError> {
        let now = self.shared.runtime.now();
        let running = self.shared.with(|locked| {
            let offer = locked.machine.offer_of(session_id);
            if offer.is_some_and(|offer| locked.teardowns.contains_key(&offer)) {
                return Ok(Vec::new());
            }
            locked.machine.session_ended(now, session_id, reason)?;
            Ok::<_, CallError>(locked.cancelers_of(Some(session_id)))
        })?;
        cancel_all(&running, CancelReason::SessionStopped);
        Ok(())
    }

    /// Reports a tool call's result from outside of its handler: for a call that
    /// is open, or again for one whose delivery was given up. What is recorded of the call is
    /// what counts and is sent again; when nothing is any more, the result goes out as it is
    /// handed in. It is sent until the harness accepts it, or refuses it for good: that is told to
    /// [`on_tool_result_lost`](Client::on_tool_result_lost).
    ///
    /// # Errors
    /// When the client has ended, or too many results without a record wait already.
    pub fn report_tool_result(&self, result: ToolResultParams) -> Result<(), CallError> {
        let now = self.shared.runtime.now();
        self.shared.with(|locked| locked.machine.report_tool_result(now, result))
    }

    /// The runtime that the client runs on.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.shared.runtime
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

fn assign_handler<F, Fut>(handler: F) -> AssignHandler
where
    F: Fn(SessionAssignParams) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<bool, JSONRPCError>> + Send + 'static,
{
    Arc::new(move |params| Box::pin(handler(params)))
}

fn stop_handler<F, Fut>(handler: F) -> StopHandler
where
    F: Fn(SessionStop) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = bool> + Send + 'static,
{
    Arc::new(move |stop| Box::pin(handler(stop)))
}

/// A handler that decides was registered twice: two could decide differently, so the first one stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{hook}: this client has a handler already, and only one can decide; register one that asks both")]
pub struct HandlerTaken {
    /// The method that registers it, such as `on_session_assign`.
    pub hook: &'static str,
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
