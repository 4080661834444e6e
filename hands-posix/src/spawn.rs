//! Starting a program.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::Pid;

use crate::shell::Shell;

/// What to start, ready for a fork.
pub(crate) struct Start {
    pub(crate) program: Program,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) directory: OwnedFd,
    /// `None`: at its end from the start.
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
    /// See [`Shell::argv`]. Only for a shell.
    pub(crate) begun: Option<OwnedFd>,
}

pub(crate) enum Program {
    Shell { shell: Shell, command: String },
    Argv(Vec<OsString>),
}

impl Program {
    /// The name in messages.
    pub(crate) fn name(&self) -> &OsStr {
        match self {
            Program::Shell { shell, .. } => shell.path().as_os_str(),
            Program::Argv(argv) => argv.first().map(OsString::as_os_str).unwrap_or_default(),
        }
    }
}

/// At which step starting a program failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The directory could not be entered.
    Directory(io::Error),
    /// The program could not be run.
    Program(io::Error),
    /// Something before that.
    System(io::Error),
}

/// Added to the error number when the child could not enter its directory: the one number is all that comes
/// back from it.
const DIRECTORY_FAILED: i32 = 1 << 20;

/// Starts a program in a session of its own; it is a child of this process, and nobody waits for it yet.
pub(crate) fn start(start: Start) -> Result<Pid, Failure> {
    let Start { program, env, directory, stdin, stdout, stderr, begun } = start;
    let mut command = match &program {
        Program::Shell { shell, command } => {
            let argv = shell.argv(command, begun.as_ref().map(|fd| fd.as_raw_fd()));
            let mut process = Command::new(shell.path());
            process.arg0(&argv[0]).args(&argv[1..]);
            process
        }
        Program::Argv(argv) => {
            let mut process = Command::new(&argv[0]);
            process.args(&argv[1..]);
            process
        }
    };
    command.env_clear().envs(env);
    command.stdin(stdin.map_or_else(Stdio::null, Stdio::from)).stdout(stdout).stderr(stderr);
    let (directory_fd, begun_fd) = (directory.as_raw_fd(), begun.as_ref().map(|fd| fd.as_raw_fd()));
    #[allow(unsafe_code)] // there is no safe way to run code in the child
    // SAFETY: between fork and exec only calls that are safe in a signal handler may be made, since other
    // threads of the parent may have held any lock. `prepare_child` makes plain system calls alone and
    // allocates nothing. The descriptors are owned by this function, so they are open until after the fork.
    unsafe {
        command.pre_exec(move || prepare_child(directory_fd, begun_fd));
    }
    let child = command.spawn().map_err(|error| match error.raw_os_error() {
        Some(code) if code >= DIRECTORY_FAILED => {
            Failure::Directory(io::Error::from_raw_os_error(code - DIRECTORY_FAILED))
        }
        Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE) => Failure::System(error),
        _ => Failure::Program(error),
    })?;
    // A child that was just forked has a positive id.
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| Failure::System(io::Error::other("fork gave no id")))
}

/// Runs in the child, before the program. Only calls that are safe after a fork: no allocation, no lock.
fn prepare_child(directory: RawFd, begun: Option<RawFd>) -> io::Result<()> {
    // A session of its own: no controlling terminal, and a group that can be signalled as one.
    rustix::process::setsid()?;
    default_signals();
    #[allow(unsafe_code)] // a borrowed descriptor is made of its number
    // SAFETY: `directory` is open, see the caller.
    let directory = unsafe { std::os::fd::BorrowedFd::borrow_raw(directory) };
    if let Err(error) = rustix::process::fchdir(directory) {
        return Err(io::Error::from_raw_os_error(error.raw_os_error() + DIRECTORY_FAILED));
    }
    close_others_on_exec();
    if let Some(fd) = begun {
        #[allow(unsafe_code)] // as above
        // SAFETY: `fd` is open, see the caller.
        let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    }
    Ok(())
}

/// Default dispositions and an empty mask: what this process ignores or blocks is its own business.
pub(crate) fn default_signals() {
    // The last signal of Linux; numbers that are none are refused by the call.
    const LAST: libc::c_int = 64;
    for signal in 1..=LAST {
        #[allow(unsafe_code)] // there is no safe form
        // SAFETY: SIG_DFL runs no code of ours, and `signal` is safe after a fork.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    // glibc keeps two signals for itself and refuses to touch them, yet they can be inherited ignored.
    #[cfg(all(target_os = "linux", not(any(target_arch = "mips", target_arch = "mips64"))))]
    for signal in [32, 33] {
        // The kernel's structure, no longer than this on any processor: all zero is the default disposition.
        let default = [0u64; 8];
        #[allow(unsafe_code)] // there is no safe form
        // SAFETY: the kernel reads one structure from `default`, which is longer than that and outlives the
        // call; it runs no code of ours, and is safe after a fork. 8 is the length of its signal set.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<u64>(), 8usize);
        }
    }
    #[allow(unsafe_code)] // there is no safe form
    // SAFETY: `sigemptyset` writes the whole set before it is read, and both calls are safe after a fork.
    unsafe {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
    }
}

/// Lets a program inherit its three streams and no other descriptor.
#[cfg(target_os = "linux")]
pub(crate) fn close_descriptors(command: &mut Command) {
    #[allow(unsafe_code)] // there is no safe way to run code in the child
    // SAFETY: as in `start`: plain system calls alone.
    unsafe {
        command.pre_exec(|| {
            close_others_on_exec();
            Ok(())
        });
    }
}

/// Marks every descriptor past the three streams to be closed by exec, whoever opened it and forgot to.
fn close_others_on_exec() {
    #[cfg(target_os = "linux")]
    {
        const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
        #[allow(unsafe_code)] // there is no safe form
        // SAFETY: it only sets a flag of this process's descriptors. Takes three integers.
        let done = unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, CLOSE_RANGE_CLOEXEC) };
        if done == 0 {
            return;
        }
    }
    #[allow(unsafe_code)] // there is no safe form for numbers that may be closed
    // Before Linux 5.11, and elsewhere: one by one, up to the limit on descriptors.
    // SAFETY: plain integers; a number that is no descriptor is refused by the call.
    unsafe {
        let limit = libc::sysconf(libc::_SC_OPEN_MAX).clamp(256, 65_536);
        for fd in 3..limit as libc::c_int {
            libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
        }
    }
}

/// Gives SIGCHLD its default disposition back.
pub(crate) fn restore_child_status() {
    #[allow(unsafe_code)] // there is no safe form
    // SAFETY: SIG_DFL runs no code of ours.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Whether this process has its children's statuses thrown away.
pub(crate) fn discards_statuses() -> bool {
    #[allow(unsafe_code)] // there is no safe form
    // SAFETY: a null action only asks; the old one is written whole before it is read.
    unsafe {
        let mut old = std::mem::MaybeUninit::<libc::sigaction>::uninit();
        if libc::sigaction(libc::SIGCHLD, std::ptr::null(), old.as_mut_ptr()) != 0 {
            return false;
        }
        let old = old.assume_init();
        old.sa_sigaction == libc::SIG_IGN || old.sa_flags & libc::SA_NOCLDWAIT != 0
    }
}
