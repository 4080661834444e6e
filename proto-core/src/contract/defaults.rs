//! Default limits and times (`defaults` of the contract). Units stand in the names.

/// Declares the defaults, and the table that holds all of them.
macro_rules! defaults {
    ($( $(#[$meta:meta])* $name:ident: $type:ty = $value:literal, $key:literal; )+) => {
        $( $(#[$meta])* pub const $name: $type = $value; )+

        /// Every default by the contract's name, in its order.
        pub const ALL: &[(&str, u64)] = &[$( ($key, $value) ),+];
    };
}

defaults! {
    /// Milliseconds that a request waits for its answer.
    REQUEST_TIMEOUT_MS: u64 = 30_000, "request_timeout_ms";
    /// Milliseconds before the first attempt to connect again; each further wait is longer.
    RECONNECT_BASE_DELAY_MS: u64 = 1_000, "reconnect_base_delay_ms";
    /// Milliseconds that such a wait never exceeds.
    RECONNECT_MAX_DELAY_MS: u64 = 60_000, "reconnect_max_delay_ms";
    /// Attempts to connect before giving up; 0: never give up.
    MAX_RECONNECT_ATTEMPTS: u32 = 0, "max_reconnect_attempts";
    /// Attempts to report a `tool.result`, the first one included.
    TOOL_RESULT_RETRY_ATTEMPTS: u32 = 5, "tool_result_retry_attempts";
    /// Milliseconds before the second attempt; each further wait is longer.
    TOOL_RESULT_RETRY_BASE_DELAY_MS: u64 = 250, "tool_result_retry_base_delay_ms";
    /// Milliseconds that such a wait never exceeds.
    TOOL_RESULT_RETRY_MAX_DELAY_MS: u64 = 10_000, "tool_result_retry_max_delay_ms";
    /// Sessions that an executor serves at one time.
    CORE_MAX_SESSIONS: usize = 16, "core_max_sessions";
    /// MCP servers of one session.
    CORE_MAX_MCP_SERVERS_PER_SESSION: usize = 4, "core_max_mcp_servers_per_session";
    /// Milliseconds after which a `bash` call without a time-out of its own is ended.
    CORE_BASH_TIMEOUT_MS: u64 = 600_000, "core_bash_timeout_ms";
    /// Bytes of output that a tool call keeps.
    CORE_MAX_OUTPUT_BYTES: usize = 1_048_576, "core_max_output_bytes";
    /// Bytes of text that a tool result carries; a longer one is cut to a preview.
    CORE_INLINE_RESULT_BYTES: usize = 49_152, "core_inline_result_bytes";
    /// Bytes of one artifact.
    MAX_ARTIFACT_BYTES: u64 = 16_777_216, "max_artifact_bytes";
    /// Bytes of one file transfer.
    MAX_FILE_TRANSFER_BYTES: u64 = 1_073_741_824, "max_file_transfer_bytes";
    /// Milliseconds between two heartbeats that a harness asks for.
    HARNESS_HEARTBEAT_INTERVAL_MS: u64 = 15_000, "harness_heartbeat_interval_ms";
    /// Milliseconds without a frame after which a harness gives an executor up.
    HARNESS_LEASE_TTL_MS: u64 = 60_000, "harness_lease_ttl_ms";
    /// Bytes of one frame on the control channel.
    MAX_CONTROL_FRAME_BYTES: usize = 65_536, "max_control_frame_bytes";
    /// Processes that run in one session at one time.
    MAX_PROCESSES_PER_SESSION: usize = 64, "max_processes_per_session";
    /// Bytes of output kept for each stream of a process.
    PROCESS_BUFFER_BYTES: usize = 1_048_576, "process_buffer_bytes";
    /// Height of a pseudo-terminal in rows.
    PTY_ROWS: u16 = 24, "pty_rows";
    /// Width of a pseudo-terminal in columns.
    PTY_COLS: u16 = 80, "pty_cols";
    /// Entries of `argv`.
    ARGV_MAX_ENTRIES: usize = 256, "argv_max_entries";
    /// Bytes of one entry of `argv`.
    ARGV_MAX_ENTRY_BYTES: usize = 4_096, "argv_max_entry_bytes";
    /// Bytes of `argv` in all.
    ARGV_MAX_TOTAL_BYTES: usize = 16_384, "argv_max_total_bytes";
    /// Labels of one executor.
    LABELS_MAX: usize = 32, "labels_max";
    /// Characters of one label.
    LABEL_MAX_CHARS: usize = 64, "label_max_chars";
    /// Milliseconds after a process's end in which its session can still be looked up.
    SESSION_CONTEXT_RETENTION_AFTER_PROCESS_END_MS: u64 = 900_000, "session_context_retention_after_process_end_ms";
    /// Milliseconds that an agent's `bash` waits before it leaves the command in the background.
    BASH_BACKGROUND_WAIT_MS: u64 = 55_000, "bash_background_wait_ms";
    /// Milliseconds that a command in the background may live on.
    BACKGROUND_COMMAND_MAX_MS: u64 = 3_600_000, "background_command_max_ms";
    /// Milliseconds that a hosted agent has to obey a cancel before it is ended.
    ACP_CANCEL_GRACE_MS: u64 = 10_000, "acp_cancel_grace_ms";
    /// Milliseconds between asking a hosted agent's processes to end and killing them.
    ACP_KILL_GRACE_MS: u64 = 3_000, "acp_kill_grace_ms";
    /// Sessions of one hosted agent.
    ACP_MAX_SESSIONS: usize = 8, "acp_max_sessions";
    /// Share of an executor's sessions, in percent, that a hosted agent's resident ones may take.
    ACP_RESIDENT_SESSIONS_PERCENT: u32 = 75, "acp_resident_sessions_percent";
    /// Milliseconds of silence after which a model's stream has failed.
    MODEL_STREAM_IDLE_MS: u64 = 90_000, "model_stream_idle_ms";
}
