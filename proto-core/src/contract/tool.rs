//! Tool calls: asked, answered at once, reported later. The tools' inputs are in [`tool_input`](super::tool_input).

use serde::{Deserialize, Serialize};

use super::enums::{ContentBlockType, PermissionMode, ToolName, ToolOutcome};
use super::ids::{ArtifactId, SessionId, ToolCallId};
use super::json::Json;
use super::rules::{empty_as_none, not_empty, null_as_default, short_list};

/// Params of `tool.call`. The answer says only that the call was taken; `tool.result` brings the outcome.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCallParams {
    /// The session.
    pub session_id: SessionId,
    /// The call; of one session, an id runs at most once.
    pub tool_call_id: ToolCallId,
    /// The tool.
    #[serde(deserialize_with = "not_empty")]
    pub tool: ToolName,
    /// Its input, as it came; [`read_input`](ToolCallParams::read_input) gives it its type.
    pub input: Json,
    /// Milliseconds from receipt until the call shall be over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// What the harness decided about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<ToolPermission>,
}

/// What the harness decided about a tool call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolPermission {
    /// `always_ask` means that somebody was asked and agreed.
    pub mode: PermissionMode,
}

/// Params of `tool.result`, sent until it is acknowledged. A repetition of a call id changes nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResultParams {
    /// The session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// How it ended. `succeeded` also when the tool itself reports an error to the model.
    #[serde(deserialize_with = "not_empty")]
    pub outcome: ToolOutcome,
    /// Whether the model shall see the content as an error.
    pub is_error: bool,
    /// What the model shall see.
    #[serde(deserialize_with = "short_list")]
    pub content: Vec<ContentBlock>,
    /// Milliseconds that it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<i64>,
    /// Artifacts that the content refers to.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactRef>,
}

/// Params of `tool.cancel`. The call still ends with a `tool.result`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCancelParams {
    /// The session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// Why, for logs.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Result of `tool.cancel`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCancelResult {
    /// Whether the call was running and is now being ended. `false` for an unknown or finished one.
    pub canceled: bool,
}

/// Params of `tool.progress`, sent at best effort.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolProgressParams {
    /// The session.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// What it does, for people. May be empty.
    pub message: String,
}

/// One piece of a result or message. Which members are there depends on `type`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ContentBlock {
    /// What it is.
    pub r#type: ContentBlockType,
    /// The text of a `text` block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes of an `image` block, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Media type of `data` or of the artifact.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Where a `resource` is.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The artifact of an `artifact` block.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub artifact_id: Option<ArtifactId>,
}

/// An artifact that was uploaded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactRef {
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Its file name.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its media type.
    pub mime_type: String,
    /// Its length in bytes.
    pub size_bytes: i64,
    /// `sha256:` and the digest in hexadecimal.
    pub digest: String,
    /// When it was stored, RFC 3339.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
}

impl ContentBlock {
    /// A block of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { r#type: ContentBlockType::Text, text: Some(text.into()), ..Self::default() }
    }

    /// An image: its bytes in base64, and its media type.
    pub fn image(base64: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self {
            r#type: ContentBlockType::Image,
            data: Some(base64.into()),
            mime_type: Some(mime_type.into()),
            ..Self::default()
        }
    }

    /// An uploaded artifact.
    pub fn artifact(artifact: &ArtifactRef) -> Self {
        Self {
            r#type: ContentBlockType::Artifact,
            artifact_id: Some(artifact.artifact_id.clone()),
            mime_type: Some(artifact.mime_type.clone()),
            ..Self::default()
        }
    }
}
