//! A program and everything that it started.

use std::collections::BTreeMap;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bma_hands::os::{Exit, Leftover, Member, ProcessTree, Processes, Signal, StatusLost};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus};

#[cfg(target_os = "linux")]
use crate::keeper::{Connection, Keeper, client};
use crate::proc_table::{self, Process, Traits};
use crate::signal::{self, Group};

/// Every member of a tree has this variable, unless it dropped it: a list of random texts parted by commas,
/// one for each tree that it belongs to (an executor may run inside another's tree).
pub(crate) const MARKER_VARIABLE: &str = "BMA_TREE";

/// No more members are remembered than this; past it they are found by the other traits alone.
const MAX_KNOWN: usize = 65_536;

/// A program and everything that it started.
#[derive(Debug)]
pub(crate) struct Tree {
    leader: i32,
    /// Means the leader and nobody else, for ever.
    #[cfg(target_os = "linux")]
    leader_fd: OwnedFd,
    parent: Parent,
    exit: Mutex<Option<Result<Exit, StatusLost>>>,
    state: Mutex<State>,
}

/// Whose child the leader is.
#[derive(Debug)]
pub(crate) enum Parent {
    /// Ours.
    Us,
    /// The keeper's, which keeps the status until it is told to release it.
    #[cfg(target_os = "linux")]
    Keeper {
        connection: Arc<Connection>,
        status: OwnedFd,
        /// When the program began, as the process table counts it, or a little earlier.
        began: u64,
    },
}

#[derive(Debug)]
struct State {
    /// The leader's status was collected: its number may mean somebody else.
    released: bool,
    search: Search,
}

/// Finding members again and again.
#[derive(Debug)]
struct Search {
    marker: String,
    known: BTreeMap<i32, u64>,
}

impl Search {
    fn new(marker: String) -> Self {
        Self { marker, known: BTreeMap::new() }
    }

    /// The living members. `leader` is the leader's id as long as that can mean nobody else.
    fn find(&mut self, leader: Option<i32>) -> io::Result<Vec<Process>> {
        let found = proc_table::find(&Traits { leader, marker: &self.marker, known: &self.known })?;
        self.known = found.iter().take(MAX_KNOWN).map(|process| (process.id, process.began)).collect();
        Ok(found)
    }

    /// Whether a member of the last search lives still: quicker than another search.
    fn known_lives(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.known.iter().any(|(&id, &began)| proc_table::read(id).is_some_and(|one| one.began == began));
        #[cfg(not(target_os = "linux"))]
        return false;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind the locks is whole at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tree {
    #[cfg(target_os = "linux")]
    pub(crate) fn new(leader: i32, leader_fd: OwnedFd, marker: String, parent: Parent) -> Self {
        let state = Mutex::new(State { released: false, search: Search::new(marker) });
        Self { leader, leader_fd, parent, exit: Mutex::default(), state }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(leader: i32, marker: String, parent: Parent) -> Self {
        let state = Mutex::new(State { released: false, search: Search::new(marker) });
        Self { leader, parent, exit: Mutex::default(), state }
    }

    fn wait_id(&self) -> WaitId<'_> {
        #[cfg(target_os = "linux")]
        return WaitId::PidFd(std::os::fd::AsFd::as_fd(&self.leader_fd));
        #[cfg(not(target_os = "linux"))]
        return WaitId::Pid(rustix::process::Pid::from_raw(self.leader).unwrap_or(rustix::process::getpid()));
    }

    fn look(&self) -> Result<Option<Exit>, StatusLost> {
        match &self.parent {
            Parent::Us => look(self.wait_id(), self.leader),
            #[cfg(target_os = "linux")]
            Parent::Keeper { status, .. } => {
                client::read_status(status).map_err(|_| StatusLost { id: self.leader.cast_unsigned() })
            }
        }
    }

    /// Collects the leader's status, which is known. Whether orphans were adopted, perhaps of this tree.
    fn reap(&self) -> bool {
        match &self.parent {
            Parent::Us => {
                // Nothing to do about an error: somebody else has collected it.
                let _ = rustix::process::waitid(self.wait_id(), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
                false
            }
            // A keeper that is gone has left its orphans to nobody: they must be looked for.
            #[cfg(target_os = "linux")]
            Parent::Keeper { connection, .. } => connection.release(self.leader).unwrap_or(true),
        }
    }

    /// Signals the leader's group. `false`: there is no way to any more, and nobody was signalled.
    fn signal_group(&self, state: &mut State, signal: rustix::process::Signal) -> io::Result<bool> {
        #[cfg(target_os = "linux")]
        if signal::signal_group_of(&self.leader_fd, signal)? {
            return Ok(true);
        }
        let may_use_id = self.may_use_id(state);
        if may_use_id {
            Group::led_by(self.leader)?.signal(signal)?;
        }
        Ok(may_use_id)
    }

    /// Whether the leader's number still means the leader.
    fn may_use_id(&self, state: &mut State) -> bool {
        let lost = match &self.parent {
            Parent::Us => self.look().is_err(),
            // The status is told once, and it is lost when the keeper is.
            #[cfg(target_os = "linux")]
            Parent::Keeper { .. } => self.try_wait().is_err(),
        };
        if lost {
            // Somebody else reaped the leader: from now on its number may mean anybody.
            state.released = true;
        }
        !state.released
    }

    /// As `try_wait`, but the status of a leader that has exited is waited for, if it is still on its way.
    fn wait_if_exited(&self) -> Result<Option<Exit>, StatusLost> {
        let known = self.try_wait()?;
        #[cfg(target_os = "linux")]
        if let (None, Parent::Keeper { connection, status, .. }) = (&known, &self.parent)
            && crate::keeper::readable_within(&self.leader_fd, std::time::Duration::ZERO)
        {
            connection.wait_for_status(status);
            // It is read in one place only, so that nobody finds the pipe empty that another has just emptied.
            let told = self.try_wait()?;
            let lost = Err(StatusLost { id: self.leader.cast_unsigned() });
            return lock(&self.exit).get_or_insert(told.ok_or(()).or(lost)).clone().map(Some);
        }
        Ok(known)
    }

    /// Whether this process is a member.
    #[cfg(target_os = "linux")]
    pub(crate) fn knows(&self, process: &Process) -> bool {
        let found = self.find(&mut lock(&self.state)).unwrap_or_default();
        found.iter().any(|member| (member.id, member.began) == (process.id, process.began))
    }

    fn find(&self, state: &mut State) -> io::Result<Vec<Process>> {
        let leader = self.may_use_id(state).then_some(self.leader);
        state.search.find(leader)
    }
}

/// Signals every living descendant of a process.
#[cfg(target_os = "linux")]
pub(crate) fn signal_descendants(ancestor: i32, signal: Signal) -> io::Result<()> {
    let signals = native(signal)?;
    proc_table::descendants(ancestor)?.iter().try_for_each(|process| signal_member(process, signals))
}

/// Signals one process that was found, unless it is gone.
#[cfg(target_os = "linux")]
fn signal_member(member: &Process, signals: &[rustix::process::Signal]) -> io::Result<()> {
    let Some(fd) = signal::open_process(member.id)? else { return Ok(()) };
    // Between the look and the opening the number may have come to mean another process.
    if proc_table::read(member.id).is_none_or(|process| process.began != member.began) {
        return Ok(());
    }
    signals.iter().try_for_each(|&signal| signal::signal_process(&fd, signal))
}

#[cfg(not(target_os = "linux"))]
fn signal_member(_: &Process, _: &[rustix::process::Signal]) -> io::Result<()> {
    Ok(())
}

/// How the child exited, without taking its status.
pub(crate) fn look(child: WaitId<'_>, id: i32) -> Result<Option<Exit>, StatusLost> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match rustix::process::waitid(child, options) {
        Ok(status) => Ok(status.map(|status| exit_of(&status))),
        Err(_) => Err(StatusLost { id: id.cast_unsigned() }),
    }
}

fn exit_of(status: &WaitIdStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code.into()),
        (None, number) => {
            let number = number.unwrap_or(0);
            Exit::Signal { number, name: signal::name(number), core_dumped: status.dumped() }
        }
    }
}

impl Processes for Tree {
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let signals = native(signal)?;
        let mut state = lock(&self.state);
        // Found before anything is signalled: a member that loses its parent to the signal is known by then.
        let members = if signal == Signal::Interrupt { Ok(Vec::new()) } else { self.find(&mut state) };
        let mut group_has_it = true;
        for &one in signals {
            group_has_it &= self.signal_group(&mut state, one)?;
        }
        for member in members? {
            // Nobody is asked to end twice. What leads a group of its own by now, under the number of a leader that is
            // gone, may have been missed: nobody minds to be killed twice.
            if member.group != self.leader || !group_has_it || signal == Signal::Kill {
                signal_member(&member, signals)?;
            }
        }
        Ok(())
    }

    fn members(&self) -> io::Result<Vec<Member>> {
        Ok(named(self.find(&mut lock(&self.state))?))
    }

    #[cfg(target_os = "linux")]
    fn strays(&self) -> Vec<Member> {
        match &self.parent {
            Parent::Us => Vec::new(),
            Parent::Keeper { connection, began, .. } => connection.strays(*began),
        }
    }
}

impl ProcessTree for Tree {
    fn id(&self) -> u32 {
        self.leader.cast_unsigned()
    }

    fn try_wait(&self) -> Result<Option<Exit>, StatusLost> {
        let mut exit = lock(&self.exit);
        if exit.is_none() {
            *exit = self.look().transpose();
        }
        exit.clone().transpose()
    }

    fn release(&self) -> Leftover {
        if matches!(self.wait_if_exited(), Ok(None)) {
            return Leftover::Possible;
        }
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.released, true) {
            // The number may mean a stranger's group by now. An error means that it is not known.
            let runs = state.search.known_lives() || state.search.find(None).map_or(true, |found| !found.is_empty());
            return if runs { Leftover::Possible } else { Leftover::None };
        }
        let adopted = self.reap();
        // Somebody of the group is there, so at this moment its number means the group and nothing else: the last
        // chance to learn by it who is in it. It may be the dead alone, where whoever adopts orphans (a container's
        // first process, say) does not collect them; one look is not a moment in time, so it takes two to say that.
        let group = Group::led_by(self.leader).is_ok_and(Group::has_any)
            && (0..2).any(|_| state.search.find(Some(self.leader)).map_or(true, |found| !found.is_empty()));
        if group || adopted { Leftover::Possible } else { Leftover::None }
    }
}

/// Everything that bears a mark.
#[derive(Debug)]
pub(crate) struct Marked {
    search: Mutex<Search>,
    #[cfg(target_os = "linux")]
    keeper: Option<(Arc<Keeper>, u64)>,
}

impl Marked {
    /// With the keeper, if there is one, that may have adopted some of it.
    #[cfg(target_os = "linux")]
    pub(crate) fn new(marker: &str, keeper: Option<Arc<Keeper>>) -> Self {
        let keeper = keeper.map(|keeper| (keeper, proc_table::now()));
        Self { search: Mutex::new(Search::new(marker.to_owned())), keeper }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new(marker: &str) -> Self {
        Self { search: Mutex::new(Search::new(marker.to_owned())) }
    }
}

impl Processes for Marked {
    fn signal(&self, signal: Signal) -> io::Result<()> {
        let signals = native(signal)?;
        lock(&self.search).find(None)?.iter().try_for_each(|member| signal_member(member, signals))
    }

    fn members(&self) -> io::Result<Vec<Member>> {
        Ok(named(lock(&self.search).find(None)?))
    }

    #[cfg(target_os = "linux")]
    fn strays(&self) -> Vec<Member> {
        self.keeper.as_ref().map(|(keeper, since)| keeper.strays(*since)).unwrap_or_default()
    }
}

/// What the system knows it as.
pub(crate) fn native(signal: Signal) -> io::Result<&'static [rustix::process::Signal]> {
    use rustix::process::Signal as Native;
    match signal {
        Signal::Interrupt => Ok(&[Native::INT]),
        // A stopped process gets the one when it goes on.
        Signal::Terminate => Ok(&[Native::TERM, Native::CONT]),
        Signal::Kill => Ok(&[Native::KILL]),
        // The trait may grow; what is not known here is not sent.
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

fn named(found: Vec<Process>) -> Vec<Member> {
    found.into_iter().map(|process| Member { id: process.id.cast_unsigned(), name: process.name }).collect()
}

impl Drop for Tree {
    fn drop(&mut self) {
        let mut state = State { released: lock(&self.state).released, search: Search::new(String::new()) };
        if state.released {
            return;
        }
        if matches!(self.try_wait(), Ok(None)) {
            // Nobody is left to hear of an error.
            let _ = self.signal_group(&mut state, rustix::process::Signal::KILL);
        }
        match &self.parent {
            Parent::Us => self.reap_later(),
            #[cfg(target_os = "linux")]
            Parent::Keeper { connection, .. } => connection.abandon(self.leader),
        }
    }
}

impl Tree {
    /// Collects the status of a leader that was just killed: from a thread of its own, since the kernel may take
    /// a while to end a process and a runtime may be ending too.
    fn reap_later(&self) {
        #[cfg(target_os = "linux")]
        if let Ok(fd) = self.leader_fd.try_clone() {
            let work = move || {
                use std::os::fd::AsFd as _;
                let _ = rustix::process::waitid(WaitId::PidFd(fd.as_fd()), WaitIdOptions::EXITED);
            };
            // Without a thread the last chance is below.
            if std::thread::Builder::new().name("bma-reap".into()).stack_size(64 * 1024).spawn(work).is_ok() {
                return;
            }
        }
        self.reap();
    }
}
