//! Default limits and times (`defaults` of the contract). Units stand in the names.

/// `request_timeout_ms`.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;

/// `reconnect_base_delay_ms`.
pub const RECONNECT_BASE_DELAY_MS: u64 = 1_000;

/// `reconnect_max_delay_ms`.
pub const RECONNECT_MAX_DELAY_MS: u64 = 60_000;

/// `max_reconnect_attempts`.
pub const MAX_RECONNECT_ATTEMPTS: usize = 0;

/// `tool_result_retry_attempts`.
pub const TOOL_RESULT_RETRY_ATTEMPTS: u32 = 5;

/// `tool_result_retry_base_delay_ms`.
pub const TOOL_RESULT_RETRY_BASE_DELAY_MS: u64 = 250;

/// `tool_result_retry_max_delay_ms`.
pub const TOOL_RESULT_RETRY_MAX_DELAY_MS: u64 = 10_000;

/// `core_max_sessions`.
pub const CORE_MAX_SESSIONS: usize = 16;

/// `core_max_mcp_servers_per_session`.
pub const CORE_MAX_MCP_SERVERS_PER_SESSION: usize = 4;

/// `core_bash_timeout_ms`.
pub const CORE_BASH_TIMEOUT_MS: u64 = 600_000;

/// `core_max_output_bytes`.
pub const CORE_MAX_OUTPUT_BYTES: usize = 1_048_576;

/// `core_inline_result_bytes`.
pub const CORE_INLINE_RESULT_BYTES: usize = 49_152;

/// `max_artifact_bytes`.
pub const MAX_ARTIFACT_BYTES: u64 = 16_777_216;

/// `max_file_transfer_bytes`.
pub const MAX_FILE_TRANSFER_BYTES: u64 = 1_073_741_824;

/// `harness_heartbeat_interval_ms`.
pub const HARNESS_HEARTBEAT_INTERVAL_MS: u64 = 15_000;

/// `harness_lease_ttl_ms`.
pub const HARNESS_LEASE_TTL_MS: u64 = 60_000;

/// `max_control_frame_bytes`.
pub const MAX_CONTROL_FRAME_BYTES: usize = 65_536;

/// `max_processes_per_session`.
pub const MAX_PROCESSES_PER_SESSION: usize = 64;

/// `process_buffer_bytes`.
pub const PROCESS_BUFFER_BYTES: usize = 1_048_576;

/// `pty_rows`.
pub const PTY_ROWS: u32 = 24;

/// `pty_cols`.
pub const PTY_COLS: u32 = 80;

/// `argv_max_entries`.
pub const ARGV_MAX_ENTRIES: usize = 256;

/// `argv_max_entry_bytes`.
pub const ARGV_MAX_ENTRY_BYTES: usize = 4_096;

/// `argv_max_total_bytes`.
pub const ARGV_MAX_TOTAL_BYTES: usize = 16_384;

/// `labels_max`.
pub const LABELS_MAX: u32 = 32;

/// `label_max_chars`.
pub const LABEL_MAX_CHARS: usize = 64;

/// `session_context_retention_after_process_end_ms`.
pub const SESSION_CONTEXT_RETENTION_AFTER_PROCESS_END_MS: u64 = 900_000;

/// `bash_background_wait_ms`.
pub const BASH_BACKGROUND_WAIT_MS: u64 = 55_000;

/// `background_command_max_ms`.
pub const BACKGROUND_COMMAND_MAX_MS: u64 = 3_600_000;

/// `acp_cancel_grace_ms`.
pub const ACP_CANCEL_GRACE_MS: u64 = 10_000;

/// `acp_kill_grace_ms`.
pub const ACP_KILL_GRACE_MS: u64 = 3_000;

/// `acp_max_sessions`.
pub const ACP_MAX_SESSIONS: usize = 8;

/// `acp_resident_sessions_percent`.
pub const ACP_RESIDENT_SESSIONS_PERCENT: u32 = 75;

/// `model_stream_idle_ms`.
pub const MODEL_STREAM_IDLE_MS: u64 = 90_000;
