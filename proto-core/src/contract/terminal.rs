//! Terminals that people or agents attach to. The terminal's own stream runs elsewhere.

use serde::{Deserialize, Serialize};

use super::enums::TerminalKind;
use super::ids::TerminalId;
use super::rules::{empty_as_none, not_empty, null_as_default};
use super::secret::Secret;
use super::text_map::TextMap;

/// Params of `terminal.open`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalOpenParams {
    /// The terminal, named by the harness.
    pub terminal_id: TerminalId,
    /// For people or for an agent.
    #[serde(deserialize_with = "not_empty")]
    pub kind: TerminalKind,
    /// The shell; the user's own when absent.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Program and arguments, instead of a shell.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Working directory.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Environment variables to add. `Debug` shows their names only.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub env: TextMap,
    /// Height in rows; [`PTY_ROWS`](super::defaults::PTY_ROWS) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
    /// Width in columns; [`PTY_COLS`](super::defaults::PTY_COLS) when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
}

/// Result of `terminal.open`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalOpenResult {
    /// The terminal.
    pub terminal_id: TerminalId,
    /// 1, and one more each time the pseudo-terminal was made anew under the same id.
    pub epoch: i64,
    /// The operating system's process id.
    pub pid: i64,
    /// Height in rows.
    pub rows: u16,
    /// Width in columns.
    pub cols: u16,
    /// The first output frame that is still kept.
    pub earliest_seq: i64,
    /// The last output frame so far.
    pub latest_seq: i64,
    /// When it was made, RFC 3339.
    pub created_at: String,
}

/// Params of `terminal.attach`: join the terminal to a socket of its host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalAttachParams {
    /// The terminal.
    pub terminal_id: TerminalId,
    /// The terminal's epoch; another one is refused.
    pub epoch: i64,
    /// The stream on the host.
    #[serde(deserialize_with = "not_empty")]
    pub stream_id: String,
    /// Whether the stream may type.
    pub can_write: bool,
    /// The first output frame wanted.
    pub from_seq: i64,
    /// The last output frame that arrived.
    pub ack_seq: i64,
    /// Where to dial.
    pub host: TerminalHost,
}

/// Where a terminal's stream is carried. Its shape is inferred.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalHost {
    /// Where to dial.
    pub url: String,
    /// What to show there.
    #[serde(deserialize_with = "not_empty")]
    pub ticket: Secret,
}

/// Result of `terminal.attach`, sent once the host's socket is connected and was told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalAttachResult {
    /// Whether it is attached.
    pub accepted: bool,
    /// Number of this right to type; a higher one replaces it.
    pub writer_epoch: u64,
}

/// Params of `terminal.close`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalCloseParams {
    /// The terminal.
    pub terminal_id: TerminalId,
    /// Why, for logs.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of `terminal.close`. An unknown or closed terminal is closed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalCloseResult {
    /// Whether it is closed.
    pub closed: bool,
    /// The exit code of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
}

/// Data of an error that a `terminal.*` request was answered with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalErrorData {
    /// The terminal protocol's own code, `terminal_writer_busy` for example.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub terminal_code: Option<String>,
}
