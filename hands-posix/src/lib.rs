//! Process trees on Linux and other Unix systems: the implementation of
//! [`bma_hands::os::Os`].
//!
//! A program is started in a session of its own, with no controlling terminal, no
//! inherited descriptor, signal mask or disposition, and its directory entered by
//! handle. It is watched through a pidfd and its status is looked at without
//! taking it, so that it can be signalled until the very end without ever meeting
//! a recycled id: look, signal, then reap.
//!
//! There are two ways:
//!
//! - [`Posix::direct`] starts programs as children of this process. It changes
//!   nothing of the process, so it suits any program that embeds the hands.
//! - [`Posix::with_keeper`] starts them through a small helper process that also
//!   adopts what leaves its parents, and that ends everything once this process is
//!   gone, even by `kill -9`. Linux only; the program must call
//!   [`keeper::main_if_requested`] first thing in its `main`.
//!
//! What belongs to a tree is found by its session and group, by a random marker in
//! the environment, and by parentage. What escapes all three (it must start a
//! session, drop its environment and lose its parent before anybody looks) is
//! found by the keeper alone.

#[cfg(target_os = "linux")]
pub mod keeper;
mod posix;
mod proc_table;
mod shell;
mod signal;
mod spawn;
mod tree;

pub use bma_hands as hands;
pub use posix::Posix;

/// Makes sure that this process learns how its children end: SIGCHLD gets its default disposition back, which
/// whoever started this process may have set to be ignored. For the `main` of a program that uses
/// [`Posix::direct`].
pub fn restore_child_status() {
    spawn::restore_child_status();
}

/// Protects this process from being read (its memory, its environment with a token in it, its descriptors) by
/// other processes of the same user, its own children among them. For the `main` of a program; a debugger cannot
/// attach any more either, and there will be no core dumps.
///
/// # Errors
/// The system does not know of it.
#[cfg(target_os = "linux")]
pub fn protect_this_process() -> std::io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}
