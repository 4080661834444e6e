//! What an executor can do. A method is sent only to an executor that advertised its capability; any other answers
//! -32012.

use serde::{Deserialize, Serialize};

use super::enums::{
    FsView, InteractionKind, PermissionRelay, PlatformCredential, Streaming, TerminalKind, ToolName, Usage,
};
use super::json::Json;
use super::rules::{empty_as_none, null_as_default};

/// Everything that an executor advertises. An absent member means: not supported.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Capabilities {
    /// The `bash` tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<ShellCapability>,
    /// The file tools: `read`, `write`, `edit`, `glob`, `grep`, `list_files`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<FilesCapability>,
    /// MCP servers that run on the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<MCPCapability>,
    /// A browser is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chrome: Option<bool>,
    /// The tools `computer_observe` and `computer_action`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub computer_use: Option<bool>,
    /// A display: a boolean in v1, a [`DisplayCapability`] in v1.1. See
    /// [`display_capability`](Capabilities::display_capability).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<Json>,
    /// The `process.*` methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessCapability>,
    /// Artifact upload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<ArtifactCapability>,
    /// The `terminal.*` methods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalCapability>,
    /// `skill.install`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<SkillsCapability>,
    /// `workspace.backup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceCapability>,
    /// A complete agent: `turn.*`, `session.close`, `interaction.*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentCapability>,
    /// Where the machine keeps the files of each session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_files: Option<SessionFilesCapability>,
    /// `fs.mount` and `fs.unmount`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs: Option<FsCapability>,
    /// Whether a brain on another machine may use this one as its hands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_brain: Option<RemoteBrainCapability>,
}

/// The `bash` tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShellCapability {
    /// Whether it is served.
    pub enabled: bool,
}

/// The file tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FilesCapability {
    /// Whether they are served.
    pub enabled: bool,
    /// Directories outside the workspace that may be read.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub read_roots: Vec<String>,
    /// Directories outside the workspace that may be written.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub write_roots: Vec<String>,
}

/// MCP servers whose `connection_origin` is `environment`: the executor starts or dials them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MCPCapability {
    /// Servers that are programs, spoken to over their standard streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdio: Option<bool>,
    /// Servers that are reached over Streamable HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<bool>,
    /// Servers of one session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_servers: Option<i64>,
    /// Whether `secret_env` of a stdio server is understood: values that reach the server's environment and nothing
    /// else. Without it the harness sends none, and the executor refuses `secret:` references in `env`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_env: Option<bool>,
}

/// A display of the machine (v1.1).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DisplayCapability {
    /// Whether it can be watched over RFB (VNC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rfb: Option<bool>,
    /// Whether the machine hosts a desktop of its own. Absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desktop: Option<bool>,
}

/// The `process.*` methods. The members of `process.start` that need more than `enabled` are sent only when their
/// flag is set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCapability {
    /// Whether they are served.
    pub enabled: bool,
    /// Processes that may run in one session at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_processes: Option<i64>,
    /// Bytes of output kept for each stream of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer_bytes: Option<i64>,
    /// Whether `io_mode` may be `pty`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pty: Option<bool>,
    /// Whether `file_transfer` is understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_transfer: Option<bool>,
    /// Whether `git_credentials` is understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<bool>,
    /// Whether `package_install` is understood.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package_install: Option<bool>,
}

/// Artifact upload. Environment-scoped executors only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArtifactCapability {
    /// Whether the executor uploads.
    pub upload: bool,
    /// Bytes of one artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<i64>,
}

/// The `terminal.*` methods. Machine-scoped executors only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalCapability {
    /// Whether they are served.
    pub enabled: bool,
    /// The kinds of terminal that may be opened.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<TerminalKind>,
    /// Terminals that may be open at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<i64>,
}

/// `skill.install`. Machine-scoped executors only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SkillsCapability {
    /// Whether it is served.
    pub install: bool,
}

/// `workspace.backup`, and restoring a pending backup at start. Machine-scoped executors only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceCapability {
    /// Whether it is served.
    pub backup: bool,
}

/// A complete agent on the machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentCapability {
    /// Whether turns are taken.
    pub enabled: bool,
    /// Models that a turn may name. Empty: the executor chooses, and ignores a turn's `model`.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<AgentModel>,
    /// Permission modes that a turn may name; the executor gives them their meaning.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub permission_modes: Vec<String>,
    /// Kinds of interaction that the executor may open.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub interaction_kinds: Vec<InteractionKind>,
    /// Whether the executor fetches file blocks of a turn's input itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_inputs: Option<bool>,
    /// Turns that may run at one time; one more is answered -32009 (retryable). Idle sessions do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<i64>,
    /// Whether a turn outlives a restart of the executor. Without it a turn that was running then has failed and is
    /// not sent again, because running it anew could repeat what its tools did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_resume: Option<bool>,
    /// Credentials that the executor would like in the metadata of `turn.start`. A wish: the platform decides.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub platform_credentials: Vec<PlatformCredential>,
    /// Whether the agent calls tools that the user's application runs (`agent.custom_tool_use`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_tools: Option<bool>,
    /// The one hosted agent. Old form; `harnesses` names it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub harness: Option<AgentHarnessCapability>,
    /// Every hosted agent that is installed and works, by id; a turn names one.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub harnesses: Vec<AgentHarnessCapability>,
}

/// What a hosted third-party agent can do. For information; an absent flag is false.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentHarnessCapability {
    /// The agent's id, which `config.harness` of a turn names.
    pub id: String,
    /// Version of the installed package.
    pub version: String,
    /// What the executor speaks to it, `acp/1` for example.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The name that the agent gives itself.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
    /// The version that the agent gives itself; may differ from `version`.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Whether text comes token by token or message by message.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub streaming: Option<Streaming>,
    /// Whether a conversation goes on in a new agent process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_resume: Option<bool>,
    /// Whether a conversation can be loaded again with its history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_load: Option<bool>,
    /// Whether images may be put in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_inputs: Option<bool>,
    /// Which of its tool calls reach `interaction.request`.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub permission_relay: Option<PermissionRelay>,
    /// Whether its errors have types. Without: `agent_error` and the agent's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_errors: Option<bool>,
    /// What it reports of its consumption.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
}

/// A model that the agent can run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentModel {
    /// The id that a turn names.
    pub id: String,
    /// A name for people.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// Reasoning efforts that it takes, lowest first. Empty: it takes none.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub thinking_levels: Vec<String>,
    /// The one that is used when a turn names none. Absent: none is sent.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub default_thinking_level: Option<String>,
}

/// Where the machine keeps session files: `<root>/<agent session id>/uploads` (read-only) and `/outputs`. Fixed at
/// registration. Machine-scoped executors only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionFilesCapability {
    /// An absolute path without `~`, `.`, `..` or a final slash.
    pub root: String,
}

/// Views of session files that the executor mounts. Machine-scoped executors only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FsCapability {
    /// Whether it can mount; it tried before it says so.
    pub fuse: bool,
    /// The views that it can mount.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<FsView>,
    /// Whether each session has its skills view at a path of its own. Without it all share one path, which shows
    /// one session at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills_per_session: Option<bool>,
}

/// The owner's consent to a brain on another machine. Only the machine's own configuration sets it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RemoteBrainCapability {
    /// Whether it is given.
    pub enabled: bool,
}

impl Capabilities {
    /// Whether a capability is advertised. `capability` is spelt as in the
    /// catalogue (`process.enabled`, `agent`, see
    /// [`Method::capability`](super::Method::capability)) and in errors -32012
    /// (`process.pty`, `tool:read`). Unknown ones are not.
    pub fn has(&self, capability: &str) -> bool {
        if let Some(tool) = capability.strip_prefix("tool:") {
            return self.has_tool(&ToolName::from(tool));
        }
        let process = self.process.as_ref().filter(|process| process.enabled);
        let agent = self.agent.as_ref().filter(|agent| agent.enabled);
        match capability {
            "shell" | "shell.enabled" => self.shell.as_ref().is_some_and(|shell| shell.enabled),
            "files" | "files.enabled" => self.files.as_ref().is_some_and(|files| files.enabled),
            "mcp.stdio" => self.mcp.as_ref().is_some_and(|mcp| mcp.stdio == Some(true)),
            "mcp.http" => self.mcp.as_ref().is_some_and(|mcp| mcp.http == Some(true)),
            "mcp.secret_env" => self.mcp.as_ref().is_some_and(|mcp| mcp.secret_env == Some(true)),
            "computer_use" => self.computer_use == Some(true),
            "process" | "process.enabled" => process.is_some(),
            "process.pty" => process.is_some_and(|process| process.pty == Some(true)),
            "process.file_transfer" => process.is_some_and(|process| process.file_transfer == Some(true)),
            "process.git_credentials" => process.is_some_and(|process| process.git_credentials == Some(true)),
            "process.package_install" => process.is_some_and(|process| process.package_install == Some(true)),
            "artifacts.upload" => self.artifacts.as_ref().is_some_and(|artifacts| artifacts.upload),
            "terminal.enabled" => self.terminal.as_ref().is_some_and(|terminal| terminal.enabled),
            "skills.install" => self.skills.as_ref().is_some_and(|skills| skills.install),
            "workspace.backup" => self.workspace.as_ref().is_some_and(|workspace| workspace.backup),
            "fs.fuse" => self.fs.as_ref().is_some_and(|fs| fs.fuse),
            "agent" | "agent.enabled" => agent.is_some(),
            "agent.custom_tools" => agent.is_some_and(|agent| agent.custom_tools == Some(true)),
            "remote_brain" | "remote_brain.enabled" => self.remote_brain.as_ref().is_some_and(|brain| brain.enabled),
            _ => false,
        }
    }

    /// The display, in either form: v1 says `true`, v1.1 sends an object. `None` when
    /// there is none or the member has a third shape.
    pub fn display_capability(&self) -> Option<DisplayCapability> {
        let display = self.display.as_ref()?;
        match display.parse::<bool>() {
            Ok(true) => Some(DisplayCapability::default()),
            Ok(false) => None,
            Err(_) => display.parse().ok(),
        }
    }

    /// Whether the capability that a built-in tool belongs to is advertised. A tool
    /// of the executor's own belongs to none: whoever knows it has to try.
    fn has_tool(&self, tool: &ToolName) -> bool {
        match tool {
            ToolName::Bash => self.has("shell.enabled"),
            ToolName::Read
            | ToolName::Write
            | ToolName::Edit
            | ToolName::Glob
            | ToolName::Grep
            | ToolName::ListFiles => self.has("files.enabled"),
            ToolName::ComputerObserve | ToolName::ComputerAction => self.has("computer_use"),
            ToolName::Other(_) => false,
        }
    }
}
