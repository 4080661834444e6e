//! The accepting end of an upgrade, and a connection's last moments: what is done with a connection that no
//! machine drives.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bma_proto_core::Time;
use bma_proto_core::harness::Principal;
use bma_proto_core::websocket::{Output, Target, UpgradeRequest};

use crate::connect::before;
use crate::harness::Authenticator;
use crate::runtime::{Runtime, Timer};
use crate::task;
use crate::wire::{Progress, Wire};

/// Room for a number of connections that no machine drives yet.
#[derive(Debug)]
pub(crate) struct Places {
    taken: Arc<AtomicUsize>,
    bound: usize,
}

/// One of them. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Arc<AtomicUsize>,
}

impl Places {
    pub(crate) fn new(bound: usize) -> Self {
        Self { taken: Arc::default(), bound }
    }

    /// A place, unless all are taken.
    pub(crate) fn take(&self) -> Option<Place> {
        let place = Place { taken: Arc::clone(&self.taken) };
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        (taken < self.bound).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Somebody who was let in: [`Channel::accept`](bma_proto_core::websocket::Channel::accept) is what is left to do.
pub(crate) struct Admitted {
    pub(crate) principal: Principal,
    /// The two ends share a subprotocol. Otherwise accepting tells the peer so, and closes.
    pub(crate) speaks: bool,
}

/// Waits for the upgrade's request and has its credential checked. `None` when it came to nothing, and the
/// channel has said why.
pub(crate) async fn admit(
    authenticator: &Authenticator,
    runtime: &dyn Runtime,
    timer: &mut dyn Timer,
    wire: &mut Wire,
    deadline: Time,
) -> Option<Admitted> {
    let request = next(runtime, timer, wire, deadline, request_of).await?;
    if let Target::Mcp { .. } = request.target {
        let _ = wire.channel().refuse(runtime.now(), 501, "mcp channels are not served here");
        return None;
    }
    let speaks = request.protocol.is_some();
    timer.set(Some(deadline));
    let asked = task::catching(|| authenticator.authenticate(*request));
    let answer = before(timer, asked).await;
    // The client may have gone meanwhile: then there is nobody to answer.
    match answer {
        Some(Ok(Ok(principal))) => Some(Admitted { principal, speaks }),
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

/// Drives a connection until it gives what is wanted. `None` when it ends first, or the time is over.
pub(crate) async fn next<T>(
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
pub(crate) async fn goodbye(runtime: &dyn Runtime, mut wire: Wire) {
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
