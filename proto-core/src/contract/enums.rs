//! Enumerations.

use super::open_enum::open_enum;

open_enum! {
    /// ProtocolVersion.
    pub enum ProtocolVersion {
        /// `bma.executor.v1`.
        V1 = "bma.executor.v1",
        /// `bma.executor.v1.1`.
        V1_1 = "bma.executor.v1.1",
    }
}

open_enum! {
    /// ConnectionState.
    pub enum ConnectionState {
        /// `disconnected`.
        Disconnected = "disconnected",
        /// `connecting`.
        Connecting = "connecting",
        /// `registered`.
        Registered = "registered",
        /// `ready`.
        Ready = "ready",
        /// `draining`.
        Draining = "draining",
        /// `closed`.
        Closed = "closed",
    }
}

open_enum! {
    /// AgentErrorCode.
    pub enum AgentErrorCode {
        /// `output_limit_reached`.
        OutputLimitReached = "output_limit_reached",
        /// `context_too_large`.
        ContextTooLarge = "context_too_large",
        /// `model_stream_idle`.
        ModelStreamIdle = "model_stream_idle",
        /// `agent_error`.
        AgentError = "agent_error",
        /// `agent_unavailable`.
        AgentUnavailable = "agent_unavailable",
        /// `agent_auth_required`.
        AgentAuthRequired = "agent_auth_required",
        /// `agent_protocol_error`.
        AgentProtocolError = "agent_protocol_error",
    }
}

open_enum! {
    /// AgentEventType.
    pub enum AgentEventType {
        /// `agent.message`.
        AgentMessage = "agent.message",
        /// `agent.thinking`.
        AgentThinking = "agent.thinking",
        /// `agent.tool_use`.
        AgentToolUse = "agent.tool_use",
        /// `agent.tool_result`.
        AgentToolResult = "agent.tool_result",
        /// `agent.custom_tool_use`.
        AgentCustomToolUse = "agent.custom_tool_use",
        /// `agent.mcp_tool_use`.
        AgentMcpToolUse = "agent.mcp_tool_use",
        /// `agent.mcp_tool_result`.
        AgentMcpToolResult = "agent.mcp_tool_result",
        /// `session.status_running`.
        SessionStatusRunning = "session.status_running",
        /// `session.status_idle`.
        SessionStatusIdle = "session.status_idle",
        /// `session.error`.
        SessionError = "session.error",
    }
}

open_enum! {
    /// AgentInputBlockType.
    pub enum AgentInputBlockType {
        /// `text`.
        Text = "text",
        /// `file`.
        File = "file",
    }
}

open_enum! {
    /// ChannelScope.
    pub enum ChannelScope {
        /// `control`.
        Control = "control",
        /// `mcp`.
        Mcp = "mcp",
    }
}

open_enum! {
    /// ComputerAction.
    pub enum ComputerAction {
        /// `click`.
        Click = "click",
        /// `type`.
        Type = "type",
        /// `key`.
        Key = "key",
        /// `scroll`.
        Scroll = "scroll",
        /// `drag`.
        Drag = "drag",
    }
}

open_enum! {
    /// ContentBlockType.
    pub enum ContentBlockType {
        /// `text`.
        Text = "text",
        /// `image`.
        Image = "image",
        /// `resource`.
        Resource = "resource",
        /// `artifact`.
        Artifact = "artifact",
    }
}

open_enum! {
    /// EventDeltaType.
    pub enum EventDeltaType {
        /// `agent.message`.
        AgentMessage = "agent.message",
        /// `agent.thinking`.
        AgentThinking = "agent.thinking",
    }
}

open_enum! {
    /// FileTransferDirection.
    pub enum FileTransferDirection {
        /// `upload`.
        Upload = "upload",
        /// `download`.
        Download = "download",
    }
}

open_enum! {
    /// InteractionCancelReason.
    pub enum InteractionCancelReason {
        /// `resolved_locally`.
        ResolvedLocally = "resolved_locally",
        /// `turn_canceled`.
        TurnCanceled = "turn_canceled",
        /// `expired`.
        Expired = "expired",
        /// `tool_canceled`.
        ToolCanceled = "tool_canceled",
    }
}

open_enum! {
    /// InteractionKind.
    pub enum InteractionKind {
        /// `permission`.
        Permission = "permission",
        /// `question`.
        Question = "question",
    }
}

open_enum! {
    /// InteractionOutcome.
    pub enum InteractionOutcome {
        /// `allow`.
        Allow = "allow",
        /// `deny`.
        Deny = "deny",
        /// `answered`.
        Answered = "answered",
        /// `expired`.
        Expired = "expired",
        /// `canceled`.
        Canceled = "canceled",
    }
}

open_enum! {
    /// InteractionScope.
    pub enum InteractionScope {
        /// `once`.
        Once = "once",
        /// `session`.
        Session = "session",
    }
}

open_enum! {
    /// McpConnectionOrigin.
    pub enum McpConnectionOrigin {
        /// `service`.
        Service = "service",
        /// `environment`.
        Environment = "environment",
    }
}

open_enum! {
    /// McpTransportType.
    pub enum McpTransportType {
        /// `stdio`.
        Stdio = "stdio",
        /// `http`.
        Http = "http",
    }
}

open_enum! {
    /// PackageManager.
    pub enum PackageManager {
        /// `apt`.
        Apt = "apt",
        /// `pip`.
        Pip = "pip",
        /// `npm`.
        Npm = "npm",
    }
}

open_enum! {
    /// PermissionMode.
    pub enum PermissionMode {
        /// `always_allow`.
        AlwaysAllow = "always_allow",
        /// `always_ask`.
        AlwaysAsk = "always_ask",
    }
}

open_enum! {
    /// ProcessStateName.
    pub enum ProcessStateName {
        /// `running`.
        Running = "running",
        /// `exited`.
        Exited = "exited",
        /// `failed`.
        Failed = "failed",
        /// `killed`.
        Killed = "killed",
    }
}

open_enum! {
    /// ProcessStream.
    pub enum ProcessStream {
        /// `stdout`.
        Stdout = "stdout",
        /// `stderr`.
        Stderr = "stderr",
    }
}

open_enum! {
    /// SessionStatus.
    pub enum SessionStatus {
        /// `starting`.
        Starting = "starting",
        /// `running`.
        Running = "running",
        /// `idle`.
        Idle = "idle",
        /// `stopping`.
        Stopping = "stopping",
        /// `stopped`.
        Stopped = "stopped",
        /// `error`.
        Error = "error",
    }
}

open_enum! {
    /// StdinMode.
    pub enum StdinMode {
        /// `open`.
        Open = "open",
        /// `closed`.
        Closed = "closed",
    }
}

open_enum! {
    /// StopReasonType.
    pub enum StopReasonType {
        /// `end_turn`.
        EndTurn = "end_turn",
        /// `retries_exhausted`.
        RetriesExhausted = "retries_exhausted",
    }
}

open_enum! {
    /// ToolName.
    pub enum ToolName {
        /// `bash`.
        Bash = "bash",
        /// `read`.
        Read = "read",
        /// `write`.
        Write = "write",
        /// `edit`.
        Edit = "edit",
        /// `glob`.
        Glob = "glob",
        /// `grep`.
        Grep = "grep",
        /// `list_files`.
        ListFiles = "list_files",
        /// `computer_observe`.
        ComputerObserve = "computer_observe",
        /// `computer_action`.
        ComputerAction = "computer_action",
    }
}

open_enum! {
    /// ToolOutcome.
    pub enum ToolOutcome {
        /// `succeeded`.
        Succeeded = "succeeded",
        /// `failed`.
        Failed = "failed",
        /// `canceled`.
        Canceled = "canceled",
    }
}

open_enum! {
    /// TurnOutcome.
    pub enum TurnOutcome {
        /// `completed`.
        Completed = "completed",
        /// `canceled`.
        Canceled = "canceled",
        /// `failed`.
        Failed = "failed",
    }
}

open_enum! {
    /// IoMode.
    pub enum IoMode {
        /// `pty`.
        Pty = "pty",
    }
}

open_enum! {
    /// StderrMode.
    pub enum StderrMode {
        /// `merge`.
        Merge = "merge",
    }
}

open_enum! {
    /// ErrorReason.
    pub enum ErrorReason {
        /// `workspace_unavailable`.
        WorkspaceUnavailable = "workspace_unavailable",
        /// `workspace_boundary`.
        WorkspaceBoundary = "workspace_boundary",
        /// `workspace_read_only`.
        WorkspaceReadOnly = "workspace_read_only",
        /// `session_rejected`.
        SessionRejected = "session_rejected",
        /// `local_confirmation_denied`.
        LocalConfirmationDenied = "local_confirmation_denied",
        /// `local_confirmation_expired`.
        LocalConfirmationExpired = "local_confirmation_expired",
        /// `spawn_failed`.
        SpawnFailed = "spawn_failed",
        /// `process_id_spec_mismatch`.
        ProcessIdSpecMismatch = "process_id_spec_mismatch",
        /// `capability_missing`.
        CapabilityMissing = "capability_missing",
        /// `turn_inactive`.
        TurnInactive = "turn_inactive",
        /// `forbidden`.
        Forbidden = "forbidden",
        /// `model_token_unavailable`.
        ModelTokenUnavailable = "model_token_unavailable",
        /// `tools_token_unavailable`.
        ToolsTokenUnavailable = "tools_token_unavailable",
    }
}

open_enum! {
    /// ToolErrorCode.
    pub enum ToolErrorCode {
        /// `environment_unavailable`.
        EnvironmentUnavailable = "environment_unavailable",
        /// `permission_denied`.
        PermissionDenied = "permission_denied",
        /// `approval_required`.
        ApprovalRequired = "approval_required",
        /// `approval_invalid`.
        ApprovalInvalid = "approval_invalid",
        /// `in_progress`.
        InProgress = "in_progress",
        /// `idempotency_key_reused`.
        IdempotencyKeyReused = "idempotency_key_reused",
        /// `stale_turn`.
        StaleTurn = "stale_turn",
        /// `tools_unavailable`.
        ToolsUnavailable = "tools_unavailable",
        /// `outcome_unknown`.
        OutcomeUnknown = "outcome_unknown",
    }
}

open_enum! {
    /// RouteOutcome.
    pub enum RouteOutcome {
        /// `not_forwarded`.
        NotForwarded = "not_forwarded",
        /// `executed`.
        Executed = "executed",
        /// `unknown`.
        Unknown = "unknown",
    }
}

open_enum! {
    /// PlatformCredential.
    pub enum PlatformCredential {
        /// `harness_model`.
        HarnessModel = "harness_model",
        /// `brain_tools`.
        BrainTools = "brain_tools",
    }
}

open_enum! {
    /// EvaluatedPermissionType.
    pub enum EvaluatedPermissionType {
        /// `allow`.
        Allow = "allow",
        /// `ask`.
        Ask = "ask",
        /// `deny`.
        Deny = "deny",
    }
}

open_enum! {
    /// Streaming.
    pub enum Streaming {
        /// `token`.
        Token = "token",
        /// `committed`.
        Committed = "committed",
    }
}

open_enum! {
    /// PermissionRelay.
    pub enum PermissionRelay {
        /// `full`.
        Full = "full",
        /// `escalation_only`.
        EscalationOnly = "escalation_only",
        /// `none`.
        None = "none",
    }
}

open_enum! {
    /// Usage.
    pub enum Usage {
        /// `tokens`.
        Tokens = "tokens",
        /// `context_only`.
        ContextOnly = "context_only",
    }
}

open_enum! {
    /// TerminalKind.
    pub enum TerminalKind {
        /// `human`.
        Human = "human",
        /// `agent`.
        Agent = "agent",
    }
}

open_enum! {
    /// FsView.
    pub enum FsView {
        /// `uploads`.
        Uploads = "uploads",
        /// `skills`.
        Skills = "skills",
    }
}
