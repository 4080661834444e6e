//! Asking work to stop, and saying why.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Why work is asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CancelReason {
    /// The harness canceled the call.
    Canceled,
    /// The call's deadline has passed.
    Deadline,
    /// The session that the work belongs to stops.
    SessionStopped,
    /// The client that serves the work stops.
    ClientStopped,
}

impl fmt::Display for CancelReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CancelReason::Canceled => "canceled",
            CancelReason::Deadline => "deadline passed",
            CancelReason::SessionStopped => "session stopped",
            CancelReason::ClientStopped => "client stopped",
        })
    }
}

/// The end that asks. Dropping it asks for nothing: the work goes on.
#[derive(Debug)]
pub struct Canceler(Arc<Shared>);

/// The end that is asked: a cheap clone, to look at or to wait for.
#[derive(Clone, Debug)]
pub struct Cancellation(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    reason: Option<CancelReason>,
    /// One slot for each waiting future; a future frees its own when it is dropped.
    waiting: Vec<Option<Waker>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that runs under the lock can leave the state half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Canceler {
    /// A new pair: the end that asks and the end that is asked.
    pub fn new() -> (Canceler, Cancellation) {
        let shared = Arc::new(Shared::default());
        (Canceler(shared.clone()), Cancellation(shared))
    }

    /// Asks for the stop. The first reason stays; returns whether this was the first.
    pub fn cancel(&self, reason: CancelReason) -> bool {
        let woken = {
            let mut state = self.0.lock();
            if state.reason.is_some() {
                return false;
            }
            state.reason = Some(reason);
            std::mem::take(&mut state.waiting)
        };
        woken.into_iter().flatten().for_each(Waker::wake);
        true
    }

    /// Another handle of the end that asks.
    pub(crate) fn share(&self) -> Self {
        Canceler(self.0.clone())
    }

    /// Another handle of the end that is asked.
    pub fn cancellation(&self) -> Cancellation {
        Cancellation(self.0.clone())
    }
}

impl Cancellation {
    /// One that is never canceled.
    pub fn never() -> Self {
        Cancellation(Arc::default())
    }

    /// Why the stop was asked for; `None` while it was not.
    pub fn reason(&self) -> Option<CancelReason> {
        self.0.lock().reason
    }

    /// Whether the stop was asked for.
    pub fn is_canceled(&self) -> bool {
        self.reason().is_some()
    }

    /// Waits until the stop is asked for, and says why. Dropping the future
    /// abandons the wait and nothing else.
    pub fn canceled(&self) -> Canceled {
        Canceled { shared: self.0.clone(), slot: None }
    }
}

/// The future of [`Cancellation::canceled`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Canceled {
    shared: Arc<Shared>,
    slot: Option<usize>,
}

impl Future for Canceled {
    type Output = CancelReason;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CancelReason> {
        let shared = self.shared.clone();
        let mut state = shared.lock();
        if let Some(reason) = state.reason {
            return Poll::Ready(reason);
        }
        let slot = match self.slot {
            Some(slot) => slot,
            None => {
                let slot = state.waiting.iter().position(Option::is_none).unwrap_or(state.waiting.len());
                if slot == state.waiting.len() {
                    state.waiting.push(None);
                }
                self.slot = Some(slot);
                slot
            }
        };
        match &mut state.waiting[slot] {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Canceled {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        // After the stop the list is gone, and with it the slot.
        if let Some(waker) = self.shared.lock().waiting.get_mut(slot) {
            *waker = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn first_reason_stays_and_everyone_is_woken() {
        let (canceler, cancellation) = Canceler::new();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut one = cancellation.canceled();
        let mut two = cancellation.clone().canceled();
        assert!(Pin::new(&mut one).poll(&mut cx).is_pending());
        assert!(Pin::new(&mut two).poll(&mut cx).is_pending());
        assert_eq!(cancellation.reason(), None);

        assert!(canceler.cancel(CancelReason::SessionStopped));
        assert!(!canceler.cancel(CancelReason::Canceled));
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        assert_eq!(Pin::new(&mut one).poll(&mut cx), Poll::Ready(CancelReason::SessionStopped));
        assert_eq!(canceler.cancellation().reason(), Some(CancelReason::SessionStopped));
    }

    #[test]
    fn abandoned_waits_leave_nothing_behind() {
        let (canceler, cancellation) = Canceler::new();
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..1_000 {
            let mut wait = cancellation.canceled();
            assert!(Pin::new(&mut wait).poll(&mut cx).is_pending());
        }
        assert!(canceler.0.lock().waiting.len() <= 1);
        drop(canceler);
        assert!(!cancellation.is_canceled());
    }
}
