//! One session of an executor, as a handle.

use std::fmt;
use std::sync::Arc;

use bma_proto_core::Time;
use bma_proto_core::contract::{AnyResult, ErrorCode};
use bma_proto_core::contract::{
    BashInput, EditInput, GlobInput, GrepInput, Json, ListFilesInput, ReadInput, SessionId, SessionStopParams,
    ToolCallId, ToolCallParams, ToolCancelParams, ToolName, ToolPermission, ToolResultParams, TypedInput, WriteInput,
};
use bma_proto_core::harness::{CallError, Completion};
use bma_proto_core::rpc::RequestError;

use super::executor::{Executor, Locked};

/// A session that is bound to an executor. A cheap clone; dropping it leaves the
/// session as it is.
///
/// It is this one session for good: once that has ended, every call fails, also
/// when another session was bound under the same id.
///
/// Dropping a future of one of its methods abandons the wait and nothing else:
/// a tool runs on, and its result is recorded for a later call with the same id.
#[derive(Clone)]
pub struct Session {
    executor: Executor,
    id: SessionId,
    /// Which binding of its id it is.
    binding: u64,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("session_id", &self.id)
            .field("executor_id", self.executor.id())
            .finish_non_exhaustive()
    }
}

/// The optional members of a tool call.
#[derive(Clone, Debug, Default)]
pub struct CallToolOptions {
    /// The call's id: a repeated one is the same call. Made up when empty.
    pub tool_call_id: ToolCallId,
    /// How long the tool may take on the executor, in milliseconds from its receipt.
    pub deadline_ms: Option<i64>,
    /// The permission that was resolved for the call.
    pub permission: Option<ToolPermission>,
}

impl Session {
    pub(super) fn new(executor: Executor, id: SessionId, binding: u64) -> Self {
        Self { executor, id, binding }
    }

    /// Asks something about this session and waits for its end.
    async fn ask<F>(&self, ask: F) -> Result<Completion, CallError>
    where
        F: FnOnce(&mut Locked, Time, u64) -> Result<(), CallError>,
    {
        self.executor.ask_bound(&self.id, self.binding, ask).await
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// The executor that it is bound to.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Waits until the executor has set the session up.
    ///
    /// # Errors
    /// When the session is over.
    pub async fn ready(&self) -> Result<(), CallError> {
        let waited = self.ask(|locked, _, token| locked.machine.wait_ready(&self.id, token));
        waited.await.map(drop)
    }

    /// One typed call for each built-in tool: `session.tools().bash(input)`.
    pub fn tools(&self) -> SessionTools<'_> {
        SessionTools { session: self, options: CallToolOptions::default() }
    }

    /// Calls a tool and waits for its result. A repeated `tool_call_id` joins the
    /// open call or gets the recorded result; the tool runs once. The session id
    /// is filled in.
    ///
    /// # Errors
    /// When the call is refused, or its outcome is unknown because the executor was lost.
    pub async fn call_tool(&self, mut params: ToolCallParams) -> Result<Arc<ToolResultParams>, CallError> {
        params.session_id = self.id.clone();
        let called = self.ask(|locked, now, token| locked.machine.call_tool(now, params, token).map(drop));
        match called.await? {
            Completion::Tool(result) => Ok(result),
            _ => Err(CallError::Request(RequestError::Malformed("no tool result".to_owned()))),
        }
    }

    /// Calls any tool by its name, with its input as JSON.
    ///
    /// # Errors
    /// As [`call_tool`](Session::call_tool).
    pub async fn call_tool_named(
        &self,
        tool: ToolName,
        input: Json,
        options: CallToolOptions,
    ) -> Result<Arc<ToolResultParams>, CallError> {
        let CallToolOptions { tool_call_id, deadline_ms, permission } = options;
        let session_id = self.id.clone();
        self.call_tool(ToolCallParams { session_id, tool_call_id, tool, input, deadline_ms, permission }).await
    }

    /// Asks the executor to end a call. True when it was still running: it then
    /// ends with outcome `canceled`, unless its result was faster.
    ///
    /// # Errors
    /// When the request comes to nothing.
    pub async fn cancel_tool(&self, tool_call_id: &ToolCallId, reason: &str) -> Result<bool, CallError> {
        let params = ToolCancelParams {
            session_id: self.id.clone(),
            tool_call_id: tool_call_id.clone(),
            reason: (!reason.is_empty()).then(|| reason.to_owned()),
        };
        let asked = self.ask(|locked, now, token| locked.machine.cancel_tool(now, &params, token));
        match asked.await? {
            Completion::Result(result) => match *result {
                AnyResult::ToolCancel(result) => Ok(result.canceled),
                _ => Err(CallError::Request(RequestError::Malformed("another method's result".to_owned()))),
            },
            _ => Err(CallError::Request(RequestError::Malformed("no result".to_owned()))),
        }
    }

    /// Ends the session, and waits until the executor reports that everything of it is gone.
    ///
    /// # Errors
    /// When it cannot be asked to, or is over already.
    pub async fn stop(&self, reason: &str) -> Result<(), CallError> {
        self.stop_within(reason, None).await
    }

    /// As [`stop`](Session::stop), with the time in milliseconds that the executor has.
    ///
    /// # Errors
    /// As [`stop`](Session::stop).
    pub async fn stop_within(&self, reason: &str, deadline_ms: Option<i64>) -> Result<(), CallError> {
        let params = SessionStopParams { session_id: self.id.clone(), reason: reason.to_owned(), deadline_ms };
        self.ask(|locked, now, token| locked.machine.stop_session(now, params, token)).await.map(drop)
    }
}

/// The typed tool calls of a [`Session`].
#[derive(Clone, Debug)]
pub struct SessionTools<'a> {
    session: &'a Session,
    options: CallToolOptions,
}

/// Declares one typed call for each built-in tool.
macro_rules! calls {
    ($( $(#[$meta:meta])* $name:ident: $input:ident; )+) => {$(
        $(#[$meta])*
        ///
        /// # Errors
        /// As [`Session::call_tool`].
        pub async fn $name(self, input: $input) -> Result<Arc<ToolResultParams>, CallError> {
            self.typed(&input).await
        }
    )+};
}

impl SessionTools<'_> {
    /// The same calls, with these options.
    pub fn with(self, options: CallToolOptions) -> Self {
        Self { options, ..self }
    }

    calls! {
        /// Runs a command with a login shell.
        bash: BashInput;
        /// Reads the lines of a text file.
        read: ReadInput;
        /// Creates or replaces a file.
        write: WriteInput;
        /// Replaces the one occurrence of a text in a file.
        edit: EditInput;
        /// Finds the paths that match a pattern.
        glob: GlobInput;
        /// Finds the lines that match a regular expression.
        grep: GrepInput;
        /// Lists the entries of a directory.
        list_files: ListFilesInput;
    }

    async fn typed<I: TypedInput>(self, input: &I) -> Result<Arc<ToolResultParams>, CallError> {
        let input = Json::new(input).map_err(|error| {
            let error = ErrorCode::InvalidParams.error(error.to_string());
            CallError::Request(RequestError::Refused(Box::new(error)))
        })?;
        self.session.call_tool_named(I::TOOL, input, self.options).await
    }
}
