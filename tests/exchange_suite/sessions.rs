//! Sessions: offered, set up, torn down.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bma_runtime::proto::contract::{ErrorCode, Secret, SessionAssignParams, ToolOutcome, methods};
use bma_runtime::proto::executor::StopCause;
use bma_runtime::proto::harness::CallError;
use bma_runtime::sync::{Event, StateCell};
use bma_runtime::{CancelReason, ExecutorEvent, Runtime, SessionStop, ToolError, ToolOutput};

use super::{Count, Rig, assert_code, assignment, command, eventually, refused, session_names, start, text, within};
use crate::support::logs;

/// What the handlers are told, and what both ends say of the session at each step.
pub async fn a_session_is_set_up_used_and_torn_down(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let told = Arc::new(Mutex::new(Vec::new()));
    {
        let told = Arc::clone(&told);
        client
            .on_session_assign(move |params| {
                assert_eq!(params.metadata.get("team").map(String::as_str), Some("blue"));
                assert!(!params.work_id.is_empty() && !params.lease.token.is_empty(), "made up when empty");
                told.lock().unwrap().push(format!("assign {}", params.session_id));
                std::future::ready(Ok(true))
            })
            .unwrap();
    }
    {
        let told = Arc::clone(&told);
        client
            .on_session_stop(move |stop: SessionStop| {
                assert_eq!(stop.cause, StopCause::Requested("enough".to_owned()));
                assert_eq!(stop.within, Some(Duration::from_millis(4321)));
                told.lock().unwrap().push(format!("stop {}", stop.session_id));
                std::future::ready(true)
            })
            .unwrap();
    }
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let executor = rig.join(&client).await;
    let mut events = executor.events();
    let mut params = assignment("s");
    params.metadata.insert("team".to_owned(), "blue".to_owned());
    let session = executor.assign(params).await.unwrap();
    session.ready().await.unwrap();
    session.ready().await.unwrap();
    assert_eq!(session_names(&executor.session_ids()), ["s"]);
    assert_eq!(session_names(&client.active_sessions()), ["s"]);
    assert_eq!(executor.session(&"s".into()).map(|session| session.id().clone()), Some("s".into()));
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    session.stop_within("enough", Some(4321)).await.unwrap();
    assert_eq!(told.lock().unwrap().as_slice(), ["assign s", "stop s"]);
    assert!(executor.session_ids().is_empty());
    eventually(&rig.runtime, "the client has let go of it", || client.active_sessions().is_empty()).await;
    let outcome = session.tools().bash(command("x")).await;
    assert!(matches!(outcome, Err(CallError::SessionEnded { .. })), "{outcome:?}");
    assert!(matches!(session.ready().await, Err(CallError::SessionEnded { .. })));
    let Some(Event::Item(ExecutorEvent::SessionReady(id))) = events.next().await else { panic!("ready is told") };
    assert_eq!(id.as_str(), "s");
    let Some(Event::Item(ExecutorEvent::SessionEnded { session_id, .. })) = events.next().await else {
        panic!("the end is told")
    };
    assert_eq!(session_id.as_str(), "s");
    rig.finish().await;
}

/// Without a reason, and with one.
pub async fn a_handler_turns_sessions_down(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client
        .on_session_assign(|params: SessionAssignParams| async move {
            match params.session_id.as_str() {
                "unwanted" => Ok(false),
                "one too many" => Err(ErrorCode::ExecutorBusy.error("two are enough").with_retryable(true)),
                _ => Ok(true),
            }
        })
        .unwrap();
    let executor = rig.join(&client).await;
    let outcome = executor.assign(assignment("unwanted")).await.map(drop);
    assert_eq!(outcome, Err(CallError::AssignRejected));
    let error = refused(executor.assign(assignment("one too many")).await);
    assert_code(&error, ErrorCode::ExecutorBusy);
    assert!(error.is_retryable() && error.message == "two are enough", "{error:?}");
    assert!(executor.session_ids().is_empty() && client.active_sessions().is_empty());
    rig.session(&executor, "wanted").await;
    assert_eq!(session_names(&executor.session_ids()), ["wanted"]);
    rig.finish().await;
}

/// An error of the machine, and the next session is fine.
pub async fn a_handler_that_panics_turns_the_session_down(runtime: Arc<dyn Runtime>) {
    logs::expect("the session handler panicked");
    logs::expect("the session stop handler panicked");
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client
        .on_session_assign(|params: SessionAssignParams| async move {
            assert!(params.session_id.as_str() != "bad", "a handler of the user's");
            Ok(true)
        })
        .unwrap();
    client
        .on_session_stop(|stop: SessionStop| async move {
            assert!(stop.session_id.as_str() != "bad end", "another handler of the user's");
            true
        })
        .unwrap();
    let executor = rig.join(&client).await;
    assert_code(&refused(executor.assign(assignment("bad")).await), ErrorCode::InternalError);
    rig.session(&executor, "bad end").await.stop("").await.unwrap();
    rig.session(&executor, "good").await.stop("").await.unwrap();
    rig.finish().await;
}

/// Accepted and ready are one step here, and calls that come before it are refused.
pub async fn a_session_that_takes_its_time_is_ready_when_it_says_so(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let set_up = StateCell::new(false);
    {
        let set_up = set_up.clone();
        client
            .on_session_assign(move |_| {
                let set_up = set_up.clone();
                async move {
                    set_up.wait_for(|done| *done).await;
                    Ok(true)
                }
            })
            .unwrap();
    }
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let executor = rig.join(&client).await;
    let assigned = {
        let executor = executor.clone();
        start(&rig.runtime, async move { executor.assign(assignment("s")).await })
    };
    eventually(&rig.runtime, "it is bound", || executor.session(&"s".into()).is_some()).await;
    let early = executor.session(&"s".into()).unwrap();
    assert!(within(&rig.runtime, Duration::from_millis(30), early.ready()).await.is_none(), "it is not ready yet");
    set_up.replace(true);
    let session = assigned.await.unwrap();
    session.ready().await.unwrap();
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    rig.finish().await;
}

/// A second one of the same name is the caller's mistake, until the first has ended.
pub async fn a_session_id_is_bound_once(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let offers = Count::default();
    {
        let offers = offers.clone();
        client
            .on_session_assign(move |_| {
                offers.add();
                std::future::ready(Ok(true))
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    let first = rig.session(&executor, "s").await;
    let mut params = assignment("s");
    params.lease.token = Secret::from("another");
    let outcome = executor.assign(params).await.map(drop);
    assert_eq!(outcome, Err(CallError::SessionExists("s".into())));
    // Nor is it assigned or stopped past the harness's own account.
    let past = executor.call::<methods::SessionAssign>(assignment("t")).await.map(drop);
    assert!(matches!(past, Err(CallError::NotPlain { method: "session.assign", .. })), "{past:?}");
    first.stop("").await.unwrap();
    let second = rig.session(&executor, "s").await;
    // The first is over, whatever is called the same.
    let over = |outcome: Result<(), CallError>| matches!(outcome, Err(CallError::SessionEnded { .. }));
    assert!(over(first.ready().await));
    assert!(over(first.tools().bash(command("x")).await.map(drop)));
    assert!(over(first.cancel_tool(&"c".into(), "").await.map(drop)));
    assert!(over(first.stop("").await));
    second.ready().await.unwrap();
    assert!(executor.session(&"s".into()).is_some());
    assert_eq!(offers.value(), 2);
    rig.finish().await;
}

/// The harness hears of it, and who waits for a call learns it.
pub async fn an_executor_ends_its_session_by_itself(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let started = Count::default();
    {
        let started = started.clone();
        client.tools().bash(move |_, context| {
            started.add();
            async move { Ok::<_, ToolError>(context.cancellation.canceled().await.to_string()) }
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let mut events = executor.events();
    let call = {
        let session = session.clone();
        start(&rig.runtime, async move { session.tools().bash(command("x")).await })
    };
    started.reaches(1).await;
    client.session_ended(&"s".into(), "the disk is full").unwrap();
    // The open call is reported as canceled before the session's end.
    assert_eq!(call.await.unwrap().outcome, ToolOutcome::Canceled);
    let Some(Event::Item(ExecutorEvent::SessionEnded { session_id, reason })) = events.next().await else {
        panic!("the end is told")
    };
    assert_eq!((session_id.as_str(), reason.as_str()), ("s", "the disk is full"));
    eventually(&rig.runtime, "the client has let go of it", || client.active_sessions().is_empty()).await;
    assert!(client.session_ended(&"s".into(), "again").is_err());
    rig.finish().await;
}

/// The call's own result comes first, then the session's end.
pub async fn a_stop_cancels_what_runs_and_waits_for_it(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (started, cleaned_up) = (Count::default(), StateCell::new(false));
    {
        let (started, cleaned_up) = (started.clone(), cleaned_up.clone());
        client.tools().bash(move |_, context| {
            let (started, cleaned_up) = (started.clone(), cleaned_up.clone());
            async move {
                started.add();
                let reason = context.cancellation.canceled().await;
                assert_eq!(reason, CancelReason::SessionStopped);
                cleaned_up.wait_for(|done| *done).await;
                Ok::<_, ToolError>(ToolOutput::canceled("what there was"))
            }
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let call = {
        let session = session.clone();
        start(&rig.runtime, async move { session.tools().bash(command("x")).await })
    };
    started.reaches(1).await;
    let stop = {
        let session = session.clone();
        start(&rig.runtime, async move { session.stop("enough").await })
    };
    let mut stop = Box::pin(stop);
    assert!(within(&rig.runtime, Duration::from_millis(50), &mut stop).await.is_none(), "something of it still runs");
    let outcome = session.tools().bash(command("x")).await;
    assert!(matches!(outcome, Err(CallError::SessionEnded { .. })), "no new calls: {outcome:?}");
    cleaned_up.replace(true);
    stop.await.unwrap();
    let result = call.await.unwrap();
    assert_eq!((text(&result).as_str(), &result.outcome), ("what there was", &ToolOutcome::Canceled));
    rig.finish().await;
}

/// The harness is told, and the session counts as ended all the same.
pub async fn a_stop_that_cannot_end_everything_is_over_all_the_same(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.on_session_stop(|_| std::future::ready(false)).unwrap();
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    session.stop("").await.unwrap();
    assert!(executor.session_ids().is_empty());
    rig.finish().await;
}

/// Stopping one leaves the other's calls alone.
pub async fn two_sessions_do_not_disturb_each_other(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (started, may_end) = (Count::default(), StateCell::new(false));
    {
        let (started, may_end) = (started.clone(), may_end.clone());
        client.tools().bash(move |_, context| {
            let (started, may_end) = (started.clone(), may_end.clone());
            async move {
                started.add();
                let canceled = context.cancellation.canceled();
                let ended = may_end.wait_for(|may| *may);
                let canceled = async { Err(canceled.await) };
                match futures_lite::future::or(canceled, async { Ok(ended.await) }).await {
                    Ok(_) => Ok::<_, ToolError>(ToolOutput::text("ended by itself")),
                    Err(reason) => Ok(ToolOutput::canceled(reason.to_string())),
                }
            }
        });
    }
    let executor = rig.join(&client).await;
    let (one, two) = (rig.session(&executor, "one").await, rig.session(&executor, "two").await);
    let mut calls = Vec::new();
    for session in [&one, &two] {
        let session = session.clone();
        // The same call id in two sessions is two calls.
        let options = bma_runtime::CallToolOptions { tool_call_id: "c".into(), ..Default::default() };
        calls.push(start(&rig.runtime, async move { session.tools().with(options).bash(command("x")).await.unwrap() }));
    }
    started.reaches(2).await;
    one.stop("").await.unwrap();
    may_end.replace(true);
    let mut results = Vec::new();
    for call in calls {
        let result = call.await;
        results.push(text(&result));
    }
    assert_eq!(results, [CancelReason::SessionStopped.to_string(), "ended by itself".to_owned()]);
    assert_eq!(session_names(&executor.session_ids()), ["two"]);
    rig.finish().await;
}
