//! The tools, each with what it must bring about.

use std::pin::pin;

use bma_runtime_tokio::proto::contract::{
    BashInput, EditInput, GlobInput, GrepInput, ListFilesInput, ReadInput, ToolCallId, ToolOutcome, ToolResultParams,
    WriteInput,
};
use bma_runtime_tokio::proto::harness::CallError;
use bma_runtime_tokio::sync::Event;
use bma_runtime_tokio::{CallToolOptions, ExecutorEvent, Session};

use super::stage::Stage;
use super::steps::{Failed, Steps, Surprise, surprise};
use super::{LOOK_AGAIN, processes};

const POEM: &str = "roses are red\nviolets are blue\n";

/// The file tools, and bash among the files.
pub(super) async fn files(stage: &Stage, session: &Session, steps: &mut Steps) -> Result<(), Failed> {
    let on_disk =
        |name: &str| std::fs::read_to_string(stage.workspace().join(name)).unwrap_or_else(|error| error.to_string());

    let work = async {
        let input = WriteInput { path: "notes/poem.txt".into(), content: POEM.into() };
        succeeded(session.tools().write(input).await)?;
        holds("a file with what was written", &on_disk("notes/poem.txt"), |content| content == POEM)?;
        Ok(((), format!("notes/poem.txt, {} bytes", POEM.len())))
    };
    steps.step("write", work).await?;

    let work = async {
        let text = bash(session, "wc -l < notes/poem.txt; pwd; exit 3").await?;
        let place = stage.workspace().to_string_lossy().into_owned();
        holds("the number of lines, the folder and exit code 3", &text, |text| {
            let mut lines = text.lines().map(str::trim);
            lines.next() == Some("2") && lines.next() == Some(&place) && text.ends_with("exit_code: 3")
        })?;
        Ok(((), format!("wc, pwd and exit 3 answered: {text}")))
    };
    steps.step("bash", work).await?;

    let work = async {
        let input = ReadInput { path: "notes/poem.txt".into(), offset: Some(2), limit: Some(1) };
        let text = succeeded(session.tools().read(input).await)?;
        holds("the second line", &text, |text| text.trim_end() == "violets are blue")?;
        Ok(((), format!("line 2: {text}")))
    };
    steps.step("read", work).await?;

    let work = async {
        let input = EditInput { path: "notes/poem.txt".into(), old_string: "blue".into(), new_string: "violet".into() };
        succeeded(session.tools().edit(input).await)?;
        let edited = POEM.replace("blue", "violet");
        holds("the replacement in the file", &on_disk("notes/poem.txt"), |content| content == edited)?;
        Ok(((), "blue became violet".to_owned()))
    };
    steps.step("edit", work).await?;

    let work = async {
        let input = GlobInput { pattern: "**/*.txt".into(), ..GlobInput::default() };
        let text = succeeded(session.tools().glob(input).await)?;
        holds("the one text file", &text, |text| text.trim_end() == "notes/poem.txt")?;
        Ok(((), format!("**/*.txt: {text}")))
    };
    steps.step("glob", work).await?;

    let work = async {
        let input = GrepInput { pattern: "are (red|violet)".into(), ..GrepInput::default() };
        let text = succeeded(session.tools().grep(input).await)?;
        let found = ["notes/poem.txt:1:roses are red", "notes/poem.txt:2:violets are violet"];
        holds("both lines", &text, |text| text.lines().eq(found))?;
        Ok(((), text))
    };
    steps.step("grep", work).await?;

    let work = async {
        let text = succeeded(session.tools().list_files(ListFilesInput::default()).await)?;
        holds("the folder notes", &text, |text| text.contains("notes"))?;
        Ok(((), text))
    };
    steps.step("list_files", work).await
}

/// A command's progress, seen while it runs: the command waits for a file that is written only then.
pub(super) async fn progress(session: &Session, steps: &mut Steps) -> Result<(), Failed> {
    let work = async {
        let id: ToolCallId = "progress".into();
        let mut events = session.executor().events();
        let command = "echo half way; until [ -e go ]; do sleep 0.02; done; echo all the way";
        let options = CallToolOptions { tool_call_id: id.clone(), ..CallToolOptions::default() };
        let mut running = pin!(session.tools().with(options).bash(command_line(command)));
        let message = loop {
            tokio::select! {
                done = &mut running => return Err(surprise("progress before the result", succeeded(done)?)),
                Some(event) = events.next() => match event {
                    Event::Item(ExecutorEvent::ToolProgress(progress)) if progress.tool_call_id == id => {
                        break progress.message;
                    }
                    _ => {}
                },
            }
        };
        holds("the output so far", &message, |message| message.trim() == "half way")?;
        let go = WriteInput { path: "go".into(), content: String::new() };
        let (written, done) = tokio::join!(session.tools().write(go), running);
        succeeded(written)?;
        let text = succeeded(done)?;
        holds("the whole output", &text, |text| text == "half way\nall the way\nexit_code: 0")?;
        Ok(((), format!("seen while it ran: {message:?}")))
    };
    steps.step("progress", work).await
}

/// A cancel ends everything that the command started.
pub(super) async fn cancel(session: &Session, run: &str, steps: &mut Steps) -> Result<(), Failed> {
    let work = async {
        let id: ToolCallId = "cancel".into();
        let options = CallToolOptions { tool_call_id: id.clone(), ..CallToolOptions::default() };
        let mut running = pin!(session.tools().with(options).bash(command_line("sleep 600 & sleep 601 & wait")));
        let started = tokio::select! {
            done = &mut running => return Err(surprise("a command that runs", succeeded(done)?)),
            started = sleeping(run) => started,
        };
        let asked = session.cancel_tool(&id, "the demo cancels it").await;
        let asked = asked.map_err(|error| surprise("a cancel that is taken", error.to_string()))?;
        let result = running.await.map_err(|error| surprise("a result", error.to_string()))?;
        if !asked || result.outcome != ToolOutcome::Canceled {
            return Err(surprise("outcome canceled", format!("outcome {}: {}", result.outcome, text_of(&result))));
        }
        match (started, processes::of_run(run).await) {
            (Some(started), Ok(left)) if left.is_empty() => Ok((
                (),
                format!("sleep was canceled; of {} processes none is left: {}", started.len(), started.join(", ")),
            )),
            (_, Ok(left)) => Err(surprise("no process that is left", left.join(", "))),
            (_, Err(_)) => Ok(((), "sleep was canceled (processes cannot be looked for on this system)".to_owned())),
        }
    };
    steps.step("cancel", work).await
}

/// Waits until both sleeps are there. `None` where that cannot be seen.
async fn sleeping(run: &str) -> Option<Vec<String>> {
    loop {
        let found = processes::of_run(run).await.ok()?;
        if found.iter().filter(|process| process.ends_with("(sleep)")).count() == 2 {
            return Some(found);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn command_line(command: &str) -> BashInput {
    BashInput { command: command.into(), ..BashInput::default() }
}

async fn bash(session: &Session, command: &str) -> Result<String, Surprise> {
    succeeded(session.tools().bash(command_line(command)).await)
}

type Called = Result<std::sync::Arc<ToolResultParams>, CallError>;

/// The text of a result that is a success.
fn succeeded(called: Called) -> Result<String, Surprise> {
    let result = called.map_err(|error| surprise("a result", error.to_string()))?;
    if result.outcome != ToolOutcome::Succeeded || result.is_error {
        let got = format!("outcome {}, is_error {}: {}", result.outcome, result.is_error, text_of(&result));
        return Err(surprise("a success", got));
    }
    Ok(text_of(&result))
}

fn text_of(result: &ToolResultParams) -> String {
    result.content.iter().filter_map(|block| block.text.as_deref()).collect::<Vec<_>>().join("\n")
}

fn holds(expected: &str, got: &str, condition: impl Fn(&str) -> bool) -> Result<(), Surprise> {
    if condition(got) { Ok(()) } else { Err(surprise(expected, format!("{got:?}"))) }
}
