//! Listening on an endpoint: what is accepted is handed to whoever serves it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};

use crate::connect::sleep_until;
use crate::runtime::{Endpoint, Listener, Runtime, Stream};
use crate::sync::oneshot;
use crate::url::HarnessUrl;

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
    accepting: Arc<Mutex<Option<Accepting>>>,
    /// Dropped with this, which ends the task.
    _stop: oneshot::Sender<()>,
}

/// What listens, and who serves what comes.
struct Accepting {
    listener: Box<dyn Listener>,
    serve: Box<dyn Fn(Box<dyn Stream>) + Send>,
}

impl fmt::Debug for Accepting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accepting").field("listener", &self.listener).finish_non_exhaustive()
    }
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

    /// Stops listening, as dropping it does: the endpoint is free when this comes back.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let accepting = lock(&self.accepting).take();
        drop(accepting);
    }
}

fn lock(accepting: &Mutex<Option<Accepting>>) -> MutexGuard<'_, Option<Accepting>> {
    // Nothing under the lock is left half done.
    accepting.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) async fn bind(runtime: &dyn Runtime, on: &Endpoint) -> Result<Box<dyn Listener>, ListenError> {
    runtime.listen(on).await.map_err(|source| ListenError { endpoint: on.clone(), source })
}

/// Serves what is accepted until the returned handle is stopped or dropped. `serve` must not block.
pub(crate) fn serve(
    runtime: &Arc<dyn Runtime>,
    listener: Box<dyn Listener>,
    serve: impl Fn(Box<dyn Stream>) + Send + 'static,
) -> Listening {
    let endpoint = listener.local_endpoint().clone();
    let accepting = Arc::new(Mutex::new(Some(Accepting { listener, serve: Box::new(serve) })));
    let (stop, stopping) = oneshot::channel();
    let task = accept_until(Arc::clone(runtime), Arc::clone(&accepting), stopping);
    runtime.spawn(Box::pin(task));
    tracing::info!(%endpoint, "listening");
    Listening { endpoint, accepting, _stop: stop }
}

async fn accept_until(
    runtime: Arc<dyn Runtime>,
    accepting: Arc<Mutex<Option<Accepting>>>,
    stopping: oneshot::Receiver<()>,
) {
    let mut stopping = pin!(stopping);
    loop {
        let accepted = poll_fn(|cx| {
            if stopping.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            // Served under the lock: nothing is served any more once it was stopped.
            let mut accepting = lock(&accepting);
            let Some(Accepting { listener, serve }) = accepting.as_mut() else { return Poll::Ready(None) };
            let accepted = ready!(listener.poll_accept(cx));
            Poll::Ready(Some(accepted.map(|(stream, peer)| {
                tracing::debug!(%peer, "connection");
                serve(stream);
            })))
        });
        match accepted.await {
            None => return,
            Some(Ok(())) => {}
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot accept a connection");
                sleep_until(runtime.as_ref(), runtime.now() + ACCEPT_PAUSE).await;
            }
        }
    }
}
