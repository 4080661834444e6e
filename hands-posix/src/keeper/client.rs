//! The program's side of its keeper.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use bma_hands::os::{Exit, Member};
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::process::{WaitId, WaitIdOptions};

use super::wire::{self, MAX_MESSAGE, Request, SpawnReply};
use super::{ARGUMENT, KeeperProgram, server};
use crate::spawn::{self, Failure, Start};
use crate::tree::Tree;
use crate::{proc_table, signal};

/// How long a keeper may take to begin to serve, and to answer: it only ever waits for a fork and an exec. One
/// that takes longer is given up, and a new one is started.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);

/// The keeper of a program: started when it is first needed, and anew after it was lost.
#[derive(Debug)]
pub(crate) struct Keeper {
    program: KeeperProgram,
    connection: Mutex<Option<Arc<Connection>>>,
}

/// A keeper that runs. When the last handle is dropped, it ends everything that it has started.
#[derive(Debug)]
pub(crate) struct Connection {
    /// Held while an answer is waited for.
    socket: Mutex<Socket>,
    /// Leaders that the keeper was not yet told of. No more than there are leaders.
    abandoned: Mutex<Vec<i32>>,
    trees: Mutex<Vec<Weak<Tree>>>,
}

#[derive(Debug)]
struct Socket {
    fd: OwnedFd,
    lost: bool,
}

/// A program that the keeper has started.
pub(crate) struct Started {
    pub(crate) leader: i32,
    /// Readable when it has exited, and then holds the status.
    pub(crate) status: OwnedFd,
    pub(crate) connection: Arc<Connection>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind the locks is whole at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Keeper {
    /// Starts the keeper.
    pub(crate) fn start(program: KeeperProgram) -> io::Result<Self> {
        let connection = Connection::open(&program)?;
        Ok(Self { program, connection: Mutex::new(Some(connection)) })
    }

    fn connection(&self) -> io::Result<Arc<Connection>> {
        let mut slot = lock(&self.connection);
        if let Some(connection) = slot.as_ref().filter(|connection| connection.is_alive()) {
            return Ok(connection.clone());
        }
        tracing::warn!("the keeper is gone: starting it anew");
        let connection = Connection::open(&self.program)?;
        *slot = Some(connection.clone());
        Ok(connection)
    }

    /// See [`Connection::strays`].
    pub(crate) fn strays(&self, since: u64) -> Vec<Member> {
        let connection = lock(&self.connection).clone();
        connection.map(|connection| connection.strays(since)).unwrap_or_default()
    }

    /// Starts a program. Never tried twice: once it was asked for, it may have begun.
    pub(crate) fn spawn(&self, start: Start) -> Result<Started, SpawnFailure> {
        let connection = self.connection().map_err(SpawnFailure::Keeper)?;
        let (status, status_write) = status_pipe().map_err(|error| SpawnFailure::Start(Failure::System(error)))?;
        let leader = connection.spawn(start, status_write)?;
        Ok(Started { leader, status, connection })
    }
}

/// Why the keeper started nothing.
#[derive(Debug)]
pub(crate) enum SpawnFailure {
    /// As without a keeper.
    Start(Failure),
    /// The keeper itself failed.
    Keeper(io::Error),
}

impl Connection {
    fn open(program: &KeeperProgram) -> io::Result<Arc<Self>> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let mut command = Command::new(&program.path);
        command.arg0("bma-keeper").arg(ARGUMENT).env_clear().current_dir("/");
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        spawn::close_descriptors(&mut command);
        let mut child = command.spawn()?;
        drop(command);
        let connection = Self::over(ours, ANSWER_LIMIT);
        // It answers once it serves: an executable that is no keeper is found out here.
        let answered = connection.and_then(|connection| connection.request(Request::Adopted, &[]).map(|_| connection));
        let opened = answered.and_then(|connection| {
            let process = signal::open_process(child.id().cast_signed())?.ok_or(io::ErrorKind::NotFound)?;
            Ok((connection, process))
        });
        let (connection, process) = opened.map_err(|error| {
            // Neither can fail in a way that matters: it is our child, and it ends.
            let _ = child.kill();
            let _ = child.wait();
            let path = program.path.display();
            io::Error::new(error.kind(), format!("{path} does not act as a keeper: {error}"))
        })?;
        // It outlives this handle by as long as it takes to end everything, and somebody must collect its status.
        let mind = std::thread::Builder::new().name("bma-keeper".into()).stack_size(64 * 1024);
        mind.spawn(move || mind_keeper(&process))?;
        Ok(Arc::new(connection))
    }

    /// Takes the program's end of the socket, and the time that an answer may take.
    fn over(socket: OwnedFd, limit: Duration) -> io::Result<Self> {
        for timeout in [Timeout::Send, Timeout::Recv] {
            rustix::net::sockopt::set_socket_timeout(&socket, timeout, Some(limit))?;
        }
        let socket = Mutex::new(Socket { fd: socket, lost: false });
        Ok(Self { socket, abandoned: Mutex::default(), trees: Mutex::default() })
    }

    fn is_alive(&self) -> bool {
        let socket = lock(&self.socket);
        if socket.lost {
            return false;
        }
        use rustix::event::{PollFd, PollFlags, Timespec};
        // Nothing is read between a request and its answer, so only an end can be readable.
        let mut ready = [PollFd::new(&socket.fd, PollFlags::IN)];
        rustix::event::poll(&mut ready, Some(&Timespec::default())) == Ok(0)
    }

    fn request(&self, request: Request, descriptors: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<Vec<u8>> {
        let answer = lock(&self.socket).request(request, descriptors);
        self.tell_abandoned();
        answer
    }

    fn spawn(&self, start: Start, status: OwnedFd) -> Result<i32, SpawnFailure> {
        let Start { program, env, directory, stdin, stdout, stderr, begun } = start;
        let system = |error| SpawnFailure::Start(Failure::System(error));
        let payload = wire::write_payload(&program, &env).map_err(system)?;
        let mut descriptors = vec![payload.as_fd(), directory.as_fd(), stdout.as_fd(), stderr.as_fd(), status.as_fd()];
        descriptors.extend(stdin.as_ref().map(AsFd::as_fd));
        descriptors.extend(begun.as_ref().map(AsFd::as_fd));
        let request = Request::Spawn { stdin: stdin.is_some(), begun: begun.is_some() };
        let answer = self.request(request, &descriptors).map_err(SpawnFailure::Keeper)?;
        let error = io::Error::from_raw_os_error;
        match SpawnReply::decode(&answer) {
            Some(SpawnReply::Started(id)) => Ok(id),
            Some(SpawnReply::DirectoryFailed(code)) => Err(SpawnFailure::Start(Failure::Directory(error(code)))),
            Some(SpawnReply::ProgramFailed(code)) => Err(SpawnFailure::Start(Failure::Program(error(code)))),
            Some(SpawnReply::SystemFailed(code)) => Err(system(error(code))),
            None => Err(SpawnFailure::Keeper(io::Error::other("the keeper's answer makes no sense"))),
        }
    }

    /// Collects the status of a leader that has exited. Whether the keeper has adopted anything.
    pub(crate) fn release(&self, leader: i32) -> io::Result<bool> {
        Ok(self.adopted_in(Request::Release(leader))?.next().is_some())
    }

    /// Has the group of a leader killed and its status collected, now or after what the keeper is at. Never waits.
    pub(crate) fn abandon(&self, leader: i32) {
        lock(&self.abandoned).push(leader);
        self.tell_abandoned();
    }

    fn tell_abandoned(&self) {
        // Looked at again without the socket's lock: one that came meanwhile found it taken, and relies on us.
        while !lock(&self.abandoned).is_empty() {
            let mut socket = match self.socket.try_lock() {
                Ok(socket) => socket,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Whoever holds it tells them.
                Err(TryLockError::WouldBlock) => return,
            };
            if !socket.tell_abandoned(&mut lock(&self.abandoned)) {
                return;
            }
        }
    }

    fn adopted(&self) -> io::Result<impl Iterator<Item = i32>> {
        self.adopted_in(Request::Adopted)
    }

    /// What an answer tells of adopted processes: their number, then the ids.
    fn adopted_in(&self, request: Request) -> io::Result<impl Iterator<Item = i32> + use<>> {
        Ok(wire::numbers(&self.request(request, &[])?).into_iter().skip(1))
    }

    /// Remembers a tree that this keeper has started.
    pub(crate) fn remember(&self, tree: &Arc<Tree>) {
        let mut trees = lock(&self.trees);
        trees.retain(|tree| tree.strong_count() > 0);
        trees.push(Arc::downgrade(tree));
    }

    /// What was adopted, began at `since` or later, and bears no mark and belongs to no tree that is known.
    pub(crate) fn strays(&self, since: u64) -> Vec<Member> {
        // A keeper that is gone has adopted nothing that it could tell of.
        let adopted = self.adopted().into_iter().flatten();
        let mut unknown: Vec<_> = adopted
            .filter_map(proc_table::read)
            .filter(|process| process.began >= since && !proc_table::has_any_mark(process.id))
            .collect();
        if unknown.is_empty() {
            return Vec::new();
        }
        let trees: Vec<Arc<Tree>> = lock(&self.trees).iter().filter_map(Weak::upgrade).collect();
        for tree in trees {
            unknown.retain(|process| !tree.knows(process));
        }
        let member = |process: proc_table::Process| Member { id: process.id.cast_unsigned(), name: process.name };
        unknown.into_iter().map(member).collect()
    }
}

impl Socket {
    fn request(&mut self, request: Request, descriptors: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<Vec<u8>> {
        if self.lost {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut message = vec![0; MAX_MESSAGE];
        let answer =
            wire::send(&self.fd, &request.encode(), descriptors).and_then(|()| wire::receive(&self.fd, &mut message));
        let error = match answer {
            Ok((0, _)) => io::ErrorKind::UnexpectedEof.into(),
            Ok((length, _)) => {
                message.truncate(length);
                return Ok(message);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
            }
            Err(error) => error,
        };
        self.lost = true;
        // An answer that comes late would be taken for another's. And a keeper that comes to itself ends all that it
        // has started, also what it was asked for last. An error says that it is gone.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
        Err(error)
    }

    /// Tells the keeper whom nobody waits for any more. `false`: it cannot be told now.
    fn tell_abandoned(&mut self, leaders: &mut Vec<i32>) -> bool {
        while let Some(&leader) = leaders.last() {
            // A keeper that is gone has taken the leader's status with it.
            if !self.lost {
                match wire::send_now(&self.fd, &Request::Abandon(leader).encode()) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                    Err(_) => self.lost = true,
                }
            }
            leaders.pop();
        }
        true
    }
}

/// Waits for the end of a keeper, and lets it go on whenever somebody stops it: a command is its child, and
/// could hold up every other one with `kill -STOP $PPID`.
fn mind_keeper(keeper: &OwnedFd) {
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

/// A pipe for a status. Its read end never blocks.
fn status_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&read, true)?;
    Ok((read, write))
}

/// The status in such a pipe: `None` while there is none.
pub(crate) fn read_status(pipe: &OwnedFd) -> io::Result<Option<Exit>> {
    let mut bytes = [0; 6];
    match rustix::io::read(pipe, &mut bytes) {
        Ok(length) => {
            server::decode_exit(&bytes[..length]).map(Some).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        }
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;

    fn pair(limit: Duration) -> (Arc<Connection>, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        (Arc::new(Connection::over(ours, limit).unwrap()), theirs)
    }

    fn next_request(keeper: &OwnedFd) -> Option<Request> {
        let mut message = [0; MAX_MESSAGE];
        let (length, _) = wire::receive(keeper, &mut message).unwrap();
        Request::decode(&message[..length])
    }

    #[test]
    fn a_keeper_that_does_not_answer_holds_nobody_up_for_ever() {
        let (connection, keeper) = pair(Duration::from_millis(50));
        assert!(connection.is_alive());
        let error = connection.release(7).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!connection.is_alive(), "the next program is started by a new keeper");
        // It is not asked again, and learns that it is over.
        assert_eq!(connection.release(8).unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert_eq!(next_request(&keeper), Some(Request::Release(7)));
        assert_eq!(wire::receive(&keeper, &mut [0; 8]).unwrap().0, 0);
    }

    #[test]
    fn to_abandon_a_leader_waits_for_no_answer() {
        let (connection, keeper) = pair(Duration::from_secs(60));
        let (sender, answered) = mpsc::channel();
        let asking = connection.clone();
        let asker = std::thread::spawn(move || sender.send(asking.release(7).unwrap()).unwrap());
        assert_eq!(next_request(&keeper), Some(Request::Release(7)));
        // The socket is held by the one who asks.
        connection.abandon(8);
        connection.abandon(9);
        assert!(answered.try_recv().is_err(), "still without an answer");
        wire::send(&keeper, &1i32.to_ne_bytes(), &[]).unwrap();
        assert!(!answered.recv().unwrap());
        asker.join().unwrap();
        assert_eq!(next_request(&keeper), Some(Request::Abandon(9)));
        assert_eq!(next_request(&keeper), Some(Request::Abandon(8)));

        // Nor when the keeper reads nothing at all: they are told with the next request.
        let started = Instant::now();
        let told = (0..).take_while(|_| lock(&connection.abandoned).is_empty()).take(100_000);
        let count = told.map(|_| connection.abandon(10)).count();
        assert!(count < 100_000 && started.elapsed() < Duration::from_secs(50));
        drop(keeper);
        connection.abandon(11);
        assert!(lock(&connection.abandoned).is_empty(), "whoever is gone is told nothing");
    }
}
