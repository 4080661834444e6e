//! executor wire types.

use serde::{Deserialize, Serialize};

use super::capabilities::Capabilities;
use super::enums::{ChannelScope, ProtocolVersion};
use super::ids::{ConnectionId, EnvironmentId, ExecutorId, SessionId};
use super::json::null_as_default;
use super::secret::Secret;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorInfo {
    pub name: String,
    pub os: String,
    pub arch: String,
    pub version: String,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorLoad {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorResume {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor_id: Option<ExecutorId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_connection_id: Option<ConnectionId>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub active_sessions: Vec<SessionId>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorRegisterParams {
    pub protocol: ProtocolVersion,
    pub environment_id: EnvironmentId,
    pub executor: ExecutorInfo,
    pub capabilities: Capabilities,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ExecutorResume>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorRegisterResult {
    pub executor_id: ExecutorId,
    pub connection_id: ConnectionId,
    pub server_time: String,
    pub heartbeat_interval_ms: i64,
    pub lease_ttl_ms: i64,
    pub max_control_frame_bytes: i64,
    pub max_mcp_frame_bytes: i64,
    pub drain: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolVersion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    pub max_inflight_requests: i64,
    pub max_concurrent_process_reads: i64,
    pub max_process_read_bytes: i64,
    pub max_process_write_bytes: i64,
    pub max_processes_per_session: i64,
    pub max_artifact_bytes: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorHeartbeatParams {
    pub connection_id: ConnectionId,
    #[serde(deserialize_with = "null_as_default")]
    pub active_sessions: Vec<SessionId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<ExecutorLoad>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorHeartbeatResult {
    pub server_time: String,
    pub lease_ttl_ms: i64,
    pub drain: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorTokenRequest {
    pub environment_id: EnvironmentId,
    pub executor: ExecutorInfo,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorTokenResponse {
    pub executor_id: ExecutorId,
    pub token: Secret,
    pub expires_in: i64,
    pub ws_url: String,
    #[serde(deserialize_with = "null_as_default")]
    pub channel_scope: Vec<ChannelScope>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorTokenRefreshParams {
    pub token: Secret,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorTokenRefreshResult {
    pub expires_at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorCapabilitiesUpdateParams {
    pub capabilities: Capabilities,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorDrainParams {
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorDrainResult {
    pub accepted: bool,
    #[serde(deserialize_with = "null_as_default")]
    pub active_sessions: Vec<SessionId>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorCloseParams {
    pub reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ack {
    pub accepted: bool,
}
