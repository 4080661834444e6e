//! JSON-RPC 2.0 envelopes, as the contract gives them: ids are strings. [`rpc`](crate::rpc) reads frames itself and
//! takes ids of any JSON-RPC kind.

use serde::{Deserialize, Serialize};

use super::enums::ErrorReason;
use super::json::Json;
use super::rules::{data_of_any_shape, empty_as_none};

/// A request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JSONRPCRequest {
    /// `2.0`.
    pub jsonrpc: String,
    /// The id that the answer repeats.
    pub id: String,
    /// The method.
    pub method: String,
    /// Its params object.
    pub params: Json,
}

/// A message that is not answered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JSONRPCNotification {
    /// `2.0`.
    pub jsonrpc: String,
    /// The method.
    pub method: String,
    /// Its params object.
    pub params: Json,
}

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JSONRPCSuccessResponse {
    /// `2.0`.
    pub jsonrpc: String,
    /// The request's id.
    pub id: String,
    /// Its result object.
    pub result: Json,
}

/// An answer that says what went wrong.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JSONRPCErrorResponse {
    /// `2.0`.
    pub jsonrpc: String,
    /// The request's id. `None`, written as null, when it could not be read; an empty one is read as that too.
    #[serde(default, deserialize_with = "empty_as_none")]
    pub id: Option<String>,
    /// What went wrong.
    pub error: JSONRPCError,
}

/// What went wrong.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JSONRPCError {
    /// The cause: an [`ErrorCode`](super::ErrorCode), or a number that the contract does not name.
    pub code: i64,
    /// The cause, for people.
    pub message: String,
    /// More, for programs. Data of another shape than the contract's does not make the error unreadable: a string
    /// becomes `detail`, anything else is left out.
    #[serde(default, deserialize_with = "data_of_any_shape", skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<JSONRPCErrorData>>,
}

/// More about an error. Which members are there depends on the code.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JSONRPCErrorData {
    /// Whether to try again later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// More, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The capability that is missing: `tool:read`, `process.pty`.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    /// The cause, for programs; an open set that is passed on unchanged.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub reason: Option<ErrorReason>,
    /// The terminal protocol's own code of a failed `terminal.*` request.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub terminal_code: Option<String>,
    /// The sequence that `session.event` shall go on from (-32013).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_sequence: Option<i64>,
}
