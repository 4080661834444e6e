//! mcp wire types.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::enums::{McpConnectionOrigin, McpTransportType};
use super::json::{Json, JsonObject, null_as_default};
use super::secret::Secret;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPServerConfig {
    pub server_key: String,
    pub connection_origin: McpConnectionOrigin,
    pub transport: MCPServerTransport,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPServerTransport {
    pub r#type: McpTransportType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_sha256: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPImplementation {
    pub name: String,
    pub version: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPInitializeParams {
    #[serde(rename = "protocolVersion")]
    pub protocol_version: String,
    pub capabilities: JsonObject,
    #[serde(rename = "clientInfo")]
    pub client_info: MCPImplementation,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPInitializeResult {
    #[serde(rename = "protocolVersion")]
    pub protocol_version: String,
    pub capabilities: JsonObject,
    #[serde(rename = "serverInfo")]
    pub server_info: MCPImplementation,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPTool {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(rename = "inputSchema")]
    pub input_schema: JsonObject,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPToolsListParams {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPToolsListResult {
    #[serde(deserialize_with = "null_as_default")]
    pub tools: Vec<MCPTool>,
    #[serde(rename = "nextCursor", default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPToolsCallParams {
    pub name: String,
    pub arguments: JsonObject,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPToolsCallResult {
    #[serde(deserialize_with = "null_as_default")]
    pub content: Vec<MCPContentBlock>,
    #[serde(rename = "isError", default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    #[serde(rename = "structuredContent", default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Json>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPContentBlock {
    pub r#type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    #[serde(rename = "mimeType", default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Json>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPProgressParams {
    #[serde(rename = "progressToken")]
    pub progress_token: Json,
    pub progress: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCRequest {
    pub jsonrpc: String,
    pub id: Json,
    pub method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<JsonObject>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCNotification {
    pub jsonrpc: String,
    pub method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<JsonObject>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCSuccessResponse {
    pub jsonrpc: String,
    pub id: Json,
    pub result: Json,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCError {
    pub code: i64,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Json>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPJSONRPCErrorResponse {
    pub jsonrpc: String,
    pub id: Json,
    pub error: MCPJSONRPCError,
}
