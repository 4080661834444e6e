//! From a stream to an executor: upgrade, authentication, first frame. A short
//! task for each connection, with a deadline; then the executor's own task has it.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bma_proto_core::Time;
use bma_proto_core::contract::ErrorCode;
use bma_proto_core::harness::{Placement, Principal, Refusal, Registration, read_registration};
use bma_proto_core::websocket::{Channel, Output, ServerConfig, Target, Text, UpgradeRequest, Upgraded};

use super::executor::Executor;
use super::{HarnessEvent, Shared};
use crate::connect::{before, sleep_until};
use crate::runtime::{Endpoint, Listener, Runtime, Stream, Timer};
use crate::sync::{StateCell, oneshot};
use crate::task;
use crate::url::HarnessUrl;
use crate::wire::{Progress, Wire};

/// After an accept that failed for want of descriptors: the wait before the next one.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

/// An endpoint cannot be listened on. Says what to do about it, where that is known.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {endpoint}: {source}{}", advice(endpoint, source))]
pub struct ListenError {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// What the system said.
    #[source]
    pub source: std::io::Error,
}

fn advice(endpoint: &Endpoint, error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind as Kind;
    match (endpoint, error.kind()) {
        (Endpoint::Unix(_), Kind::AddrInUse) => "; another program listens there: stop it, or choose another path",
        (Endpoint::Unix(_), Kind::AlreadyExists) => "; remove that if nobody needs it, or choose another path",
        (Endpoint::Unix(_), Kind::NotFound) => "; its folder is missing: make it, or choose another path",
        (Endpoint::Unix(_), Kind::NotADirectory) => "; a part of the path is no folder: choose another path",
        (Endpoint::Unix(_), Kind::PermissionDenied | Kind::ReadOnlyFilesystem) => {
            "; this user can make no file in its folder: choose another path"
        }
        (Endpoint::Unix(_), Kind::InvalidFilename) => {
            "; the path of a socket has some 100 bytes at most: choose a shorter one"
        }
        (Endpoint::Tcp { .. }, Kind::AddrInUse) => "; choose another port, or port 0 for a free one",
        (Endpoint::Tcp { .. }, Kind::PermissionDenied) => "; ports below 1024 need privileges: choose a higher one",
        (Endpoint::Tcp { .. }, Kind::AddrNotAvailable | Kind::NotFound) => {
            "; write an address of this machine: 127.0.0.1 for itself alone, 0.0.0.0 for every network"
        }
        _ => "",
    }
}

/// An endpoint that is listened on, until this is stopped or dropped.
#[derive(Debug)]
pub struct Listening {
    endpoint: Endpoint,
    /// Dropped to stop.
    stop: Option<oneshot::Sender<()>>,
    stopped: StateCell<bool>,
}

impl Listening {
    /// Where it listens, with the port that was picked.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The URL that an executor on this machine dials.
    pub fn url(&self) -> String {
        HarnessUrl::of_listener(&self.endpoint).to_string()
    }

    /// Stops listening, and waits until the endpoint is free.
    pub async fn stop(mut self) {
        self.stop = None;
        self.stopped.wait_for(|stopped| *stopped).await;
    }
}

pub(super) async fn listen(shared: &Arc<Shared>, on: &Endpoint) -> Result<Listening, ListenError> {
    let listened = shared.runtime.listen(on).await;
    let mut listener = listened.map_err(|source| ListenError { endpoint: on.clone(), source })?;
    let endpoint = listener.local_endpoint().clone();
    let (stop, stopping) = oneshot::channel::<()>();
    let stopped = StateCell::new(false);
    let task = {
        let (shared, stopped) = (Arc::clone(shared), stopped.clone());
        async move {
            accept_until(&shared, listener.as_mut(), stopping).await;
            drop(listener);
            stopped.replace(true);
        }
    };
    shared.runtime.spawn(Box::pin(task));
    tracing::info!(%endpoint, "listening");
    Ok(Listening { endpoint, stop: Some(stop), stopped })
}

async fn accept_until(shared: &Arc<Shared>, listener: &mut dyn Listener, mut stopping: oneshot::Receiver<()>) {
    loop {
        let accepted = poll_fn(|cx| {
            if std::pin::Pin::new(&mut stopping).poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            listener.poll_accept(cx).map(Some)
        });
        match accepted.await {
            None => return,
            Some(Ok((stream, peer))) => {
                tracing::debug!(%peer, "connection");
                serve(shared, Incoming::Fresh(stream));
            }
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                let pause = shared.runtime.now() + ACCEPT_PAUSE;
                sleep_until(shared.runtime.as_ref(), pause).await;
            }
        }
    }
}

/// A connection that belongs to no executor yet.
pub(super) enum Incoming {
    /// Nothing was read from it.
    Fresh(Box<dyn Stream>),
    /// It was upgraded and authenticated elsewhere.
    Upgraded {
        /// The stream.
        stream: Box<dyn Stream>,
        /// What was agreed on.
        upgraded: Upgraded,
        /// Who it is.
        principal: Principal,
    },
}

pub(super) fn serve(shared: &Arc<Shared>, incoming: Incoming) {
    let Some(place) = Place::take(shared) else {
        tracing::warn!(bound = shared.options.max_upgrading, "too many connections in their upgrade: one was dropped");
        return;
    };
    let runtime = Arc::clone(&shared.runtime);
    let task = async move {
        let left = register(&place.shared, incoming).await;
        if let Some(wire) = left {
            goodbye(place.shared.runtime.as_ref(), wire).await;
        }
    };
    runtime.spawn(Box::pin(task));
}

/// A place among the connections that have no executor. Dropped with its task, however that ends.
struct Place {
    shared: Arc<Shared>,
}

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let place = Self { shared: Arc::clone(shared) };
        let taken = shared.upgrading.fetch_add(1, Ordering::Relaxed);
        (taken < shared.options.max_upgrading).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.upgrading.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Leads a connection to its executor. What is returned only has goodbye to say.
async fn register(shared: &Arc<Shared>, incoming: Incoming) -> Option<Wire> {
    let runtime = shared.runtime.as_ref();
    let deadline = runtime.now() + shared.options.channel.handshake_timeout;
    let mut timer = runtime.timer();
    let (mut wire, principal) = match incoming {
        Incoming::Fresh(stream) => {
            let config = ServerConfig { limits: shared.options.channel, ..ServerConfig::default() };
            (Wire::new(stream, Channel::server(runtime.now(), config)), None)
        }
        Incoming::Upgraded { stream, upgraded, principal } => {
            (Wire::new(stream, Channel::upgraded(runtime.now(), upgraded)), Some(principal))
        }
    };
    let principal = match principal {
        Some(principal) => principal,
        None => match authenticate(shared, timer.as_mut(), &mut wire, deadline).await {
            Some(principal) => principal,
            None => return Some(wire),
        },
    };
    let Some(first) = next(runtime, timer.as_mut(), &mut wire, deadline, text_of).await else {
        wire.close(runtime.now(), 4002, "no executor.register in time");
        return Some(wire);
    };
    let placed = read_registration(&first).and_then(|mut registration| {
        let mut known = shared.known();
        let placement = known.registry.place(&principal, &mut registration)?;
        let (executor, new) = match placement {
            Placement::Known(id) => (known.executors.get(&id).cloned(), false),
            Placement::New(id) => {
                let executor = Executor::new(shared, id.clone());
                known.executors.insert(id, executor.clone());
                (Some(executor), true)
            }
        };
        Ok((executor, new, registration))
    });
    match placed {
        Ok((Some(executor), new, registration)) => {
            if let Some((mut wire, registration)) = executor.connect(wire, registration) {
                register_again(runtime, &mut wire, &registration);
                return Some(wire);
            }
            if new {
                executor.drive(shared);
            }
            None
        }
        Ok((None, _, registration)) => {
            // The registry and the table change under one lock, so this cannot be; say so rather than hang.
            let error = ErrorCode::InternalError.error("the executor cannot be found");
            refuse(runtime, &mut wire, &registration.refuse(&error));
            Some(wire)
        }
        Err(refusal) => {
            tracing::warn!(reason = %refusal.reason, "a registration was refused");
            refuse(runtime, &mut wire, &refusal);
            Some(wire)
        }
    }
}

/// It came back in the very moment its executor was given up.
pub(super) fn register_again(runtime: &dyn Runtime, wire: &mut Wire, registration: &Registration) {
    let error = ErrorCode::LeaseExpired.error("the executor is gone: register again");
    wire.send(&registration.refuse(&error).frame);
    wire.close(runtime.now(), 1012, "register again");
}

fn refuse(runtime: &dyn Runtime, wire: &mut Wire, refusal: &Refusal) {
    if !refusal.frame.is_empty() {
        wire.send(&refusal.frame);
    }
    wire.close(runtime.now(), refusal.code, &refusal.reason);
}

/// The upgrade. `None` when it came to nothing, and the channel has said why.
async fn authenticate(
    shared: &Arc<Shared>,
    timer: &mut dyn Timer,
    wire: &mut Wire,
    deadline: Time,
) -> Option<Principal> {
    let runtime = shared.runtime.as_ref();
    let request = next(runtime, timer, wire, deadline, request_of).await?;
    if let Target::Mcp { .. } = request.target {
        let _ = wire.channel().refuse(runtime.now(), 501, "this harness does not serve mcp channels");
        return None;
    }
    timer.set(Some(deadline));
    let asked = task::catching(|| shared.options.authenticator.authenticate(*request));
    let answer = before(timer, asked).await;
    // The client may have gone meanwhile: then there is nobody to answer.
    match answer {
        Some(Ok(Ok(principal))) => {
            wire.channel().accept(runtime.now()).ok()?;
            Some(principal)
        }
        Some(Ok(Err(unauthorized))) => {
            tracing::warn!(status = unauthorized.status, "an upgrade was refused");
            let status = if (400..500).contains(&unauthorized.status) { unauthorized.status } else { 401 };
            let _ = wire.channel().refuse(runtime.now(), status, &unauthorized.message);
            None
        }
        Some(Err(panic)) => {
            tracing::error!(%panic, "the authenticator panicked");
            let _ = wire.channel().refuse(runtime.now(), 500, "the credential could not be checked");
            None
        }
        None => {
            let _ = wire.channel().refuse(runtime.now(), 503, "the credential could not be checked in time");
            None
        }
    }
}

fn request_of(output: Output) -> Option<Box<UpgradeRequest>> {
    match output {
        Output::AuthRequired(request) => Some(request),
        Output::Open { .. } | Output::Text(_) | Output::Closed(_) => None,
    }
}

fn text_of(output: Output) -> Option<Text> {
    match output {
        Output::Text(text) => Some(text),
        Output::AuthRequired(_) | Output::Open { .. } | Output::Closed(_) => None,
    }
}

/// Drives a connection until it gives what is wanted. `None` when it ends first, or the time is over.
async fn next<T>(
    runtime: &dyn Runtime,
    timer: &mut dyn Timer,
    wire: &mut Wire,
    deadline: Time,
    wanted: impl Fn(Output) -> Option<T>,
) -> Option<T> {
    poll_fn(|cx| {
        loop {
            let now = runtime.now();
            while let Some(output) = wire.output() {
                if let Some(found) = wanted(output) {
                    return Poll::Ready(Some(found));
                }
            }
            let _ = wire.poll_flush(cx, now);
            if wire.channel().is_over() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(Progress::Bytes | Progress::More) = wire.poll_receive(cx, now) {
                continue;
            }
            let until = wire.deadline().map_or(deadline, |(at, _)| at.min(deadline));
            timer.set(Some(until));
            if timer.poll_expired(cx).is_pending() {
                return Poll::Pending;
            }
            wire.tick(runtime.now());
            if runtime.now() >= deadline {
                return Poll::Ready(None);
            }
        }
    })
    .await
}

/// Sees a connection off: what is queued is written, the closing handshake is done, within its time.
pub(super) async fn goodbye(runtime: &dyn Runtime, mut wire: Wire) {
    let mut timer = runtime.timer();
    let deadline = runtime.now() + std::time::Duration::from_secs(5);
    if wire.channel().is_open() {
        wire.close(runtime.now(), 1000, "");
    }
    let _ = next(runtime, timer.as_mut(), &mut wire, deadline, |_| None::<()>).await;
    let leave = poll_fn(|cx| match wire.poll_flush(cx, runtime.now()) {
        Poll::Ready(()) => wire.poll_shutdown(cx),
        Poll::Pending => Poll::Pending,
    });
    timer.set(Some(deadline));
    let _ = before(timer.as_mut(), leave).await;
}

/// Tells of an executor's coming.
pub(super) fn announce(shared: &Shared, executor: &Executor, resumed: bool) {
    shared.publish(&HarnessEvent::Registered { executor: executor.clone(), resumed });
}
