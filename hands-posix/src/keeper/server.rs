//! The keeper's own side.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use bma_hands::os::{Exit, Signal};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::SocketType;
use rustix::process::{Pid, WaitId, WaitIdOptions};

use super::wire::{self, MAX_ADOPTED, MAX_MESSAGE, Request, SpawnReply};
use crate::signal::Group;
use crate::spawn::{self, Failure, Start};
use crate::{proc_table, tree};

/// How long descendants may take to end in order once the program is gone.
const TERMINATE_GRACE: Duration = Duration::from_secs(2);

/// How long after that they are killed again and again. What still lives then cannot be killed by us.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// A program that was started.
#[derive(Debug)]
struct Leader {
    /// Where its status is told. Gone once it was.
    status: Option<OwnedFd>,
    /// Nobody asks for its status any more.
    abandoned: bool,
}

#[derive(Debug, Default)]
struct Server {
    leaders: BTreeMap<i32, Leader>,
}

/// Why a keeper does not serve.
#[derive(Debug)]
pub(super) enum ServeError {
    /// Its standard input is no program's socket.
    ByHand(io::Error),
    /// The system refused a step of its set-up.
    SetUp { step: &'static str, error: io::Error },
}

/// Serves the process at the other end of `socket` until that is gone, then ends all descendants.
pub(super) fn serve(socket: impl AsFd) -> Result<(), ServeError> {
    match rustix::net::sockopt::socket_type(&socket) {
        Ok(SocketType::SEQPACKET) => {}
        Ok(_) => return Err(ServeError::ByHand(io::Error::other("standard input is another socket"))),
        Err(error) => return Err(ServeError::ByHand(error.into())),
    }
    let set_up = |step| move |error: rustix::io::Errno| ServeError::SetUp { step, error: error.into() };
    // A session of its own: a Ctrl-C at the program's terminal is not for the keeper. An error means that it
    // has one already.
    let _ = rustix::process::setsid();
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .map_err(set_up("protect itself from being read"))?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(set_up("adopt orphans"))?;
    // Whoever is stopped when the program dies goes on then: see `process`.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::CONT))
        .map_err(set_up("ask to be told of the program's end"))?;
    let children = watch_children().map_err(|error| ServeError::SetUp { step: "watch its children", error })?;

    let mut server = Server::default();
    let mut message = [0; MAX_MESSAGE];
    loop {
        let mut ready = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&children, PollFlags::IN)];
        match rustix::event::poll(&mut ready, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(set_up("wait for requests")(error)),
        }
        let [asked, ended] = ready.map(|one| !one.revents().is_empty());
        if ended {
            read_away(&children);
            server.collect();
        }
        if !asked {
            continue;
        }
        match wire::receive(&socket, &mut message) {
            // The program is gone, or its end of the socket, which is the same to us.
            Ok((0, _)) | Err(_) => break,
            Ok((length, descriptors)) => {
                let reply = server.answer(&message[..length], descriptors);
                if reply.is_some_and(|reply| wire::send(&socket, &reply, &[]).is_err()) {
                    break;
                }
            }
        }
    }
    server.end_everything(&children);
    Ok(())
}

impl Server {
    /// `None`: there is nothing to answer.
    fn answer(&mut self, message: &[u8], descriptors: Vec<OwnedFd>) -> Option<Vec<u8>> {
        match Request::decode(message)? {
            Request::Spawn { stdin, begun } => {
                let reply = match self.spawn(descriptors, stdin, begun) {
                    Ok(id) => SpawnReply::Started(id),
                    Err(Failure::Directory(error)) => SpawnReply::DirectoryFailed(code(&error)),
                    Err(Failure::Program(error)) => SpawnReply::ProgramFailed(code(&error)),
                    Err(Failure::System(error)) => SpawnReply::SystemFailed(code(&error)),
                };
                Some(reply.encode().to_vec())
            }
            Request::Release(id) => {
                if self.leaders.remove(&id).is_some() {
                    reap(id);
                }
                // An orphan that has died meanwhile is no leftover.
                self.collect();
                Some(self.adopted())
            }
            Request::Abandon(id) => {
                if let Some(leader) = self.leaders.get_mut(&id) {
                    leader.abandoned = true;
                    leader.status = None;
                    // It is a child that nobody has reaped: the number is its own.
                    let _ = Group::led_by(id).map(|group| group.signal(rustix::process::Signal::KILL));
                    self.collect();
                }
                None
            }
            Request::Adopted => {
                self.collect();
                Some(self.adopted())
            }
        }
    }

    fn spawn(&mut self, descriptors: Vec<OwnedFd>, stdin: bool, begun: bool) -> Result<i32, Failure> {
        let mut descriptors = descriptors.into_iter();
        let mut next =
            || descriptors.next().ok_or_else(|| Failure::System(io::Error::other("a descriptor is missing")));
        let (program, env) = wire::read_payload(next()?).map_err(Failure::System)?;
        let (directory, stdout, stderr, status) = (next()?, next()?, next()?, next()?);
        let stdin = stdin.then(&mut next).transpose()?;
        let begun = begun.then(&mut next).transpose()?;
        let id = spawn::start(Start { program, env, directory, stdin, stdout, stderr, begun })?.as_raw_nonzero().get();
        self.leaders.insert(id, Leader { status: Some(status), abandoned: false });
        Ok(id)
    }

    /// Tells the statuses of leaders that have exited, and reaps everybody else that has.
    fn collect(&mut self) {
        let mut abandoned = Vec::new();
        for (&id, leader) in &mut self.leaders {
            if leader.status.is_none() && !leader.abandoned {
                continue;
            }
            // Ids of leaders are positive: they came from a fork.
            let Some(pid) = Pid::from_raw(id) else { continue };
            let Ok(Some(exit)) = tree::look(WaitId::Pid(pid), id) else { continue };
            if let Some(status) = leader.status.take() {
                // Nobody may be listening any more.
                let _ = rustix::io::write(&status, &encode_exit(&exit));
            }
            if leader.abandoned {
                abandoned.push(id);
            }
        }
        for id in abandoned {
            self.leaders.remove(&id);
            reap(id);
        }
        for id in self.orphans() {
            reap(id);
        }
    }

    /// The children that were adopted and not started here.
    fn orphans(&self) -> Vec<i32> {
        let children = proc_table::children_of(std::process::id().cast_signed()).unwrap_or_default();
        children.into_iter().filter(|id| !self.leaders.contains_key(id)).collect()
    }

    fn adopted(&self) -> Vec<u8> {
        let orphans = self.orphans();
        let told = orphans.len().min(MAX_ADOPTED);
        // The count first: a message without a byte is how the end of the connection looks.
        let numbers = std::iter::once(told as i32).chain(orphans.into_iter().take(told));
        numbers.flat_map(i32::to_ne_bytes).collect()
    }

    /// Terminates all descendants, then kills them until there are none. Whatever loses its parent becomes our child,
    /// so having no child any more is the proof that nothing is left.
    fn end_everything(mut self, children: &OwnedFd) {
        let started = Instant::now();
        let mut terminated = false;
        loop {
            let elapsed = started.elapsed();
            let kill = elapsed > TERMINATE_GRACE;
            if kill || !terminated {
                terminated = true;
                let signal = if kill { Signal::Kill } else { Signal::Terminate };
                if tree::signal_descendants(std::process::id().cast_signed(), signal).is_err() {
                    // Without a process table, the groups of the leaders are all that is known.
                    self.signal_groups(signal);
                }
            }
            self.reap_all();
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            let no_child = matches!(rustix::process::waitid(WaitId::All, look), Err(rustix::io::Errno::CHILD));
            if no_child || elapsed > TERMINATE_GRACE + KILL_LIMIT {
                return;
            }
            // Until somebody ends, or the next look is due.
            let pause = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let _ = rustix::event::poll(&mut [PollFd::new(children, PollFlags::IN)], Some(&pause));
            read_away(children);
        }
    }

    fn signal_groups(&self, signal: Signal) {
        // Their leaders are not reaped, so each number is its own. Nobody is left to hear of an error.
        for group in self.leaders.keys().filter_map(|&id| Group::led_by(id).ok()) {
            for &one in tree::native(signal).unwrap_or_default() {
                let _ = group.signal(one);
            }
        }
    }

    /// Reaps whoever has ended, and knows no leader any more that has.
    fn reap_all(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        self.leaders.retain(|&id, _| {
            Pid::from_raw(id).is_some_and(|pid| matches!(rustix::process::waitid(WaitId::Pid(pid), options), Ok(None)))
        });
        while let Ok(Some(_)) = rustix::process::waitid(WaitId::All, options) {}
    }
}

/// How an exit is told: its kind, then a number, then whether memory was dumped.
pub(super) fn encode_exit(exit: &Exit) -> [u8; 6] {
    let (kind, number, dumped) = match exit {
        // An exit code of POSIX has eight bits.
        Exit::Code(code) => (0, *code as i32, false),
        Exit::Signal { number, core_dumped, .. } => (1, *number, *core_dumped),
    };
    let [a, b, c, d] = number.to_ne_bytes();
    [kind, a, b, c, d, u8::from(dumped)]
}

/// Reads what [`encode_exit`] wrote.
pub(super) fn decode_exit(bytes: &[u8]) -> Option<Exit> {
    let &[kind, a, b, c, d, dumped] = bytes else { return None };
    let number = i32::from_ne_bytes([a, b, c, d]);
    match kind {
        0 => Some(Exit::Code(number.into())),
        1 => Some(Exit::Signal { number, name: crate::signal::name(number), core_dumped: dumped != 0 }),
        _ => None,
    }
}

fn code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn reap(id: i32) {
    // Not a zombie (yet), or not a child: then there is nothing to do.
    if let Some(pid) = Pid::from_raw(id) {
        let _ = rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// A descriptor that is readable when a child has ended. All signals are blocked: nothing ends the keeper but the
/// end of its program, and SIGKILL.
fn watch_children() -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd as _;
    // A program that ignores SIGCHLD passes that on, and the statuses would be lost.
    spawn::default_signals();
    #[allow(unsafe_code)] // rustix has no signalfd and no mask
    // SAFETY: both sets are written whole before they are read. The result is a new descriptor that nobody else
    // owns, or -1, which is checked before it is used.
    unsafe {
        let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), std::ptr::null_mut());
        let mut children = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(children.as_mut_ptr());
        libc::sigaddset(children.as_mut_ptr(), libc::SIGCHLD);
        match libc::signalfd(-1, children.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

fn read_away(children: &OwnedFd) {
    let mut buffer = [0; 1_024];
    while rustix::io::read(children, &mut buffer).is_ok_and(|count| count > 0) {}
}
