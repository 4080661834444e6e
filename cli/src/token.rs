//! The token: from a file, from `BMA_TOKEN`, or from standard input. Never an argument.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bma_runtime_tokio::TokenSource;
use bma_runtime_tokio::proto::contract::{ExecutorTokenResponse, Secret};
use bma_runtime_tokio::proto::executor::TokenError;

use crate::common::Failure;

/// Where a token may stand when no file is named.
const VARIABLE: &str = "BMA_TOKEN";

const OPTION: &str = "--token-file";

/// No token is longer, in bytes.
const MAX_BYTES: usize = 8 * 1024;

/// So much fits into any pipe without a reader.
const PIPE_BYTES: usize = 4096;

/// `--token-file -`.
const STDIN: &str = "-";

/// A token, and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    secret: Secret,
    /// Read again for each connection, so that a token can be renewed while this runs.
    file: Option<PathBuf>,
}

impl Token {
    /// From the file, or else from the environment.
    pub(crate) fn read(file: Option<&Path>) -> Result<Self, Failure> {
        if let Some(path) = file {
            let secret = read_file(path).map_err(|fault| Failure::usage(OPTION, fault))?;
            return Ok(Self { secret, file: Some(path.to_owned()) });
        }
        let none =
            || Failure::usage(OPTION, format!("there is no token: name a file that holds it, or set {VARIABLE}"));
        let secret = check(std::env::var_os(VARIABLE).ok_or_else(none)?.as_encoded_bytes());
        Ok(Self { secret: secret.map_err(|fault| Failure::usage(VARIABLE, fault))?, file: None })
    }

    /// As [`read`](Self::read), where `-` means standard input.
    pub(crate) fn read_or_stdin(file: Option<&Path>) -> Result<Self, Failure> {
        if file != Some(Path::new(STDIN)) {
            return Self::read(file);
        }
        let secret = read_all(io::stdin().lock()).map_err(|fault| Failure::usage(OPTION, fault))?;
        Ok(Self { secret, file: None })
    }

    /// The token as it was read.
    pub(crate) fn secret(&self) -> Secret {
        self.secret.clone()
    }

    /// What a client asks before each dial.
    pub(crate) fn source(self, ws_url: String) -> TokenSource {
        TokenSource::new(move || {
            let (ws_url, token) = (ws_url.clone(), self.clone());
            async move { Ok(ExecutorTokenResponse { ws_url, token: token.again().await?, ..Default::default() }) }
        })
    }

    async fn again(self) -> Result<Secret, TokenError> {
        let Some(path) = self.file else { return Ok(self.secret) };
        let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
        let unavailable = |problem: &dyn fmt::Display| TokenError::Unavailable(format!("{OPTION}: {problem}"));
        read.map_err(|error| unavailable(&error))?.map_err(|fault| unavailable(&fault))
    }
}

/// Starts this program again, in the same process, with the token on standard input instead of in its
/// environment: what stands there, every child of the same user and everything that root runs could read in
/// `/proc`. Does nothing when there is none. Call it before anything else is started.
pub(crate) fn take_out_of_environment(file: Option<&Path>) -> Result<(), Failure> {
    use std::io::Write as _;
    use std::os::unix::process::CommandExt as _;

    let Some(token) = std::env::var_os(VARIABLE) else { return Ok(()) };
    let Ok(program) = std::env::current_exe() else { return Ok(()) };
    let mut again = std::process::Command::new(program);
    let mut arguments = std::env::args_os();
    if let Some(name) = arguments.next() {
        again.arg0(name);
    }
    again.args(arguments).env_remove(VARIABLE);
    if file.is_none() {
        check(token.as_encoded_bytes()).map_err(|fault| Failure::usage(VARIABLE, fault))?;
        if token.len() > PIPE_BYTES {
            return Ok(());
        }
        let piped = io::pipe().and_then(|(reader, mut writer)| {
            writer.write_all(token.as_encoded_bytes())?;
            Ok(reader)
        });
        let Ok(reader) = piped else { return Ok(()) };
        again.arg(OPTION).arg(STDIN).stdin(reader);
    }
    // Comes back only when it fails, as when the program's file was replaced. The token then stays where it is.
    let error = again.exec();
    tracing::warn!(%error, "the token could not be taken out of the environment: root's programs can read it there");
    Ok(())
}

/// Why there is no token. Never shows any of it.
#[derive(Debug)]
enum Fault {
    Open(PathBuf, io::Error),
    NotAFile(PathBuf),
    Shared(PathBuf, u32),
    Read(io::Error),
    Empty,
    TooLong,
    Characters,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Open(path, error) => {
                write!(f, "cannot open {}: {error}; name a file that holds the token and nothing else", path.display())
            }
            Fault::NotAFile(path) => write!(f, "{} is no regular file: put the token into one", path.display()),
            Fault::Shared(path, mode) => {
                let path = path.display();
                write!(f, "{path} can be read or changed by others (mode {mode:04o}): chmod 600 {path}")
            }
            Fault::Read(error) => write!(f, "the token cannot be read: {error}"),
            Fault::Empty => f.write_str("the token is empty: put it there, on one line"),
            Fault::TooLong => write!(f, "there are more than {MAX_BYTES} bytes: only the token may be there"),
            Fault::Characters => f.write_str(
                "the token has a space, a line break or another character that no token has: only the token may be there",
            ),
        }
    }
}

fn read_file(path: &Path) -> Result<Secret, Fault> {
    // Opened first and looked at through the handle: nobody swaps it in between. A pipe must not make us wait.
    let flags = i32::try_from((rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::CLOEXEC).bits()).unwrap_or_default();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file: File = opened.map_err(|error| Fault::Open(path.to_owned(), error))?;
    let metadata = file.metadata().map_err(Fault::Read)?;
    if !metadata.is_file() {
        return Err(Fault::NotAFile(path.to_owned()));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Fault::Shared(path.to_owned(), mode));
    }
    read_all(file)
}

fn read_all(source: impl Read) -> Result<Secret, Fault> {
    let mut bytes = Vec::with_capacity(1024);
    let limit = u64::try_from(MAX_BYTES + 2).unwrap_or(u64::MAX); // a line end may follow
    source.take(limit).read_to_end(&mut bytes).map_err(Fault::Read)?;
    check(&bytes)
}

fn check(bytes: &[u8]) -> Result<Secret, Fault> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.is_empty() {
        return Err(Fault::Empty);
    }
    if bytes.len() > MAX_BYTES {
        return Err(Fault::TooLong);
    }
    match std::str::from_utf8(bytes) {
        Ok(token) if token.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Secret::new(token)),
        _ => Err(Fault::Characters),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    #[test]
    fn one_line_end_is_no_part_of_the_token() {
        for text in ["t0ken", "t0ken\n", "t0ken\r\n"] {
            assert_eq!(check(text.as_bytes()).unwrap().expose(), "t0ken");
        }
    }

    #[test]
    fn what_is_no_token_is_refused_and_never_shown() {
        let long = "x".repeat(MAX_BYTES + 1);
        for text in ["", "\n", "two\nlines", "t0ken\n\n", "a b", "tök", "nul\0", long.as_str()] {
            let told = check(text.as_bytes()).unwrap_err().to_string();
            assert!(text.trim().is_empty() || !told.contains(text.trim()), "{told}");
        }
        assert!(check("x".repeat(MAX_BYTES).as_bytes()).is_ok());
        assert!(matches!(read_all(io::repeat(b'x')), Err(Fault::TooLong)));
    }
}
