//! Durable events of an agent session: what `session.event` carries.

use serde::{Deserialize, Serialize};

use super::enums::{AgentErrorCode, AgentEventType, EvaluatedPermissionType, StopReasonType, TurnOutcome};
use super::ids::EventId;
use super::json::{Json, JsonObject};
use super::rules::null_as_default;
use super::shape::{self, ShapeError};
use super::tool::ContentBlock;

/// The agent's final text. Previews of it came as `session.event_delta` under the same event id.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentMessageEvent {
    /// `agent.message`.
    pub r#type: AgentEventType,
    /// The text.
    #[serde(deserialize_with = "null_as_default")]
    pub content: Vec<ContentBlock>,
}

/// The agent thought.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentThinkingEvent {
    /// `agent.thinking`.
    pub r#type: AgentEventType,
    /// Its thoughts; empty when the model says only that it thought.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentBlock>,
}

/// The agent calls a tool. The event's id is the `tool_use_id` of everything that follows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentToolUseEvent {
    /// `agent.tool_use`.
    pub r#type: AgentEventType,
    /// The tool.
    pub name: String,
    /// Its input.
    pub input: JsonObject,
    /// What the executor decided about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_permission: Option<EvaluatedPermission>,
}

/// What came of an `agent.tool_use`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentToolResultEvent {
    /// `agent.tool_result`.
    pub r#type: AgentEventType,
    /// The tool use's event id.
    pub tool_use_id: EventId,
    /// The result.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentBlock>,
    /// Whether it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

/// The agent calls a tool that the user's application runs. The turn waits for `agent.custom_tool_result`; when
/// that takes too long, the executor ends the call with a failed `agent.tool_result`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCustomToolUseEvent {
    /// `agent.custom_tool_use`.
    pub r#type: AgentEventType,
    /// The tool.
    pub name: String,
    /// Its input.
    pub input: JsonObject,
}

/// The agent calls a tool of an MCP server. The event's id is the `mcp_tool_use_id`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentMCPToolUseEvent {
    /// `agent.mcp_tool_use`.
    pub r#type: AgentEventType,
    /// The server.
    pub mcp_server_name: String,
    /// The tool.
    pub name: String,
    /// Its input.
    pub input: JsonObject,
    /// What the executor decided about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluated_permission: Option<EvaluatedPermission>,
}

/// What came of an `agent.mcp_tool_use`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentMCPToolResultEvent {
    /// `agent.mcp_tool_result`.
    pub r#type: AgentEventType,
    /// The tool use's event id.
    pub mcp_tool_use_id: EventId,
    /// The result.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub content: Vec<ContentBlock>,
    /// Whether it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
}

/// What the executor decided about a tool use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EvaluatedPermission {
    /// `ask` means that it opened an `interaction.request`.
    pub r#type: EvaluatedPermissionType,
}

/// The agent began to work on the turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatusRunningEvent {
    /// `session.status_running`.
    pub r#type: AgentEventType,
}

/// The turn is over: the last event of its turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStatusIdleEvent {
    /// `session.status_idle`.
    pub r#type: AgentEventType,
    /// Why it stopped.
    pub stop_reason: StopReason,
    /// How it ended.
    pub turn_outcome: TurnOutcome,
}

/// Why a turn stopped.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StopReason {
    /// The reason.
    pub r#type: StopReasonType,
}

/// Something went wrong in a turn. A failed turn still ends with `session.status_idle`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionErrorEvent {
    /// `session.error`.
    pub r#type: AgentEventType,
    /// What.
    pub error: AgentErrorInfo,
}

/// What went wrong in a turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentErrorInfo {
    /// The cause, for programs.
    pub r#type: AgentErrorCode,
    /// The cause, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A durable event by its type.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum AgentEvent {
    /// `agent.message`.
    Message(AgentMessageEvent),
    /// `agent.thinking`.
    Thinking(AgentThinkingEvent),
    /// `agent.tool_use`.
    ToolUse(AgentToolUseEvent),
    /// `agent.tool_result`.
    ToolResult(AgentToolResultEvent),
    /// `agent.custom_tool_use`.
    CustomToolUse(AgentCustomToolUseEvent),
    /// `agent.mcp_tool_use`.
    McpToolUse(AgentMCPToolUseEvent),
    /// `agent.mcp_tool_result`.
    McpToolResult(AgentMCPToolResultEvent),
    /// `session.status_running`.
    StatusRunning(SessionStatusRunningEvent),
    /// `session.status_idle`.
    StatusIdle(SessionStatusIdleEvent),
    /// `session.error`.
    Error(SessionErrorEvent),
    /// An event of a type that this version does not know, as it came.
    Other(AgentEventType, Json),
}

impl AgentEvent {
    /// Reads an event by its `type`. One of an unknown type is no error: whoever
    /// stores or passes events on does so with every type.
    ///
    /// # Errors
    /// When it has no `type`, or another shape than its type has.
    pub fn read(event: &Json) -> Result<Self, ShapeError> {
        #[derive(Deserialize)]
        struct Typed {
            r#type: AgentEventType,
        }

        let text = event.get();
        let Typed { r#type } = shape::read(text)?;
        Ok(match r#type {
            AgentEventType::AgentMessage => Self::Message(shape::read(text)?),
            AgentEventType::AgentThinking => Self::Thinking(shape::read(text)?),
            AgentEventType::AgentToolUse => Self::ToolUse(shape::read(text)?),
            AgentEventType::AgentToolResult => Self::ToolResult(shape::read(text)?),
            AgentEventType::AgentCustomToolUse => Self::CustomToolUse(shape::read(text)?),
            AgentEventType::AgentMcpToolUse => Self::McpToolUse(shape::read(text)?),
            AgentEventType::AgentMcpToolResult => Self::McpToolResult(shape::read(text)?),
            AgentEventType::SessionStatusRunning => Self::StatusRunning(shape::read(text)?),
            AgentEventType::SessionStatusIdle => Self::StatusIdle(shape::read(text)?),
            AgentEventType::SessionError => Self::Error(shape::read(text)?),
            AgentEventType::Other(_) => Self::Other(r#type, event.clone()),
        })
    }
}
