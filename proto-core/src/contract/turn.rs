//! turn wire types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::enums::{AgentInputBlockType, EventDeltaType};
use super::ids::{EventId, InputId, SessionId, TurnId};
use super::json::null_as_default;
use super::secret::Secret;
use super::tool::ContentBlock;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnStartParams {
    pub session_id: SessionId,
    pub turn_id: TurnId,
    pub input_id: InputId,
    #[serde(deserialize_with = "null_as_default")]
    pub input: Vec<AgentInputBlock>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor_session_ref: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<AgentTurnConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentTurnConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_info: Option<EnvironmentInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentInfo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_files_root: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentInputBlock {
    pub r#type: AgentInputBlockType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnStartResult {
    pub accepted: bool,
    pub turn_id: TurnId,
    pub executor_session_ref: String,
    pub resumed: bool,
    pub effective: AgentTurnConfig,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnInputParams {
    pub session_id: SessionId,
    pub turn_id: TurnId,
    pub input_id: InputId,
    #[serde(deserialize_with = "null_as_default")]
    pub input: Vec<AgentInputBlock>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnCancelParams {
    pub session_id: SessionId,
    pub turn_id: TurnId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnCancelResult {
    pub canceled: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEventDeltaParams {
    pub session_id: SessionId,
    pub turn_id: TurnId,
    pub event_id: EventId,
    pub event_type: EventDeltaType,
    pub index: i64,
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelTokenRefreshParams {
    pub session_id: SessionId,
    pub turn_id: TurnId,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelTokenRefreshResult {
    pub model_token: Secret,
    pub model_base_url: String,
    pub expires_at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolsTokenRefreshParams {
    pub session_id: SessionId,
    pub turn_id: TurnId,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolsTokenRefreshResult {
    pub tools_mcp_token: Secret,
    pub tools_mcp_url: String,
    pub expires_at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCustomToolResultParams {
    pub session_id: SessionId,
    pub tool_use_id: EventId,
    #[serde(deserialize_with = "null_as_default")]
    pub content: Vec<ContentBlock>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CustomToolResultResult {
    pub accepted: bool,
}
