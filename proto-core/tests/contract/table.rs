//! Every wire type and enumeration of the crate, to be gone through by name.

use std::fmt::Debug;

use bma_proto_core::contract::*;
use serde::de::{DeserializeOwned, Deserializer, Error as _, Visitor, value};
use serde::{Serialize, forward_to_deserialize_any};

/// A wire type of the crate, and what can be done with it knowing its name only.
pub(crate) struct WireType {
    pub(crate) name: &'static str,
    /// Reads a value; gives what is written back and what `Debug` shows.
    pub(crate) read: fn(&str) -> Result<Written, ShapeError>,
    /// The members that it reads, by their names on the wire.
    pub(crate) members: fn() -> &'static [&'static str],
}

pub(crate) struct Written {
    pub(crate) json: String,
    pub(crate) debug: String,
}

/// An enumeration of the crate.
pub(crate) struct OpenEnum {
    pub(crate) name: &'static str,
    pub(crate) known: &'static [&'static str],
    /// Reads a value; gives what is written back, and whether it was known.
    pub(crate) read: fn(&str) -> (String, bool),
}

macro_rules! wire_types {
    ($($name:ident)+) => {
        pub(crate) static WIRE_TYPES: &[WireType] = &[$(
            WireType { name: stringify!($name), read: read_and_write::<$name>, members: members_of::<$name> },
        )+];
    };
}

macro_rules! open_enums {
    ($($name:ident)+) => {
        pub(crate) static OPEN_ENUMS: &[OpenEnum] = &[$(
            OpenEnum {
                name: stringify!($name),
                known: $name::KNOWN,
                read: |text| {
                    let value: $name = serde_json::from_str(text).unwrap();
                    (serde_json::to_string(&value).unwrap(), !matches!(value, $name::Other(_)))
                },
            },
        )+];
    };
}

wire_types! {
    Ack AgentCapability AgentCustomToolResultParams AgentCustomToolUseEvent AgentErrorInfo AgentHarnessCapability
    AgentInputBlock AgentMCPToolResultEvent AgentMCPToolUseEvent AgentMessageEvent AgentModel AgentThinkingEvent
    AgentToolResultEvent AgentToolUseEvent AgentTurnConfig ArtifactCapability ArtifactRef BashInput Capabilities
    ComputerActionInput ComputerObserveInput ContentBlock Cursors CustomToolResultResult DisplayCapability EditInput
    EnvironmentInfo EvaluatedPermission ExecutorCapabilitiesUpdateParams ExecutorCloseParams ExecutorDrainParams
    ExecutorDrainResult ExecutorHeartbeatParams ExecutorHeartbeatResult ExecutorInfo ExecutorLoad
    ExecutorRegisterParams ExecutorRegisterResult ExecutorResume ExecutorTokenRefreshParams
    ExecutorTokenRefreshResult ExecutorTokenRequest ExecutorTokenResponse FileTransferError FileTransferResult
    FilesCapability FsCapability FsMount FsMountParams FsMountResult FsUnmountParams FsUnmountResult GlobInput
    GrepInput InteractionCancelParams InteractionQuestion InteractionQuestionOption InteractionRequestParams
    InteractionRequestResult InteractionResponder InteractionResponseParams InteractionResponseResult JSONRPCError
    JSONRPCErrorData JSONRPCErrorResponse JSONRPCNotification JSONRPCRequest JSONRPCSuccessResponse Lease Limits
    ListFilesInput MCPCapability MCPContentBlock MCPImplementation MCPInitializeParams MCPInitializeResult
    MCPJSONRPCError MCPJSONRPCErrorResponse MCPJSONRPCNotification MCPJSONRPCRequest MCPJSONRPCSuccessResponse
    MCPProgressParams MCPServerConfig MCPServerTransport MCPTool MCPToolsCallParams MCPToolsCallResult
    MCPToolsListParams MCPToolsListResult ModelTokenRefreshParams ModelTokenRefreshResult ProcessCapability
    ProcessFileTransfer ProcessListParams ProcessListResult ProcessPackageInstall ProcessReadParams
    ProcessReadResult ProcessSignalParams ProcessStartParams ProcessState ProcessStatusParams ProcessWriteParams
    ProcessWriteResult ReadInput RemoteBrainCapability SessionAssignParams SessionAssignResult SessionCloseParams
    SessionCloseResult SessionContext SessionEndedParams SessionErrorEvent SessionEvent SessionEventDeltaParams
    SessionEventParams SessionEventResult SessionFilesCapability SessionMemoryResource SessionReadyParams
    SessionStatusIdleEvent SessionStatusParams SessionStatusRunningEvent SessionStopParams SessionStopResult
    ShellCapability SkillInstallParams SkillInstallResult SkillsCapability StopReason TerminalAttachParams
    TerminalAttachResult TerminalCapability TerminalCloseParams TerminalCloseResult TerminalErrorData TerminalHost
    TerminalOpenParams TerminalOpenResult ToolCallParams ToolCancelParams ToolCancelResult ToolInput ToolPermission
    ToolProgressParams ToolResultParams ToolsTokenRefreshParams ToolsTokenRefreshResult TurnCancelParams
    TurnCancelResult TurnInputParams TurnStartParams TurnStartResult WorkspaceBackupParams WorkspaceBackupResult
    WorkspaceCapability WriteInput
}

open_enums! {
    ProtocolVersion ConnectionState AgentErrorCode AgentEventType AgentInputBlockType ChannelScope ComputerAction
    ContentBlockType EventDeltaType FileTransferDirection InteractionCancelReason InteractionKind InteractionOutcome
    InteractionScope McpConnectionOrigin McpTransportType PackageManager PermissionMode ProcessStateName
    ProcessStream SessionStatus StdinMode StopReasonType ToolName ToolOutcome TurnOutcome IoMode StderrMode
    ErrorReason ToolErrorCode RouteOutcome PlatformCredential EvaluatedPermissionType Streaming PermissionRelay
    Usage TerminalKind FsView
}

fn read_and_write<T: DeserializeOwned + Serialize + Debug>(text: &str) -> Result<Written, ShapeError> {
    let value: T = read(text)?;
    Ok(Written { json: serde_json::to_string(&value).unwrap(), debug: format!("{value:?}") })
}

/// The members that `T` asks its deserializer for: optional ones and ones that
/// are never written included.
pub(crate) fn members_of<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Ask<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Ask<'_> {
        type Error = value::Error;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
            Err(value::Error::custom("only asking"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            members: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, value::Error> {
            *self.0 = members;
            Err(value::Error::custom("only asking"))
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
            unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut members: &'static [&'static str] = &[];
    let _ = T::deserialize(Ask(&mut members));
    members
}
