//! Turns of an agent session: started, fed, cancelled, and the credentials that they use.

use serde::{Deserialize, Serialize};

use super::enums::{AgentInputBlockType, EventDeltaType};
use super::ids::{EventId, InputId, SessionId, TurnId};
use super::rules::{empty_as_none, maybe_empty, not_empty, null_as_default};
use super::secret::Secret;
use super::text_map::TextMap;
use super::tool::ContentBlock;

/// Params of `turn.start`. The same `turn_id` again is answered with the same result and runs nothing anew.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnStartParams {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The user's message that starts it.
    pub input_id: InputId,
    /// What the user said.
    #[serde(deserialize_with = "null_as_default")]
    pub input: Vec<AgentInputBlock>,
    /// The executor's own name for the conversation, from an earlier result; absent for a new one.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub executor_session_ref: Option<String>,
    /// What the platform wants; absent members are the executor's to choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<AgentTurnConfig>,
    /// Milliseconds from receipt until the turn shall be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// More from the platform, unknown names ignored: `model_base_url`, `model_token`, `model_context_window` and
    /// `model_max_output_tokens` for `harness_model`; `tools_mcp_url`, `tools_mcp_token` and
    /// `tools_mcp_token_expires_at` for `brain_tools`; `tool_policy`, a JSON object of tool name to `allow`, `ask`
    /// or `deny`. It can hold tokens: `Debug` shows names only.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub metadata: TextMap,
}

/// How a turn shall run, or does run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentTurnConfig {
    /// One of the advertised models; another one is refused (-32602). Ignored when none are advertised.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// One of that model's levels; another one is refused (-32602). Ignored by a model without levels.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<String>,
    /// One of the advertised modes; the executor's own when absent.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    /// Working directory, on the machine where the tools run. One outside the allowed roots is refused (-32001).
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The machine where the tools run, when that is another one. Only in a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment_info: Option<EnvironmentInfo>,
    /// More system instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The hosted agent, by id; one that is not there is refused (-32012).
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub harness: Option<String>,
}

/// The machine where a turn's tools run, as of the turn's start. An absent member is unknown.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EnvironmentInfo {
    /// Operating system, as in [`ExecutorInfo`](super::ExecutorInfo).
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Processor architecture, as in [`ExecutorInfo`](super::ExecutorInfo).
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The shell that runs commands.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// The tools' working directory.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Where the session's files are mounted.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub session_files_root: Option<String>,
}

/// One piece of what the user said. Bytes of files never travel on the control channel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentInputBlock {
    /// Text or file.
    pub r#type: AgentInputBlockType,
    /// The text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The session file.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub file_id: Option<String>,
    /// Its file name.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its media type.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its length in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<i64>,
}

/// Result of `turn.start`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnStartResult {
    /// Whether the turn runs.
    pub accepted: bool,
    /// The turn. May be empty when it was refused.
    #[serde(deserialize_with = "maybe_empty")]
    pub turn_id: TurnId,
    /// The executor's own name for the conversation, kept by the platform and sent with the next turn. Empty when
    /// there is none.
    pub executor_session_ref: String,
    /// Whether an earlier conversation goes on.
    pub resumed: bool,
    /// How the turn really runs.
    pub effective: AgentTurnConfig,
}

/// Params of `turn.input`: the user said more while the turn runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnInputParams {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The user's message.
    pub input_id: InputId,
    /// What the user said.
    #[serde(deserialize_with = "null_as_default")]
    pub input: Vec<AgentInputBlock>,
}

/// Params of `turn.cancel`. The turn still ends with its idle event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnCancelParams {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// Why, for logs.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of `turn.cancel`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TurnCancelResult {
    /// Whether the turn was running. `false` for an unknown or finished one.
    pub canceled: bool,
}

/// Params of `session.event_delta`: a preview of text whose event comes later.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionEventDeltaParams {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The event that it previews.
    pub event_id: EventId,
    /// That event's type.
    #[serde(deserialize_with = "not_empty")]
    pub event_type: EventDeltaType,
    /// The content block that the text belongs to, counted from 0.
    pub index: i64,
    /// Text to append to the block. May be empty.
    pub text: String,
}

/// Params of `model_token.refresh`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelTokenRefreshParams {
    /// The session.
    pub session_id: SessionId,
    /// The running turn that needs the token.
    pub turn_id: TurnId,
}

/// Result of `model_token.refresh`: the credential for the turn's next model calls.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelTokenRefreshResult {
    /// The token, for `model_base_url` only.
    #[serde(deserialize_with = "not_empty")]
    pub model_token: Secret,
    /// Base URL of the model service.
    pub model_base_url: String,
    /// When the token ends, RFC 3339.
    pub expires_at: String,
}

/// Params of `tools_token.refresh`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolsTokenRefreshParams {
    /// The session.
    pub session_id: SessionId,
    /// The running turn that needs the token.
    pub turn_id: TurnId,
}

/// Result of `tools_token.refresh`: the credential for the turn's next tool calls on the platform.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolsTokenRefreshResult {
    /// The token, for `tools_mcp_url` only; bound to the turn.
    #[serde(deserialize_with = "not_empty")]
    pub tools_mcp_token: Secret,
    /// The platform's tools endpoint.
    pub tools_mcp_url: String,
    /// When the token ends, RFC 3339.
    pub expires_at: String,
}

/// Params of `agent.custom_tool_result`: the user's application ran a custom tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCustomToolResultParams {
    /// The session.
    pub session_id: SessionId,
    /// The `agent.custom_tool_use` event that is answered.
    pub tool_use_id: EventId,
    /// The result.
    #[serde(deserialize_with = "null_as_default")]
    pub content: Vec<ContentBlock>,
    /// Whether the application says that it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

/// Result of `agent.custom_tool_result`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CustomToolResultResult {
    /// Whether the agent was still waiting for it. When not, it is not sent again.
    pub accepted: bool,
}
