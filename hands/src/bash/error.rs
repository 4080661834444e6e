//! Why a command did not run.

use std::io;
use std::time::Duration;

use bma_runtime::{CancelReason, ToolOutput};

use super::processes::{MAX_TREES, Refused};
use crate::blocking::RuntimeEnded;
use crate::env::EnvError;
use crate::launch::LaunchRefusal;
use crate::os::SpawnError;
use crate::workspace::PathError;

/// Why a command did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BashError {
    /// The time-out is no time.
    #[error("timeout_ms is {0}: give a number of milliseconds above 0, or leave it out")]
    InvalidTimeout(i64),
    /// The environment asked for is refused.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The directory asked for does not exist.
    #[error("cwd does not exist: {cwd}")]
    CwdMissing {
        /// As it was asked for.
        cwd: String,
    },
    /// The directory asked for cannot be used.
    #[error("cwd: {0}")]
    Cwd(PathError),
    /// The launch hook refused.
    #[error(transparent)]
    Refused(#[from] LaunchRefusal),
    /// The system did not start it.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Its output could not be read, so it was ended at once.
    #[error("the command's output cannot be read: {0}")]
    Output(io::Error),
    /// The session has too many processes.
    #[error("{MAX_TREES} commands of this session still run: end some of them, or wait")]
    TooManyProcesses,
    /// The time was up before it started.
    #[error("timed out after {:.1} s, before the command started", .0.as_secs_f64())]
    TimedOut(Duration),
    /// It was canceled before it started.
    #[error("{0} before the command started")]
    Canceled(CancelReason),
    /// The runtime ends.
    #[error("the command was given up: {0}")]
    RuntimeEnded(#[from] RuntimeEnded),
}

impl BashError {
    /// A word for programs that says why.
    pub fn reason(&self) -> &str {
        match self {
            Self::InvalidTimeout(_) | Self::Env(_) => "invalid_input",
            Self::CwdMissing { .. } => "cwd_missing",
            Self::Cwd(error) => error.reason(),
            Self::Refused(refusal) => &refusal.reason,
            Self::Spawn(SpawnError::DirectoryMissing { .. }) => "cwd_missing",
            Self::Spawn(_) | Self::Output(_) => "spawn_failed",
            Self::TooManyProcesses => "too_many_processes",
            Self::TimedOut(_) => "timeout",
            Self::Canceled(_) => "canceled",
            Self::RuntimeEnded(_) => "runtime_ended",
        }
    }

    /// The answer of a tool whose command did not run.
    pub fn output(&self) -> ToolOutput {
        match self {
            Self::Canceled(_) => ToolOutput::canceled(self.to_string()),
            Self::RuntimeEnded(_) => ToolOutput::failed(self.to_string()),
            Self::InvalidTimeout(_)
            | Self::Env(_)
            | Self::CwdMissing { .. }
            | Self::Cwd(_)
            | Self::Refused(_)
            | Self::Spawn(_)
            | Self::Output(_)
            | Self::TooManyProcesses
            | Self::TimedOut(_) => ToolOutput::error(self.to_string()),
        }
    }
}

impl From<Refused> for BashError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Stopping => Self::Canceled(CancelReason::SessionStopped),
            Refused::Full => Self::TooManyProcesses,
        }
    }
}

impl From<PathError> for BashError {
    fn from(error: PathError) -> Self {
        match error {
            PathError::NotFound { path, .. } => Self::CwdMissing { cwd: path },
            other => Self::Cwd(other),
        }
    }
}
