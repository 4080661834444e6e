//! One line a step.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::Runtime;
use bma_runtime_tokio::proto::Time;

use crate::common::one_line;

/// No step may take longer.
const STEP_LIMIT: Duration = Duration::from_secs(10);

/// The longest line shown, in characters.
const SHOWN: usize = 200;

/// A step failed, and its line says so.
#[derive(Debug)]
pub(super) struct Failed;

/// What a step should have seen, and what it saw.
#[derive(Debug)]
pub(super) struct Surprise {
    expected: String,
    got: String,
}

/// A step's surprise.
pub(super) fn surprise(expected: impl Into<String>, got: impl Into<String>) -> Surprise {
    Surprise { expected: expected.into(), got: got.into() }
}

/// Runs and tells of the steps.
pub(super) struct Steps {
    runtime: Arc<dyn Runtime>,
    began: Time,
    done: usize,
}

impl Steps {
    pub(super) fn new(runtime: Arc<dyn Runtime>) -> Self {
        let began = runtime.now();
        Self { runtime, began, done: 0 }
    }

    /// Runs one step, which gives its result and what to say of it.
    pub(super) async fn step<T>(
        &mut self,
        name: &str,
        work: impl Future<Output = Result<(T, String), Surprise>>,
    ) -> Result<T, Failed> {
        let began = self.runtime.now();
        let done = tokio::time::timeout(STEP_LIMIT, work)
            .await
            .unwrap_or_else(|_| Err(surprise(format!("an end within {} s", STEP_LIMIT.as_secs()), "none")));
        let took = self.runtime.now().saturating_since(began);
        match done {
            Ok((result, said)) => {
                self.done += 1;
                say("ok", took, name, &said);
                Ok(result)
            }
            Err(Surprise { expected, got }) => {
                say("FAIL", took, name, &format!("expected {expected}, got {got}"));
                Err(Failed)
            }
        }
    }

    /// The last line.
    pub(super) fn conclude(&self) {
        let took = self.runtime.now().saturating_since(self.began);
        say("done", took, "demo", &format!("all {} steps did what they should", self.done));
    }
}

fn say(verdict: &str, took: Duration, name: &str, said: &str) {
    let said = one_line(said);
    let shown: String = said.chars().take(SHOWN).collect();
    let more = if shown.len() < said.len() { " ..." } else { "" };
    // Somebody who closed stdout still gets the exit code.
    let _ = writeln!(std::io::stdout(), "{verdict:<4} {:>6} ms  {name:<10} {shown}{more}", took.as_millis());
}
