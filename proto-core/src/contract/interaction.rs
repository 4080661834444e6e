//! Interactions: the executor asks the user for a permission or an answer.

use serde::{Deserialize, Serialize};

use super::enums::{InteractionCancelReason, InteractionKind, InteractionOutcome, InteractionScope};
use super::ids::{EventId, InteractionId, SessionId, TurnId};
use super::json::JsonObject;
use super::rules::{empty_as_none, maybe_empty, not_empty, null_as_default};

/// Params of `interaction.request`. The same id again gives the same interaction, also after a restart of either
/// side, and an answer that was given meanwhile.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionRequestParams {
    /// The session.
    pub session_id: SessionId,
    /// The turn.
    pub turn_id: TurnId,
    /// The executor's id: unique in the session, and derived from session, turn and call so that a restart finds
    /// the same one.
    pub interaction_id: InteractionId,
    /// Permission or question.
    #[serde(deserialize_with = "not_empty")]
    pub kind: InteractionKind,
    /// The tool use that needs a permission; required for `permission`.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<EventId>,
    /// Its tool.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// Its input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_input: Option<JsonObject>,
    /// How far a permission may reach, for the user to choose; `once` when empty.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<InteractionScope>,
    /// What is asked; required for `question`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<InteractionQuestion>,
    /// When the executor stops waiting, RFC 3339.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A question to the user.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionQuestion {
    /// The question.
    pub prompt: String,
    /// Answers to choose from.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<InteractionQuestionOption>,
    /// Whether more than one may be chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_select: Option<bool>,
    /// Whether the user may write an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_free_text: Option<bool>,
}

/// One answer to choose from. Its shape is inferred.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionQuestionOption {
    /// What an answer names.
    pub id: String,
    /// What the user sees.
    pub label: String,
    /// More, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Result of `interaction.request`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionRequestResult {
    /// Whether the user will be asked.
    pub accepted: bool,
    /// The platform's id: the executor's own when that is `appr_` and 24 lower-case hexadecimal digits. May be
    /// empty when it was refused.
    #[serde(deserialize_with = "maybe_empty")]
    pub platform_interaction_id: InteractionId,
}

/// Params of `interaction.response`. The first answer counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionResponseParams {
    /// The session.
    pub session_id: SessionId,
    /// The executor's id.
    pub interaction_id: InteractionId,
    /// What was decided.
    #[serde(deserialize_with = "not_empty")]
    pub outcome: InteractionOutcome,
    /// How far a permission reaches.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub scope: Option<InteractionScope>,
    /// What the user said when refusing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deny_message: Option<String>,
    /// Ids of the chosen options, or free text.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub answers: Vec<String>,
    /// Who answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responder: Option<InteractionResponder>,
}

/// Who answered, for an audit on the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionResponder {
    /// The person.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub actor_id: Option<String>,
    /// The client: `desktop`, `mobile`, `web`, `slack`, ...
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub surface: Option<String>,
}

/// Result of `interaction.response`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionResponseResult {
    /// Whether it was still open.
    pub accepted: bool,
}

/// Params of `interaction.cancel`: the executor no longer asks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InteractionCancelParams {
    /// The session.
    pub session_id: SessionId,
    /// The executor's id.
    pub interaction_id: InteractionId,
    /// Why.
    pub reason: InteractionCancelReason,
}
