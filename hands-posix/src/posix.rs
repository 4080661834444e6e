//! The operating system, as the hands see it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bma_hands::os::{CommandLine, Directory, Mark, Os, Processes, SpawnError, SpawnRequest, Spawned, Stdin};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

#[cfg(target_os = "linux")]
use crate::keeper::client::{SpawnFailure, Started};
#[cfg(target_os = "linux")]
use crate::keeper::{Keeper, KeeperError, KeeperProgram};
use crate::shell::{MAX_COMMAND_BYTES, Shell};
use crate::spawn::{self, Failure, Program, Start};
use crate::tree::{MARKER_VARIABLE, Marked, Parent, Tree};

/// Process trees on Linux and other Unix systems.
#[derive(Debug)]
pub struct Posix {
    shell: Shell,
    /// The trees that this process itself belongs to.
    outer_markers: Option<String>,
    #[cfg(target_os = "linux")]
    keeper: Option<Arc<Keeper>>,
}

impl Posix {
    /// Starts programs as children of this process and changes nothing else of it.
    ///
    /// The process must not ignore SIGCHLD (every [`spawn`](Os::spawn) is refused then), and should have no
    /// other code that waits for any child: an exit status taken by such code is reported as lost.
    pub fn direct() -> Self {
        let shell = Shell::find();
        if shell.name() != "bash" {
            tracing::warn!(shell = %shell.path().display(), "there is no bash here: commands run in sh");
        }
        let outer_markers = std::env::var(MARKER_VARIABLE).ok().filter(|list| is_marker_list(list));
        Self {
            shell,
            outer_markers,
            #[cfg(target_os = "linux")]
            keeper: None,
        }
    }

    /// Starts programs through a [keeper](crate::keeper), which is started now. What the keeper has started is
    /// ended once this and everything that it has spawned is dropped, or this process is gone.
    ///
    /// # Errors
    /// The keeper cannot be started, or the executable does not act as one.
    #[cfg(target_os = "linux")]
    pub fn with_keeper(program: KeeperProgram) -> Result<Self, KeeperError> {
        let keeper = Some(Arc::new(Keeper::start(program)?));
        Ok(Self { keeper, ..Self::direct() })
    }

    /// Uses this shell instead of the one that was found. A file named `bash` is used as bash, any other as a
    /// plain `sh`.
    pub fn with_shell(mut self, path: impl Into<PathBuf>) -> Self {
        self.shell = Shell::at(path.into());
        self
    }

    /// Starts a program and begins to watch it: the tree, and what becomes readable at the exit.
    fn start(&self, start: Start, marker: String) -> Result<(Arc<Tree>, OwnedFd), NotStarted> {
        #[cfg(target_os = "linux")]
        if let Some(keeper) = &self.keeper {
            return start_kept(keeper, start, marker);
        }
        if spawn::discards_statuses() {
            return Err(NotStarted::StatusDiscarded);
        }
        let leader = spawn::start(start).map_err(NotStarted::Failure)?;
        let (tree, exit) = watch(leader, marker).map_err(|error| NotStarted::Failure(Failure::System(error)))?;
        Ok((Arc::new(tree), exit))
    }
}

/// Why nothing was started.
enum NotStarted {
    Failure(Failure),
    StatusDiscarded,
    #[cfg(target_os = "linux")]
    Keeper(io::Error),
}

#[cfg(target_os = "linux")]
fn start_kept(keeper: &Keeper, start: Start, marker: String) -> Result<(Arc<Tree>, OwnedFd), NotStarted> {
    let began = crate::proc_table::now();
    let started = keeper.spawn(start).map_err(|failure| match failure {
        SpawnFailure::Start(failure) => NotStarted::Failure(failure),
        SpawnFailure::Keeper(error) => NotStarted::Keeper(error),
    })?;
    let Started { leader, status, connection } = started;
    // The keeper keeps the leader's number until it is told to release it, so the number still means the leader.
    let opened = crate::signal::open_process(leader)
        .and_then(|fd| fd.ok_or(io::ErrorKind::NotFound.into()))
        .and_then(|fd| Ok((fd.try_clone()?, fd)));
    match opened {
        // The leader's own end, and not its status: a keeper that tells none holds nobody up.
        Ok((exit, leader_fd)) => {
            let parent = Parent::Keeper { connection: connection.clone(), status, began };
            let tree = Arc::new(Tree::new(leader, leader_fd, marker, parent));
            connection.remember(&tree);
            Ok((tree, exit))
        }
        Err(error) => {
            connection.abandon(leader);
            Err(NotStarted::Failure(Failure::System(error)))
        }
    }
}

impl Os for Posix {
    fn shell(&self) -> &str {
        self.shell.name()
    }

    fn shell_argv(&self, command: &str) -> Vec<OsString> {
        self.shell.plain_argv(command)
    }

    fn max_command_bytes(&self) -> usize {
        MAX_COMMAND_BYTES
    }

    fn open_directory(&self, path: &Path) -> Result<Directory, SpawnError> {
        #[cfg(target_os = "linux")]
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        #[cfg(not(target_os = "linux"))]
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(handle) => Ok(Directory::new(handle, path)),
            Err(error) => Err(directory_error(path.to_owned(), error.into())),
        }
    }

    fn new_mark(&self) -> io::Result<Mark> {
        random_text().map(Mark::new)
    }

    fn marked(&self, mark: &Mark) -> Arc<dyn Processes> {
        #[cfg(target_os = "linux")]
        return Arc::new(Marked::new(mark.as_str(), self.keeper.clone()));
        #[cfg(not(target_os = "linux"))]
        return Arc::new(Marked::new(mark.as_str()));
    }

    fn spawn(&self, request: SpawnRequest) -> Result<Spawned, SpawnError> {
        let SpawnRequest { command, directory, mut env, stdin, mark, .. } = request;
        let arguments_bytes = argument_bytes(&command, &env);
        let program = self.program(command)?;
        check_env(&env)?;
        let path = directory.path().to_owned();
        let handle = still_there(&directory)?;

        let marker = random_text().map_err(|source| SpawnError::System { source })?;
        env.retain(|(name, _)| name != MARKER_VARIABLE);
        let markers = [self.outer_markers.as_deref(), mark.as_ref().map(Mark::as_str), Some(marker.as_str())];
        let markers: Vec<&str> = markers.into_iter().flatten().collect();
        env.push((MARKER_VARIABLE.into(), markers.join(",").into()));

        let system = |source: io::Error| SpawnError::System { source };
        let (stdin_read, stdin_write) = match stdin {
            Stdin::Pipe => pipe().map(|(read, write)| (Some(read), Some(write))).map_err(system)?,
            Stdin::Null => (None, None),
            // The trait may grow; what is not known here is not started.
            _ => return Err(system(io::ErrorKind::Unsupported.into())),
        };
        let (stdout, stdout_write) = pipe().map_err(system)?;
        let (stderr, stderr_write) = pipe().map_err(system)?;
        let (begun, begun_write) = match &program {
            Program::Shell { shell, .. } if shell.can_tell_begin() => {
                pipe().map(|(read, write)| (Some(read), Some(write))).map_err(system)?
            }
            Program::Shell { .. } | Program::Argv(_) => (None, None),
        };
        let name = program.name().to_string_lossy().into_owned();
        let start = Start {
            program,
            env,
            directory: handle,
            stdin: stdin_read,
            stdout: stdout_write,
            stderr: stderr_write,
            begun: begun_write,
        };
        match self.start(start, marker) {
            Ok((tree, exit)) => {
                let mut spawned = Spawned::new(tree, exit, stdout, stderr);
                spawned.stdin = stdin_write;
                spawned.begun = begun;
                Ok(spawned)
            }
            Err(NotStarted::Failure(Failure::Directory(source))) => Err(directory_error(path, source)),
            Err(NotStarted::Failure(Failure::Program(source))) => Err(program_error(name, source, arguments_bytes)),
            Err(NotStarted::Failure(Failure::System(source))) => Err(SpawnError::System { source }),
            Err(NotStarted::StatusDiscarded) => Err(SpawnError::StatusDiscarded),
            #[cfg(target_os = "linux")]
            Err(NotStarted::Keeper(source)) => Err(SpawnError::Helper { source }),
        }
    }
}

impl Posix {
    fn program(&self, command: CommandLine) -> Result<Program, SpawnError> {
        match command {
            CommandLine::Shell(command) => {
                if command.len() > MAX_COMMAND_BYTES {
                    return Err(SpawnError::CommandTooLong { bytes: command.len(), limit: MAX_COMMAND_BYTES });
                }
                no_nul(command.as_ref(), || "the command".to_owned())?;
                Ok(Program::Shell { shell: self.shell.clone(), command })
            }
            CommandLine::Argv(argv) => {
                if argv.is_empty() {
                    return Err(SpawnError::NoCommand);
                }
                for (index, argument) in argv.iter().enumerate() {
                    no_nul(argument, || format!("argument {index} of the command line"))?;
                }
                Ok(Program::Argv(argv))
            }
            // The trait may grow; what is not known here is not started.
            _ => Err(SpawnError::NoCommand),
        }
    }
}

/// Starts to watch a child that was just started and that nobody waited for.
#[cfg(target_os = "linux")]
fn watch(leader: Pid, marker: String) -> io::Result<(Tree, OwnedFd)> {
    let open = || {
        let fd = rustix::process::pidfd_open(leader, rustix::process::PidfdFlags::empty())?;
        let exit = fd.try_clone()?;
        Ok((fd, exit))
    };
    match open() {
        Ok((fd, exit)) => Ok((Tree::new(leader.as_raw_nonzero().get(), fd, marker, Parent::Us), exit)),
        Err(error) => {
            // It cannot be watched, so it must not run. Nobody has reaped it: the number is its own.
            let _ = crate::signal::Group::led_by(leader.as_raw_nonzero().get())
                .map(|group| group.signal(rustix::process::Signal::KILL));
            let _ = rustix::process::waitpid(Some(leader), rustix::process::WaitOptions::empty());
            Err(error)
        }
    }
}

/// Without a descriptor that means a process, a thread waits, and closes a pipe.
#[cfg(not(target_os = "linux"))]
fn watch(leader: Pid, marker: String) -> io::Result<(Tree, OwnedFd)> {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    let (exit, end) = pipe()?;
    let work = move || {
        let _ = waitid(WaitId::Pid(leader), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        drop(end);
    };
    std::thread::Builder::new().name("bma-watch".into()).stack_size(64 * 1024).spawn(work)?;
    Ok((Tree::new(leader.as_raw_nonzero().get(), marker, Parent::Us), exit))
}

/// The handle, unless the directory was removed meanwhile: a program would start there, and find nothing.
fn still_there(directory: &Directory) -> Result<OwnedFd, SpawnError> {
    let path = || directory.path().to_owned();
    let stat = rustix::fs::fstat(directory.handle()).map_err(|error| directory_error(path(), error.into()))?;
    if stat.st_nlink == 0 {
        return Err(SpawnError::DirectoryMissing { path: path() });
    }
    directory.handle().as_fd().try_clone_to_owned().map_err(|source| SpawnError::System { source })
}

fn directory_error(path: PathBuf, source: io::Error) -> SpawnError {
    match source.kind() {
        io::ErrorKind::NotFound => SpawnError::DirectoryMissing { path },
        _ => SpawnError::DirectoryUnusable { path, source },
    }
}

fn program_error(program: String, source: io::Error, bytes: usize) -> SpawnError {
    match source.kind() {
        io::ErrorKind::NotFound => SpawnError::ProgramMissing { program },
        io::ErrorKind::ArgumentListTooLong => SpawnError::ArgumentsTooLong { bytes },
        _ => SpawnError::ProgramUnusable { program, source },
    }
}

fn argument_bytes(command: &CommandLine, env: &[(OsString, OsString)]) -> usize {
    let command = match command {
        CommandLine::Shell(command) => command.len(),
        CommandLine::Argv(argv) => argv.iter().map(|argument| argument.len() + 1).sum(),
        _ => 0,
    };
    command + env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>()
}

fn check_env(env: &[(OsString, OsString)]) -> Result<(), SpawnError> {
    for (name, value) in env {
        let what = || format!("environment variable {}", name.to_string_lossy().escape_debug());
        no_nul(name, what)?;
        no_nul(value, what)?;
    }
    Ok(())
}

fn no_nul(text: &OsStr, what: impl FnOnce() -> String) -> Result<(), SpawnError> {
    if text.as_bytes().contains(&0) { Err(SpawnError::NulCharacter { what: what() }) } else { Ok(()) }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    #[cfg(target_os = "linux")]
    return Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?);
    #[cfg(not(target_os = "linux"))]
    {
        let (read, write) = rustix::pipe::pipe()?;
        for end in [&read, &write] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
        }
        Ok((read, write))
    }
}

/// 128 random bits in hexadecimal digits.
fn random_text() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn is_marker_list(list: &str) -> bool {
    list.len() <= 1_024
        && list.split(',').all(|one| one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
