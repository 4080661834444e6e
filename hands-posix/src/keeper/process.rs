//! The process of a keeper, as the program that it serves holds it.
//!
//! A command is a child of the keeper and runs as the same user, so it can stop or kill it. What holds all the same:
//!
//! - **Stopped**, it is let go on at once, by a thread that waits for nothing else. So no command holds up another.
//! - **Given up** (it did not answer in time, or is dropped), it is told by the end of its socket to end everything
//!   and to exit; one that has not done so in time is killed. SIGKILL reaches a stopped process, too.
//! - **What it has started ends with it**, however it ended: nobody could tell of an exit any more, and the next
//!   keeper would not know of it after a `kill -9` of the program. The trees are ended from here, by what they are
//!   known by. Their processes have no parent-death signal: that would reach the leaders alone.
//! - **After a `kill -9` of the program** there is nobody left to let it go on, and to kill it would leave its children
//!   to themselves. So its own parent-death signal is SIGCONT, which the kernel sends when the program dies: a stopped
//!   keeper goes on, finds its socket at the end, and cleans up. That a thread's end sends it too does no harm.
//!
//! Out of reach is what stops it once more after the program was killed, and what kills both.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bma_hands::os::{Processes as _, Signal};
use rustix::process::{WaitId, WaitIdOptions};

use crate::signal;
use crate::tree::Tree;

/// How long it is tried to end what a keeper has left, and how long between two looks.
const SWEEP_LIMIT: Duration = Duration::from_secs(10);
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// A keeper's process.
#[derive(Debug)]
pub(super) struct KeeperProcess {
    fd: OwnedFd,
}

/// The trees that a keeper has started, as far as anybody holds them.
#[derive(Debug, Default)]
pub(super) struct Trees {
    state: Mutex<TreesState>,
}

#[derive(Debug, Default)]
struct TreesState {
    trees: Vec<Weak<Tree>>,
    /// The keeper has ended.
    ended: bool,
}

impl KeeperProcess {
    /// Takes a child that was just started, and minds it until its end: then ends what it has started.
    pub(super) fn mind(mut child: Child, trees: Arc<Trees>) -> io::Result<Self> {
        let minded = open(&child).and_then(|fd| {
            let minded = fd.try_clone()?;
            let thread = std::thread::Builder::new().name("bma-keeper".into()).stack_size(128 * 1024);
            thread.spawn(move || {
                wait_for_end(&minded);
                trees.end();
            })?;
            Ok(Self { fd })
        });
        minded.inspect_err(|_| {
            // Neither can fail in a way that matters: it is our child, and it ends.
            let _ = child.kill();
            let _ = child.wait();
        })
    }

    /// Sees to it that a keeper which was told to end does so within `limit`. Does not wait for it.
    pub(super) fn retire(self, limit: Duration) {
        let fd = Arc::new(self.fd);
        let watched = Arc::clone(&fd);
        let thread = std::thread::Builder::new().name("bma-keeper-end".into()).stack_size(128 * 1024);
        let started = thread.spawn(move || {
            let _ = signal::signal_process(&watched, rustix::process::Signal::CONT);
            if !readable_within(&watched, limit) {
                tracing::warn!("a keeper that was given up does not end: it is killed");
                kill(&watched);
            }
        });
        if started.is_err() {
            kill(&fd);
        }
    }
}

fn open(child: &Child) -> io::Result<OwnedFd> {
    signal::open_process(child.id().cast_signed())?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn kill(keeper: impl AsFd) {
    // When it is gone there is nothing to do, and nobody but our own child is meant.
    let _ = signal::signal_process(keeper, rustix::process::Signal::KILL);
}

/// Whether a descriptor becomes readable within the limit; a process's is so when it has ended.
pub(crate) fn readable_within(fd: impl AsFd, limit: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Limits are seconds: that fits.
        let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Waits for the end of a keeper, lets it go on whenever somebody stops it, and collects its status.
fn wait_for_end(keeper: &OwnedFd) {
    let mut told = false;
    loop {
        match rustix::process::waitid(WaitId::PidFd(keeper.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::STOPPED) {
            Ok(Some(status)) if status.stopped() => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!("the keeper was stopped by a signal: it is let go on, now and each time");
                }
                // When it is gone, the next look says so.
                let _ = signal::signal_process(keeper, rustix::process::Signal::CONT);
            }
            Err(rustix::io::Errno::INTR) => {}
            // It has ended; or somebody else has collected its status.
            Ok(_) | Err(_) => return,
        }
    }
}

impl Trees {
    fn lock(&self) -> MutexGuard<'_, TreesState> {
        // What is behind the lock is whole at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a tree.
    pub(super) fn remember(&self, tree: &Arc<Tree>) {
        let mut state = self.lock();
        if state.ended {
            drop(state);
            // An error shows again when the tree's members are asked for.
            let _ = tree.signal(Signal::Kill);
            return;
        }
        state.trees.retain(|tree| tree.strong_count() > 0);
        state.trees.push(Arc::downgrade(tree));
    }

    /// Those that are still held.
    pub(super) fn held(&self) -> Vec<Arc<Tree>> {
        self.lock().trees.iter().filter_map(Weak::upgrade).collect()
    }

    /// Ends all of them, for their keeper has ended.
    fn end(&self) {
        self.lock().ended = true;
        let started = Instant::now();
        let mut trees = self.held();
        let mut looks = 0;
        // What was forked during one look is found by the next.
        while !trees.is_empty() && looks < 2 && started.elapsed() < SWEEP_LIMIT {
            let lives = |tree: &Arc<Tree>| {
                let _ = tree.signal(Signal::Kill);
                tree.members().is_ok_and(|members| !members.is_empty())
            };
            looks = if trees.iter().filter(|tree| lives(tree)).count() == 0 { looks + 1 } else { 0 };
            std::thread::sleep(SWEEP_PAUSE);
            trees.retain(|tree| Arc::strong_count(tree) > 1);
        }
    }
}
