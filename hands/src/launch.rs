//! The hook that is asked before a command starts.

use std::ffi::OsString;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;

use bma_proto_core::contract::{SessionId, ToolCallId};
use bma_runtime::BoxFuture;

/// Asked once for each command, before it starts: may choose the directory, wrap
/// the command line (in a sandbox, say), change the environment, or refuse.
///
/// A closure that takes a [`LaunchRequest`] and returns a future is one. The
/// future counts against the command's time limit and is dropped when the call
/// is canceled.
pub trait Launch: Send + Sync + 'static {
    /// Decides about one command.
    fn launch(&self, request: LaunchRequest) -> BoxFuture<Result<LaunchSpec, LaunchRefusal>>;
}

impl<F, R> Launch for F
where
    F: Fn(LaunchRequest) -> R + Send + Sync + 'static,
    R: Future<Output = Result<LaunchSpec, LaunchRefusal>> + Send + 'static,
{
    fn launch(&self, request: LaunchRequest) -> BoxFuture<Result<LaunchSpec, LaunchRefusal>> {
        Box::pin(self(request))
    }
}

/// A command that is about to start.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaunchRequest {
    /// The session.
    pub session_id: SessionId,
    /// The tool that starts it, `bash`.
    pub tool: Option<String>,
    /// The tool's call.
    pub tool_call_id: Option<ToolCallId>,
    /// The command line: of a shell, it is `bash -lc <command>`.
    pub argv: Vec<OsString>,
    /// The directory as the request names it: neither resolved nor confined.
    pub cwd: Option<String>,
    /// Where the command starts when neither the request nor the hook names a directory: the workspace.
    pub default_cwd: PathBuf,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
}

impl fmt::Debug for LaunchRequest {
    /// Of the environment names only: values may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchRequest")
            .field("session_id", &self.session_id)
            .field("tool", &self.tool)
            .field("tool_call_id", &self.tool_call_id)
            .field("argv", &self.argv)
            .field("cwd", &self.cwd)
            .field("default_cwd", &self.default_cwd)
            .field("env", &self.env.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .finish()
    }
}

/// How the command shall start. What is `None` stays as the request has it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct LaunchSpec {
    /// An absolute directory. It is not confined to the workspace.
    pub dir: Option<PathBuf>,
    /// The command line.
    pub argv: Option<Vec<OsString>>,
    /// The complete environment.
    pub env: Option<Vec<(OsString, OsString)>>,
}

impl LaunchSpec {
    /// Start it as it is.
    pub fn unchanged() -> Self {
        Self::default()
    }
}

impl fmt::Debug for LaunchSpec {
    /// Of the environment names only: values may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchSpec")
            .field("dir", &self.dir)
            .field("argv", &self.argv)
            .field("env", &self.env.as_ref().map(|env| env.iter().map(|(name, _)| name).collect::<Vec<_>>()))
            .finish()
    }
}

/// Why a hook refuses a command: nothing starts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct LaunchRefusal {
    /// A word for programs, such as `local_confirmation_denied`.
    pub reason: String,
    /// For people.
    pub message: String,
}

impl LaunchRefusal {
    /// A refusal with its reason.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }

    /// A hook that could not decide: reason `spawn_failed`.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new("spawn_failed", message)
    }
}
