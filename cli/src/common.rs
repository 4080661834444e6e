//! What the commands share: how they fail, what they say, how a harness is started.

use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::sync::Arc;

use bma_runtime_tokio::proto::contract::Secret;
use bma_runtime_tokio::{Authenticator, Harness, HarnessOptions, Runtime};

/// Done.
pub(crate) const SUCCESS: u8 = 0;
/// The work was done and went wrong; what that means is each command's.
pub(crate) const FAILED: u8 = 1;
/// Wrong usage, and whatever else kept the work from being done.
pub(crate) const NOT_DONE: u8 = 2;

/// Why a command ends early: one line for people, and an exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    line: String,
}

impl Failure {
    /// What the user gave is wrong: `field` is the option or variable, `problem` says what to do.
    pub(crate) fn usage(field: &str, problem: impl fmt::Display) -> Self {
        Self { code: NOT_DONE, line: format!("{field}: {problem}") }
    }

    /// The work could not be done.
    pub(crate) fn not_done(line: impl Into<String>) -> Self {
        Self { code: NOT_DONE, line: line.into() }
    }

    /// The work went wrong.
    pub(crate) fn failed(line: impl Into<String>) -> Self {
        Self { code: FAILED, line: line.into() }
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// Writes one line to stderr. What other machines sent may be in it: it stays one
/// line, and no control character reaches the terminal.
pub(crate) fn tell(line: &str) {
    // Somebody who closed stderr does not want to know.
    let _ = writeln!(std::io::stderr(), "{}", one_line(line));
}

/// The text without line breaks and other control characters.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.trim_end().chars() {
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
            c if c.is_control() => line.extend(c.escape_default()),
            c => line.push(c),
        }
    }
    line
}

/// Runs `main` on a runtime of its own.
pub(crate) fn on_runtime<F>(main: impl FnOnce(Arc<dyn Runtime>) -> F) -> Result<u8, Failure>
where
    F: Future<Output = Result<u8, Failure>>,
{
    let done = bma_runtime_tokio::run(main);
    done.unwrap_or_else(|error| Err(Failure::not_done(format!("no runtime can be started on this machine: {error}"))))
}

/// A harness for executors that know the token. Nobody reaches it yet.
pub(crate) fn harness(runtime: &Arc<dyn Runtime>, token: Secret) -> Harness {
    Harness::new(Arc::clone(runtime), HarnessOptions::new(Authenticator::bearer(token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_sent_stays_one_line_and_moves_no_cursor() {
        assert_eq!(one_line("a\nb\tc\r\n"), "a b c");
        assert_eq!(one_line("\u{1b}[2Jgone\u{7}"), "\\u{1b}[2Jgone\\u{7}");
        assert_eq!(one_line("é 日"), "é 日");
    }
}
