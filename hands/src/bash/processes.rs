//! What the calls of one session have started.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bma_runtime::sync::StateCell;
use bma_runtime::{CancelReason, Canceler, Cancellation, Runtime};

use super::BashError;
use super::ending::{EndReport, KILL_LIMIT, TERMINATE_GRACE, end_trees};
use crate::blocking::{RuntimeEnded, blocking};
use crate::os::{Leftover, Mark, Os, ProcessTree, Processes, Signal};

/// The most trees of a session, running or left behind.
pub const MAX_TREES: usize = 64;

/// The processes of one session: those of running calls, and what finished calls left behind.
///
/// A cheap clone. Everything that it knows is ended by [`end_all`](Self::end_all), which the session's end must
/// call; dropping the last handle kills what is left on a thread of its own, without waiting for it.
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
    /// Anything was started, and not everything is known to be gone.
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
            let trees = {
                let mut trees = self.inner.trees();
                trees.used = trees.running > 0;
                std::mem::take(&mut trees.left)
            };
            let released = blocking(runtime, move || {
                for tree in trees {
                    tree.release();
                }
            });
            let released = released.await;
            report.unknown = released.err().map(|ended| ended.to_string());
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
    pub(super) async fn admit(&self, runtime: &Arc<dyn Runtime>) -> Result<Running, BashError> {
        let mut admitted = self.try_admit();
        if matches!(admitted, Err(Refused::Full)) {
            self.forget_ended(runtime).await?;
            admitted = self.try_admit();
        }
        Ok(admitted?)
    }

    fn try_admit(&self) -> Result<Running, Refused> {
        if self.stopped().is_canceled() {
            return Err(Refused::Stopping);
        }
        let mut trees = self.inner.trees();
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

    /// Some of what was left behind may have ended by itself.
    async fn forget_ended(&self, runtime: &Arc<dyn Runtime>) -> Result<(), RuntimeEnded> {
        let mut looked_at = self.inner.trees().left.clone();
        let ended = blocking(runtime, move || {
            looked_at.retain(|tree| tree.release() == Leftover::None);
            looked_at
        });
        let ended = ended.await?;
        self.inner.trees().left.retain(|tree| !ended.iter().any(|gone| Arc::ptr_eq(gone, tree)));
        Ok(())
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
        self.over.cancel(CancelReason::SessionStopped);
        let trees = std::mem::take(&mut *self.trees());
        if !trees.used {
            return;
        }
        let left = trees.left;
        let marked = self.marked.take();
        // Nobody is left to hear of an error, or to wait.
        let kill = Arc::new(move || {
            left.iter().for_each(|tree| drop(tree.signal(Signal::Kill)));
            marked.iter().for_each(|marked| drop(marked.signal(Signal::Kill)));
        });
        // They are looked for among all processes, which takes too long for a thread that drives tasks, where this
        // may be. The runtime's own threads may be ending.
        let there = Arc::clone(&kill);
        if std::thread::Builder::new().name("bma-end".into()).spawn(move || there()).is_err() {
            kill();
        }
    }
}

impl Running {
    /// The call is over, but not all that it started: the session keeps it.
    pub(super) fn leave_behind(self, tree: Arc<dyn ProcessTree>) {
        self.inner.trees().left.push(tree);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use std::ffi::OsString;
    use std::io;
    use std::path::Path;
    use std::sync::mpsc;

    use super::*;
    use crate::os::{Directory, Exit, Member, SpawnError, SpawnRequest, Spawned, StatusLost};

    /// A system, and a program that still runs on it. To find its members takes until it is told to go on.
    #[derive(Clone, Debug)]
    struct Slow {
        go_on: Arc<Mutex<mpsc::Receiver<()>>>,
        killed: mpsc::Sender<bool>,
    }

    impl Os for Slow {
        fn shell(&self) -> &str {
            "sh"
        }
        fn shell_argv(&self, _: &str) -> Vec<OsString> {
            Vec::new()
        }
        fn max_command_bytes(&self) -> usize {
            0
        }
        fn open_directory(&self, _: &Path) -> Result<Directory, SpawnError> {
            Err(SpawnError::NoCommand)
        }
        fn spawn(&self, _: SpawnRequest) -> Result<Spawned, SpawnError> {
            Err(SpawnError::NoCommand)
        }
        fn new_mark(&self) -> io::Result<Mark> {
            Ok(Mark::new("mark"))
        }
        fn marked(&self, _: &Mark) -> Arc<dyn Processes> {
            Arc::new(self.clone())
        }
    }

    impl Processes for Slow {
        fn signal(&self, signal: Signal) -> io::Result<()> {
            assert_eq!(signal, Signal::Kill);
            let in_time = self.go_on.lock().unwrap().recv_timeout(Duration::from_secs(20)).is_ok();
            self.killed.send(in_time).unwrap();
            Ok(())
        }
        fn members(&self) -> io::Result<Vec<Member>> {
            Ok(Vec::new())
        }
    }

    impl ProcessTree for Slow {
        fn id(&self) -> u32 {
            7
        }
        fn try_wait(&self) -> Result<Option<Exit>, StatusLost> {
            Ok(None)
        }
        fn release(&self) -> Leftover {
            Leftover::Possible
        }
    }

    #[test]
    fn dropping_a_session_kills_what_is_left_and_keeps_no_thread_waiting() {
        let ((go, go_on), (killed, kills)) = (mpsc::channel(), mpsc::channel());
        let slow = Slow { go_on: Arc::new(Mutex::new(go_on)), killed };
        let processes = SessionProcesses::new(&slow);
        processes.try_admit().unwrap().leave_behind(Arc::new(slow.clone()));
        assert_eq!(processes.count(), 1);
        drop(processes);
        // Both are told to go on only now: had the drop waited for either, it would have waited in vain.
        for what in ["what was left behind", "what bears the mark"] {
            go.send(()).unwrap();
            assert!(kills.recv().unwrap(), "{what}");
        }

        // A session in which nothing was started looks for nothing.
        drop(SessionProcesses::new(&slow));
        drop(slow);
        assert!(kills.recv().is_err());
    }
}
