//! Tool calls, from the caller to the handler and back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bma_runtime::proto::contract::{
    ArtifactRef, ContentBlock, EditInput, ErrorCode, GlobInput, GrepInput, Json, ListFilesInput, PermissionMode,
    ReadInput, ToolCallParams, ToolName, ToolOutcome, ToolPermission, WriteInput,
};
use bma_runtime::proto::harness::CallError;
use bma_runtime::proto::rpc::RequestError;
use bma_runtime::sync::{Event, StateCell};
use bma_runtime::{CallToolOptions, CancelReason, ExecutorEvent, HarnessEvent, Runtime, ToolError, ToolOutput};

use super::{Count, Rig, Tally, assert_code, command, refused, start, text, within};
use crate::support::logs;
use crate::support::proxy::Way;

fn call_id(id: &str) -> CallToolOptions {
    CallToolOptions { tool_call_id: id.into(), ..CallToolOptions::default() }
}

/// Each typed slot gets exactly what its typed call was given.
pub async fn every_slot_carries_its_input_and_its_answer(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    macro_rules! echo {
        ($($tool:ident)*) => { $(
            client.tools().$tool(|input, _| async move {
                Ok::<_, ToolError>(format!("{}: {}", stringify!($tool), Json::new(&input).unwrap().get()))
            });
        )* };
    }
    echo!(bash read write edit glob grep list_files);
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let odd = "a\u{2028}b\u{0}c\"\\ \u{1f600}\n".to_owned();
    macro_rules! ask {
        ($($tool:ident $input:expr;)*) => { $(
            let input = $input;
            let result = session.tools().$tool(input.clone()).await.unwrap();
            assert_eq!(text(&result), format!("{}: {}", stringify!($tool), Json::new(&input).unwrap().get()));
            assert_eq!((result.outcome.clone(), result.is_error), (ToolOutcome::Succeeded, false));
            assert_eq!(result.session_id.as_str(), "s");
            assert!(result.duration_ms.is_some());
        )* };
    }
    let mut bash = command(&odd);
    bash.cwd = Some("sub".to_owned());
    bash.timeout_ms = Some(9_007_199_254_740_993);
    ask! {
        bash bash;
        read ReadInput { path: odd.clone(), offset: Some(1), limit: Some(i64::MAX) };
        write WriteInput { path: "f".to_owned(), content: odd.clone() };
        edit EditInput { path: "f".to_owned(), old_string: odd.clone(), new_string: String::new() };
        glob GlobInput { pattern: "**/*".to_owned(), path: Some("sub".to_owned()) };
        grep GrepInput { pattern: odd.clone(), ..GrepInput::default() };
        list_files ListFilesInput::default();
    }
    rig.finish().await;
}

/// All members of a handler's answer, of a tool of one's own.
pub async fn a_result_arrives_as_it_was_given(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let artifact = ArtifactRef {
        artifact_id: "art_1".into(),
        name: Some("plot.png".to_owned()),
        mime_type: "image/png".to_owned(),
        size_bytes: 12,
        digest: "sha256:00".to_owned(),
        created_at: None,
    };
    let content =
        vec![ContentBlock::text("x"), ContentBlock::image("AAAA", "image/png"), ContentBlock::artifact(&artifact)];
    let output = {
        let mut output = ToolOutput::new(content.clone());
        output.artifacts = vec![artifact.clone()];
        output
    };
    client.tools().raw(ToolName::from("plot"), move |params, context| {
        assert_eq!(params.input.get(), r#"{"b":1,"a":[2.50]}"#, "an input is kept as it came");
        assert_eq!(params.session_id, context.session_id);
        assert_eq!(params.tool_call_id, context.tool_call_id);
        assert_eq!(context.permission, Some(ToolPermission { mode: PermissionMode::AlwaysAsk }));
        std::future::ready(Ok(output.clone()))
    });
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let options = CallToolOptions {
        tool_call_id: "call-1".into(),
        permission: Some(ToolPermission { mode: PermissionMode::AlwaysAsk }),
        ..CallToolOptions::default()
    };
    let input = Json::from_text(r#"{"b":1,"a":[2.50]}"#.to_owned()).unwrap();
    let result = session.call_tool_named(ToolName::from("plot"), input, options).await.unwrap();
    assert_eq!((&result.content, &result.artifacts), (&content, &vec![artifact]));
    assert_eq!(result.tool_call_id.as_str(), "call-1");
    rig.finish().await;
}

/// Who waits for the result finds all progress told already.
pub async fn progress_is_there_in_order_before_the_result(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.tools().bash(|input, context| async move {
        (0..100).for_each(|step| assert!(context.progress(&format!("{} {step}", input.command))));
        Ok::<_, ToolError>("done")
    });
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    for round in 0..20 {
        let mut events = executor.events();
        let name = format!("round {round}");
        let options = call_id(&name);
        session.tools().with(options).bash(command(&name)).await.unwrap();
        for step in 0..100 {
            let Some(Event::Item(ExecutorEvent::ToolProgress(progress))) = events.try_next() else {
                panic!("progress {step} of {name} was not told before the result");
            };
            assert_eq!(progress.message, format!("{name} {step}"));
            assert_eq!((progress.session_id.as_str(), progress.tool_call_id.as_str()), ("s", name.as_str()));
        }
    }
    rig.finish().await;
}

/// The handler learns why, ends when it likes, and its answer is the call's.
pub async fn a_cancel_reaches_the_handler_and_the_call_ends_canceled(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (started, may_end) = (Count::default(), StateCell::new(false));
    {
        let (started, may_end) = (started.clone(), may_end.clone());
        client.tools().bash(move |_, context| {
            let (started, may_end) = (started.clone(), may_end.clone());
            async move {
                started.add();
                let reason = context.cancellation.canceled().await;
                may_end.wait_for(|may| *may).await;
                Ok::<_, ToolError>(ToolOutput::canceled(reason.to_string()))
            }
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let call = {
        let session = session.clone();
        start(&rig.runtime, async move { session.tools().with(call_id("c")).bash(command("sleep")).await })
    };
    started.reaches(1).await;
    assert!(session.cancel_tool(&"c".into(), "not needed").await.unwrap(), "it was running");
    assert!(session.cancel_tool(&"c".into(), "").await.unwrap(), "it still runs: it has not ended yet");
    may_end.replace(true);
    let result = call.await.unwrap();
    assert_eq!((result.outcome.clone(), result.is_error), (ToolOutcome::Canceled, true));
    assert_eq!(text(&result), CancelReason::Canceled.to_string());
    assert!(!session.cancel_tool(&"c".into(), "").await.unwrap(), "it is over");
    rig.finish().await;
}

/// Unknown calls, and unknown sessions.
pub async fn a_cancel_of_nothing_says_so(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    assert!(!session.cancel_tool(&"never".into(), "").await.unwrap());
    session.stop("").await.unwrap();
    let outcome = session.cancel_tool(&"never".into(), "").await;
    assert!(matches!(outcome, Err(CallError::SessionEnded { .. })), "{outcome:?}");
    rig.finish().await;
}

/// A deadline counts from receipt, and the handler says what became of the call.
pub async fn a_deadline_reaches_the_handler(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.tools().bash(|_, context| async move {
        let reason = context.cancellation.canceled().await;
        Ok::<_, ToolError>(ToolOutput::error(reason.to_string()))
    });
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let options = CallToolOptions { deadline_ms: Some(40), ..CallToolOptions::default() };
    let result = session.tools().with(options).bash(command("sleep")).await.unwrap();
    assert_eq!((result.outcome.clone(), result.is_error), (ToolOutcome::Succeeded, true));
    assert_eq!(text(&result), CancelReason::Deadline.to_string());
    assert!(result.duration_ms >= Some(40));
    rig.finish().await;
}

/// Whatever a handler does, its call ends, and so can the next one.
pub async fn errors_failures_and_panics_are_told_apart(runtime: Arc<dyn Runtime>) {
    logs::expect("a tool handler panicked");
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.tools().bash(|input, context| {
        assert!(input.command != "panic at once", "at once");
        async move {
            match input.command.as_str() {
                "reported" => Err(ToolError::new("no such file")),
                "failed" => Err(ToolError::failed("the disk is gone")),
                "panic" => panic!("in the handler"),
                "panic later" => {
                    context.progress("on its way");
                    futures_lite::future::yield_now().await;
                    panic!("later")
                }
                other => Ok(other.to_owned()),
            }
        }
    });
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    for (input, outcome, is_error, says) in [
        ("reported", ToolOutcome::Succeeded, true, "no such file"),
        ("failed", ToolOutcome::Failed, true, "the disk is gone"),
        ("panic", ToolOutcome::Failed, true, "panicked"),
        ("panic at once", ToolOutcome::Failed, true, "panicked"),
        ("panic later", ToolOutcome::Failed, true, "panicked"),
        ("fine", ToolOutcome::Succeeded, false, "fine"),
    ] {
        let result = session.tools().bash(command(input)).await.unwrap();
        assert_eq!((result.outcome.clone(), result.is_error), (outcome, is_error), "{input}");
        assert!(text(&result).contains(says), "{input}: {}", text(&result));
        assert!(!text(&result).contains("in the handler"), "what a panic says stays on the machine");
    }
    rig.finish().await;
}

/// Acknowledged, then failed, with the member's name.
pub async fn an_input_that_lacks_a_member_runs_nothing(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let runs = Count::default();
    {
        let runs = runs.clone();
        client.tools().write(move |_, _| {
            runs.add();
            std::future::ready(Ok::<_, ToolError>("written"))
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    for (input, names) in [
        (r#"{"content":"x"}"#, "path"),
        (r#"{"path":"","content":"x"}"#, "path"),
        (r#"{"path":"f"}"#, "content"),
        (r#"{"path":7,"content":"x"}"#, "path"),
        ("[]", "object"),
        ("null", "path"),
    ] {
        let input_json = Json::from_text(input.to_owned()).unwrap();
        let call = session.call_tool_named(ToolName::Write, input_json, CallToolOptions::default());
        let result = call.await.unwrap();
        assert_eq!((result.outcome.clone(), result.is_error), (ToolOutcome::Failed, true), "{input}");
        assert!(text(&result).contains(names), "{input}: {}", text(&result));
    }
    assert_eq!(runs.value(), 0);
    rig.finish().await;
}

/// -32012, and the name of what is missing.
pub async fn an_unknown_tool_is_refused_with_its_capability(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("")));
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    for tool in ["read", "of_another_world"] {
        let call = session.call_tool_named(ToolName::from(tool), Json::default(), CallToolOptions::default());
        let error = refused(call.await);
        assert_code(&error, ErrorCode::CapabilityUnavailable);
        let capability = error.data.and_then(|data| data.capability);
        assert_eq!(capability.as_deref(), Some(format!("tool:{tool}").as_str()));
    }
    rig.finish().await;
}

/// The hook's error is the answer, and the id counts as never used.
pub async fn the_accept_hook_refuses_before_anything_runs(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (runs, open) = (Count::default(), StateCell::new(false));
    {
        let (runs, open) = (runs.clone(), open.clone());
        client.tools().bash(move |_, _| {
            runs.add();
            std::future::ready(Ok::<_, ToolError>("ran"))
        });
        client.on_tool_call_accept(move |params: &ToolCallParams| {
            assert_eq!(params.tool, ToolName::Bash);
            if open.value() { Ok(()) } else { Err(ErrorCode::Forbidden.error("not at this hour")) }
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let error = refused(session.tools().with(call_id("c")).bash(command("x")).await);
    assert_code(&error, ErrorCode::Forbidden);
    assert_eq!((error.message.as_str(), runs.value()), ("not at this hour", 0));
    open.replace(true);
    let result = session.tools().with(call_id("c")).bash(command("x")).await.unwrap();
    assert_eq!((text(&result).as_str(), runs.value()), ("ran", 1));
    rig.finish().await;
}

/// A hook's panic harms the call that it was asked about, and nothing else.
pub async fn a_hook_that_panics_refuses_the_call(runtime: Arc<dyn Runtime>) {
    logs::expect("a hook panicked");
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    client.on_tool_call_accept(|params| {
        assert!(params.tool_call_id.as_str() != "bad", "a hook of the user's");
        Ok(())
    });
    client.on_tool_call_finished(|_, _| panic!("another hook of the user's"));
    client.on_drain(|_| panic!("one more"));
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let error = refused(session.tools().with(call_id("bad")).bash(command("x")).await);
    assert_code(&error, ErrorCode::InternalError);
    let result = session.tools().with(call_id("good")).bash(command("x")).await.unwrap();
    assert_eq!(text(&result), "ran");
    executor.drain("to see the other hook").await.unwrap();
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    rig.finish().await;
}

/// More calls than may be in flight, ending in any order.
pub async fn many_calls_at_once_get_each_its_own_answer(runtime: Arc<dyn Runtime>) {
    const CALLS: usize = 600;
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.tools().bash(|input, _| async move {
        for _ in 0..input.command.len() % 7 {
            futures_lite::future::yield_now().await;
        }
        Ok::<_, ToolError>(input.command)
    });
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let session = session.clone();
            let asked = "x".repeat(number % 50) + &number.to_string();
            start(&rig.runtime, async move {
                let result = session.tools().bash(command(&asked)).await.unwrap();
                assert_eq!(text(&result), asked);
            })
        })
        .collect();
    for call in calls {
        call.await;
    }
    rig.finish().await;
}

/// Dropping the future abandons the wait and nothing else.
pub async fn a_dropped_call_runs_on_and_its_result_is_kept(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (runs, may_end) = (Count::default(), StateCell::new(false));
    {
        let (runs, may_end) = (runs.clone(), may_end.clone());
        client.tools().bash(move |_, _| {
            let may_end = may_end.clone();
            runs.add();
            async move {
                may_end.wait_for(|may| *may).await;
                Ok::<_, ToolError>("at last")
            }
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let waited = within(&rig.runtime, Duration::from_millis(30), session.tools().with(call_id("c")).bash(command("x")));
    assert!(waited.await.is_none(), "it has not ended");
    runs.reaches(1).await;
    may_end.replace(true);
    let result = session.tools().with(call_id("c")).bash(command("x")).await.unwrap();
    assert_eq!((text(&result).as_str(), runs.value()), ("at last", 1));
    rig.finish().await;
}

/// F75: while it runs, and after.
pub async fn f75_a_repeated_id_runs_once_and_gets_the_same_result(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    let runs = Count::default();
    {
        let runs = runs.clone();
        client.tools().bash(move |_, _| {
            runs.add();
            std::future::ready(Ok::<_, ToolError>(format!("run {}", runs.value())))
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    // The answer is lost on its way.
    proxy.hold(Way::Up);
    let lost = {
        let session = session.clone();
        start(&rig.runtime, async move { session.tools().with(call_id("K")).bash(command("x")).await })
    };
    runs.reaches(1).await;
    proxy.cut();
    let again = session.tools().with(call_id("K")).bash(command("x")).await.unwrap();
    assert_eq!(text(&again), "run 1");
    assert!(Arc::ptr_eq(&again, &lost.await.unwrap()), "both waits have the one result");
    let later = session.tools().with(call_id("K")).bash(command("x")).await.unwrap();
    assert!(Arc::ptr_eq(&again, &later));
    assert_eq!(runs.value(), 1);
    rig.finish().await;
}

/// F76: the caller learns that nothing is known; what runs, runs once.
pub async fn f76_a_call_without_an_answer_in_time_is_not_sent_again(runtime: Arc<dyn Runtime>) {
    let rig = Rig::with(runtime, |options| options.config.request_timeout = Duration::from_millis(150)).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    let runs = Count::default();
    {
        let runs = runs.clone();
        client.tools().bash(move |_, _| {
            runs.add();
            std::future::ready(Ok::<_, ToolError>("ran"))
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    proxy.hold(Way::Up);
    let outcome = session.tools().with(call_id("K")).bash(command("x")).await;
    assert!(matches!(outcome, Err(CallError::Request(RequestError::Timeout(_)))), "{outcome:?}");
    runs.reaches(1).await;
    proxy.release();
    // Its result still comes, and is there for who asks by the same id.
    let result = session.tools().with(call_id("K")).bash(command("x")).await.unwrap();
    assert_eq!((text(&result).as_str(), runs.value()), ("ran", 1));
    rig.finish().await;
}

/// F74: and three reconnects do not bring it back.
pub async fn f74_a_result_over_the_frame_limit_is_cut_and_never_poisons_the_connection(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    let runs = Tally::default();
    {
        let runs = runs.clone();
        client.tools().bash(move |input, _| {
            runs.add(&input.command);
            let output = match input.command.as_str() {
                "plain" => "x".repeat(2 * 64 * 1024),
                "escaped" => "\u{1}".repeat(2 * 64 * 1024),
                "wide" => "\u{1f600}".repeat(64 * 1024),
                other => other.to_owned(),
            };
            std::future::ready(Ok::<_, ToolError>(output))
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let mut comings = rig.harness.events();
    let limit = client.registration().unwrap().max_control_frame_bytes;
    for kind in ["plain", "escaped", "wide"] {
        let result = session.tools().with(call_id(kind)).bash(command(kind)).await.unwrap();
        let frame = Json::new(&*result).unwrap().get().len();
        assert!(frame <= usize::try_from(limit).unwrap(), "{kind}: {frame} bytes");
        assert!(frame > 4096, "{kind}: more than a stub is kept");
        assert!(
            text(&result).contains("left out"),
            "{kind}: ends with {:?}",
            text(&result).chars().rev().take(80).collect::<String>()
        );
    }
    assert_eq!(comings.try_next().map(|_| ()), None, "the connection has lived through it");
    for round in 0..3 {
        proxy.cut();
        let asked = format!("small {round}");
        let result = session.tools().bash(command(&asked)).await.unwrap();
        assert_eq!(text(&result), asked);
    }
    let returns = std::iter::from_fn(|| comings.try_next())
        .filter(|event| matches!(event, Event::Item(HarnessEvent::Registered { resumed: true, .. })))
        .count();
    assert_eq!(returns, 3, "each cut cost one connection and no more");
    assert!(runs.counts().values().all(|runs| *runs == 1), "{:?}", runs.counts());
    rig.finish().await;
}

/// F70: what is lost is counted, and what is kept is the newest.
pub async fn f70_a_reader_that_does_not_read_delays_nobody_and_is_told_what_it_lost(runtime: Arc<dyn Runtime>) {
    const CALLS: usize = 100;
    const EACH: usize = 50;
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let sent = Arc::new(Mutex::new(0u64));
    {
        let sent = Arc::clone(&sent);
        client.tools().bash(move |_, context| {
            let told = (0..EACH).filter(|step| context.progress(&step.to_string())).count();
            *sent.lock().unwrap() += u64::try_from(told).unwrap();
            std::future::ready(Ok::<_, ToolError>("done"))
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let mut unread = executor.events();
    for _ in 0..CALLS {
        session.tools().bash(command("x")).await.unwrap();
    }
    let Some(Event::Lagged(lost)) = unread.try_next() else { panic!("the loss is told first") };
    let kept: Vec<_> = std::iter::from_fn(|| unread.try_next()).collect();
    assert!(kept.iter().all(|event| matches!(event, Event::Item(ExecutorEvent::ToolProgress(_)))));
    assert_eq!(
        lost + u64::try_from(kept.len()).unwrap(),
        *sent.lock().unwrap(),
        "nothing is lost without being counted"
    );
    assert!(kept.len() <= 1024, "{} events waited", kept.len());
    let Some(Event::Item(ExecutorEvent::ToolProgress(last))) = kept.last() else { panic!("something is kept") };
    assert_eq!(last.message, (EACH - 1).to_string(), "the newest is kept");
    rig.finish().await;
}
