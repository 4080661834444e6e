//! What came of a command.

use std::time::Duration;

use bma_proto_core::contract::ToolOutcome;
use bma_proto_core::contract::defaults::CORE_INLINE_RESULT_BYTES;
use bma_runtime::{BashResult, CancelReason, Captured, ToolOutput};

use super::ending::EndReport;
use crate::os::{Exit, Member};

/// What came of a command that ran.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BashReport {
    /// Its standard output.
    pub stdout: Captured,
    /// Its standard error.
    pub stderr: Captured,
    /// Why it ended.
    pub end: BashEnd,
    /// How the shell exited. After a time-out or a cancel too.
    /// `None`: that was not to be learnt.
    pub exit: Option<Exit>,
    /// How long it ran, by the monotonic clock.
    pub duration: Duration,
    /// Whether the command began after the shell's profile; `None` where that cannot be told.
    pub begun: Option<bool>,
    /// What it started and what still runs, after it ended by itself (else `end` tells). The session ends it.
    pub survivors: Vec<Member>,
    /// Something, perhaps none of the survivors, still holds the output, which is not kept from now on.
    pub output_held: bool,
}

/// Why a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BashEnd {
    /// By itself.
    Exited,
    /// Its time was up.
    TimedOut {
        /// The limit.
        limit: Duration,
        /// The limit was the call's deadline, and not its time-out.
        deadline: bool,
        /// What became of its processes.
        ended: EndReport,
    },
    /// It was asked to stop.
    Canceled {
        /// Why.
        reason: CancelReason,
        /// What became of its processes.
        ended: EndReport,
    },
}

impl BashReport {
    /// The command with its notices, ready to be rendered.
    pub fn result(&self) -> BashResult {
        let code = self.exit.as_ref().map_or(-1, Exit::code);
        let mut result = BashResult::new(self.stdout.clone(), self.stderr.clone(), code);
        let seconds = self.duration.as_secs_f64();
        match &self.end {
            BashEnd::Exited => self.add_own_end(&mut result),
            BashEnd::TimedOut { limit, deadline, ended } => {
                result.is_error = true;
                let what = if *deadline { "the deadline of the call" } else { "timeout_ms" };
                let profile = if self.begun == Some(false) { "; the login profile was still running" } else { "" };
                let (limit, fate) = (limit.as_millis(), fate(ended));
                result.notices.push(format!("timed out after {seconds:.1} s ({what} was {limit} ms){profile}; {fate}"));
            }
            BashEnd::Canceled { reason, ended } => {
                result.is_error = true;
                // Nothing of it may go on when a cancel is reported.
                result.outcome = if ended.is_empty() { ToolOutcome::Canceled } else { ToolOutcome::Failed };
                result.notices.push(format!("{reason} after {seconds:.1} s; {}", fate(ended)));
            }
        }
        if !self.survivors.is_empty() {
            let list = self.survivors.iter().map(Member::to_string).collect::<Vec<_>>().join(", ");
            let output = if self.output_held { ", and its output is no longer kept" } else { "" };
            result.notices.push(format!("still running: process {list}; it is ended with the session{output}"));
        } else if self.output_held && self.end == BashEnd::Exited {
            result.notices.push(
                "something outside the command's own processes still holds its output, which is no longer kept"
                    .to_owned(),
            );
        }
        result
    }

    /// The answer of the tool, in at most 48 KiB of text.
    pub fn output(&self) -> ToolOutput {
        self.output_within(CORE_INLINE_RESULT_BYTES)
    }

    /// The answer of the tool, in at most `limit` bytes of text.
    pub fn output_within(&self, limit: usize) -> ToolOutput {
        self.result().output_within(limit)
    }

    fn add_own_end(&self, result: &mut BashResult) {
        if let Some(Exit::Signal { number, name, core_dumped }) = &self.exit {
            let dumped = if *core_dumped { ", core dumped" } else { "" };
            result.notices.push(format!("killed by {name} (signal {number}{dumped})"));
        }
        if self.exit.is_none() {
            result.is_error = true;
            let lost = "the exit code is not known: the exit status was lost on its way, or taken by something else";
            result.notices.push(lost.to_owned());
        }
        if self.begun == Some(false) {
            result.is_error = true;
            result.notices.push(
                "the login profile ended or replaced the shell, so the command was most likely not run; look for \
                 `exit` or `exec` in the profile files of this machine's user"
                    .to_owned(),
            );
        }
    }
}

fn fate(ended: &EndReport) -> String {
    ended.describe().unwrap_or_else(|| "the command and everything it had started were ended".to_owned())
}
