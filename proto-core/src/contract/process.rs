//! Processes of a session: started, read by cursor, written to, signalled, listed.

use serde::{Deserialize, Serialize};

use super::enums::{
    FileTransferDirection, IoMode, PackageManager, ProcessStateName, ProcessStream, StderrMode, StdinMode,
};
use super::ids::{ProcessId, SessionId};
use super::rules::{empty_as_none, not_empty, null_as_default};
use super::text_map::TextMap;

/// Params of `process.start`. The same `process_id` with the same members starts nothing again and is answered with
/// the process's state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStartParams {
    /// The session.
    pub session_id: SessionId,
    /// The process, named by the harness.
    pub process_id: ProcessId,
    /// Program and arguments: at most 256, 4 KiB each, 16 KiB in all. Empty with `file_transfer` or
    /// `package_install`.
    #[serde(deserialize_with = "null_as_default")]
    pub argv: Vec<String>,
    /// Working directory, relative to the workspace, which is the default.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables to add. `Debug` shows their names only.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub env: TextMap,
    /// Whether standard input stays open for `process.write`. Absent: closed.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub stdin: Option<StdinMode>,
    /// `merge`: standard error goes where standard output goes, so that one cursor covers both. Absent: kept apart.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub stderr: Option<StderrMode>,
    /// Milliseconds to wait for the end before answering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<i64>,
    /// Milliseconds until the process is ended as `failed`, reason `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// On whose behalf: `agent_session_id` and `tool_call_id` for an agent's tool, `initiator` for the platform
    /// itself.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub metadata: TextMap,
    /// `pty`: on a pseudo-terminal of 24 rows and 80 columns. Needs `process.pty`.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub io_mode: Option<IoMode>,
    /// Move a file instead of running a program. Needs `process.file_transfer`; excludes `argv`, `io_mode` and
    /// `git_credentials`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_transfer: Option<ProcessFileTransfer>,
    /// Install packages instead of running a program. Needs `process.package_install`; excludes the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_install: Option<ProcessPackageInstall>,
    /// Whether the process gets short-lived Git credentials for github.com. Needs `process.git_credentials`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<bool>,
}

/// One file to move between the machine and the process's file endpoint.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessFileTransfer {
    /// Which way, seen from the machine.
    pub direction: FileTransferDirection,
    /// The file on the machine.
    pub local_path: String,
}

/// Packages to install by a command that the executor builds itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessPackageInstall {
    /// The package manager.
    pub manager: PackageManager,
    /// Plain package names: no options, versions, paths or URLs.
    #[serde(deserialize_with = "null_as_default")]
    pub packages: Vec<String>,
}

/// What a process is doing. Result of `process.start`, `process.interrupt` and `process.terminate`, and an entry of
/// `process.list`. A process that could not be spawned has none: that is an error, reason `spawn_failed`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessState {
    /// The process.
    pub process_id: ProcessId,
    /// Running, or how it ended.
    pub state: ProcessStateName,
    /// The operating system's process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<i64>,
    /// When it was started, RFC 3339, by the machine's clock.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// When it ended, RFC 3339; absent while it runs.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Why it is `failed`: `timeout`, for example.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where the output ends at present.
    pub cursors: Cursors,
    /// The exit code, 64 bits wide (Windows codes stay unsigned). Null while it runs or when a signal ended it;
    /// always written.
    pub exit_code: Option<i64>,
    /// The signal that ended it, `SIGKILL` for example. Null when none did; always written.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub exit_signal: Option<String>,
    /// `merge` when it was started so.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub stderr: Option<StderrMode>,
    /// Whether the request had an effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<bool>,
    /// What became of a file transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_transfer: Option<FileTransferResult>,
}

/// The next cursor of each output: how many bytes it has brought so far. Its shape is inferred.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cursors {
    /// Standard output.
    pub stdout: i64,
    /// Standard error.
    pub stderr: i64,
}

/// What became of a file transfer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileTransferResult {
    /// Where an upload was put.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `sha256:` and the digest of the content.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FileTransferError>,
}

/// Why a file transfer failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileTransferError {
    /// The cause, for programs.
    pub code: String,
    /// The cause, for people.
    pub error: String,
    /// The digest of what is there instead.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub current_digest: Option<String>,
}

/// Params of `process.read`: output from a cursor on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessReadParams {
    /// The session.
    pub session_id: SessionId,
    /// The process.
    pub process_id: ProcessId,
    /// Which output.
    #[serde(deserialize_with = "not_empty")]
    pub stream: ProcessStream,
    /// The first byte wanted, counted from the start of the output.
    pub cursor: i64,
    /// How many bytes at most, before base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<i64>,
    /// Milliseconds to wait for output or the end, when there is none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<i64>,
}

/// Result of `process.read`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessReadResult {
    /// The process.
    pub process_id: ProcessId,
    /// Which output.
    pub stream: ProcessStream,
    /// The bytes from `from_cursor` up to `next_cursor`, base64.
    pub data: String,
    /// The first byte in `data`: later than asked when the output no longer reaches back that far.
    pub from_cursor: i64,
    /// Where to read on.
    pub next_cursor: i64,
    /// The first byte that is still kept.
    pub earliest_cursor: i64,
    /// Whether bytes between the cursor asked for and `from_cursor` are lost.
    pub gap: bool,
    /// Whether `data` was cut by `max_bytes` or begins after a gap.
    pub truncated: bool,
    /// Whether nothing will ever follow `next_cursor`.
    pub eof: bool,
    /// Running, or how the process ended.
    pub state: ProcessStateName,
    /// When it ended, RFC 3339.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Why it is `failed`.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The exit code; null as in [`ProcessState`], always written.
    pub exit_code: Option<i64>,
    /// The signal that ended it; null as in [`ProcessState`], always written.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub exit_signal: Option<String>,
    /// What became of a file transfer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_transfer: Option<FileTransferResult>,
}

/// Params of `process.write`. A repetition with the same JSON-RPC id writes nothing again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessWriteParams {
    /// The session.
    pub session_id: SessionId,
    /// The process.
    pub process_id: ProcessId,
    /// Bytes for standard input, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Whether standard input ends after them. Refused on a pseudo-terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_stdin: Option<bool>,
}

/// Result of `process.write`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessWriteResult {
    /// Whether the bytes were taken.
    pub accepted: bool,
}

/// Params of `process.interrupt` and `process.terminate`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessSignalParams {
    /// The session.
    pub session_id: SessionId,
    /// The process.
    pub process_id: ProcessId,
    /// `process.terminate` only: milliseconds between asking it to end and killing it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<i64>,
}

/// Params of `process.list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessListParams {
    /// The session.
    pub session_id: SessionId,
}

/// Result of `process.list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessListResult {
    /// Every process that is running or still kept.
    #[serde(deserialize_with = "null_as_default")]
    pub processes: Vec<ProcessState>,
}

/// Params of `process.status`: a process changed its state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessStatusParams {
    /// The session.
    pub session_id: SessionId,
    /// The process.
    pub process_id: ProcessId,
    /// Running, or how it ended.
    #[serde(deserialize_with = "not_empty")]
    pub state: ProcessStateName,
    /// The exit code, when it exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The signal that ended it, when one did.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<String>,
    /// When it ended, RFC 3339.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// Why it is `failed`.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the executor saw this, RFC 3339.
    pub observed_at: String,
}
