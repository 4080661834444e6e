//! terminal wire types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::enums::TerminalKind;
use super::ids::TerminalId;
use super::json::null_as_default;
use super::secret::Secret;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalOpenParams {
    pub terminal_id: TerminalId,
    pub kind: TerminalKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalOpenResult {
    pub terminal_id: TerminalId,
    pub epoch: i64,
    pub pid: i64,
    pub rows: u16,
    pub cols: u16,
    pub earliest_seq: i64,
    pub latest_seq: i64,
    pub created_at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalAttachParams {
    pub terminal_id: TerminalId,
    pub epoch: i64,
    pub stream_id: String,
    pub can_write: bool,
    pub from_seq: i64,
    pub ack_seq: i64,
    pub host: TerminalHost,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalHost {
    pub url: String,
    pub ticket: Secret,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalAttachResult {
    pub accepted: bool,
    pub writer_epoch: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalCloseParams {
    pub terminal_id: TerminalId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalCloseResult {
    pub closed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalErrorData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_code: Option<String>,
}
