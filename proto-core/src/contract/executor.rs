//! Token, registration, heartbeat, drain: what an executor and a harness say about themselves and their connection.

use serde::{Deserialize, Serialize};

use super::capabilities::Capabilities;
use super::enums::{ChannelScope, ProtocolVersion};
use super::ids::{ConnectionId, EnvironmentId, ExecutorId, SessionId};
use super::rules::{empty_as_none, not_empty, null_as_default};
use super::secret::Secret;

/// Who the executor is. Sent when it asks for a token and when it registers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorInfo {
    /// The machine's name, as its owner chose it.
    pub name: String,
    /// Operating system: `linux`, `darwin`, `windows`, ...
    pub os: String,
    /// Processor architecture: `x86_64`, `aarch64`, ...
    pub arch: String,
    /// Version of the executor program.
    pub version: String,
    /// What the machine's owner says about it, to choose among machines: at most
    /// [`LABELS_MAX`](super::defaults::LABELS_MAX), each 1 to 64 of `a-z 0-9 . _ -`. Never a basis for a security
    /// decision.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

/// How busy the machine is. Advice that nobody acts on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorLoad {
    /// Processor use, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// Memory use, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<f64>,
}

/// What a returning executor still holds of its earlier connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorResume {
    /// The id that the harness gave it.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub executor_id: Option<ExecutorId>,
    /// The last connection that was registered (not one that merely opened).
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub last_connection_id: Option<ConnectionId>,
    /// The sessions that are still alive on the machine.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub active_sessions: Vec<SessionId>,
}

/// Params of `executor.register`, the first request on every connection.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorRegisterParams {
    /// The version that the executor speaks on this connection; the same as the WebSocket subprotocol.
    #[serde(deserialize_with = "not_empty")]
    pub protocol: ProtocolVersion,
    /// The self-hosted environment; empty for a machine-scoped executor.
    pub environment_id: EnvironmentId,
    /// Who it is.
    pub executor: ExecutorInfo,
    /// What it can do.
    pub capabilities: Capabilities,
    /// What it still holds, when it was connected before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<ExecutorResume>,
}

/// Result of `executor.register`. A v1 harness sends neither `protocol` nor `limits`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorRegisterResult {
    /// The executor's id, the same across its connections.
    pub executor_id: ExecutorId,
    /// The id of this registered connection.
    pub connection_id: ConnectionId,
    /// The harness's clock, RFC 3339.
    pub server_time: String,
    /// Milliseconds between two heartbeats.
    pub heartbeat_interval_ms: i64,
    /// Milliseconds without a frame after which the harness gives the executor up.
    pub lease_ttl_ms: i64,
    /// The largest frame, in bytes, that the harness takes on the control channel.
    pub max_control_frame_bytes: i64,
    /// The largest frame, in bytes, that it takes on an MCP channel.
    pub max_mcp_frame_bytes: i64,
    /// Whether the executor shall take no more sessions; as if `executor.drain` followed.
    pub drain: bool,
    /// The version that both sides now speak.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ProtocolVersion>,
    /// The limits that the executor shall enforce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// Limits that the executor enforces on what the harness asks of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Requests that may be unanswered at one time.
    pub max_inflight_requests: i64,
    /// `process.read` requests that may wait at one time.
    pub max_concurrent_process_reads: i64,
    /// Bytes of output in one `process.read` answer, before base64.
    pub max_process_read_bytes: i64,
    /// Bytes of input in one `process.write`, before base64.
    pub max_process_write_bytes: i64,
    /// Processes that may run in one session at one time.
    pub max_processes_per_session: i64,
    /// Bytes of one artifact.
    pub max_artifact_bytes: i64,
}

/// Params of `executor.heartbeat`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorHeartbeatParams {
    /// The registered connection that the heartbeat is for.
    pub connection_id: ConnectionId,
    /// Every session that is alive on the machine.
    #[serde(deserialize_with = "null_as_default")]
    pub active_sessions: Vec<SessionId>,
    /// How busy the machine is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<ExecutorLoad>,
}

/// Result of `executor.heartbeat`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorHeartbeatResult {
    /// The harness's clock, RFC 3339.
    pub server_time: String,
    /// Milliseconds that the lease now lasts.
    pub lease_ttl_ms: i64,
    /// Whether the executor shall take no more sessions; as if `executor.drain` followed.
    pub drain: bool,
}

/// Body of the HTTP request for a token (`POST /v1/environments/{id}/token` or `/v1/machines/{id}/token`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorTokenRequest {
    /// The environment, equal to the one in the path; empty asks for a machine-scoped executor.
    pub environment_id: EnvironmentId,
    /// Who asks.
    pub executor: ExecutorInfo,
}

/// Answer to an [`ExecutorTokenRequest`].
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorTokenResponse {
    /// The executor's id, the same at every refresh.
    pub executor_id: ExecutorId,
    /// Short-lived token for the `Authorization` header of the channel's upgrade, and for nothing else. Empty when
    /// a local harness asks for none.
    pub token: Secret,
    /// Seconds until the token expires.
    pub expires_in: i64,
    /// Where to dial.
    pub ws_url: String,
    /// The channels that the token opens.
    #[serde(deserialize_with = "null_as_default")]
    pub channel_scope: Vec<ChannelScope>,
}

/// Params of `executor.token.refresh`: a fresh token for a connection that shall outlive the old one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorTokenRefreshParams {
    /// The fresh token.
    #[serde(deserialize_with = "not_empty")]
    pub token: Secret,
}

/// Result of `executor.token.refresh`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorTokenRefreshResult {
    /// When the connection now ends with close code 4001, RFC 3339.
    pub expires_at: String,
}

/// Params of `executor.capabilities.update`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorCapabilitiesUpdateParams {
    /// What the executor can do from now on, complete: what is not in it is gone.
    pub capabilities: Capabilities,
}

/// Params of `executor.drain`: take no more sessions, and end once the present ones are over.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorDrainParams {
    /// Why, for logs. May be empty.
    pub reason: String,
    /// Milliseconds from receipt until the executor shall be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
}

/// Result of `executor.drain`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorDrainResult {
    /// Whether the executor drains.
    pub accepted: bool,
    /// The sessions that it still serves.
    #[serde(deserialize_with = "null_as_default")]
    pub active_sessions: Vec<SessionId>,
}

/// Params of `executor.close`, the last word before a side closes the connection in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutorCloseParams {
    /// Why, for logs. May be empty.
    pub reason: String,
}

/// The plain answer of requests that only need a yes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ack {
    /// Whether the request was taken. Refusals are errors, so this is `true`.
    pub accepted: bool,
}

impl Ack {
    /// The answer to what was taken.
    pub const ACCEPTED: Self = Self { accepted: true };
}
