//! Why there is no keeper.

use std::fmt;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

/// The most that is told of what an executable said, in bytes.
const MAX_SAID: usize = 512;

/// A keeper could not be started. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeeperError {
    /// The executable could not be started.
    #[error("{} could not be started as the keeper: {source}; {}", program.display(), advice(source))]
    NotStarted {
        /// The executable.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It was started and does not serve: it could not set itself up, or is no keeper.
    #[error(
        "{} was started as the keeper and does not serve: {source}{}; see to it that its main calls \
         keeper::main_if_requested first, and that it may run here", program.display(), Said(said)
    )]
    NotServing {
        /// The executable.
        program: PathBuf,
        /// How its first answer failed to come.
        source: io::Error,
        /// What it printed as an error, if anything, cut to some hundred bytes.
        said: String,
    },
}

impl From<KeeperError> for io::Error {
    fn from(error: KeeperError) -> Self {
        let (KeeperError::NotStarted { source, .. } | KeeperError::NotServing { source, .. }) = &error;
        Self::new(source.kind(), error)
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => "allow this program more open files (`ulimit -n`)",
        Some(libc::EAGAIN) => "allow this user more processes (`ulimit -u`)",
        Some(libc::ENOMEM) => "make room in memory",
        Some(libc::ENOENT) => "check its path; /proc/self/exe needs a /proc that is mounted",
        Some(libc::EACCES | libc::EPERM) => "make it a program that this user may run",
        _ => "give the path of a program that runs on this machine",
    }
}

/// `; it said: ...`, when it said anything.
struct Said<'s>(&'s str);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; it said: {}", self.0) }
    }
}

/// What came through an executable's standard error, as one line. Waits a moment for its last words.
pub(super) fn last_words(pipe: OwnedFd) -> String {
    // Who holds the pipe without ending is not waited for.
    let _ = rustix::io::ioctl_fionbio(&pipe, true);
    let mut pipe = std::fs::File::from(pipe);
    let mut bytes = [0; MAX_SAID];
    let mut length = 0;
    while super::readable_within(&pipe, Duration::from_millis(200)) {
        match pipe.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&bytes[..length]);
    text.split_whitespace().collect::<Vec<_>>().join(" ").escape_debug().to_string()
}
