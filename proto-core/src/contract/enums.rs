//! The contract's enumerations. All are open: a value that is not known is kept as
//! `Other` and written back unchanged.

use super::open_enum::open_enum;

open_enum! {
    /// A version of the protocol: both the WebSocket subprotocol and `protocol` of `executor.register`. A v1
    /// executor is never sent a v1.1 method.
    pub enum ProtocolVersion {
        /// The first version.
        V1 = "bma.executor.v1",
        /// The present version.
        V1_1 = "bma.executor.v1.1",
    }
}

open_enum! {
    /// The state of an executor's control channel.
    pub enum ConnectionState {
        /// No connection.
        Disconnected = "disconnected",
        /// Dialling, or upgrading the connection.
        Connecting = "connecting",
        /// `executor.register` was accepted.
        Registered = "registered",
        /// Registered and heartbeating: requests flow.
        Ready = "ready",
        /// No more sessions are taken.
        Draining = "draining",
        /// Ended for good.
        Closed = "closed",
    }
}

open_enum! {
    /// Why a turn failed: the type of `session.error`.
    pub enum AgentErrorCode {
        /// The model's reply was cut at its output limit.
        OutputLimitReached = "output_limit_reached",
        /// The conversation no longer fits into the model's context.
        ContextTooLarge = "context_too_large",
        /// The model's stream was silent for too long.
        ModelStreamIdle = "model_stream_idle",
        /// Any other failure of the agent.
        AgentError = "agent_error",
        /// The agent is gone, or did not answer a cancel in time.
        AgentUnavailable = "agent_unavailable",
        /// The agent lacks credentials.
        AgentAuthRequired = "agent_auth_required",
        /// The agent did not understand the request.
        AgentProtocolError = "agent_protocol_error",
    }
}

open_enum! {
    /// The type of a durable event. A tool executor reports `agent.tool_result` only.
    pub enum AgentEventType {
        /// [`AgentMessageEvent`](super::AgentMessageEvent).
        AgentMessage = "agent.message",
        /// [`AgentThinkingEvent`](super::AgentThinkingEvent).
        AgentThinking = "agent.thinking",
        /// [`AgentToolUseEvent`](super::AgentToolUseEvent).
        AgentToolUse = "agent.tool_use",
        /// [`AgentToolResultEvent`](super::AgentToolResultEvent).
        AgentToolResult = "agent.tool_result",
        /// [`AgentCustomToolUseEvent`](super::AgentCustomToolUseEvent).
        AgentCustomToolUse = "agent.custom_tool_use",
        /// [`AgentMCPToolUseEvent`](super::AgentMCPToolUseEvent).
        AgentMcpToolUse = "agent.mcp_tool_use",
        /// [`AgentMCPToolResultEvent`](super::AgentMCPToolResultEvent).
        AgentMcpToolResult = "agent.mcp_tool_result",
        /// [`SessionStatusRunningEvent`](super::SessionStatusRunningEvent).
        SessionStatusRunning = "session.status_running",
        /// [`SessionStatusIdleEvent`](super::SessionStatusIdleEvent).
        SessionStatusIdle = "session.status_idle",
        /// [`SessionErrorEvent`](super::SessionErrorEvent).
        SessionError = "session.error",
    }
}

open_enum! {
    /// What a piece of user input is.
    pub enum AgentInputBlockType {
        /// Text.
        Text = "text",
        /// A session file, by id.
        File = "file",
    }
}

open_enum! {
    /// A channel that a token opens.
    pub enum ChannelScope {
        /// The control channel.
        Control = "control",
        /// MCP channels.
        Mcp = "mcp",
    }
}

open_enum! {
    /// What `computer_action` does.
    pub enum ComputerAction {
        /// Clicks.
        Click = "click",
        /// Types text.
        Type = "type",
        /// Presses a key.
        Key = "key",
        /// Scrolls.
        Scroll = "scroll",
        /// Drags.
        Drag = "drag",
    }
}

open_enum! {
    /// What a content block is.
    pub enum ContentBlockType {
        /// Text.
        Text = "text",
        /// An image, base64.
        Image = "image",
        /// Something behind a URL.
        Resource = "resource",
        /// An uploaded artifact.
        Artifact = "artifact",
    }
}

open_enum! {
    /// The type of the event that a preview belongs to.
    pub enum EventDeltaType {
        /// The agent's text.
        AgentMessage = "agent.message",
        /// The agent's thoughts.
        AgentThinking = "agent.thinking",
    }
}

open_enum! {
    /// Which way a file moves, seen from the machine.
    pub enum FileTransferDirection {
        /// From the machine.
        Upload = "upload",
        /// To the machine.
        Download = "download",
    }
}

open_enum! {
    /// Why an executor no longer asks.
    pub enum InteractionCancelReason {
        /// It was answered on the machine.
        ResolvedLocally = "resolved_locally",
        /// The turn was cancelled.
        TurnCanceled = "turn_canceled",
        /// Nobody answered in time.
        Expired = "expired",
        /// The tool call was cancelled.
        ToolCanceled = "tool_canceled",
    }
}

open_enum! {
    /// What is asked of the user.
    pub enum InteractionKind {
        /// A permission.
        Permission = "permission",
        /// An answer.
        Question = "question",
    }
}

open_enum! {
    /// How an interaction ended.
    pub enum InteractionOutcome {
        /// A permission was given.
        Allow = "allow",
        /// A permission was refused.
        Deny = "deny",
        /// A question was answered.
        Answered = "answered",
        /// Nobody answered in time.
        Expired = "expired",
        /// It was called off.
        Canceled = "canceled",
    }
}

open_enum! {
    /// How far a permission reaches.
    pub enum InteractionScope {
        /// This tool use.
        Once = "once",
        /// The rest of the session.
        Session = "session",
    }
}

open_enum! {
    /// Who connects to an MCP server.
    pub enum McpConnectionOrigin {
        /// The harness.
        Service = "service",
        /// The executor.
        Environment = "environment",
    }
}

open_enum! {
    /// How an MCP server is reached.
    pub enum McpTransportType {
        /// A program, over its standard streams.
        Stdio = "stdio",
        /// Streamable HTTP.
        Http = "http",
    }
}

open_enum! {
    /// A package manager that `process.start` may use.
    pub enum PackageManager {
        /// Debian packages, with the executor's own rights.
        Apt = "apt",
        /// Python packages, for the user who runs the processes.
        Pip = "pip",
        /// Node packages, for the user who runs the processes.
        Npm = "npm",
    }
}

open_enum! {
    /// How a tool call was permitted. The harness has already done so.
    pub enum PermissionMode {
        /// By rule.
        AlwaysAllow = "always_allow",
        /// By somebody who was asked.
        AlwaysAsk = "always_ask",
    }
}

open_enum! {
    /// The state of a process.
    pub enum ProcessStateName {
        /// It runs.
        Running = "running",
        /// It ended by itself.
        Exited = "exited",
        /// It was ended for a reason that its state names, a time-out for example.
        Failed = "failed",
        /// A signal ended it.
        Killed = "killed",
    }
}

open_enum! {
    /// An output of a process.
    pub enum ProcessStream {
        /// Standard output; of a pseudo-terminal, everything.
        Stdout = "stdout",
        /// Standard error.
        Stderr = "stderr",
    }
}

open_enum! {
    /// What a session does.
    pub enum SessionStatus {
        /// It is being set up.
        Starting = "starting",
        /// Something runs in it.
        Running = "running",
        /// Nothing runs in it.
        Idle = "idle",
        /// It is being ended.
        Stopping = "stopping",
        /// It is over.
        Stopped = "stopped",
        /// It does not work; the detail says why.
        Error = "error",
    }
}

open_enum! {
    /// What becomes of a process's standard input.
    pub enum StdinMode {
        /// It stays open for `process.write`.
        Open = "open",
        /// It is at its end from the start.
        Closed = "closed",
    }
}

open_enum! {
    /// Why a turn stopped.
    pub enum StopReasonType {
        /// It was done, or cancelled.
        EndTurn = "end_turn",
        /// It failed.
        RetriesExhausted = "retries_exhausted",
    }
}

open_enum! {
    /// A built-in tool. Names that the contract does not know are kept.
    pub enum ToolName {
        /// Runs a command line.
        Bash = "bash",
        /// Reads lines of a file.
        Read = "read",
        /// Creates or replaces a file.
        Write = "write",
        /// Replaces one text in a file.
        Edit = "edit",
        /// Finds paths.
        Glob = "glob",
        /// Finds lines.
        Grep = "grep",
        /// Lists a directory.
        ListFiles = "list_files",
        /// Looks at a display.
        ComputerObserve = "computer_observe",
        /// Acts on a display.
        ComputerAction = "computer_action",
    }
}

open_enum! {
    /// How a tool call ended.
    pub enum ToolOutcome {
        /// The tool gave a result, which may be an error for the model.
        Succeeded = "succeeded",
        /// The tool gave no result.
        Failed = "failed",
        /// It was cancelled.
        Canceled = "canceled",
    }
}

open_enum! {
    /// How a turn ended.
    pub enum TurnOutcome {
        /// The agent finished.
        Completed = "completed",
        /// It was cancelled.
        Canceled = "canceled",
        /// A `session.error` says why.
        Failed = "failed",
    }
}

open_enum! {
    /// How a process is connected.
    pub enum IoMode {
        /// To a pseudo-terminal of 24 rows and 80 columns.
        Pty = "pty",
    }
}

open_enum! {
    /// What becomes of a process's standard error.
    pub enum StderrMode {
        /// It goes where standard output goes.
        Merge = "merge",
    }
}

open_enum! {
    /// The cause of an error (`data.reason`), for programs. An open set: other values are passed on unchanged.
    pub enum ErrorReason {
        /// The session's workspace is not there.
        WorkspaceUnavailable = "workspace_unavailable",
        /// The request leaves what local policy allows.
        WorkspaceBoundary = "workspace_boundary",
        /// The request writes where only reading is allowed.
        WorkspaceReadOnly = "workspace_read_only",
        /// The machine does not serve this session.
        SessionRejected = "session_rejected",
        /// The machine's user refused.
        LocalConfirmationDenied = "local_confirmation_denied",
        /// The machine's user did not answer in time.
        LocalConfirmationExpired = "local_confirmation_expired",
        /// The process could not be started.
        SpawnFailed = "spawn_failed",
        /// A known process id came again with other members.
        ProcessIdSpecMismatch = "process_id_spec_mismatch",
        /// The registration lacks a capability that this kind of executor must have.
        CapabilityMissing = "capability_missing",
        /// The turn does not run.
        TurnInactive = "turn_inactive",
        /// This executor gets no such token.
        Forbidden = "forbidden",
        /// There is no model token to be had.
        ModelTokenUnavailable = "model_token_unavailable",
        /// There is no tools token to be had.
        ToolsTokenUnavailable = "tools_token_unavailable",
    }
}

open_enum! {
    /// The cause of a refused tool call on the platform's tools endpoint, for programs.
    pub enum ToolErrorCode {
        /// The machine is not connected.
        EnvironmentUnavailable = "environment_unavailable",
        /// Policy refuses the call.
        PermissionDenied = "permission_denied",
        /// Somebody must approve it first.
        ApprovalRequired = "approval_required",
        /// The approval shown is not one for this call.
        ApprovalInvalid = "approval_invalid",
        /// The same call is running.
        InProgress = "in_progress",
        /// The call's id came before with another content.
        IdempotencyKeyReused = "idempotency_key_reused",
        /// The turn is over, or was started anew.
        StaleTurn = "stale_turn",
        /// The tools cannot be reached.
        ToolsUnavailable = "tools_unavailable",
        /// The call may have run; nobody knows.
        OutcomeUnknown = "outcome_unknown",
    }
}

open_enum! {
    /// What became of a routed tool call.
    pub enum RouteOutcome {
        /// It certainly did not run and may be asked again.
        NotForwarded = "not_forwarded",
        /// It ran.
        Executed = "executed",
        /// It may have run: do not blindly run it again.
        Unknown = "unknown",
    }
}

open_enum! {
    /// A credential that a turn's metadata can bring.
    pub enum PlatformCredential {
        /// Endpoint and token of the model.
        HarnessModel = "harness_model",
        /// Endpoint and token of the session's tools.
        BrainTools = "brain_tools",
    }
}

open_enum! {
    /// What an executor decided about a tool use.
    pub enum EvaluatedPermissionType {
        /// It runs.
        Allow = "allow",
        /// The user is asked.
        Ask = "ask",
        /// It does not run.
        Deny = "deny",
    }
}

open_enum! {
    /// How a hosted agent's text arrives.
    pub enum Streaming {
        /// Bit by bit.
        Token = "token",
        /// Message by message.
        Committed = "committed",
    }
}

open_enum! {
    /// Which tool calls of a hosted agent reach `interaction.request`.
    pub enum PermissionRelay {
        /// Every one that its policy asks about.
        Full = "full",
        /// Those that leave its own sandbox.
        EscalationOnly = "escalation_only",
        /// None: platform approval covers no tool call of it.
        None = "none",
    }
}

open_enum! {
    /// What a hosted agent reports of its consumption.
    pub enum Usage {
        /// Tokens.
        Tokens = "tokens",
        /// How full its context is.
        ContextOnly = "context_only",
    }
}

open_enum! {
    /// Who a terminal is for.
    pub enum TerminalKind {
        /// A person.
        Human = "human",
        /// An agent.
        Agent = "agent",
    }
}

open_enum! {
    /// A view of session files.
    pub enum FsView {
        /// What the user put in, read-only.
        Uploads = "uploads",
        /// The session's skills, read-only.
        Skills = "skills",
    }
}
