//! MCP servers of a session, and the messages of the Model Context Protocol that pass through MCP channels. Member
//! names of the latter are that protocol's (`mimeType`), not this one's (`mime_type`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::enums::{McpConnectionOrigin, McpTransportType};
use super::json::{Json, JsonObject};
use super::rules::{empty_as_none, not_empty, null_as_default};
use super::secret::Secret;
use super::text_map::TextMap;

/// An MCP server that a session shall have.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPServerConfig {
    /// Its name in the session, which also names its channel.
    #[serde(deserialize_with = "not_empty")]
    pub server_key: String,
    /// Who connects to it.
    pub connection_origin: McpConnectionOrigin,
    /// How.
    pub transport: MCPServerTransport,
}

/// How an MCP server is reached. Members of the other kind of transport are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPServerTransport {
    /// `stdio` needs `command`, `http` needs `url`.
    pub r#type: McpTransportType,
    /// stdio: an absolute or allowed program. Never through a shell.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// stdio: its arguments.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// stdio: working directory, under the workspace.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// stdio: environment variables. `Debug` shows their names only.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "TextMap::is_empty")]
    pub env: TextMap,
    /// stdio: more environment variables, credentials that go into the server's environment and nowhere else; sent
    /// only to an executor that advertises `mcp.secret_env`. No name stands in `env` too.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, Secret>,
    /// Milliseconds that a request may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// stdio: SHA-256 of the program, in hexadecimal. Another program is not started.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub command_sha256: Option<String>,
    /// http: the Streamable HTTP endpoint.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The name of an MCP client or server. Its shape is inferred.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPImplementation {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// Params of MCP `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPInitializeParams {
    /// The MCP version asked for.
    #[serde(rename = "protocolVersion")]
    pub protocol_version: String,
    /// What the client can do.
    pub capabilities: JsonObject,
    /// Who it is.
    #[serde(rename = "clientInfo")]
    pub client_info: MCPImplementation,
}

/// Result of MCP `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPInitializeResult {
    /// The MCP version to speak.
    #[serde(rename = "protocolVersion")]
    pub protocol_version: String,
    /// What the server can do.
    pub capabilities: JsonObject,
    /// Who it is.
    #[serde(rename = "serverInfo")]
    pub server_info: MCPImplementation,
}

/// A tool of an MCP server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPTool {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON schema of its input.
    #[serde(rename = "inputSchema")]
    pub input_schema: JsonObject,
}

/// Params of MCP `tools/list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPToolsListParams {
    /// Where to go on.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Result of MCP `tools/list`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPToolsListResult {
    /// The tools.
    #[serde(deserialize_with = "null_as_default")]
    pub tools: Vec<MCPTool>,
    /// Where to go on; absent at the end.
    #[serde(
        rename = "nextCursor",
        default,
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub next_cursor: Option<String>,
}

/// Params of MCP `tools/call`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPToolsCallParams {
    /// The tool.
    pub name: String,
    /// Its input.
    pub arguments: JsonObject,
}

/// Result of MCP `tools/call`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPToolsCallResult {
    /// The result.
    #[serde(deserialize_with = "null_as_default")]
    pub content: Vec<MCPContentBlock>,
    /// Whether the tool failed.
    #[serde(rename = "isError", default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// The result as data.
    #[serde(rename = "structuredContent", default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Json>,
}

/// One piece of an MCP result.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPContentBlock {
    /// What it is: `text`, `image`, `resource`, ...
    pub r#type: String,
    /// Text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Bytes, base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// Media type of `data` (`mimeType` on the wire).
    #[serde(rename = "mimeType", default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// A resource, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Json>,
}

/// Params of MCP `notifications/progress`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPProgressParams {
    /// The request's token, a string or a number.
    #[serde(rename = "progressToken")]
    pub progress_token: Json,
    /// How far it is.
    pub progress: f64,
    /// How far it goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
}

/// A request on an MCP channel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCRequest {
    /// `2.0`.
    pub jsonrpc: String,
    /// A string or a number.
    pub id: Json,
    /// The MCP method.
    pub method: String,
    /// Its params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<JsonObject>,
}

/// A notification on an MCP channel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCNotification {
    /// `2.0`.
    pub jsonrpc: String,
    /// The MCP method.
    pub method: String,
    /// Its params.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<JsonObject>,
}

/// An answer on an MCP channel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCSuccessResponse {
    /// `2.0`.
    pub jsonrpc: String,
    /// The request's id, as it came.
    pub id: Json,
    /// The result.
    pub result: Json,
}

/// Why an MCP request failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCError {
    /// The cause, for programs.
    pub code: i64,
    /// The cause, for people.
    pub message: String,
    /// More, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

/// An error on an MCP channel.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCErrorResponse {
    /// `2.0`.
    pub jsonrpc: String,
    /// The request's id, as it came; null when it could not be read.
    pub id: Json,
    /// What went wrong.
    pub error: MCPJSONRPCError,
}
