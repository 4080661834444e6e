//! Sessions: assigned, ready, stopped, ended; and the durable events that they report.

use serde::{Deserialize, Serialize};

use super::enums::{AgentEventType, SessionStatus};
use super::ids::{EnvironmentId, EventId, SessionId, TurnId, WorkId};
use super::json::Json;
use super::mcp::MCPServerConfig;
use super::rules::{empty_as_none, maybe_empty, not_empty, null_as_default};
use super::secret::Secret;
use super::text_map::TextMap;
use super::tool::ContentBlock;

/// The right to serve one session. Its shape is inferred: the contract names it without describing it.
/// `lease_token` is read as `token` too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "LeaseOnTheWire")]
pub struct Lease {
    /// What `session.ready` shows to prove the right.
    pub token: Secret,
    /// When it ends, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Params of `session.assign`: the harness gives a session to the executor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionAssignParams {
    /// The session.
    pub session_id: SessionId,
    /// The unit of work that it belongs to; `session.ready` repeats it.
    pub work_id: WorkId,
    /// The agent that it runs for.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    /// The self-hosted environment; empty for a machine-scoped executor.
    pub environment_id: EnvironmentId,
    /// Milliseconds from receipt until the session shall be ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// The right to serve it.
    pub lease: Lease,
    /// What shall be there, [`SessionMemoryResource`] for example; each as it came.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Json>,
    /// MCP servers that belong to it.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<MCPServerConfig>,
    /// Whatever its creator noted.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub metadata: TextMap,
}

/// Result of `session.assign`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionAssignResult {
    /// Whether the executor takes the session.
    pub accepted: bool,
    /// The session. May be empty when it was refused.
    #[serde(deserialize_with = "maybe_empty")]
    pub session_id: SessionId,
}

/// Params of `session.ready`: the workspace is there and tools may be called.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionReadyParams {
    /// The session.
    pub session_id: SessionId,
    /// From `session.assign`.
    pub work_id: WorkId,
    /// The lease's token.
    #[serde(deserialize_with = "not_empty")]
    pub lease_token: Secret,
}

/// Params of `session.status`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatusParams {
    /// The session.
    pub session_id: SessionId,
    /// What it does.
    #[serde(deserialize_with = "not_empty")]
    pub status: SessionStatus,
    /// More, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Params of `session.stop`: end the session and everything that runs in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStopParams {
    /// The session.
    pub session_id: SessionId,
    /// Why, for logs. May be empty.
    pub reason: String,
    /// Milliseconds from receipt until everything shall be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
}

/// Result of `session.stop`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStopResult {
    /// Whether the session is over and nothing of it runs.
    pub stopped: bool,
}

/// Params of `session.ended`: the executor ended the session, asked or not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEndedParams {
    /// The session.
    pub session_id: SessionId,
    /// Why, for logs. May be empty.
    pub reason: String,
}

/// Params of `session.event`: one durable event. A tool executor sends only `session_id` and `event`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEventParams {
    /// The session.
    pub session_id: SessionId,
    /// The turn that produced it.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    /// The executor's id for it: unique in the session, the same when it is sent again.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub event_id: Option<EventId>,
    /// 1 for a session's first event, then one more for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
    /// A key that outlives a restart of the executor: an event whose key is already stored counts as a repetition,
    /// also after events were numbered anew.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The event, as it came; [`AgentEvent::read`](super::AgentEvent::read) gives it its type.
    pub event: Json,
}

/// Result of `session.event`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEventResult {
    /// Whether it is stored (a repetition is).
    pub accepted: bool,
    /// The event. May be empty when it was refused.
    #[serde(deserialize_with = "maybe_empty")]
    pub event_id: EventId,
    /// Everything up to this sequence is stored without a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acked_sequence: Option<i64>,
}

/// An event of a tool executor.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEvent {
    /// `agent.tool_result`, the only kind that a tool executor reports.
    pub r#type: AgentEventType,
    /// The tool use that it is about.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<EventId>,
    /// The result.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentBlock>,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

/// What a machine may learn about a session that it serves (an HTTP request of its own). Never configuration or
/// credentials.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionContext {
    /// The session.
    #[serde(deserialize_with = "not_empty")]
    pub id: String,
    /// Its environment.
    pub environment_id: EnvironmentId,
    /// Whatever its creator noted.
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: TextMap,
    /// When it was made, RFC 3339.
    pub created_at: String,
}

/// A memory store that is mounted in the workspace.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionMemoryResource {
    /// The kind of resource.
    pub r#type: String,
    /// The store.
    #[serde(deserialize_with = "not_empty")]
    pub memory_store_id: String,
    /// Where.
    pub mount_path: String,
}

/// Params of `session.close`: an agent session is over, and no event of it shall follow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionCloseParams {
    /// The session.
    pub session_id: SessionId,
    /// Why, for logs. May be empty.
    pub reason: String,
}

/// Result of `session.close`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionCloseResult {
    /// Whether it is closed.
    pub closed: bool,
}

impl Lease {
    /// A lease with this token and no end.
    pub fn new(token: Secret) -> Self {
        Self { token, expires_at: None }
    }
}

/// The spellings of a [`Lease`] that are read. Both names of the token may be there.
#[derive(Deserialize)]
struct LeaseOnTheWire {
    token: Option<Secret>,
    lease_token: Option<Secret>,
    #[serde(default, deserialize_with = "empty_as_none")]
    expires_at: Option<String>,
}

impl TryFrom<LeaseOnTheWire> for Lease {
    type Error = &'static str;

    fn try_from(lease: LeaseOnTheWire) -> Result<Self, Self::Error> {
        let token = lease.token.or(lease.lease_token).ok_or("missing field `token`")?;
        Ok(Self { token, expires_at: lease.expires_at })
    }
}
