//! The one place from which signals are sent.
//!
//! `kill(0)`, `kill(-1)` and a number that has come to mean somebody else signal
//! the wrong processes, and nothing can take that back. So a group is signalled
//! only through a [`Group`], which cannot hold such a number, and any other process
//! only through a descriptor that was checked to be the one that is meant.

use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::{Pid, Signal, getpid};

/// A process group that may be signalled: not our own, not everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Group(Pid);

/// An id that must never be signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forbidden(pub(crate) i32);

impl From<Forbidden> for io::Error {
    fn from(Forbidden(id): Forbidden) -> Self {
        Self::other(format!("refused to signal process group {id}: it is not a group of our children"))
    }
}

impl Group {
    /// The group that the process `leader` leads.
    pub(crate) fn led_by(leader: i32) -> Result<Self, Forbidden> {
        match positive(leader) {
            Some(pid) if pid.as_raw_nonzero().get() != own_group() && pid != getpid() => Ok(Self(pid)),
            _ => Err(Forbidden(leader)),
        }
    }

    /// Signals the group. Only while its leader is not reaped: then the number cannot mean anybody else.
    pub(crate) fn signal(self, signal: Signal) -> io::Result<()> {
        match rustix::process::kill_process_group(self.0, signal) {
            // An empty group, or one of which nothing may be signalled: who is left is found by looking.
            Ok(()) | Err(rustix::io::Errno::SRCH | rustix::io::Errno::PERM) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the group has any process, dead or alive. Signals nobody.
    pub(crate) fn has_any(self) -> bool {
        rustix::process::test_kill_process_group(self.0) != Err(rustix::io::Errno::SRCH)
    }

    /// Whether the group has a living process (where the dead cannot be signalled). Signals nobody.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn has_living(self) -> bool {
        rustix::process::test_kill_process_group(self.0).is_ok()
    }
}

/// The process group of this process; 0 where its leader lives outside of our pid namespace, as in some containers.
fn own_group() -> i32 {
    // Not rustix's, which takes it for granted that no group is 0.
    // SAFETY: getpgrp has no arguments, touches no memory of ours and cannot fail.
    #[allow(unsafe_code, reason = "no safe form of this call bears a group of 0")]
    unsafe {
        libc::getpgrp()
    }
}

/// An id that means one process: 0 means one's own group, 1 the whole system's first, less than that many at once.
fn positive(id: i32) -> Option<Pid> {
    if id > 1 { Pid::from_raw(id) } else { None }
}

/// Signals the group of a leader by its descriptor, which never means anybody else, even after the leader was
/// reaped. `false`: this kernel cannot (before Linux 6.9).
#[cfg(target_os = "linux")]
pub(crate) fn signal_group_of(leader: impl AsFd, signal: Signal) -> io::Result<bool> {
    use std::os::fd::AsRawFd as _;
    const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;
    #[allow(unsafe_code)] // rustix has no way to pass the flag
    // SAFETY: the call takes integers and a pointer that may be null; the descriptor is borrowed, so it is open.
    let done = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            leader.as_fd().as_raw_fd(),
            signal.as_raw(),
            std::ptr::null::<libc::siginfo_t>(),
            PIDFD_SIGNAL_PROCESS_GROUP,
        )
    };
    if done == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EINVAL) => Ok(false),
        Some(libc::ESRCH | libc::EPERM) => Ok(true),
        _ => Err(error),
    }
}

/// A descriptor of the process `id`, for [`signal_process`]. The caller has to check, after this, that it is
/// the process that is meant. `None`: there is none any more.
#[cfg(target_os = "linux")]
pub(crate) fn open_process(id: i32) -> io::Result<Option<OwnedFd>> {
    let pid = match positive(id) {
        Some(pid) if pid != getpid() => pid,
        _ => return Err(Forbidden(id).into()),
    };
    match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Signals one process, and nobody when it is gone.
#[cfg(target_os = "linux")]
pub(crate) fn signal_process(process: impl AsFd, signal: Signal) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(process, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH | rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The name of a signal, as `kill -l` has it with `SIG` before it.
pub(crate) fn name(number: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGXFSZ, "SIGXFSZ"),
        (libc::SIGVTALRM, "SIGVTALRM"),
        (libc::SIGPROF, "SIGPROF"),
        (libc::SIGSYS, "SIGSYS"),
        (libc::SIGIO, "SIGIO"),
        #[cfg(target_os = "linux")]
        (libc::SIGSTKFLT, "SIGSTKFLT"),
        #[cfg(target_os = "linux")]
        (libc::SIGPWR, "SIGPWR"),
    ];
    match NAMES.iter().find(|(known, _)| *known == number) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f5_ids_that_mean_everybody_or_ourselves_are_refused() {
        let own = own_group();
        for id in [i32::MIN, -1, 0, 1, own, getpid().as_raw_nonzero().get()] {
            assert_eq!(Group::led_by(id), Err(Forbidden(id)));
        }
        #[cfg(target_os = "linux")]
        for id in [i32::MIN, -1, 0, 1, getpid().as_raw_nonzero().get()] {
            assert!(open_process(id).is_err(), "{id}");
        }
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(name(libc::SIGKILL), "SIGKILL");
        assert_eq!(name(50), "signal 50");
    }
}
