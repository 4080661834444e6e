//! The bash tool: a command in a login shell, in bounded memory and bounded time.
//!
//! A call is over when the shell has exited and its output is read, or a second after the exit when something
//! that the command started still holds the output; not when every descendant has let go. What still runs then
//! is said in the result, is kept by the session's [`SessionProcesses`], and is ended with the session.
//! A time-out, a deadline and a cancel end the whole tree, and are told apart in the result.

mod call;
mod capture;
mod ending;
mod error;
mod processes;
mod report;
mod streams;
mod watch;

pub use call::BashCall;
pub use ending::{EndReport, KILL_LIMIT, TERMINATE_GRACE};
pub use error::BashError;
pub use processes::{MAX_TREES, SessionProcesses};
pub use report::{BashEnd, BashReport};
pub use watch::ProgressFn;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bma_proto_core::contract::defaults::{CORE_BASH_TIMEOUT_MS, CORE_MAX_OUTPUT_BYTES};
use bma_runtime::sync::oneshot;
use bma_runtime::{Runtime, task};

use crate::blocking::RuntimeEnded;
use crate::env::EnvPolicy;
use crate::launch::Launch;
use crate::os::Os;

/// How long after the shell's exit its output is waited for.
pub const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// Runs commands.
#[derive(Clone, Debug)]
pub struct Bash {
    runtime: Arc<dyn Runtime>,
    os: Arc<dyn Os>,
    options: Arc<BashOptions>,
}

/// What holds for every command.
#[derive(Clone)]
#[non_exhaustive]
pub struct BashOptions {
    /// Applies when a call has neither a time-out nor a deadline (10 minutes).
    pub timeout: Duration,
    /// The most bytes kept of each stream, half from its beginning and half from its end (1 MiB).
    pub max_output_bytes: usize,
    /// How the environment is made.
    pub env: EnvPolicy,
    /// Asked before a command starts.
    pub launch: Option<Arc<dyn Launch>>,
}

impl BashOptions {
    /// The defaults, with this environment.
    pub fn new(env: EnvPolicy) -> Self {
        Self {
            timeout: Duration::from_millis(CORE_BASH_TIMEOUT_MS),
            max_output_bytes: CORE_MAX_OUTPUT_BYTES,
            env,
            launch: None,
        }
    }
}

impl fmt::Debug for BashOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BashOptions")
            .field("timeout", &self.timeout)
            .field("max_output_bytes", &self.max_output_bytes)
            .field("env", &self.env)
            .field("launch", &self.launch.is_some())
            .finish()
    }
}

impl Bash {
    /// Runs commands on this runtime and system.
    pub fn new(runtime: Arc<dyn Runtime>, os: Arc<dyn Os>, options: BashOptions) -> Self {
        Self { runtime, os, options: Arc::new(options) }
    }

    /// Runs one command to its end. Must be called on a runtime thread.
    ///
    /// Dropping the future abandons the wait and nothing else: the command goes on until it ends, until its time
    /// is up, or until its call is canceled or its session stops.
    ///
    /// # Errors
    /// The command did not run. What went wrong once it runs is in the report.
    pub async fn run(&self, call: BashCall) -> Result<BashReport, BashError> {
        let (sender, receiver) = oneshot::channel();
        let bash = self.clone();
        self.runtime.spawn(Box::pin(async move {
            let (session_id, tool_call_id) = (call.session_id.clone(), call.tool_call_id.clone());
            match task::catching(|| Box::pin(async move { bash.run_here(call).await })).await {
                // Nobody may be waiting any more.
                Ok(done) => drop(sender.send(done)),
                Err(panic) => tracing::error!(%session_id, %tool_call_id, %panic, "a hook panicked"),
            }
        }));
        receiver.await.unwrap_or(Err(BashError::RuntimeEnded(RuntimeEnded)))
    }
}
