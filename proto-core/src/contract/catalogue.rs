//! The catalogue: every method with its direction, kind, first protocol
//! version, capability, idempotency key, params and result.

use serde::de::DeserializeOwned;
use serde::{Deserializer, Serialize, Serializer};

use super::*;

/// Who may send a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The executor sends it.
    ExecutorToHarness,
    /// The harness sends it.
    HarnessToExecutor,
    /// Either side may send it.
    Bidirectional,
}

/// Whether a method is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It carries an id and gets one answer.
    Request,
    /// It carries no id and gets no answer.
    Notification,
}

/// A method and its types. Implemented by the marker types of [`methods`].
pub trait MethodSpec: 'static {
    /// The method.
    const METHOD: Method;
    /// Its params object.
    type Params: Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static;

    /// Wraps the params.
    fn wrap(params: Self::Params) -> AnyParams;
    /// Unwraps the params; `None` when they are another method's.
    fn unwrap(params: AnyParams) -> Option<Self::Params>;
}

/// A method that is answered.
pub trait RequestMethod: MethodSpec {
    /// Its result object.
    type Result: Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static;

    /// Wraps the result.
    fn wrap_result(result: Self::Result) -> AnyResult;
    /// Unwraps the result; `None` when it is another method's.
    fn unwrap_result(result: AnyResult) -> Option<Self::Result>;
}

/// A method that is not answered.
pub trait NotificationMethod: MethodSpec {}

/// The one table that everything about the methods is made from. `boxed`
/// params and results keep the enums below small; the hot ones are inline.
macro_rules! catalogue {
    ($(
        $(#[$meta:meta])*
        $variant:ident = $name:literal, $direction:ident, $since:ident, $capability:expr, [$($key:literal),*],
        $pstore:ident $params:ident $(-> $rstore:ident $result:ident)?;
    )+) => {
        /// A method of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method { $( $(#[$meta])* $variant, )+ }

        impl Method {
            /// Every method, in the contract's order.
            pub const ALL: &'static [Method] = &[$(Method::$variant),+];

            /// The method with this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $( $name => Some(Self::$variant), )+ _ => None }
            }

            /// The name on the wire.
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $name, )+ }
            }

            /// Who may send it.
            pub const fn direction(self) -> Direction {
                match self { $( Self::$variant => Direction::$direction, )+ }
            }

            /// Whether it is answered.
            pub const fn kind(self) -> Kind {
                match self { $( Self::$variant => catalogue!(@kind $($result)?), )+ }
            }

            /// The first protocol version that has it.
            pub const fn since(self) -> ProtocolVersion {
                match self { $( Self::$variant => ProtocolVersion::$since, )+ }
            }

            /// The capability an executor must have advertised before it is sent.
            pub const fn capability(self) -> Option<&'static str> {
                match self { $( Self::$variant => $capability, )+ }
            }

            /// The members that make a repeated request the same request.
            pub const fn idempotent_by(self) -> &'static [&'static str] {
                match self { $( Self::$variant => &[$($key),*], )+ }
            }
        }

        /// The params of any method.
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyParams { $( $(#[$meta])* $variant(catalogue!(@store $pstore $params)), )+ }

        impl AnyParams {
            /// The method that the params belong to.
            pub const fn method(&self) -> Method {
                match self { $( Self::$variant(_) => Method::$variant, )+ }
            }

            /// Reads the params of `method`.
            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(method: Method, deserializer: D) -> Result<Self, D::Error> {
                match method {
                    $( Method::$variant => serde::Deserialize::deserialize(deserializer).map(Self::$variant), )+
                }
            }
        }

        impl Serialize for AnyParams {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $( Self::$variant(params) => params.serialize(serializer), )+ }
            }
        }

        catalogue!(@results [] $( { $(#[$meta])* $variant $(, $rstore $result)? } )+);

        /// One marker type for each method, to name it in a type parameter.
        pub mod methods {
            use super::{AnyParams, AnyResult, Method, MethodSpec, NotificationMethod, RequestMethod};

            $(
                $(#[$meta])*
                #[derive(Clone, Copy, Debug)]
                pub enum $variant {}

                impl MethodSpec for $variant {
                    const METHOD: Method = Method::$variant;
                    type Params = super::$params;

                    fn wrap(params: Self::Params) -> AnyParams {
                        AnyParams::$variant(catalogue!(@wrap $pstore params))
                    }

                    fn unwrap(params: AnyParams) -> Option<Self::Params> {
                        match params {
                            AnyParams::$variant(params) => Some(catalogue!(@unwrap $pstore params)),
                            _ => None,
                        }
                    }
                }

                catalogue!(@spec $variant $(, $rstore $result)?);
            )+
        }
    };

    (@kind) => { Kind::Notification };
    (@kind $result:ident) => { Kind::Request };
    (@store boxed $t:ident) => { Box<$t> };
    (@store inline $t:ident) => { $t };
    (@wrap boxed $e:expr) => { Box::new($e) };
    (@wrap inline $e:expr) => { $e };
    (@unwrap boxed $e:expr) => { *$e };
    (@unwrap inline $e:expr) => { $e };

    (@spec $variant:ident) => { impl NotificationMethod for $variant {} };
    (@spec $variant:ident, $rstore:ident $result:ident) => {
        impl RequestMethod for $variant {
            type Result = super::$result;

            fn wrap_result(result: Self::Result) -> AnyResult {
                AnyResult::$variant(catalogue!(@wrap $rstore result))
            }

            fn unwrap_result(result: AnyResult) -> Option<Self::Result> {
                match result {
                    AnyResult::$variant(result) => Some(catalogue!(@unwrap $rstore result)),
                    _ => None,
                }
            }
        }
    };

    // Only requests have results: the notifications are sorted out first.
    (@results [$($done:tt)*] { $(#[$meta:meta])* $variant:ident } $($rest:tt)*) => {
        catalogue!(@results [$($done)*] $($rest)*);
    };
    (@results [$($done:tt)*] { $(#[$meta:meta])* $variant:ident, $rstore:ident $result:ident } $($rest:tt)*) => {
        catalogue!(@results [$($done)* { $(#[$meta])* $variant, $rstore $result }] $($rest)*);
    };
    (@results [$( { $(#[$meta:meta])* $variant:ident, $rstore:ident $result:ident } )+]) => {
        /// The result of any request.
        #[derive(Clone, Debug, PartialEq)]
        pub enum AnyResult { $( $(#[$meta])* $variant(catalogue!(@store $rstore $result)), )+ }

        impl AnyResult {
            /// The method that the result belongs to.
            pub const fn method(&self) -> Method {
                match self { $( Self::$variant(_) => Method::$variant, )+ }
            }

            /// Reads the result of `method`; `None` when the method has none.
            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(method: Method, deserializer: D) -> Option<Result<Self, D::Error>> {
                Some(match method {
                    $( Method::$variant => serde::Deserialize::deserialize(deserializer).map(Self::$variant), )+
                    _ => return None,
                })
            }
        }

        impl Serialize for AnyResult {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self { $( Self::$variant(result) => result.serialize(serializer), )+ }
            }
        }
    };
}

catalogue! {
    /// `executor.register`.
    ExecutorRegister = "executor.register", ExecutorToHarness, V1, None, [], boxed ExecutorRegisterParams -> boxed ExecutorRegisterResult;
    /// `executor.heartbeat`.
    ExecutorHeartbeat = "executor.heartbeat", ExecutorToHarness, V1, None, [], inline ExecutorHeartbeatParams -> inline ExecutorHeartbeatResult;
    /// `executor.token.refresh`.
    ExecutorTokenRefresh = "executor.token.refresh", ExecutorToHarness, V1_1, None, [], inline ExecutorTokenRefreshParams -> inline ExecutorTokenRefreshResult;
    /// `executor.capabilities.update`.
    ExecutorCapabilitiesUpdate = "executor.capabilities.update", ExecutorToHarness, V1, None, [], boxed ExecutorCapabilitiesUpdateParams;
    /// `executor.drain`.
    ExecutorDrain = "executor.drain", HarnessToExecutor, V1, None, [], inline ExecutorDrainParams -> inline ExecutorDrainResult;
    /// `executor.close`.
    ExecutorClose = "executor.close", Bidirectional, V1, None, [], inline ExecutorCloseParams;
    /// `session.assign`.
    SessionAssign = "session.assign", HarnessToExecutor, V1, None, [], boxed SessionAssignParams -> inline SessionAssignResult;
    /// `session.ready`.
    SessionReady = "session.ready", ExecutorToHarness, V1, None, [], inline SessionReadyParams -> inline Ack;
    /// `session.event`.
    SessionEvent = "session.event", ExecutorToHarness, V1, None, ["jsonrpc_id"], boxed SessionEventParams -> inline SessionEventResult;
    /// `session.status`.
    SessionStatus = "session.status", ExecutorToHarness, V1, None, [], inline SessionStatusParams;
    /// `session.stop`.
    SessionStop = "session.stop", HarnessToExecutor, V1, None, [], inline SessionStopParams -> inline SessionStopResult;
    /// `session.ended`.
    SessionEnded = "session.ended", ExecutorToHarness, V1, None, [], inline SessionEndedParams -> inline Ack;
    /// `tool.call`.
    ToolCall = "tool.call", HarnessToExecutor, V1, None, [], inline ToolCallParams -> inline Ack;
    /// `tool.result`.
    ToolResult = "tool.result", ExecutorToHarness, V1, None, ["tool_call_id"], inline ToolResultParams -> inline Ack;
    /// `tool.cancel`.
    ToolCancel = "tool.cancel", HarnessToExecutor, V1, None, [], inline ToolCancelParams -> inline ToolCancelResult;
    /// `tool.progress`.
    ToolProgress = "tool.progress", ExecutorToHarness, V1, None, [], inline ToolProgressParams;
    /// `process.start`.
    ProcessStart = "process.start", HarnessToExecutor, V1_1, Some("process.enabled"), ["session_id", "process_id"], boxed ProcessStartParams -> boxed ProcessState;
    /// `process.read`.
    ProcessRead = "process.read", HarnessToExecutor, V1_1, Some("process.enabled"), [], inline ProcessReadParams -> boxed ProcessReadResult;
    /// `process.write`.
    ProcessWrite = "process.write", HarnessToExecutor, V1_1, Some("process.enabled"), [], inline ProcessWriteParams -> inline ProcessWriteResult;
    /// `process.interrupt`.
    ProcessInterrupt = "process.interrupt", HarnessToExecutor, V1_1, Some("process.enabled"), [], inline ProcessSignalParams -> boxed ProcessState;
    /// `process.terminate`.
    ProcessTerminate = "process.terminate", HarnessToExecutor, V1_1, Some("process.enabled"), [], inline ProcessSignalParams -> boxed ProcessState;
    /// `process.list`.
    ProcessList = "process.list", HarnessToExecutor, V1_1, Some("process.enabled"), [], inline ProcessListParams -> boxed ProcessListResult;
    /// `process.status`.
    ProcessStatus = "process.status", ExecutorToHarness, V1_1, Some("process.enabled"), [], boxed ProcessStatusParams;
    /// `terminal.open`.
    TerminalOpen = "terminal.open", HarnessToExecutor, V1_1, Some("terminal.enabled"), ["terminal_id"], boxed TerminalOpenParams -> boxed TerminalOpenResult;
    /// `terminal.attach`.
    TerminalAttach = "terminal.attach", HarnessToExecutor, V1_1, Some("terminal.enabled"), [], boxed TerminalAttachParams -> inline TerminalAttachResult;
    /// `terminal.close`.
    TerminalClose = "terminal.close", HarnessToExecutor, V1_1, Some("terminal.enabled"), ["terminal_id"], inline TerminalCloseParams -> inline TerminalCloseResult;
    /// `skill.install`.
    SkillInstall = "skill.install", HarnessToExecutor, V1_1, Some("skills.install"), ["skill_id", "revision_id", "digest"], boxed SkillInstallParams -> inline SkillInstallResult;
    /// `workspace.backup`.
    WorkspaceBackup = "workspace.backup", HarnessToExecutor, V1_1, Some("workspace.backup"), ["backup_id"], inline WorkspaceBackupParams -> boxed WorkspaceBackupResult;
    /// `fs.mount`.
    FsMount = "fs.mount", HarnessToExecutor, V1_1, Some("fs.fuse"), ["session_id", "view"], boxed FsMountParams -> inline FsMountResult;
    /// `fs.unmount`.
    FsUnmount = "fs.unmount", HarnessToExecutor, V1_1, Some("fs.fuse"), ["session_id"], inline FsUnmountParams -> inline FsUnmountResult;
    /// `turn.start`.
    TurnStart = "turn.start", HarnessToExecutor, V1_1, Some("agent"), ["turn_id"], boxed TurnStartParams -> boxed TurnStartResult;
    /// `turn.input`.
    TurnInput = "turn.input", HarnessToExecutor, V1_1, Some("agent"), ["input_id"], boxed TurnInputParams -> inline Ack;
    /// `turn.cancel`.
    TurnCancel = "turn.cancel", HarnessToExecutor, V1_1, Some("agent"), [], inline TurnCancelParams -> inline TurnCancelResult;
    /// `session.close`.
    SessionClose = "session.close", HarnessToExecutor, V1_1, Some("agent"), [], inline SessionCloseParams -> inline SessionCloseResult;
    /// `session.event_delta`.
    SessionEventDelta = "session.event_delta", ExecutorToHarness, V1_1, Some("agent"), [], inline SessionEventDeltaParams;
    /// `interaction.request`.
    InteractionRequest = "interaction.request", ExecutorToHarness, V1_1, Some("agent"), ["interaction_id"], boxed InteractionRequestParams -> inline InteractionRequestResult;
    /// `interaction.response`.
    InteractionResponse = "interaction.response", HarnessToExecutor, V1_1, Some("agent"), ["interaction_id"], boxed InteractionResponseParams -> inline InteractionResponseResult;
    /// `agent.custom_tool_result`.
    AgentCustomToolResult = "agent.custom_tool_result", HarnessToExecutor, V1_1, Some("agent"), ["tool_use_id"], boxed AgentCustomToolResultParams -> inline CustomToolResultResult;
    /// `interaction.cancel`.
    InteractionCancel = "interaction.cancel", ExecutorToHarness, V1_1, Some("agent"), ["interaction_id"], inline InteractionCancelParams -> inline Ack;
    /// `model_token.refresh`.
    ModelTokenRefresh = "model_token.refresh", ExecutorToHarness, V1_1, Some("agent"), [], inline ModelTokenRefreshParams -> inline ModelTokenRefreshResult;
    /// `tools_token.refresh`.
    ToolsTokenRefresh = "tools_token.refresh", ExecutorToHarness, V1_1, Some("agent"), [], inline ToolsTokenRefreshParams -> inline ToolsTokenRefreshResult;
}
