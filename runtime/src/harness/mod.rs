//! The harness end: [`Harness`], [`Executor`], [`Session`].

mod accept;
mod dial;
mod driver;
mod executor;
mod options;
mod session;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bma_proto_core::contract::{AnyParams, AnyResult, ExecutorId, JSONRPCError, Method, Secret};
use bma_proto_core::harness::{Config, Gone, Principal, Registry};
use bma_proto_core::websocket::{Channel, Upgraded};

use crate::client::RequestContext;
use crate::listening;
use crate::runtime::{BoxFuture, Endpoint, Runtime, Stream};
use crate::served::HarnessMethod;
use crate::sync::{Event, Events, Subscribers};
use crate::upgrade::Places;
use crate::wire::Wire;

pub use crate::listening::{ListenError, Listening};
pub use dial::DialExecutorError;
pub use executor::{Executor, ExecutorEvent};
pub use options::{Authenticator, HarnessOptions, Unauthorized};
pub use session::{CallToolOptions, Session, SessionTools};

/// How many comings and goings a reader may be behind before the oldest are dropped.
const EVENTS_KEPT: usize = 1024;

/// A brain: it accepts executors and drives them.
///
/// A cheap clone; all clones are the same harness. Executors reach it through
/// [`listen`](Harness::listen), are reached by [`dial_executor`](Harness::dial_executor), or come through any stream that is handed to
/// [`serve_stream`](Harness::serve_stream) or, already upgraded, to
/// [`serve_upgraded`](Harness::serve_upgraded).
///
/// When the last handle of a harness is dropped, and with it what it listens
/// on, its connections are closed: executors go on to dial, for whoever comes
/// next. [`release`](Harness::release) does the same and waits until it is done,
/// as a program that is about to exit must: tasks that are left to a runtime
/// that ends are not heard of again. [`close`](Harness::close) ends executors
/// for good.
#[derive(Clone)]
pub struct Harness {
    shared: Arc<Shared>,
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("executors", &self.executors().len()).finish_non_exhaustive()
    }
}

struct Shared {
    runtime: Arc<dyn Runtime>,
    config: Arc<Config>,
    options: HarnessOptions,
    known: Mutex<Known>,
    handlers: Mutex<HashMap<Method, MethodHandler>>,
    subscribers: Subscribers<HarnessEvent>,
    /// Connections that have no executor yet.
    upgrading: Places,
}

/// Who is registered. This lock is taken before an executor's own.
struct Known {
    registry: Registry,
    executors: BTreeMap<ExecutorId, Executor>,
}

type MethodHandler =
    Arc<dyn Fn(Executor, AnyParams, RequestContext) -> BoxFuture<Result<AnyResult, JSONRPCError>> + Send + Sync>;

/// An executor's coming and going.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum HarnessEvent {
    /// An executor has registered: for the first time, or again.
    Registered {
        /// The executor.
        executor: Executor,
        /// Whether it was known and comes back.
        resumed: bool,
    },
    /// An executor's connection is gone. Its sessions wait for it until its lease is over.
    Disconnected(Executor),
    /// An executor is gone for good.
    Gone {
        /// The executor.
        executor: Executor,
        /// Why.
        gone: Gone,
    },
}

impl Harness {
    /// A harness that nobody can reach yet. Options that would not work are
    /// brought into their range: see [`HarnessOptions::clamped`].
    pub fn new(runtime: Arc<dyn Runtime>, options: HarnessOptions) -> Self {
        let options = options.clamped();
        let config = Arc::new(options.config.clone());
        let registry = Registry::new(&config, runtime.seed());
        let upgrading = Places::new(options.max_upgrading);
        Self {
            shared: Arc::new(Shared {
                runtime,
                config,
                options,
                known: Mutex::new(Known { registry, executors: BTreeMap::new() }),
                handlers: Mutex::new(HashMap::new()),
                subscribers: Subscribers::new(EVENTS_KEPT),
                upgrading,
            }),
        }
    }

    /// Serves an endpoint until the returned handle is stopped or dropped.
    /// Executors that are connected already stay when it ends.
    ///
    /// # Errors
    /// When the endpoint cannot be listened on, such as a port in use.
    pub async fn listen(&self, on: &Endpoint) -> Result<Listening, ListenError> {
        let listener = listening::bind(self.shared.runtime.as_ref(), on).await?;
        let shared = Arc::clone(&self.shared);
        Ok(listening::serve(&self.shared.runtime, listener, move |stream| {
            accept::serve(&shared, accept::Incoming::fresh(&shared, stream));
        }))
    }

    /// Dials an executor that listens on a Unix socket of this machine
    /// ([`ExecutorListener`](crate::ExecutorListener)), shows it the token, and waits until it has registered here.
    /// From then on it is an executor as any other, except that it does not come back when its connection is lost:
    /// dial again, within its lease, and it goes on where it was.
    ///
    /// Takes at most the time of an upgrade and of a registration. Dropping the future gives the dial up.
    ///
    /// # Errors
    /// When nobody listens there, the executor refuses the token or is another harness's for longer than it
    /// lets a dial wait, or it does not register.
    pub async fn dial_executor(&self, path: &Path, token: Secret) -> Result<Executor, DialExecutorError> {
        dial::dial(&self.shared, path, token).await
    }

    /// Serves a stream from its first byte: upgrade, authentication, registration.
    pub fn serve_stream(&self, stream: Box<dyn Stream>) {
        accept::serve(&self.shared, accept::Incoming::fresh(&self.shared, stream));
    }

    /// Serves a stream that somebody's HTTP server has upgraded and
    /// authenticated. Bytes that were read beyond the request's head go into the stream first.
    pub fn serve_upgraded(&self, stream: Box<dyn Stream>, upgraded: Upgraded, principal: Principal) {
        let wire = Wire::new(stream, Channel::upgraded(self.shared.runtime.now(), upgraded));
        accept::serve(&self.shared, accept::Incoming::upgraded(wire, principal));
    }

    /// Serves a method that executors send. Without a handler `session.event` is
    /// accepted with an id of the harness's own, and other methods are unknown.
    ///
    /// What the harness answers itself, and what executors do not send, cannot be registered:
    ///
    /// ```compile_fail
    /// # use bma_runtime::{Executor, Harness, RequestContext};
    /// # use bma_runtime::proto::contract::{Ack, ToolResultParams, methods};
    /// fn serve(harness: &Harness) {
    ///     harness.handle::<methods::ToolResult, _, _>(|_: Executor, _: ToolResultParams, _: RequestContext| async {
    ///         Ok(Ack { accepted: true })
    ///     });
    /// }
    /// ```
    pub fn handle<M, F, Fut>(&self, handler: F)
    where
        M: HarnessMethod,
        F: Fn(Executor, M::Params, RequestContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<M::Result, JSONRPCError>> + Send + 'static,
    {
        let handler: MethodHandler = Arc::new(move |executor, params, context| {
            let answer = M::unwrap(params).map(|params| handler(executor, params, context));
            Box::pin(async move {
                match answer {
                    Some(answer) => answer.await.map(M::wrap_result),
                    // The machine pairs params with their method: there is no other way here.
                    None => Err(bma_proto_core::contract::ErrorCode::InternalError.error("params of another method")),
                }
            })
        });
        self.shared.handlers.lock().unwrap_or_else(PoisonError::into_inner).insert(M::METHOD, handler);
    }

    /// The executors that are registered: connected, or within their lease.
    pub fn executors(&self) -> Vec<Executor> {
        self.shared.known().executors.values().cloned().collect()
    }

    /// An executor by its id.
    pub fn executor(&self, id: &ExecutorId) -> Option<Executor> {
        self.shared.known().executors.get(id).cloned()
    }

    /// Waits for an executor: one that is connected, or the next to register.
    /// Dropping the future abandons the wait.
    pub async fn wait_executor(&self) -> Executor {
        let mut events = self.events();
        if let Some(executor) = self.executors().into_iter().find(Executor::is_connected) {
            return executor;
        }
        loop {
            match events.next().await {
                Some(Event::Item(HarnessEvent::Registered { executor, .. })) => return executor,
                // After a gap: whoever came in it is there.
                Some(Event::Lagged(_)) => {
                    if let Some(executor) = self.executors().into_iter().find(Executor::is_connected) {
                        return executor;
                    }
                }
                Some(Event::Item(_)) => {}
                // The harness keeps the sending end for as long as this handle lives.
                None => return std::future::pending().await,
            }
        }
    }

    /// The comings and goings from now on. A reader that is slow loses the
    /// oldest ones, and is told how many.
    pub fn events(&self) -> Events<HarnessEvent> {
        self.shared.subscribers.subscribe()
    }

    /// Tells every executor to close, and waits until all are gone and their connections closed. An executor that
    /// does not answer is waited for five seconds. Dropping the future abandons the wait and nothing else.
    pub async fn close(&self, reason: &str) {
        self.part(|executor| executor.start_close(reason)).await;
    }

    /// Lets every executor go, and waits until their connections are closed: with 1001, which means that they go on
    /// to dial, for whoever comes next. Here their sessions and calls are over. An executor that does not answer is
    /// waited for five seconds. Stop [listening](Listening::stop) first, or they are back at once. Dropping the future
    /// abandons the wait and nothing else.
    pub async fn release(&self, reason: &str) {
        self.part(|executor| executor.start_release(reason)).await;
    }

    /// Starts to part from every executor, and waits until all are gone.
    async fn part(&self, start: impl Fn(&Executor)) {
        let executors = self.executors();
        executors.iter().for_each(start);
        for executor in executors {
            executor.parted().await;
        }
    }

    /// The runtime that the harness runs on.
    pub fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.shared.runtime
    }
}

impl Drop for Shared {
    /// The executors' tasks see that the harness is gone, and let their executors go.
    fn drop(&mut self) {
        let known = self.known.get_mut().unwrap_or_else(PoisonError::into_inner);
        known.executors.values().for_each(Executor::wake);
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        // The registry never panics, and nothing else under the lock is left half done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handler(&self, method: Method) -> Option<MethodHandler> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner).get(&method).cloned()
    }

    fn publish(&self, event: &HarnessEvent) {
        self.subscribers.publish(event);
    }
}
