//! Tool slots and what a handler learns.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use bma_proto_core::Time;
use bma_proto_core::contract::{
    BashInput, EditInput, GlobInput, GrepInput, ListFilesInput, ReadInput, SessionId, ToolCallId, ToolCallParams,
    ToolName, ToolPermission, TypedInput, WriteInput,
};
use bma_proto_core::executor::OfferId;

use super::shared::{Shared, ToolHandler};
use crate::cancel::Cancellation;
use crate::tool::{ToolError, ToolOutput};

/// The typed tool slots of a [`Client`](super::Client).
///
/// A handler gets the tool's input and a [`ToolContext`], and returns what
/// becomes a [`ToolOutput`], or a [`ToolError`]. A call whose input lacks a
/// required member fails before the handler runs. Registering again replaces
/// the earlier handler.
#[derive(Clone, Copy)]
pub struct Tools<'a> {
    shared: &'a Arc<Shared>,
}

impl fmt::Debug for Tools<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tools").finish_non_exhaustive()
    }
}

/// Declares one typed slot for each built-in tool.
macro_rules! slots {
    ($( $(#[$meta:meta])* $name:ident: $input:ident; )+) => {$(
        $(#[$meta])*
        pub fn $name<F, Fut, O>(&self, handler: F)
        where
            F: Fn($input, ToolContext) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
            O: Into<ToolOutput>,
        {
            self.typed::<$input, F, Fut, O>(handler);
        }
    )+};
}

impl<'a> Tools<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>) -> Self {
        Self { shared }
    }

    slots! {
        /// Serves `bash`: run a command with a login shell.
        bash: BashInput;
        /// Serves `read`: the lines of a text file.
        read: ReadInput;
        /// Serves `write`: create or replace a file.
        write: WriteInput;
        /// Serves `edit`: replace the one occurrence of a text.
        edit: EditInput;
        /// Serves `glob`: the paths that match a pattern.
        glob: GlobInput;
        /// Serves `grep`: the lines that match a regular expression.
        grep: GrepInput;
        /// Serves `list_files`: the entries of a directory.
        list_files: ListFilesInput;
    }

    /// Serves any tool, with the call as it came: for tools of one's own.
    pub fn raw<F, Fut>(&self, tool: ToolName, handler: F)
    where
        F: Fn(ToolCallParams, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ToolOutput, ToolError>> + Send + 'static,
    {
        let handler: ToolHandler = Arc::new(move |params, context| Box::pin(handler(params, context)));
        self.shared.handlers().tools.insert(tool.as_str().to_owned(), handler);
        self.shared.with(|locked| locked.machine.serve_tool(tool));
    }

    fn typed<I, F, Fut, O>(&self, handler: F)
    where
        I: TypedInput,
        F: Fn(I, ToolContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, ToolError>> + Send + 'static,
        O: Into<ToolOutput>,
    {
        self.raw(I::TOOL, move |params, context| {
            let running = params.read_input::<I>().map(|input| handler(input, context));
            async move {
                match running {
                    Ok(running) => running.await.map(Into::into),
                    Err(error) => Err(ToolError::failed(error.to_string())),
                }
            }
        });
    }
}

/// What a handler learns about the call that it serves. A cheap clone.
#[derive(Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The session of the call.
    pub session_id: SessionId,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The permission that the harness resolved.
    pub permission: Option<ToolPermission>,
    /// When the call's time is up, by the runtime's clock; none when the harness set no limit. The cancellation
    /// tells of it then: this is for work that plans ahead.
    pub deadline: Option<Time>,
    /// Asked for when the call is canceled, its deadline passes, its session
    /// stops or the client does. The call ends when the handler returns: clean
    /// up first, then return what there is.
    pub cancellation: Cancellation,
    /// The offer of the session: a later session of the same id is another.
    pub(super) offer: OfferId,
    pub(super) shared: Arc<Shared>,
}

impl ToolContext {
    /// Sends `tool.progress`, best effort: `false` when it was dropped, because
    /// nothing is connected, too much waits to be written, or the message is too long.
    pub fn progress(&self, message: &str) -> bool {
        self.shared.with(|locked| {
            let current = locked.machine.offer_of(&self.session_id).as_ref() == Some(&self.offer);
            current && locked.machine.progress(&self.session_id, &self.tool_call_id, message).unwrap_or(false)
        })
    }
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("session_id", &self.session_id)
            .field("tool_call_id", &self.tool_call_id)
            .field("permission", &self.permission)
            .field("canceled", &self.cancellation.reason())
            .finish_non_exhaustive()
    }
}
