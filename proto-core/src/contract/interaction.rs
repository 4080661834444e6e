//! interaction wire types.

use serde::{Deserialize, Serialize};

use super::enums::{InteractionCancelReason, InteractionKind, InteractionOutcome, InteractionScope};
use super::ids::{EventId, InteractionId, SessionId, TurnId};
use super::json::{JsonObject, null_as_default};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionRequestParams {
    pub session_id: SessionId,
    pub turn_id: TurnId,
    pub interaction_id: InteractionId,
    pub kind: InteractionKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<EventId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_input: Option<JsonObject>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<InteractionScope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<InteractionQuestion>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionQuestion {
    pub prompt: String,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<InteractionQuestionOption>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_select: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_free_text: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionQuestionOption {
    pub id: String,
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionRequestResult {
    pub accepted: bool,
    pub platform_interaction_id: InteractionId,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionResponseParams {
    pub session_id: SessionId,
    pub interaction_id: InteractionId,
    pub outcome: InteractionOutcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<InteractionScope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_message: Option<String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responder: Option<InteractionResponder>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionResponder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionResponseResult {
    pub accepted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionCancelParams {
    pub session_id: SessionId,
    pub interaction_id: InteractionId,
    pub reason: InteractionCancelReason,
}
