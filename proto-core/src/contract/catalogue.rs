//! The catalogue: every method with its direction, kind, first protocol
//! version, capability, idempotency key, params and result.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserializer, Serialize, Serializer};

use super::shape::{self, ShapeError};
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

/// Makes everything about the methods from one table. An entry reads: name in
/// Rust, who sends it, first version, name on the wire, the capability that it
/// needs, the members that make a repetition the same request, params, and the
/// result when it is answered. What is `boxed` keeps [`AnyParams`] and
/// [`AnyResult`] small; what is small anyway is `inline`; `shared` is what is kept as it came.
macro_rules! catalogue {
    ($(
        $(#[$meta:meta])*
        $variant:ident = $direction:ident $since:ident $name:literal
            $(if $capability:literal)? $(once per [$($key:literal),+])?
            => $pstore:ident $params:ident $(-> $rstore:ident $result:ident)?;
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

            /// The capability that an executor must have advertised before the method is used
            /// (see [`Capabilities::has`]).
            pub const fn capability(self) -> Option<&'static str> {
                match self { $( Self::$variant => catalogue!(@capability $($capability)?), )+ }
            }

            /// The members that make a repeated request the same request.
            pub const fn idempotent_by(self) -> &'static [&'static str] {
                match self { $( Self::$variant => &[$($($key),+)?], )+ }
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
            pub(crate) fn deserialize<'de, D>(method: Method, deserializer: D) -> Result<Self, D::Error>
            where
                D: Deserializer<'de>,
            {
                match method {
                    $( Method::$variant => serde::Deserialize::deserialize(deserializer).map(Self::$variant), )+
                }
            }

            /// Reads the params of `method` from JSON text.
            ///
            /// # Errors
            /// When the text has another shape. The error names the member.
            pub fn read(method: Method, text: &str) -> Result<Self, ShapeError> {
                match method {
                    $( Method::$variant => shape::read(text).map(Self::$variant), )+
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

    (@capability) => { None };
    (@capability $capability:literal) => { Some($capability) };
    (@kind) => { Kind::Notification };
    (@kind $result:ident) => { Kind::Request };
    (@store boxed $t:ident) => { Box<$t> };
    (@store shared $t:ident) => { Arc<$t> };
    (@store inline $t:ident) => { $t };
    (@wrap boxed $e:expr) => { Box::new($e) };
    (@wrap shared $e:expr) => { std::sync::Arc::new($e) };
    (@wrap inline $e:expr) => { $e };
    (@unwrap boxed $e:expr) => { *$e };
    (@unwrap shared $e:expr) => { std::sync::Arc::unwrap_or_clone($e) };
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
            pub(crate) fn deserialize<'de, D>(method: Method, deserializer: D) -> Option<Result<Self, D::Error>>
            where
                D: Deserializer<'de>,
            {
                Some(match method {
                    $( Method::$variant => serde::Deserialize::deserialize(deserializer).map(Self::$variant), )+
                    _ => return None,
                })
            }

            /// Reads the result of `method` from JSON text; `None` when the method has none.
            ///
            /// # Errors
            /// When the text has another shape. The error names the member.
            pub fn read(method: Method, text: &str) -> Option<Result<Self, ShapeError>> {
                Some(match method {
                    $( Method::$variant => shape::read(text).map(Self::$variant), )+
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
    /// Registers the executor. The first request on every connection; nothing else is served before it.
    ExecutorRegister = ExecutorToHarness V1 "executor.register"
        => boxed ExecutorRegisterParams -> boxed ExecutorRegisterResult;
    /// Says that the executor lives and which sessions it holds.
    ExecutorHeartbeat = ExecutorToHarness V1 "executor.heartbeat"
        => boxed ExecutorHeartbeatParams -> inline ExecutorHeartbeatResult;
    /// Lets a fresh token carry the connection on.
    ExecutorTokenRefresh = ExecutorToHarness V1_1 "executor.token.refresh"
        => inline ExecutorTokenRefreshParams -> inline ExecutorTokenRefreshResult;
    /// Replaces what the executor can do.
    ExecutorCapabilitiesUpdate = ExecutorToHarness V1 "executor.capabilities.update"
        => boxed ExecutorCapabilitiesUpdateParams;
    /// Asks the executor to take no more sessions and to end once it is empty.
    ExecutorDrain = HarnessToExecutor V1 "executor.drain"
        => inline ExecutorDrainParams -> inline ExecutorDrainResult;
    /// Says that the connection is about to be closed, and why.
    ExecutorClose = Bidirectional V1 "executor.close"
        => inline ExecutorCloseParams;
    /// Gives a session to the executor.
    SessionAssign = HarnessToExecutor V1 "session.assign"
        => boxed SessionAssignParams -> inline SessionAssignResult;
    /// Says that a session's workspace is there and its tools may be called.
    SessionReady = ExecutorToHarness V1 "session.ready"
        => inline SessionReadyParams -> inline Ack;
    /// Reports one durable event.
    SessionEvent = ExecutorToHarness V1 "session.event" once per ["jsonrpc_id"]
        => boxed SessionEventParams -> inline SessionEventResult;
    /// Says what a session does.
    SessionStatus = ExecutorToHarness V1 "session.status"
        => boxed SessionStatusParams;
    /// Ends a session and everything that runs in it.
    SessionStop = HarnessToExecutor V1 "session.stop"
        => inline SessionStopParams -> inline SessionStopResult;
    /// Says that a session is over.
    SessionEnded = ExecutorToHarness V1 "session.ended"
        => inline SessionEndedParams -> inline Ack;
    /// Calls a tool. Answered at once; the outcome comes as `tool.result`.
    ToolCall = HarnessToExecutor V1 "tool.call"
        => boxed ToolCallParams -> inline Ack;
    /// Reports the outcome of a tool call, again and again until it is acknowledged.
    ToolResult = ExecutorToHarness V1 "tool.result" once per ["tool_call_id"]
        => shared ToolResultParams -> inline Ack;
    /// Cancels a tool call.
    ToolCancel = HarnessToExecutor V1 "tool.cancel"
        => inline ToolCancelParams -> inline ToolCancelResult;
    /// Says what a running tool call does.
    ToolProgress = ExecutorToHarness V1 "tool.progress"
        => inline ToolProgressParams;
    /// Starts a process.
    ProcessStart = HarnessToExecutor V1_1 "process.start" if "process.enabled" once per ["session_id", "process_id"]
        => boxed ProcessStartParams -> boxed ProcessState;
    /// Reads output of a process from a cursor on, and can wait for it.
    ProcessRead = HarnessToExecutor V1_1 "process.read" if "process.enabled"
        => boxed ProcessReadParams -> boxed ProcessReadResult;
    /// Writes to a process's standard input, or ends it.
    ProcessWrite = HarnessToExecutor V1_1 "process.write" if "process.enabled"
        => boxed ProcessWriteParams -> inline ProcessWriteResult;
    /// Interrupts a process, as Ctrl-C does.
    ProcessInterrupt = HarnessToExecutor V1_1 "process.interrupt" if "process.enabled"
        => inline ProcessSignalParams -> boxed ProcessState;
    /// Ends a process: first asked, then killed.
    ProcessTerminate = HarnessToExecutor V1_1 "process.terminate" if "process.enabled"
        => inline ProcessSignalParams -> boxed ProcessState;
    /// Lists a session's processes.
    ProcessList = HarnessToExecutor V1_1 "process.list" if "process.enabled"
        => inline ProcessListParams -> boxed ProcessListResult;
    /// Says that a process changed its state.
    ProcessStatus = ExecutorToHarness V1_1 "process.status" if "process.enabled"
        => boxed ProcessStatusParams;
    /// Opens a terminal.
    TerminalOpen = HarnessToExecutor V1_1 "terminal.open" if "terminal.enabled" once per ["terminal_id"]
        => boxed TerminalOpenParams -> boxed TerminalOpenResult;
    /// Joins a terminal to the socket of its host.
    TerminalAttach = HarnessToExecutor V1_1 "terminal.attach" if "terminal.enabled"
        => boxed TerminalAttachParams -> inline TerminalAttachResult;
    /// Closes a terminal.
    TerminalClose = HarnessToExecutor V1_1 "terminal.close" if "terminal.enabled" once per ["terminal_id"]
        => inline TerminalCloseParams -> inline TerminalCloseResult;
    /// Installs a skill on the machine.
    SkillInstall = HarnessToExecutor V1_1 "skill.install" if "skills.install"
        once per ["skill_id", "revision_id", "digest"]
        => boxed SkillInstallParams -> boxed SkillInstallResult;
    /// Saves files of the machine.
    WorkspaceBackup = HarnessToExecutor V1_1 "workspace.backup" if "workspace.backup" once per ["backup_id"]
        => boxed WorkspaceBackupParams -> boxed WorkspaceBackupResult;
    /// Mounts views of a session's files.
    FsMount = HarnessToExecutor V1_1 "fs.mount" if "fs.fuse" once per ["session_id", "view"]
        => boxed FsMountParams -> boxed FsMountResult;
    /// Unmounts them.
    FsUnmount = HarnessToExecutor V1_1 "fs.unmount" if "fs.fuse" once per ["session_id"]
        => inline FsUnmountParams -> boxed FsUnmountResult;
    /// Starts a turn of an agent.
    TurnStart = HarnessToExecutor V1_1 "turn.start" if "agent" once per ["turn_id"]
        => boxed TurnStartParams -> boxed TurnStartResult;
    /// Gives a running turn more of what the user says.
    TurnInput = HarnessToExecutor V1_1 "turn.input" if "agent" once per ["input_id"]
        => boxed TurnInputParams -> inline Ack;
    /// Cancels a turn.
    TurnCancel = HarnessToExecutor V1_1 "turn.cancel" if "agent"
        => inline TurnCancelParams -> inline TurnCancelResult;
    /// Closes an agent session: no event of it follows.
    SessionClose = HarnessToExecutor V1_1 "session.close" if "agent"
        => inline SessionCloseParams -> inline SessionCloseResult;
    /// Shows a bit of text before its event comes.
    SessionEventDelta = ExecutorToHarness V1_1 "session.event_delta" if "agent"
        => boxed SessionEventDeltaParams;
    /// Asks the user for a permission or an answer.
    InteractionRequest = ExecutorToHarness V1_1 "interaction.request" if "agent" once per ["interaction_id"]
        => boxed InteractionRequestParams -> inline InteractionRequestResult;
    /// Brings the user's decision.
    InteractionResponse = HarnessToExecutor V1_1 "interaction.response" if "agent" once per ["interaction_id"]
        => boxed InteractionResponseParams -> inline InteractionResponseResult;
    /// Brings the result of a tool that the user's application ran.
    AgentCustomToolResult = HarnessToExecutor V1_1 "agent.custom_tool_result" if "agent" once per ["tool_use_id"]
        => boxed AgentCustomToolResultParams -> inline CustomToolResultResult;
    /// Withdraws what was asked.
    InteractionCancel = ExecutorToHarness V1_1 "interaction.cancel" if "agent" once per ["interaction_id"]
        => inline InteractionCancelParams -> inline Ack;
    /// Asks for a fresh credential for the turn's model.
    ModelTokenRefresh = ExecutorToHarness V1_1 "model_token.refresh" if "agent"
        => inline ModelTokenRefreshParams -> boxed ModelTokenRefreshResult;
    /// Asks for a fresh credential for the turn's tools.
    ToolsTokenRefresh = ExecutorToHarness V1_1 "tools_token.refresh" if "agent"
        => inline ToolsTokenRefreshParams -> boxed ToolsTokenRefreshResult;
}
