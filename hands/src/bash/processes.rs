//! What the calls of one session have started.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bma_runtime::sync::StateCell;
use bma_runtime::{CancelReason, Canceler, Cancellation, Runtime};

use super::ending::{EndReport, KILL_LIMIT, TERMINATE_GRACE, end_trees};
use crate::os::{Leftover, Mark, Os, ProcessTree, Processes, Signal};

/// The most trees of a session, running or left behind.
pub const MAX_TREES: usize = 64;

/// The processes of one session: those of running calls, and what finished calls left behind.
///
/// A cheap clone. Everything that it knows is ended by [`end_all`](Self::end_all), which the session's end must
/// call; dropping the last handle kills what is left, without waiting.
#[derive(Clone, Debug)]
pub struct SessionProcesses {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// What all trees of the session bear, and so what escaped from one too.
    mark: Option<Mark>,
    marked: Option<Arc<dyn Processes>>,
    stop: Canceler,
    /// Canceled when nothing of the session is waited for any more: its pipes may be closed.
    over: Canceler,
    trees: Mutex<Trees>,
    /// How many calls are running.
    running: StateCell<usize>,
}

#[derive(Debug, Default)]
struct Trees {
    /// Anything was ever started.
    used: bool,
    running: usize,
    left: Vec<Arc<dyn ProcessTree>>,
}

/// A call that runs. Dropping it says that the call is over.
#[derive(Debug)]
pub(super) struct Running {
    inner: Arc<Inner>,
}

/// Why a call may not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The session stops.
    Stopping,
    /// There are [`MAX_TREES`] already.
    Full,
}

impl SessionProcesses {
    /// A session without processes, on the system that its calls use.
    pub fn new(os: &dyn Os) -> Self {
        // Without a mark, what left its tree unseen is not found at the session's end; everything else is.
        let mark = os.new_mark().ok();
        let marked = mark.as_ref().map(|mark| os.marked(mark));
        let (stop, _) = Canceler::new();
        let (over, _) = Canceler::new();
        let running = StateCell::new(0);
        Self { inner: Arc::new(Inner { mark, marked, stop, over, trees: Mutex::default(), running }) }
    }

    /// How many trees there are: of running calls, and left behind by finished ones.
    pub fn count(&self) -> usize {
        let trees = self.inner.trees();
        trees.running + trees.left.len()
    }

    /// Asks running calls to stop, ends everything that calls left behind, and refuses new calls from now on.
    /// Returns when nothing is left, or when `limit` has passed; then it says what could not be ended.
    ///
    /// Dropping the future stops the wait and the killing of what was left behind; call it again to go on.
    pub async fn end_all(&self, runtime: &Arc<dyn Runtime>, limit: Duration) -> EndReport {
        let report = self.end_within(runtime, limit).await;
        self.inner.over.cancel(CancelReason::SessionStopped);
        report
    }

    async fn end_within(&self, runtime: &Arc<dyn Runtime>, limit: Duration) -> EndReport {
        let deadline = runtime.now() + limit;
        self.inner.stop.cancel(CancelReason::SessionStopped);
        // Running calls end their own trees, and leave behind what they could not end.
        let calls = self.inner.running.wait_for(|running| *running == 0);
        let _ = crate::blocking::either(calls, crate::blocking::sleep_until(runtime, deadline)).await;
        let (used, left) = {
            let trees = self.inner.trees();
            (trees.used, trees.left.clone())
        };
        if !used {
            return EndReport::default();
        }
        let grace = TERMINATE_GRACE.min(limit / 2);
        let mut report = EndReport::default();
        // What escaped unseen comes second, so that nobody is asked twice to end.
        let left = left.into_iter().map(|tree| tree as Arc<dyn Processes>).collect();
        for processes in [left, self.inner.marked.iter().cloned().collect::<Vec<_>>()] {
            match end_trees(runtime, processes, grace, deadline).await {
                Ok(one) => report.add(one),
                Err(ended) => report.unknown = Some(ended.to_string()),
            }
        }
        if report.is_empty() {
            let trees = std::mem::take(&mut self.inner.trees().left);
            trees.iter().for_each(|tree| {
                tree.release();
            });
        }
        if self.inner.trees().running > 0 {
            report.unknown = Some("a call did not stop in time".to_owned());
        }
        report
    }

    /// What the session's trees have in common.
    pub(super) fn mark(&self) -> Option<Mark> {
        self.inner.mark.clone()
    }

    /// Asked to stop when the session does.
    pub(super) fn stopped(&self) -> Cancellation {
        self.inner.stop.cancellation()
    }

    /// Canceled when the pipes that the session still reads may be closed.
    pub(super) fn over(&self) -> Cancellation {
        self.inner.over.cancellation()
    }

    /// Takes up a call, unless the session stops or is full.
    pub(super) fn admit(&self) -> Result<Running, Refused> {
        if self.stopped().is_canceled() {
            return Err(Refused::Stopping);
        }
        let mut trees = self.inner.trees();
        if trees.running + trees.left.len() >= MAX_TREES {
            // Some of what was left behind may have ended by itself.
            trees.left.retain(|tree| tree.release() == Leftover::Possible);
        }
        if trees.running + trees.left.len() >= MAX_TREES {
            return Err(Refused::Full);
        }
        trees.running += 1;
        trees.used = true;
        self.inner.running.replace(trees.running);
        drop(trees);
        let running = Running { inner: self.inner.clone() };
        // A stop between the look and the taking up waits for this call, so it must see the stop.
        if self.stopped().is_canceled() { Err(Refused::Stopping) } else { Ok(running) }
    }
}

impl Inner {
    fn trees(&self) -> MutexGuard<'_, Trees> {
        // What is behind the lock is whole at every step.
        self.trees.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let left = std::mem::take(&mut self.trees().left);
        if !left.is_empty() {
            // Nobody is left to hear of an error, or to wait.
            left.iter().for_each(|tree| drop(tree.signal(Signal::Kill)));
            self.marked.iter().for_each(|marked| drop(marked.signal(Signal::Kill)));
        }
        self.over.cancel(CancelReason::SessionStopped);
    }
}

impl Running {
    /// The call is over, but not all that it started: the session keeps it.
    pub(super) fn leave_behind(self, tree: Arc<dyn ProcessTree>) {
        self.inner.trees().left.push(tree);
    }

    /// Asked to stop when the session does.
    pub(super) fn stopped(&self) -> Cancellation {
        self.inner.stop.cancellation()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut trees = self.inner.trees();
        trees.running -= 1;
        self.inner.running.replace(trees.running);
    }
}

/// How long ending a tree may take at most.
pub(super) fn end_limit() -> Duration {
    TERMINATE_GRACE + KILL_LIMIT
}
