//! The login shell, and how it is told what to run.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The longest text that goes into one argument. Linux takes 128 KiB.
const CHUNK_BYTES: usize = 120_000;

/// The longest command. Half of what Linux takes for all arguments and the
/// environment together when the stack may grow to its usual 8 MiB.
#[cfg(target_os = "linux")]
pub(crate) const MAX_COMMAND_BYTES: usize = 1024 * 1024;
/// The longest command. Half of what macOS takes for all arguments and the environment together.
#[cfg(not(target_os = "linux"))]
pub(crate) const MAX_COMMAND_BYTES: usize = 512 * 1024;

/// Which shell there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shell {
    path: PathBuf,
    is_bash: bool,
}

impl Shell {
    /// bash, or else sh.
    pub(crate) fn find() -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = ["/bin", "/usr/bin", "/usr/local/bin"].into_iter().map(PathBuf::from);
        let bash = folders.chain(std::env::split_paths(&path).filter(|folder| folder.is_absolute()));
        match bash.map(|folder| folder.join("bash")).find(|path| path.is_file()) {
            Some(path) => Self { path, is_bash: true },
            None => Self { path: "/bin/sh".into(), is_bash: false },
        }
    }

    pub(crate) fn at(path: PathBuf) -> Self {
        let is_bash = path.file_name() == Some(OsStr::new("bash"));
        Self { path, is_bash }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.is_bash { "bash" } else { "sh" }
    }

    /// Whether [`argv`](Self::argv) can tell that the command begins. A plain sh cannot close a descriptor
    /// with two digits again.
    pub(crate) fn can_tell_begin(&self) -> bool {
        self.is_bash
    }

    /// The command line as people write it.
    pub(crate) fn plain_argv(&self, command: &str) -> Vec<OsString> {
        vec![self.name().into(), "-lc".into(), command.into()]
    }

    /// The command line as it is run. With `begun`, one byte is written to that descriptor, and the descriptor
    /// closed, after the profile and before the command.
    ///
    /// A command of one line follows as the second line of its text: bash replaces itself by the last program of such a text,
    /// as it does for a plain `bash -c`. A command of several lines, or one too long for one argument, is given
    /// in pieces that are joined and evaluated, which keeps its line numbers.
    pub(crate) fn argv(&self, command: &str, begun: Option<i32>) -> Vec<OsString> {
        let preamble = match begun {
            Some(fd) => format!("{{ builtin printf . >&{fd}; }} 2>/dev/null || :; exec {fd}>&-"),
            None => String::new(),
        };
        let one_piece = command.len() <= CHUNK_BYTES;
        if one_piece && preamble.is_empty() {
            return self.plain_argv(command);
        }
        if one_piece && !command.contains('\n') {
            return self.plain_argv(&format!("{preamble}\n{command}"));
        }
        let separator = if preamble.is_empty() { "" } else { "; " };
        let restore = if self.is_bash { r"IFS=\$' \\t\\n'" } else { "IFS=' \t\n'" };
        let script = format!("{preamble}{separator}IFS=; eval \"{restore}; set --; $*\"");
        let mut argv = self.plain_argv(&script);
        argv.push(self.name().into());
        argv.extend(command.as_bytes().chunks(CHUNK_BYTES).map(|piece| OsStr::from_bytes(piece).to_owned()));
        argv
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use super::*;
    use std::process::Command;

    fn run(shell: &Shell, command: &str, begun: Option<i32>) -> (String, String, Option<i32>) {
        let argv = shell.argv(command, begun);
        let home = tempfile::tempdir().unwrap();
        let output = Command::new(shell.path()).args(&argv[1..]).env("HOME", home.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    }

    #[test]
    fn every_form_runs_the_same_command() {
        let long = format!(": {}; echo \"$0 $# [$IFS]\" | od -c; exit 4", "a".repeat(300_000));
        let lines = "echo a  b; for x in 1 2; do\necho $x\ndone; exit 4";
        for shell in [Shell::find(), Shell::at("/bin/sh".into())] {
            for command in ["echo \"$0 $# [$IFS]\" | od -c; exit 4", lines, &long] {
                let plain = shell.plain_argv(if command.len() > 100_000 {
                    "echo \"$0 $# [$IFS]\" | od -c; exit 4"
                } else {
                    command
                });
                let home = tempfile::tempdir().unwrap();
                let mut direct = Command::new(shell.path());
                std::os::unix::process::CommandExt::arg0(&mut direct, shell.name());
                let direct = direct.args(&plain[1..]).env("HOME", home.path()).output().unwrap();
                let expected = String::from_utf8(direct.stdout).unwrap();
                let forms = if shell.can_tell_begin() { vec![None, Some(2)] } else { vec![None] };
                for begun in forms {
                    let (out, _, code) = run_as(&shell, command, begun);
                    assert_eq!((out.as_str(), code), (expected.as_str(), Some(4)), "{begun:?}");
                }
            }
        }
    }

    fn run_as(shell: &Shell, command: &str, begun: Option<i32>) -> (String, String, Option<i32>) {
        let argv = shell.argv(command, begun);
        let home = tempfile::tempdir().unwrap();
        let mut direct = Command::new(shell.path());
        std::os::unix::process::CommandExt::arg0(&mut direct, shell.name());
        let output = direct.args(&argv[1..]).env("HOME", home.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    }

    #[test]
    fn line_numbers_of_several_lines_are_kept() {
        let (_, err, code) = run(&Shell::find(), "true\ntrue\nif; then", None);
        let (_, marked, marked_code) = run(&Shell::find(), "true\ntrue\nif; then", Some(7));
        assert!(err.contains("line 3") && marked.contains("line 3"), "{err} {marked}");
        assert_eq!(code, marked_code);
    }
}
