//! The seven tools, served for one brain.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bma_proto_core::contract::{BashInput, SessionId, ToolCallId};
use bma_runtime::{CancelReason, Client, ToolContext, ToolError, ToolOutput};

use super::session::CoreSession;
use super::{Key, Shared};
use crate::bash::BashCall;
use crate::blocking::{Either, blocking, either};
use crate::files::{self, FileContext, FileToolError, ToolText};

/// Registers the tools of `brain` on its client.
pub(super) fn serve(shared: &Arc<Shared>, brain: &Arc<str>, client: &Client) {
    let tools = client.tools();
    let (core, owner) = (Arc::clone(shared), Arc::clone(brain));
    tools.bash(move |input, context| bash(Arc::clone(&core), Arc::clone(&owner), input, context));
    /// Serves one file tool: they differ only in the function and its input.
    macro_rules! file_tool {
        ($slot:ident) => {
            let (core, owner) = (Arc::clone(shared), Arc::clone(brain));
            tools.$slot(move |input, context| {
                file_tool(Arc::clone(&core), Arc::clone(&owner), context, move |files| files::$slot(files, &input))
            });
        };
    }
    file_tool!(read);
    file_tool!(write);
    file_tool!(edit);
    file_tool!(glob);
    file_tool!(grep);
    file_tool!(list_files);
    end_after_tool_calls(shared, brain, client);
}

fn find(shared: &Shared, brain: &Arc<str>, context: &ToolContext) -> Result<Arc<CoreSession>, ToolError> {
    let key: Key = (Arc::clone(brain), context.session_id.clone());
    shared.session(&key).ok_or_else(|| ToolError::failed(format!("session {} is not open here", context.session_id)))
}

async fn bash(
    shared: Arc<Shared>,
    brain: Arc<str>,
    mut input: BashInput,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let session = find(&shared, &brain, &context)?;
    // The work root itself holds everybody's workspaces: a brain that was told of it means its own.
    if input.cwd.as_ref().is_some_and(|cwd| shared.options.is_work_root(Path::new(cwd))) {
        input.cwd = None;
    }
    let mut call = BashCall::new(input, Arc::clone(&session.workspace), session.processes.clone());
    call.session_id = context.session_id.clone();
    call.tool_call_id = context.tool_call_id.clone();
    call.cancellation = context.cancellation.clone();
    call.deadline = context.deadline;
    call.progress = Some(Arc::new(move |text: &str| {
        context.progress(text);
    }));
    Ok(match shared.bash.run(call).await {
        Ok(report) => report.output_within(shared.options.inline_result_bytes),
        Err(error) => error.output(),
    })
}

/// Runs a file tool on the blocking pool, when it is its turn. A cancel reaches it through a flag that it looks at; a
/// call that still waits is over at once, and does nothing any more.
async fn file_tool<F>(
    shared: Arc<Shared>,
    brain: Arc<str>,
    context: ToolContext,
    run: F,
) -> Result<ToolOutput, ToolError>
where
    F: FnOnce(&FileContext<'_>) -> Result<ToolText, FileToolError> + Send + 'static,
{
    let session = find(&shared, &brain, &context)?;
    let turn = match either(context.cancellation.canceled(), session.turns.take()).await {
        Either::First(_) => return Ok(not_done(&context)),
        Either::Second(turn) => turn,
    };
    let flag = Arc::new(AtomicBool::new(false));
    // Whoever comes first decides: the thread that takes the call up, or the cancel.
    let taken = Arc::new(AtomicBool::new(false));
    let (core, canceled, call) = (Arc::clone(&shared), Arc::clone(&flag), context.tool_call_id.clone());
    let taken_up = Arc::clone(&taken);
    let work = blocking(&shared.runtime, move || {
        // Given back when the work is over, whoever waits for it.
        let _turn = turn;
        if taken_up.swap(true, Ordering::SeqCst) {
            return Err(FileToolError::Canceled);
        }
        let mut files = FileContext::new(&session.workspace, session.id(), &call, &canceled);
        if let Some(access) = &core.options.file_access {
            files = files.with_access(access.as_ref());
        }
        if let Some(agent_session) = session.agent_session_id() {
            files = files.with_agent_session(agent_session);
        }
        run(&files)
    });
    let mut work = std::pin::pin!(work);
    let done = match either(work.as_mut(), context.cancellation.canceled()).await {
        Either::First(done) => done,
        Either::Second(_) if !taken.swap(true, Ordering::SeqCst) => Ok(Err(FileToolError::Canceled)),
        Either::Second(_) => {
            flag.store(true, Ordering::Relaxed);
            work.await
        }
    };
    let done = done.map_err(|ended| ToolError::failed(ended.to_string()))?;
    Ok(match done {
        Ok(answer) => ToolOutput::text(answer.text),
        Err(FileToolError::Canceled) => not_done(&context),
        Err(FileToolError::Refused { refused, .. }) => {
            ToolOutput::error(format!("{}: {}", refused.reason(), refused.message()))
        }
        Err(error) => ToolOutput::error(error.to_string()),
    })
}

/// The answer of a call that was canceled.
fn not_done(context: &ToolContext) -> ToolOutput {
    match context.cancellation.reason() {
        Some(CancelReason::Deadline) => ToolOutput::error("timed out: the deadline of the call has passed"),
        reason => ToolOutput::canceled(reason.map_or_else(|| "canceled".to_owned(), |reason| reason.to_string())),
    }
}

/// Ends the sessions that carry exactly one tool call, once it has its result.
fn end_after_tool_calls(shared: &Arc<Shared>, brain: &Arc<str>, client: &Client) {
    if shared.options.end_after_tool_call.is_none() {
        return;
    }
    let (core, owner, handle) = (Arc::clone(shared), Arc::clone(brain), client.downgrade());
    client.on_tool_call_finished(move |session_id: &SessionId, _: &ToolCallId| {
        let key: Key = (Arc::clone(&owner), session_id.clone());
        if !core.session(&key).is_some_and(|session| session.ends_after_tool_call) {
            return;
        }
        let (core, handle) = (Arc::clone(&core), handle.clone());
        let runtime = Arc::clone(&core.runtime);
        runtime.spawn(Box::pin(async move {
            let session_id = key.1.clone();
            core.stop(key, None).await;
            if let Some(client) = handle.upgrade() {
                // A session that was stopped meanwhile has ended already.
                let _ = client.session_ended(&session_id, "completed");
            }
        }));
    });
}
