//! capabilities wire types.

use serde::{Deserialize, Serialize};

use super::enums::{FsView, InteractionKind, PermissionRelay, PlatformCredential, Streaming, TerminalKind, Usage};
use super::json::{Json, null_as_default};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<MCPCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chrome: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computer_use: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<ArtifactCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<SkillsCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_files: Option<SessionFilesCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs: Option<FsCapability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_brain: Option<RemoteBrainCapability>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShellCapability {
    pub enabled: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FilesCapability {
    pub enabled: bool,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub read_roots: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub write_roots: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPCapability {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_servers: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DisplayCapability {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rfb: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desktop: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCapability {
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_transfer: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_install: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactCapability {
    pub upload: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalCapability {
    pub enabled: bool,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<TerminalKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SkillsCapability {
    pub install: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceCapability {
    pub backup: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCapability {
    pub enabled: bool,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<AgentModel>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub permission_modes: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub interaction_kinds: Vec<InteractionKind>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_inputs: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_resume: Option<bool>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub platform_credentials: Vec<PlatformCredential>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_tools: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<AgentHarnessCapability>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub harnesses: Vec<AgentHarnessCapability>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentHarnessCapability {
    pub id: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_resume: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_load: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_inputs: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_relay: Option<PermissionRelay>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_errors: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentModel {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub thinking_levels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_thinking_level: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionFilesCapability {
    pub root: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FsCapability {
    pub fuse: bool,
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<FsView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills_per_session: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteBrainCapability {
    pub enabled: bool,
}
