//! event wire types.

use serde::{Deserialize, Serialize};

use super::enums::{AgentErrorCode, AgentEventType, EvaluatedPermissionType, StopReasonType, TurnOutcome};
use super::ids::EventId;
use super::json::{JsonObject, null_as_default};
use super::tool::ContentBlock;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentMessageEvent {
    pub r#type: AgentEventType,
    #[serde(deserialize_with = "null_as_default")]
    pub content: Vec<ContentBlock>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentThinkingEvent {
    pub r#type: AgentEventType,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentBlock>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentToolUseEvent {
    pub r#type: AgentEventType,
    pub name: String,
    pub input: JsonObject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_permission: Option<EvaluatedPermission>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentToolResultEvent {
    pub r#type: AgentEventType,
    pub tool_use_id: EventId,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentBlock>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCustomToolUseEvent {
    pub r#type: AgentEventType,
    pub name: String,
    pub input: JsonObject,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentMCPToolUseEvent {
    pub r#type: AgentEventType,
    pub mcp_server_name: String,
    pub name: String,
    pub input: JsonObject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_permission: Option<EvaluatedPermission>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentMCPToolResultEvent {
    pub r#type: AgentEventType,
    pub mcp_tool_use_id: EventId,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentBlock>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluatedPermission {
    pub r#type: EvaluatedPermissionType,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatusRunningEvent {
    pub r#type: AgentEventType,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatusIdleEvent {
    pub r#type: AgentEventType,
    pub stop_reason: StopReason,
    pub turn_outcome: TurnOutcome,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StopReason {
    pub r#type: StopReasonType,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionErrorEvent {
    pub r#type: AgentEventType,
    pub error: AgentErrorInfo,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentErrorInfo {
    pub r#type: AgentErrorCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
