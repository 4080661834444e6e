//! One call from its input to its report.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bma_proto_core::Time;
use bma_proto_core::contract::{BashInput, SessionId, ToolCallId};
use bma_runtime::{BoxFuture, CancelReason, Cancellation};

use super::ending::{EndReport, end_trees};
use super::processes::{Running, SessionProcesses, end_limit};
use super::report::{BashEnd, BashReport};
use super::streams::{self, Output};
use super::watch::{ProgressFn, Until, Watch, Woke};
use super::{Bash, BashError, DRAIN_GRACE, TERMINATE_GRACE};
use crate::blocking::{Either, RuntimeEnded, blocking, either, sleep, sleep_until};
use crate::launch::{LaunchRefusal, LaunchRequest};
use crate::os::{CommandLine, Directory, Leftover, Member, Os, ProcessTree, Processes, SpawnRequest, Spawned};
use crate::workspace::Workspace;

/// One command to run.
#[derive(Clone)]
#[non_exhaustive]
pub struct BashCall {
    /// The session, for the launch hook.
    pub session_id: SessionId,
    /// The call, for the launch hook.
    pub tool_call_id: ToolCallId,
    /// What to run.
    pub input: BashInput,
    /// Where: the directory of the input is relative to it.
    pub workspace: Arc<Workspace>,
    /// Where what the command leaves running is kept.
    pub processes: SessionProcesses,
    /// Asked to stop the command.
    pub cancellation: Cancellation,
    /// The call's deadline, by the runtime's clock.
    pub deadline: Option<Time>,
    /// Told the newest output while the command runs, at most twice a second.
    pub progress: Option<ProgressFn>,
}

impl BashCall {
    /// A command that nobody cancels, without a deadline.
    pub fn new(input: BashInput, workspace: Arc<Workspace>, processes: SessionProcesses) -> Self {
        Self {
            session_id: SessionId::default(),
            tool_call_id: ToolCallId::default(),
            input,
            workspace,
            processes,
            cancellation: Cancellation::never(),
            deadline: None,
            progress: None,
        }
    }
}

impl fmt::Debug for BashCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BashCall")
            .field("session_id", &self.session_id)
            .field("tool_call_id", &self.tool_call_id)
            .finish_non_exhaustive()
    }
}

/// How many milliseconds before each look for what a command left running.
const LEFTOVER_PAUSES: [u64; 4] = [0, 2, 10, 40];

/// When a command's time is up, and by which limit.
#[derive(Clone, Copy, Debug)]
struct Limit {
    at: Time,
    length: Duration,
    deadline: bool,
}

impl Bash {
    fn limit(&self, call: &BashCall, started: Time) -> Result<Limit, BashError> {
        let timeout = match call.input.timeout_ms {
            None | Some(0) => None,
            Some(ms) => Some(u64::try_from(ms).map_err(|_| BashError::InvalidTimeout(ms))?),
        };
        let by_timeout = timeout.map(|ms| {
            let length = Duration::from_millis(ms);
            Limit { at: started + length, length, deadline: false }
        });
        let by_deadline = call.deadline.map(|at| {
            // It was a whole number of milliseconds, some of one ago.
            let left = at.saturating_since(started).as_micros().div_ceil(1000);
            let length = Duration::from_millis(u64::try_from(left).unwrap_or(u64::MAX));
            Limit { at, length, deadline: true }
        });
        let default = || Limit { at: started + self.options.timeout, length: self.options.timeout, deadline: false };
        let earliest = by_timeout.into_iter().chain(by_deadline).min_by_key(|limit| limit.at);
        Ok(earliest.unwrap_or_else(default))
    }

    pub(super) async fn run_here(&self, call: BashCall) -> Result<BashReport, BashError> {
        let started = self.runtime.now();
        let limit = self.limit(&call, started)?;
        let stop = Stop { call: call.cancellation.clone(), session: call.processes.stopped() };
        let prepare = async {
            let running = call.processes.admit(&self.runtime).await?;
            Ok::<_, BashError>((running, self.prepare(&call).await?))
        };
        let prepared = either(stop.asked(), either(sleep_until(&self.runtime, limit.at), prepare)).await;
        let (running, start) = match prepared {
            Either::First(reason) => return Err(BashError::Canceled(reason)),
            Either::Second(Either::First(())) => {
                return Err(BashError::TimedOut(self.runtime.now().saturating_since(started)));
            }
            Either::Second(Either::Second(prepared)) => prepared?,
        };
        let os = self.os.clone();
        // Once it is under way the start is waited for, whatever comes: what it starts must be owned by somebody.
        let spawned = blocking(&self.runtime, move || start(os.as_ref())).await??;
        self.attend(call, running, stop, spawned, started, limit).await
    }

    /// Everything that must be known before something starts; and the start itself, which may block.
    async fn prepare(
        &self,
        call: &BashCall,
    ) -> Result<impl FnOnce(&dyn Os) -> Result<Spawned, BashError> + Send + use<>, BashError> {
        let mut env = self.options.env.build(&call.input.env)?;
        let mut command = CommandLine::Shell(call.input.command.clone());
        let mut chosen_directory = None;
        if let Some(hook) = &self.options.launch {
            let request = LaunchRequest {
                session_id: call.session_id.clone(),
                tool: Some("bash".to_owned()),
                tool_call_id: Some(call.tool_call_id.clone()),
                argv: self.os.shell_argv(&call.input.command),
                cwd: call.input.cwd.clone(),
                default_cwd: call.workspace.path().to_owned(),
                env: env.clone(),
            };
            let argv = request.argv.clone();
            let spec = hook.launch(request).await?;
            // Relative to what? To nothing that a hook could know of.
            if let Some(relative) = spec.dir.as_deref().filter(|dir| !dir.is_absolute()) {
                let chosen = relative.display();
                let problem =
                    format!("the machine's launch hook chose the directory `{chosen}`, which is not absolute");
                return Err(LaunchRefusal::failed(problem).into());
            }
            env = spec.env.unwrap_or(env);
            chosen_directory = spec.dir;
            if let Some(chosen) = spec.argv.filter(|chosen| *chosen != argv) {
                command = CommandLine::Argv(chosen);
            }
        }
        let (workspace, cwd) = (call.workspace.clone(), call.input.cwd.clone().unwrap_or_default());
        let mark = call.processes.mark();
        Ok(move |os: &dyn Os| {
            let directory = match chosen_directory {
                Some(path) => os.open_directory(&path)?,
                None => {
                    let folder = workspace.folder(&cwd)?;
                    Directory::new(folder.dir, folder.host_path)
                }
            };
            let mut request = SpawnRequest::new(command, directory, env);
            request.mark = mark;
            Ok(os.spawn(request)?)
        })
    }

    /// Sees a command that was started through to its end.
    async fn attend(
        &self,
        call: BashCall,
        running: Running,
        stop: Stop,
        spawned: Spawned,
        started: Time,
        limit: Limit,
    ) -> Result<BashReport, BashError> {
        let tree = spawned.tree.clone();
        let mut watch = self.watch(spawned, call.progress.clone()).map_err(BashError::Output)?;
        let mut end = match watch.wait(Until::Exit, Some(limit.at), stop.clone().asked_boxed()).await {
            Woke::Reached => None,
            Woke::TimeUp => Some(None),
            Woke::Interrupted(reason) => Some(Some(reason)),
        };
        if end.is_none() {
            let grace_ends = self.runtime.now() + DRAIN_GRACE;
            let woke = watch.wait(Until::EndOfOutput, Some(grace_ends), stop.asked_boxed()).await;
            if let Woke::Interrupted(reason) = woke {
                end = Some(Some(reason));
            }
        }
        let mut end = match end {
            None => BashEnd::Exited,
            Some(reason) => {
                let ran = self.runtime.now().saturating_since(started);
                let ended = self.end(&mut watch, &tree).await?;
                match reason {
                    None => BashEnd::TimedOut { limit: limit.length, deadline: limit.deadline, ended },
                    Some(CancelReason::Deadline) => {
                        let limit = if limit.deadline { limit.length } else { ran };
                        BashEnd::TimedOut { limit, deadline: true, ended }
                    }
                    Some(reason) => BashEnd::Canceled { reason, ended },
                }
            }
        };
        let duration = self.runtime.now().saturating_since(started);
        let begun = watch.has_begun();
        let (stdout, stdout_held) = watch.stdout.finish();
        let (stderr, stderr_held) = watch.stderr.finish();
        let held = stdout_held.is_some() || stderr_held.is_some();

        let mut survivors = self.survivors(&tree, held).await?;
        // Known by now. If not, somebody else took it, or the shell could not be ended.
        let exit = tree.try_wait().ok().flatten();
        for stream in [stdout_held, stderr_held].into_iter().flatten() {
            let over = call.processes.over();
            self.runtime.spawn(Box::pin(streams::drain(stream, async move {
                over.canceled().await;
            })));
        }
        if !survivors.is_empty() {
            running.leave_behind(tree);
        }
        if let BashEnd::TimedOut { ended, .. } | BashEnd::Canceled { ended, .. } = &mut end {
            // What showed only now was not ended.
            ended.add(EndReport { remaining: std::mem::take(&mut survivors), ..EndReport::default() });
            if held && ended.is_empty() {
                ended.unknown = Some("something still holds its output, which is no longer kept".to_owned());
            }
        }
        Ok(BashReport { stdout, stderr, end, exit, duration, begun, survivors, output_held: held })
    }

    /// What still runs of a tree whose program has exited.
    async fn survivors(&self, tree: &Arc<dyn ProcessTree>, held: bool) -> Result<Vec<Member>, RuntimeEnded> {
        let looked = tree.clone();
        let leftover = blocking(&self.runtime, move || looked.release()).await?;
        let mut survivors = Vec::new();
        if leftover == Leftover::None && !held {
            return Ok(survivors);
        }
        // A helper that has closed its output is about to end: not worth a word, if it does so soon.
        for pause in LEFTOVER_PAUSES {
            sleep(&self.runtime, Duration::from_millis(pause)).await;
            let looked = tree.clone();
            // An error means that it is not known: the session looks again when it ends.
            survivors = blocking(&self.runtime, move || looked.members().unwrap_or_default()).await?;
            if survivors.is_empty() {
                break;
            }
        }
        Ok(survivors)
    }

    fn watch(&self, spawned: Spawned, progress: Option<ProgressFn>) -> std::io::Result<Watch> {
        let limit = self.options.max_output_bytes;
        let stdout = Output::new(streams::open(&self.runtime, spawned.stdout)?, limit);
        let stderr = Output::new(streams::open(&self.runtime, spawned.stderr)?, limit);
        let begun = spawned.begun.map(|pipe| streams::open(&self.runtime, pipe)).transpose()?;
        let exit = streams::exit(&self.runtime, spawned.exit)?;
        Ok(Watch::new(&self.runtime, stdout, stderr, begun, exit, progress))
    }

    /// Ends the tree, and reads what it still says.
    async fn end(&self, watch: &mut Watch, tree: &Arc<dyn ProcessTree>) -> Result<EndReport, RuntimeEnded> {
        let deadline = self.runtime.now() + end_limit();
        let mut grace = TERMINATE_GRACE;
        loop {
            let (runtime, trees) = (self.runtime.clone(), vec![tree.clone() as Arc<dyn Processes>]);
            let ending: BoxFuture<_> = Box::pin(async move { end_trees(&runtime, trees, grace, deadline).await });
            let ended = match watch.wait(Until::Never, None, ending).await {
                Woke::Interrupted(ended) => ended?,
                // Neither can be: nothing else was waited for.
                Woke::Reached | Woke::TimeUp => EndReport::default(),
            };
            let grace_ends = self.runtime.now() + DRAIN_GRACE;
            let nobody = Box::pin(std::future::pending::<()>());
            let drained = watch.wait(Until::EndOfOutput, Some(grace_ends), nobody).await;
            // Whoever holds the output after all may be a member that no look has met: then it is looked again, once.
            let is_over = matches!(drained, Woke::Reached) || !ended.is_empty() || grace.is_zero();
            if is_over || self.runtime.now() >= deadline {
                return Ok(ended);
            }
            grace = Duration::ZERO;
        }
    }
}

/// Who may ask for the stop.
#[derive(Clone)]
struct Stop {
    call: Cancellation,
    session: Cancellation,
}

impl Stop {
    fn asked(&self) -> impl Future<Output = CancelReason> + Send + use<> {
        let (call, session) = (self.call.canceled(), self.session.canceled());
        async move {
            match either(call, session).await {
                Either::First(reason) | Either::Second(reason) => reason,
            }
        }
    }

    fn asked_boxed(&self) -> BoxFuture<CancelReason> {
        Box::pin(self.asked())
    }
}
