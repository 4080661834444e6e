//! The program's side of its keeper.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use bma_hands::os::{Exit, Member};
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use super::error::{KeeperError, last_words};
use super::process::{self, KeeperProcess, Trees};
use super::wire::{self, MAX_MESSAGE, Request, SpawnReply};
use super::{ARGUMENT, KeeperProgram, server};
use crate::proc_table;
use crate::spawn::{self, Failure, Start};
use crate::tree::Tree;

/// How long what may be waited for.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// For a keeper to begin to serve, to answer, and to tell of an exit: it only ever waits for a fork and an exec.
    /// One that takes longer is given up, and a new one is started.
    answer: Duration,
    /// For one that was told to end, which ends everything first. One that takes longer is killed.
    end: Duration,
}

/// How often it is looked what was adopted, while some of it was gone before it could be looked at.
const STRAY_LOOKS: usize = 20;

const LIMITS: Limits = Limits { answer: Duration::from_secs(15), end: Duration::from_secs(15) };

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
    trees: Arc<Trees>,
    /// Taken when it is given up.
    process: Mutex<Option<KeeperProcess>>,
    limits: Limits,
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
    pub(crate) fn start(program: KeeperProgram) -> Result<Self, KeeperError> {
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
    fn open(program: &KeeperProgram) -> Result<Arc<Self>, KeeperError> {
        let not_started = |source: io::Error| KeeperError::NotStarted { program: program.path.clone(), source };
        let flags = SocketFlags::CLOEXEC;
        let ends = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = ends.map_err(|error| not_started(error.into()))?;
        // What it says until it serves; a keeper that does says nothing.
        let said = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
        let (said, says) = said.map_err(|error| not_started(error.into()))?;
        let mut command = Command::new(&program.path);
        command.arg0("bma-keeper").arg(ARGUMENT).env_clear().current_dir("/");
        command.stdin(theirs).stdout(Stdio::null()).stderr(says);
        spawn::close_descriptors(&mut command);
        let child = command.spawn().map_err(not_started)?;
        // With it go our copies of its ends.
        drop(command);
        let trees = Arc::<Trees>::default();
        let process = KeeperProcess::mind(child, Arc::clone(&trees)).map_err(not_started)?;
        let connection = Self::over(ours, process, trees, LIMITS).map_err(not_started)?;
        // It answers once it serves: an executable that is no keeper is found out here.
        match connection.request(Request::Adopted, &[]) {
            Ok(_) => Ok(Arc::new(connection)),
            Err(source) => {
                let said = last_words(said);
                Err(KeeperError::NotServing { program: program.path.clone(), source, said })
            }
        }
    }

    /// Takes the program's end of the socket.
    fn over(socket: OwnedFd, process: KeeperProcess, trees: Arc<Trees>, limits: Limits) -> io::Result<Self> {
        let (abandoned, process) = (Mutex::default(), Mutex::new(Some(process)));
        let socket = Mutex::new(Socket { fd: socket, lost: false });
        let connection = Self { socket, abandoned, trees, process, limits };
        for timeout in [Timeout::Send, Timeout::Recv] {
            rustix::net::sockopt::set_socket_timeout(&lock(&connection.socket).fd, timeout, Some(limits.answer))?;
        }
        Ok(connection)
    }

    /// Has the keeper end, with all that it has started. It is asked nothing more.
    fn give_up(&self) {
        lock(&self.socket).close();
        if let Some(process) = lock(&self.process).take() {
            process.retire(self.limits.end);
        }
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
        if answer.is_err() {
            self.give_up();
        }
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
        self.trees.remember(tree);
    }

    /// Waits for the status of a leader that has exited. A keeper that is well tells it at once; one that does not is
    /// given up after a while, and one that was given up is not waited for.
    pub(crate) fn wait_for_status(&self, status: &OwnedFd) {
        if !lock(&self.socket).lost && !process::readable_within(status, self.limits.answer) {
            self.give_up();
        }
    }

    /// What was adopted, began at `since` or later, and bears no mark and belongs to no tree that is known.
    pub(crate) fn strays(&self, since: u64) -> Vec<Member> {
        let (mut unknown, mut gone) = (Vec::new(), None);
        for _ in 0..STRAY_LOOKS {
            gone = None;
            // A keeper that is gone has adopted nothing that it could tell of.
            for id in self.adopted().into_iter().flatten() {
                match proc_table::read(id) {
                    Some(process) if process.began >= since && !proc_table::has_any_mark(id) => unknown.push(process),
                    Some(_) => {}
                    None => gone = Some(id),
                }
            }
            // One that does nothing but start the next one is met by chance.
            if !unknown.is_empty() || gone.is_none() {
                break;
            }
        }
        if unknown.is_empty() {
            let name = || "gone by now, as those before it".to_owned();
            return gone.map(|id| Member { id: id.cast_unsigned(), name: name() }).into_iter().collect();
        }
        for tree in self.trees.held() {
            unknown.retain(|process| !tree.knows(process));
        }
        let member = |process: proc_table::Process| Member { id: process.id.cast_unsigned(), name: process.name };
        unknown.into_iter().map(member).collect()
    }
}

impl Socket {
    fn request(&mut self, request: Request, descriptors: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<Vec<u8>> {
        if self.lost {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "it was given up"));
        }
        let mut message = vec![0; MAX_MESSAGE];
        let answer =
            wire::send(&self.fd, &request.encode(), descriptors).and_then(|()| wire::receive(&self.fd, &mut message));
        let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "it ended");
        let error = match answer {
            Ok((0, _)) => ended(),
            Ok((length, _)) => {
                message.truncate(length);
                return Ok(message);
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => ended(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
            }
            Err(error) => error,
        };
        self.close();
        Err(error)
    }

    fn close(&mut self) {
        self.lost = true;
        // An answer that comes late would be taken for another's. And a keeper that comes to itself ends all that it
        // has started, also what it was asked for last. An error says that it is gone.
        let _ = rustix::net::shutdown(&self.fd, Shutdown::Both);
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

impl Drop for Connection {
    fn drop(&mut self) {
        self.give_up();
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

    /// A keeper that answers when the test does so for it, and does not end by itself.
    fn pair(answer: Duration) -> (Arc<Connection>, OwnedFd, i32) {
        let kind = SocketType::SEQPACKET;
        let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let trees = Arc::<Trees>::default();
        let id = child.id().cast_signed();
        let process = KeeperProcess::mind(child, Arc::clone(&trees)).unwrap();
        let limits = Limits { answer, end: Duration::from_millis(50) };
        (Arc::new(Connection::over(ours, process, trees, limits).unwrap()), theirs, id)
    }

    fn is_gone(process: i32) -> bool {
        let fd = crate::signal::open_process(process).unwrap();
        fd.is_none_or(|fd| process::readable_within(fd, Duration::from_secs(20)))
    }

    fn next_request(keeper: &OwnedFd) -> Option<Request> {
        let mut message = [0; MAX_MESSAGE];
        let (length, _) = wire::receive(keeper, &mut message).unwrap();
        Request::decode(&message[..length])
    }

    #[test]
    fn a_keeper_that_does_not_answer_holds_nobody_up_for_ever() {
        let (connection, keeper, process) = pair(Duration::from_millis(50));
        assert!(connection.is_alive());
        let error = connection.release(7).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!connection.is_alive(), "the next program is started by a new keeper");
        // It is not asked again, and learns that it is over.
        assert_eq!(connection.release(8).unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert_eq!(next_request(&keeper), Some(Request::Release(7)));
        assert_eq!(wire::receive(&keeper, &mut [0; 8]).unwrap().0, 0);
        assert!(is_gone(process), "one that does not end is killed");
    }

    #[test]
    fn a_keeper_that_is_stopped_again_and_again_is_killed_when_it_is_given_up_or_dropped() {
        for give_up in [true, false] {
            let (connection, _keeper, process) = pair(Duration::from_millis(50));
            let fd = crate::signal::open_process(process).unwrap().unwrap();
            let stopped = fd.try_clone().unwrap();
            let storm = std::thread::spawn(move || {
                while !process::readable_within(&stopped, Duration::ZERO) {
                    crate::signal::signal_process(&stopped, rustix::process::Signal::STOP).unwrap();
                }
            });
            if give_up {
                assert_eq!(connection.release(7).unwrap_err().kind(), io::ErrorKind::TimedOut);
                assert!(process::readable_within(fd, Duration::from_secs(20)));
            }
            drop(connection);
            storm.join().unwrap();
            assert!(is_gone(process));
        }
    }

    #[test]
    fn a_status_that_is_not_told_is_waited_for_only_so_long() {
        let (connection, _keeper, process) = pair(Duration::from_millis(50));
        let (status, _write) = status_pipe().unwrap();
        connection.wait_for_status(&status);
        assert!(read_status(&status).unwrap().is_none());
        assert!(!connection.is_alive() && is_gone(process));
        // Nor is another one, now that this is known.
        let (connection, ..) = pair(Duration::from_secs(600));
        lock(&connection.socket).close();
        connection.wait_for_status(&status);
    }

    #[test]
    fn to_abandon_a_leader_waits_for_no_answer() {
        let (connection, keeper, process) = pair(Duration::from_secs(60));
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
        // A program that another test starts has it until it execs.
        while !lock(&connection.abandoned).is_empty() {
            assert!(started.elapsed() < Duration::from_secs(50), "whoever is gone is told nothing");
            connection.abandon(11);
            std::thread::yield_now();
        }
        drop(connection);
        assert!(is_gone(process));
    }
}
