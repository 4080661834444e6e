//! The keeper: a small helper process that starts programs, adopts what loses its parent, and ends everything once
//! the process that it serves is gone.
//!
//! A process can be made the adopter of its orphaned descendants only as a whole, and it has to reap them then;
//! that is nothing that a library may do to the program that it is linked into. And nobody cleans up after a
//! program that was killed by `kill -9`, unless there is another process to do it. So both are the keeper's work.
//!
//! The keeper is the program's own executable, started anew with one hidden argument, with an empty environment
//! (no credential of the program reaches it), in a session of its own, and protected from being read by others.
//! They talk over a socket that is the keeper's standard input. When the socket ends, the keeper terminates
//! every descendant, waits two seconds, kills again and again until none is left, and exits.

pub(crate) mod client;
mod error;
mod process;
mod server;
mod wire;

pub(crate) use client::{Connection, Keeper};
pub use error::KeeperError;
pub(crate) use process::readable_within;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use server::ServeError;

/// The hidden argument.
const ARGUMENT: &str = "--bma-keeper";

/// Which executable is started as the keeper. Its `main` must call [`main_if_requested`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeeperProgram {
    path: PathBuf,
}

impl KeeperProgram {
    /// The executable of this process, whatever its path leads to by now.
    pub fn this_program() -> Self {
        Self { path: "/proc/self/exe".into() }
    }

    /// Another executable.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }
}

/// Acts as the keeper if this process was started as one, and returns how it should exit then.
///
/// Call it first thing in `main`, before any thread is started and before arguments are parsed:
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     if let Some(exit) = bma_hands_posix::keeper::main_if_requested() {
///         return exit;
///     }
///     // ... the program itself
///     ExitCode::SUCCESS
/// }
/// ```
pub fn main_if_requested() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    (arguments == [ARGUMENT]).then(main)
}

/// Acts as the keeper until the process that it serves is gone.
///
/// Exit code 2 when this process was not started as a keeper (its standard input is not the other's socket), 1 when it
/// could not set itself up; standard error says why.
pub fn main() -> ExitCode {
    let (said, code) = match server::serve(io::stdin()) {
        Ok(()) => return ExitCode::SUCCESS,
        Err(ServeError::ByHand(error)) => {
            (format!("the keeper is started by the program that it serves, and not by hand: {error}"), 2)
        }
        Err(ServeError::SetUp { step, error }) => (format!("the keeper could not {step}: {error}"), 1),
    };
    // Nobody may be listening.
    let _ = writeln!(io::stderr(), "{said}");
    ExitCode::from(code)
}
