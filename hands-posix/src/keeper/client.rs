//! The program's side of its keeper.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bma_hands::os::{Exit, Member};
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::wire::{self, MAX_MESSAGE, Request, SpawnReply};
use super::{ARGUMENT, KeeperProgram, server};
use crate::proc_table;
use crate::spawn::{self, Failure, Start};
use crate::tree::Tree;

/// How long a keeper may take to begin to serve.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// The keeper of a program: started when it is first needed, and anew after it was lost.
#[derive(Debug)]
pub(crate) struct Keeper {
    program: KeeperProgram,
    connection: Mutex<Option<Arc<Connection>>>,
}

/// A keeper that runs. When the last handle is dropped, it ends everything that it has started.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Mutex<Socket>,
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
        let connection =
            Arc::new(Self { socket: Mutex::new(Socket { fd: ours, lost: false }), trees: Mutex::default() });
        // It answers once it serves: an executable that is no keeper is found out here.
        if let Err(error) = connection.greet() {
            // Neither can fail in a way that matters: it is our child, and it ends.
            let _ = child.kill();
            let _ = child.wait();
            let path = program.path.display();
            return Err(io::Error::new(error.kind(), format!("{path} does not act as a keeper: {error}")));
        }
        // It outlives this handle by as long as it takes to end everything, and somebody must collect its status.
        let reap = std::thread::Builder::new().name("bma-keeper".into()).stack_size(64 * 1024);
        reap.spawn(move || child.wait())?;
        Ok(connection)
    }

    fn greet(&self) -> io::Result<()> {
        let limit = |timeout| {
            let socket = lock(&self.socket);
            rustix::net::sockopt::set_socket_timeout(&socket.fd, Timeout::Recv, timeout)
        };
        limit(Some(GREETING_LIMIT))?;
        self.request(Request::Adopted, &[])?;
        Ok(limit(None)?)
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
        let mut socket = lock(&self.socket);
        let mut message = vec![0; MAX_MESSAGE];
        let answer = wire::send(&socket.fd, &request.encode(), descriptors)
            .and_then(|()| wire::receive(&socket.fd, &mut message));
        match answer {
            Ok((0, _)) => {
                socket.lost = true;
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Ok((length, _)) => {
                message.truncate(length);
                Ok(message)
            }
            Err(error) => {
                socket.lost = true;
                Err(error)
            }
        }
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

    /// Kills the group of a leader, and collects its status.
    pub(crate) fn abandon(&self, leader: i32) {
        let mut socket = lock(&self.socket);
        // A keeper that is gone has taken the leader's status with it.
        if wire::send(&socket.fd, &Request::Abandon(leader).encode(), &[]).is_err() {
            socket.lost = true;
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
