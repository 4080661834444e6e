//! session wire types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::enums::{AgentEventType, SessionStatus};
use super::ids::{EnvironmentId, EventId, SessionId, TurnId, WorkId};
use super::json::{Json, null_as_default};
use super::mcp::MCPServerConfig;
use super::secret::Secret;
use super::tool::ContentBlock;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    #[serde(alias = "lease_token")]
    pub token: Secret,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionAssignParams {
    pub session_id: SessionId,
    pub work_id: WorkId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    pub environment_id: EnvironmentId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    pub lease: Lease,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Json>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<MCPServerConfig>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionAssignResult {
    pub accepted: bool,
    pub session_id: SessionId,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionReadyParams {
    pub session_id: SessionId,
    pub work_id: WorkId,
    pub lease_token: Secret,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatusParams {
    pub session_id: SessionId,
    pub status: SessionStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStopParams {
    pub session_id: SessionId,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStopResult {
    pub stopped: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEndedParams {
    pub session_id: SessionId,
    pub reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEventParams {
    pub session_id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    pub event: Json,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEventResult {
    pub accepted: bool,
    pub event_id: EventId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_sequence: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    pub r#type: AgentEventType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<EventId>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentBlock>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionContext {
    pub id: String,
    pub environment_id: EnvironmentId,
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: BTreeMap<String, String>,
    pub created_at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionMemoryResource {
    pub r#type: String,
    pub memory_store_id: String,
    pub mount_path: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionCloseParams {
    pub session_id: SessionId,
    pub reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionCloseResult {
    pub closed: bool,
}
