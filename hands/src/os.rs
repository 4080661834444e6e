//! The seam to an operating system: what it takes to start a program, to watch
//! it, and to end it with everything that it started.
//!
//! The calls are plain and may block for a few milliseconds (a fork, a look at
//! the process table): call them on the blocking pool. Only
//! [`ProcessTree::try_wait`] is free to be called anywhere.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A handle of the operating system.
#[cfg(unix)]
pub type OsHandle = std::os::fd::OwnedFd;
/// A handle of the operating system.
#[cfg(windows)]
pub type OsHandle = std::os::windows::io::OwnedHandle;

/// What differs between operating systems.
pub trait Os: fmt::Debug + Send + Sync + 'static {
    /// The login shell that runs commands: its name as a person calls it, `bash`
    /// where there is one.
    fn shell(&self) -> &str;

    /// The command line of a login shell that runs `command`.
    fn shell_argv(&self, command: &str) -> Vec<OsString>;

    /// The longest shell command in bytes that [`spawn`](Os::spawn) takes.
    fn max_command_bytes(&self) -> usize;

    /// Opens a directory to start programs in.
    ///
    /// # Errors
    /// [`SpawnError::DirectoryMissing`] or [`SpawnError::DirectoryUnusable`].
    fn open_directory(&self, path: &Path) -> Result<Directory, SpawnError>;

    /// Starts a program as the leader of a new tree: in a session of its own, without
    /// a controlling terminal, with exactly the environment and the streams that
    /// are asked for, and no other handle, signal mask or disposition of this process.
    ///
    /// # Errors
    /// Nothing runs then.
    fn spawn(&self, request: SpawnRequest) -> Result<Spawned, SpawnError>;

    /// A mark for trees that belong together: [`SpawnRequest::mark`].
    ///
    /// # Errors
    /// There is no randomness to be had.
    fn new_mark(&self) -> io::Result<Mark>;

    /// Everything that bears this mark, whether its tree is still known or not.
    fn marked(&self, mark: &Mark) -> Arc<dyn Processes>;
}

/// A program to start.
#[derive(Debug)]
#[non_exhaustive]
pub struct SpawnRequest {
    /// What to run.
    pub command: CommandLine,
    /// Where. It is entered by its handle, so nothing that is renamed or swapped meanwhile matters.
    pub directory: Directory,
    /// The complete environment. The system may add one variable by which it finds the tree again.
    pub env: Vec<(OsString, OsString)>,
    /// Standard input. Standard output and standard error are always pipes.
    pub stdin: Stdin,
    /// What the tree has in common with others, to be found together: see [`Os::marked`].
    pub mark: Option<Mark>,
}

/// A random text that trees which belong together bear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    /// Takes a text that nobody else has.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl SpawnRequest {
    /// A program whose standard input is at its end from the start.
    pub fn new(command: CommandLine, directory: Directory, env: Vec<(OsString, OsString)>) -> Self {
        Self { command, directory, env, stdin: Stdin::Null, mark: None }
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandLine {
    /// A command for the login shell, as [`Os::shell_argv`] would run it. It is also watched whether the
    /// command begins at all: see [`Spawned::begun`].
    Shell(String),
    /// A program and its arguments. A name without a slash is looked up in the `PATH` of the new environment.
    Argv(Vec<OsString>),
}

/// Where a program's standard input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stdin {
    /// Nowhere: it is at its end from the start.
    Null,
    /// A pipe: [`Spawned::stdin`].
    Pipe,
}

/// An open directory, and the path by which messages call it.
#[derive(Debug)]
pub struct Directory {
    handle: OsHandle,
    path: PathBuf,
}

impl Directory {
    /// Takes an open directory.
    pub fn new(handle: impl Into<OsHandle>, path: impl Into<PathBuf>) -> Self {
        Self { handle: handle.into(), path: path.into() }
    }

    /// The handle.
    pub fn handle(&self) -> &OsHandle {
        &self.handle
    }

    /// The path. For messages: what it names now may be something else.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// A program that was started.
#[derive(Debug)]
#[non_exhaustive]
pub struct Spawned {
    /// The program and everything that it starts.
    pub tree: Arc<dyn ProcessTree>,
    /// Becomes readable when the program has exited; [`ProcessTree::try_wait`] knows how then or soon after, and
    /// certainly after [`ProcessTree::release`].
    pub exit: OsHandle,
    /// The pipe into its standard input, when one was asked for.
    pub stdin: Option<OsHandle>,
    /// The pipe from its standard output.
    pub stdout: OsHandle,
    /// The pipe from its standard error.
    pub stderr: OsHandle,
    /// For a shell command: a pipe that gets one byte when the command begins, after the shell's profile. Its end
    /// without that byte says that the command never began.
    pub begun: Option<OsHandle>,
}

impl Spawned {
    /// Puts together what an implementation has started.
    pub fn new(tree: Arc<dyn ProcessTree>, exit: OsHandle, stdout: OsHandle, stderr: OsHandle) -> Self {
        Self { tree, exit, stdin: None, stdout, stderr, begun: None }
    }
}

/// Processes that can be found again.
pub trait Processes: fmt::Debug + Send + Sync {
    /// Signals every living member.
    ///
    /// # Errors
    /// The members cannot be looked up. A member that may not be signalled (another user's, say) is no
    /// error here: it stays a member.
    fn signal(&self, signal: Signal) -> io::Result<()>;

    /// The living members, a tree's program itself included. May take milliseconds: it looks at every process
    /// of the system.
    ///
    /// # Errors
    /// The members cannot be looked up.
    fn members(&self) -> io::Result<Vec<Member>>;

    /// Living processes that may be members, but of which that cannot be told: they descend from us, began
    /// later than this, and have cut every tie. Always empty where nothing adopts orphans: there they are not seen.
    fn strays(&self) -> Vec<Member> {
        Vec::new()
    }
}

/// A program and everything that it started, also what left its group.
///
/// The program's status is kept by the system until [`release`](ProcessTree::release), so that its ids cannot
/// come to mean somebody else while they are signalled. Dropping the last handle of a tree that was not
/// released kills its group at once, and still collects the status.
pub trait ProcessTree: Processes {
    /// The program's process id. For messages.
    fn id(&self) -> u32;

    /// How the program exited, `None` while it runs, or while that is on its way to us. Never blocks.
    ///
    /// # Errors
    /// The status was taken by somebody else.
    fn try_wait(&self) -> Result<Option<Exit>, StatusLost>;

    /// Lets the system forget the program once it has exited, and looks quickly, without a search, whether it left
    /// something running. Such a leftover can still be found and signalled. How the program exited is known from then
    /// on, or lost: that may take seconds where a helper that has to tell it does not.
    fn release(&self) -> Leftover;
}

/// What a quick look after the exit of a program saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leftover {
    /// Nothing. (Not seen: a descendant that left the program's group, where nothing adopts orphans.)
    None,
    /// Something that the program started may still run.
    Possible,
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself, with this code.
    Code(i64),
    /// By a signal.
    Signal {
        /// Its number.
        number: i32,
        /// Its name, such as `SIGKILL`.
        name: String,
        /// Whether memory was dumped.
        core_dumped: bool,
    },
}

impl Exit {
    /// The code a shell would show: 128 + n after death by signal n.
    pub fn code(&self) -> i64 {
        match self {
            Exit::Code(code) => *code,
            Exit::Signal { number, .. } => 128 + i64::from(*number),
        }
    }
}

/// What can be asked of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// As Ctrl-C does.
    Interrupt,
    /// To end in order.
    Terminate,
    /// To be gone.
    Kill,
}

/// A living member of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Process id.
    pub id: u32,
    /// The program's short name.
    pub name: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id, self.name.escape_debug())
    }
}

/// Why a program was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The directory to start in does not exist (any more).
    #[error("cwd does not exist: {}", path.display())]
    DirectoryMissing {
        /// Its path.
        path: PathBuf,
    },
    /// The directory to start in cannot be entered.
    #[error("cwd {} cannot be entered: {source}", path.display())]
    DirectoryUnusable {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no such program.
    #[error("program not found: {program}")]
    ProgramMissing {
        /// As it was asked for.
        program: String,
    },
    /// The program cannot be run.
    #[error("program {program} cannot be run: {source}")]
    ProgramUnusable {
        /// As it was asked for.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// The command is longer than can be run.
    #[error("command too long: {bytes} bytes, limit {limit}; put the text into a file and run that")]
    CommandTooLong {
        /// How long it is.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The system takes no command line and environment as long as this.
    #[error("command line and environment are too long for the system ({bytes} bytes together); shorten either")]
    ArgumentsTooLong {
        /// How long they are together.
        bytes: usize,
    },
    /// Command lines and environments cannot carry a NUL character.
    #[error("{what} contains a NUL character")]
    NulCharacter {
        /// Which part.
        what: String,
    },
    /// No command at all.
    #[error("the command line is empty")]
    NoCommand,
    /// This process discards the status of its children.
    #[error(
        "this process ignores SIGCHLD, so exit codes would be lost: restore the default disposition before \
         programs are started"
    )]
    StatusDiscarded,
    /// The helper process that starts programs is gone and could not be started anew.
    #[error(
        "the helper process that starts programs failed: {source}; what it had started is ended, and the next \
         command gets a new one: try again"
    )]
    Helper {
        /// Why.
        source: io::Error,
    },
    /// The system has no room for another process or pipe.
    #[error("no process could be started: {source}")]
    System {
        /// Why.
        source: io::Error,
    },
}

/// Somebody else in this process took the status of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the exit status of process {id} was lost: something else in this process waited for it")]
pub struct StatusLost {
    /// The process.
    pub id: u32,
}
