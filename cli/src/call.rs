//! `bma call`: one tool call on the next executor that dials.

use std::fmt;
use std::future::Future;
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::proto::contract::{
    Json, SessionAssignParams, SessionId, ToolCallId, ToolName, ToolOutcome, ToolResultParams,
};
use bma_runtime_tokio::sync::Event;
use bma_runtime_tokio::{CallToolOptions, Executor, ExecutorEvent, Harness, Runtime};

use crate::common::{FAILED, Failure, SUCCESS, harness, on_runtime, tell};
use crate::reach::{self, Way};
use crate::signals::{Caught, Signals};
use crate::token::Token;

/// No input is longer, in bytes: it would not fit into a frame by far.
const MAX_INPUT_BYTES: usize = 1 << 20;

/// After a signal or at the time limit: how long the call and its session may take to end.
const END_WITHIN: Duration = Duration::from_secs(20);

/// Call one tool on the next executor that dials.
///
/// Starts a harness, prints `LISTEN <ws-url>` on stderr, waits for one executor
/// (`bma hand --url <ws-url>` with the same token), assigns it a session, calls
/// the tool, and ends the session. The result's text goes to stdout, progress to
/// stderr.
///
/// SIGINT and SIGTERM give the call up in order, a second one ends it at once.
/// Exit code 0 on success, 1 on a tool error, 130 or 143 after a signal, 2 on
/// anything else.
///
/// Example:
///
/// bma call --token-file token --listen 127.0.0.1:8700 bash '{"command":"uname -a"}'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: reach::Reach,
    /// Holds the token of executors and harness; readable by you alone [or: BMA_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The session's id; the same one finds the same workspace again [default: a new one]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// How long the tool may run on the executor, in ms [default: the executor's own limit]
    #[arg(long, value_name = "MS", value_parser = milliseconds, allow_negative_numbers = true)]
    deadline_ms: Option<i64>,
    /// How long to wait for executor and result, in seconds, such as 0.5 [default: for ever]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// The tool: bash, read, write, edit, glob, grep, list_files, or one of the executor's own
    tool: String,
    /// Its input, a JSON object such as '{"path":"a.txt"}'; - reads it from standard input
    #[arg(allow_negative_numbers = true)]
    json: String,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok();
    let length = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let wrong = || "it must be a number of seconds above 0, such as 30 or 0.5".to_owned();
    length.filter(|length| !length.is_zero()).ok_or_else(wrong)
}

fn milliseconds(text: &str) -> Result<i64, String> {
    let wrong = || "it must be a whole number of milliseconds above 0, such as 5000".to_owned();
    text.parse().ok().filter(|ms| *ms > 0).ok_or_else(wrong)
}

/// What to call.
struct Call {
    tool: ToolName,
    input: Json,
    deadline_ms: Option<i64>,
    session: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    let way = args.reach.way()?;
    let token = Token::read(args.token_file.as_deref())?;
    if args.tool.is_empty() {
        return Err(Failure::usage("TOOL", "it is empty: name one, such as bash"));
    }
    if args.session.as_ref().is_some_and(String::is_empty) {
        return Err(Failure::usage("--session", "it is empty: give an id, or leave it out"));
    }
    let input = read_input(args.json)?;
    let call = Call { tool: args.tool.into(), input, deadline_ms: args.deadline_ms, session: args.session };
    on_runtime(move |runtime| serve(runtime, way, token, call, args.timeout))
}

fn read_input(json: String) -> Result<Json, Failure> {
    let wrong = |problem: &dyn fmt::Display| Failure::usage("JSON", problem);
    let text = if json == "-" {
        let mut text = String::new();
        let limit = u64::try_from(MAX_INPUT_BYTES + 1).unwrap_or(u64::MAX);
        io::stdin().lock().take(limit).read_to_string(&mut text).map_err(|error| wrong(&error))?;
        text.truncate(text.trim_end().len());
        text
    } else {
        json
    };
    if text.len() > MAX_INPUT_BYTES {
        return Err(wrong(&format!("there are more than {MAX_INPUT_BYTES} bytes")));
    }
    let input = Json::from_text(text).map_err(|error| wrong(&format!("it is not JSON: {error}")))?;
    if !input.get().starts_with('{') {
        return Err(wrong(&"it is no object: write the tool's input as {\"member\": value, ...}"));
    }
    Ok(input)
}

async fn serve(
    runtime: Arc<dyn Runtime>,
    way: Way,
    token: Token,
    call: Call,
    timeout: Option<Duration>,
) -> Result<u8, Failure> {
    let signals = Signals::catch()?;
    let harness = harness(&runtime, token.secret());
    let reached = reach::open("bma call", &harness, &way, &token).await?;
    let ended = work(&runtime, &harness, call, early_end(signals, timeout)).await;
    drop(reached);
    // In order, whatever became of the call: the executor then knows that nothing has failed.
    harness.release("the call is over").await;
    match ended? {
        Ended::Result(result) => show(&result),
        Ended::Early(Early::Signal(caught)) => {
            tell(&format!("bma call: {caught}: the call was given up"));
            Ok(caught.exit_code())
        }
        Ended::Early(Early::TimeUp(limit)) => {
            Err(Failure::usage("--timeout", format!("there was no result within {} s", limit.as_secs_f64())))
        }
    }
}

/// What ends a call before its result.
#[derive(Clone, Copy)]
enum Early {
    Signal(Caught),
    TimeUp(Duration),
}

/// How it ended.
enum Ended {
    Result(Arc<ToolResultParams>),
    Early(Early),
}

async fn early_end(mut signals: Signals, timeout: Option<Duration>) -> Early {
    let time_up = async {
        match timeout {
            Some(limit) => {
                tokio::time::sleep(limit).await;
                limit
            }
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        caught = signals.caught() => Early::Signal(caught),
        limit = time_up => Early::TimeUp(limit),
    }
}

/// Executor, session, call, and the session's end.
async fn work(
    runtime: &Arc<dyn Runtime>,
    harness: &Harness,
    call: Call,
    early: impl Future<Output = Early>,
) -> Result<Ended, Failure> {
    let mut early = pin!(early);
    let executor = tokio::select! {
        executor = harness.wait_executor() => executor,
        early = &mut early => return Ok(Ended::Early(early)),
    };
    tell(&format!("bma call: executor {} ({})", executor.id(), executor.info().name));
    let session_id = call.session.clone().unwrap_or_else(|| format!("call-{:016x}", runtime.seed())).into();
    let call_id = format!("call_{:016x}", runtime.seed()).into();
    let ended = in_session(&executor, &session_id, call_id, call, early).await;
    // Whatever became of it: nothing of the session is left on the machine.
    if let Some(session) = executor.session(&session_id) {
        match tokio::time::timeout(END_WITHIN, session.stop("done")).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tell(&format!("bma call: the session did not end in order: {error}")),
            Err(_) => tell(&format!("bma call: the session did not end within {} s", END_WITHIN.as_secs())),
        }
    }
    ended
}

async fn in_session(
    executor: &Executor,
    session_id: &SessionId,
    call_id: ToolCallId,
    call: Call,
    mut early: Pin<&mut impl Future<Output = Early>>,
) -> Result<Ended, Failure> {
    let mut events = executor.events();
    let ready = async {
        let params = SessionAssignParams { session_id: session_id.clone(), ..SessionAssignParams::default() };
        let session = executor.assign(params).await?;
        session.ready().await.map(|()| session)
    };
    let session = tokio::select! {
        ready = ready => ready.map_err(|error| Failure::not_done(format!("no session: {error}")))?,
        early = &mut early => return Ok(Ended::Early(early)),
    };
    let options =
        CallToolOptions { tool_call_id: call_id.clone(), deadline_ms: call.deadline_ms, ..CallToolOptions::default() };
    let mut called = pin!(session.call_tool_named(call.tool, call.input, options));
    let called = loop {
        tokio::select! {
            biased;
            called = &mut called => break called,
            early = &mut early => {
                let cancel = session.cancel_tool(&call_id, "given up by its caller");
                // Stopping the session ends the call as well, if this does not.
                let _ = tokio::time::timeout(END_WITHIN, cancel).await;
                return Ok(Ended::Early(early));
            }
            Some(event) = events.next() => show_progress(event, &call_id),
        }
    };
    while let Some(event) = events.try_next() {
        show_progress(event, &call_id);
    }
    called.map(Ended::Result).map_err(|error| Failure::not_done(format!("no result: {error}")))
}

fn show_progress(event: Event<ExecutorEvent>, call_id: &ToolCallId) {
    if let Event::Item(ExecutorEvent::ToolProgress(progress)) = event
        && progress.tool_call_id == *call_id
    {
        tell(&format!("bma call: {}", progress.message));
    }
}

fn show(result: &ToolResultParams) -> Result<u8, Failure> {
    let unwritten = |error: io::Error| Failure::not_done(format!("stdout: the result cannot be written: {error}"));
    let texts: Vec<&str> = result.content.iter().filter_map(|block| block.text.as_deref()).collect();
    let mut text = texts.join("\n");
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(unwritten)?;
    for block in result.content.iter().filter(|block| block.text.is_none()) {
        let media = block.mime_type.as_deref().unwrap_or("of no stated type");
        tell(&format!("bma call: the result also has {} {media}, which is not shown", block.r#type));
    }
    if result.outcome != ToolOutcome::Succeeded {
        tell(&format!("bma call: the tool call ended as {}", result.outcome));
    }
    let success = result.outcome == ToolOutcome::Succeeded && !result.is_error;
    Ok(if success { SUCCESS } else { FAILED })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    #[test]
    fn an_input_is_one_json_object() {
        assert_eq!(read_input("{\"n\":12345678901234567890}".into()).unwrap().get(), "{\"n\":12345678901234567890}");
        for wrong in ["", "{", "[]", "1", "{} {}"] {
            let failure = read_input(wrong.into()).unwrap_err();
            assert_eq!(failure.code(), 2);
            assert!(failure.to_string().starts_with("JSON: "), "{failure}");
        }
    }

    #[test]
    fn a_time_limit_is_a_positive_number() {
        assert_eq!(seconds("1.5"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "0", "-1", "NaN", "inf", "1e300", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
