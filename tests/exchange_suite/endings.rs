//! How executors and harnesses come to their end, each in order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bma_runtime::proto::contract::{ConnectionState, ErrorCode, ToolOutcome};
use bma_runtime::proto::executor::{End, StopCause};
use bma_runtime::proto::harness::{CallError, Gone};
use bma_runtime::sync::{Event, Events, StateCell};
use bma_runtime::{
    Authenticator, CancelReason, ClientEvent, ExecutorEvent, Harness, HarnessEvent, HarnessOptions, ListenError,
    Runtime, SessionStop, ToolError, ToolOutput,
};

use super::{
    Count, Rig, assert_code, assignment, command, eventually, localhost, options, refused, session_names, start, text,
};

/// The last thing that a stream tells, once it has ended.
async fn last<T>(mut events: Events<T>) -> Option<T> {
    let mut last = None;
    while let Some(event) = events.next().await {
        if let Event::Item(item) = event {
            last = Some(item);
        }
    }
    last
}

/// 4005: it takes nothing new, and is let go when it is empty.
pub async fn a_drained_executor_leaves_once_its_sessions_have_ended(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let reason = Arc::new(Mutex::new(String::new()));
    {
        let reason = Arc::clone(&reason);
        client.on_drain(move |params| reason.lock().unwrap().clone_from(&params.reason));
    }
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let drained = executor.drain("maintenance").await.unwrap();
    assert_eq!((drained.accepted, session_names(&drained.active_sessions)), (true, vec!["s"]));
    eventually(&rig.runtime, "the hook is told", || !reason.lock().unwrap().is_empty()).await;
    assert_eq!((reason.lock().unwrap().as_str(), client.state()), ("maintenance", ConnectionState::Draining));
    let error = refused(executor.assign(assignment("t")).await);
    assert_code(&error, ErrorCode::ExecutorBusy);
    assert!(error.is_retryable());
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran", "what is open goes on");
    assert_eq!(client.end_state(), None);
    session.stop("").await.unwrap();
    assert_eq!(executor.gone().await, Gone::Drained);
    assert_eq!(client.done().await, End::Drained);
    assert!(End::Drained.is_orderly());
    assert_eq!((client.state(), client.end_state()), (ConnectionState::Closed, Some(End::Drained)));
    assert!(rig.harness.executors().is_empty());
    rig.finish().await;
}

/// The answer to the drain comes first.
pub async fn a_drain_without_sessions_lets_go_at_once(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let executor = rig.join(&client).await;
    assert!(executor.drain("").await.unwrap().accepted);
    assert_eq!((executor.gone().await, client.done().await), (Gone::Drained, End::Drained));
    rig.finish().await;
}

/// Its sessions end on the machine, with the reason at hand.
pub async fn the_harness_closes_an_executor(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let stops = Arc::new(Mutex::new(Vec::new()));
    {
        let stops = Arc::clone(&stops);
        client
            .on_session_stop(move |stop: SessionStop| {
                stops.lock().unwrap().push((stop.session_id.as_str().to_owned(), stop.cause));
                std::future::ready(true)
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let mut comings = rig.harness.events();
    assert_eq!(executor.close("not needed").await, Gone::Closed("not needed".to_owned()));
    assert_eq!(client.done().await, End::ClosedByHarness("not needed".to_owned()));
    assert_eq!(stops.lock().unwrap().as_slice(), [("s".to_owned(), StopCause::ExecutorEnded)]);
    let outcome = session.tools().bash(command("x")).await;
    assert!(matches!(outcome, Err(CallError::ExecutorGone(_))), "{outcome:?}");
    let Some(Event::Item(HarnessEvent::Gone { executor: gone, .. })) = comings.next().await else { panic!("told") };
    assert_eq!(gone.id(), executor.id());
    assert!(rig.harness.executors().is_empty() && !executor.is_connected());
    rig.finish().await;
}

/// Stop handlers first, then the ends are reported, then the goodbye.
pub async fn a_client_that_stops_ends_its_sessions_first(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let torn_down = Count::default();
    {
        let torn_down = torn_down.clone();
        client
            .on_session_stop(move |stop: SessionStop| {
                assert_eq!((stop.cause, stop.within), (StopCause::ExecutorEnded, None));
                let torn_down = torn_down.clone();
                async move {
                    futures_lite::future::yield_now().await;
                    torn_down.add();
                    true
                }
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    for id in ["a", "b", "c"] {
        rig.session(&executor, id).await;
    }
    let mut events = executor.events();
    assert_eq!(client.stop("going home").await, End::Stopped);
    assert_eq!(torn_down.value(), 3);
    assert_eq!(executor.gone().await, Gone::Closed("going home".to_owned()));
    let mut ended = Vec::new();
    while let Some(Event::Item(ExecutorEvent::SessionEnded { session_id, reason })) = events.try_next() {
        assert_eq!(reason, "executor_stopped", "ended in order, and not for want of an executor");
        ended.push(session_id.as_str().to_owned());
    }
    ended.sort();
    assert_eq!(ended, ["a", "b", "c"]);
    assert_eq!(client.stop("again").await, End::Stopped, "stopping twice is no mistake");
    rig.finish().await;
}

/// A handler is asked to end, and its own answer counts.
pub async fn a_call_that_runs_at_the_stop_is_reported_before_its_session_ends(runtime: Arc<dyn Runtime>) {
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
                cleaned_up.wait_for(|done| *done).await;
                Ok::<_, ToolError>(ToolOutput::canceled(reason.to_string()))
            }
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let call = start(&rig.runtime, async move { session.tools().bash(command("x")).await });
    started.reaches(1).await;
    let stop = {
        let client = client.clone();
        start(&rig.runtime, async move { client.stop("going home").await })
    };
    let mut stop = Box::pin(stop);
    assert!(super::within(&rig.runtime, Duration::from_millis(50), &mut stop).await.is_none(), "the tool still runs");
    cleaned_up.replace(true);
    assert_eq!(stop.await, End::Stopped);
    let result = call.await.unwrap();
    assert_eq!(result.outcome, ToolOutcome::Canceled);
    assert_eq!(text(&result), CancelReason::ClientStopped.to_string());
    rig.finish().await;
}

/// Everything has ended when it says that it has.
pub async fn a_client_is_not_over_before_its_handlers_are(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (started, cleaned_up) = (Count::default(), Count::default());
    {
        let (started, cleaned_up) = (started.clone(), cleaned_up.clone());
        client.tools().bash(move |_, context| {
            let (started, cleaned_up) = (started.clone(), cleaned_up.clone());
            async move {
                started.add();
                context.cancellation.canceled().await;
                futures_lite::future::yield_now().await;
                cleaned_up.add();
                Ok::<_, ToolError>("")
            }
        });
    }
    {
        let cleaned_up = cleaned_up.clone();
        client
            .on_session_stop(move |_| {
                let cleaned_up = cleaned_up.clone();
                async move {
                    futures_lite::future::yield_now().await;
                    cleaned_up.add();
                    true
                }
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let _call = start(&rig.runtime, async move { session.tools().bash(command("x")).await.map(drop) });
    started.reaches(1).await;
    executor.close("at once").await;
    assert!(matches!(client.done().await, End::ClosedByHarness(_)));
    assert_eq!(cleaned_up.value(), 2);
    rig.finish().await;
}

/// A waiting caller that goes away changes nothing, and neither does a second one.
pub async fn an_orderly_stop_goes_on_when_nobody_waits_for_it(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (begun, may_end) = (Count::default(), StateCell::new(false));
    {
        let (begun, may_end) = (begun.clone(), may_end.clone());
        client
            .on_session_stop(move |_| {
                let may_end = may_end.clone();
                begun.add();
                async move { may_end.wait_for(|may| *may).await }
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    rig.session(&executor, "s").await;
    for _ in 0..2 {
        let waited = super::within(&rig.runtime, Duration::from_millis(20), client.stop("going home")).await;
        assert_eq!(waited, None);
    }
    may_end.replace(true);
    assert_eq!(client.done().await, End::Stopped);
    assert_eq!(executor.gone().await, Gone::Closed("going home".to_owned()));
    assert_eq!(begun.value(), 1, "a session is torn down once");
    rig.finish().await;
}

/// Nothing listens, and there is nothing to wait for.
pub async fn a_client_stops_while_it_dials(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    // Takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = rig.client_of(options("machine", &format!("ws://{}/", silent.local_addr().unwrap()), &rig.token));
    let started = {
        let client = client.clone();
        start(&rig.runtime, async move { client.start().await })
    };
    eventually(&rig.runtime, "it dials", || client.state() == ConnectionState::Connecting).await;
    assert_eq!(client.stop("changed my mind").await, End::Stopped);
    assert_eq!(started.await.map(drop), Err(End::Stopped));
    rig.finish().await;
}

/// And cannot be started any more.
pub async fn a_client_that_was_never_started_stops(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    assert_eq!(client.stop("").await, End::Stopped);
    assert_eq!(client.done().await, End::Stopped);
    assert_eq!(client.start().await.map(drop), Err(End::Stopped));
    rig.finish().await;
}

/// Whoever reads on is not left waiting.
pub async fn streams_of_events_end_with_what_they_tell_of(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let states = client.events();
    let executor = rig.join(&client).await;
    rig.session(&executor, "s").await;
    let events = executor.events();
    client.stop("").await;
    assert!(matches!(last(states).await, Some(ClientEvent::State(ConnectionState::Closed))));
    assert!(matches!(last(events).await, Some(ExecutorEvent::SessionEnded { .. })));
    // Asked for afterwards they have nothing to tell.
    assert!(last(client.events()).await.is_none());
    assert!(last(executor.events()).await.is_none());
    rig.finish().await;
}

/// Its connections are closed; executors come back to whoever listens there next.
pub async fn a_harness_that_is_dropped_lets_its_executors_go(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let watched = crate::support::watched::Watched::new(Arc::clone(&rig.runtime));
    let runtime: Arc<dyn Runtime> = watched.clone();
    let first = Harness::new(Arc::clone(&runtime), HarnessOptions::new(Authenticator::bearer(rig.token.clone())));
    let listening = first.listen(&localhost(0)).await.unwrap();
    let port = super::address_of(listening.endpoint()).port();
    let client = rig.client_of(options("machine", &listening.url(), &rig.token));
    let registered = client.start().await.unwrap();
    eventually(&runtime, "it is there", || first.executor(&registered.executor_id).is_some()).await;
    let executor = first.executor(&registered.executor_id).unwrap();
    listening.stop();
    drop(first);
    executor.gone().await;
    watched.assert_all_over().await;
    assert!(matches!(executor.assign(assignment("s")).await, Err(CallError::ExecutorGone(_))));
    let second = Harness::new(Arc::clone(&runtime), HarnessOptions::new(Authenticator::bearer(rig.token.clone())));
    let listening = second.listen(&localhost(port)).await.unwrap();
    assert!(second.wait_executor().await.is_connected());
    client.stop("").await;
    second.close("").await;
    listening.stop();
    drop(second);
    rig.finish().await;
}

/// When it says that it is done, nothing of a connection is left here, and the executor knows that nothing has failed.
pub async fn a_released_executor_comes_back_at_the_first_step(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let watched = crate::support::watched::Watched::new(Arc::clone(&rig.runtime));
    let theirs: Arc<dyn Runtime> = watched.clone();
    let harness = Harness::new(Arc::clone(&theirs), HarnessOptions::new(Authenticator::bearer(rig.token.clone())));
    let mut listening = harness.listen(&localhost(0)).await.unwrap();
    let port = super::address_of(listening.endpoint()).port();
    let client = rig.client_of(options("machine", &listening.url(), &rig.token));
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let mut told = client.events();
    client.start().await.unwrap();
    let mut executor = harness.wait_executor().await;
    for round in 0..3 {
        let session = rig.session(&executor, &format!("s{round}")).await;
        listening.stop();
        harness.release("for now").await;
        assert_eq!(watched.streams(), 0, "it was seen off before that was said");
        assert_eq!(executor.gone().await, Gone::Closed("for now".to_owned()));
        assert!(harness.executors().is_empty());
        let outcome = session.tools().bash(command("x")).await;
        assert!(matches!(outcome, Err(CallError::ExecutorGone(_))), "{outcome:?}");
        let attempt = loop {
            match told.next().await {
                // Dials that find nobody, while nobody listens, are other ones.
                Some(Event::Item(ClientEvent::Reconnecting { attempt, cause, .. })) if cause.contains("for now") => {
                    break attempt;
                }
                Some(_) => {}
                None => panic!("it goes on to dial"),
            }
        };
        assert_eq!(attempt, 1);
        listening = harness.listen(&localhost(port)).await.unwrap();
        executor = harness.wait_executor().await;
    }
    harness.close("").await;
    assert_eq!(watched.streams(), 0);
    client.done().await;
    listening.stop();
    rig.finish().await;
}

/// The handle is not the executor.
pub async fn a_client_that_is_dropped_goes_on_until_it_is_told_to_stop(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let options = options("machine", &rig.url(), &rig.token);
    let client = bma_runtime::Client::new(Arc::clone(&rig.runtime), options).unwrap();
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let executor = rig.join(&client).await;
    drop(client);
    let session = rig.session(&executor, "s").await;
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    executor.close("").await;
    rig.finish().await;
}

/// With what to do about it.
pub async fn a_port_in_use_is_named(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let taken = rig.address().port();
    let error: ListenError = rig.harness.listen(&localhost(taken)).await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains(&taken.to_string()) && told.contains("port 0"), "{told}");
    rig.finish().await;
}

/// Calls, readiness, assignments, requests: none hangs.
pub async fn waits_are_answered_when_the_executor_is_lost(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (started, given_up) = (Count::default(), StateCell::new(false));
    {
        let started = started.clone();
        client.tools().bash(move |_, context| {
            started.add();
            async move { Ok::<_, ToolError>(context.cancellation.canceled().await.to_string()) }
        });
        let given_up = given_up.clone();
        client
            .on_session_assign(move |params| {
                let given_up = given_up.clone();
                async move {
                    if params.session_id.as_str() == "slow" {
                        given_up.wait_for(|it_is| *it_is).await;
                    }
                    Ok(true)
                }
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let call = {
        let session = session.clone();
        start(&rig.runtime, async move { session.tools().bash(command("x")).await.map(drop) })
    };
    let assigned = {
        let executor = executor.clone();
        start(&rig.runtime, async move { executor.assign(assignment("slow")).await.map(drop) })
    };
    eventually(&rig.runtime, "it is offered", || executor.session_ids().len() == 2).await;
    let ready = {
        let slow = executor.session(&"slow".into()).unwrap();
        start(&rig.runtime, async move { slow.ready().await })
    };
    started.reaches(1).await;
    executor.close("lost").await;
    let outcome = call.await;
    assert!(matches!(outcome, Err(CallError::OutcomeUnknown(_))), "it ran, and nobody knows how far: {outcome:?}");
    for outcome in [assigned.await, ready.await] {
        assert!(matches!(outcome, Err(CallError::SessionEnded { .. } | CallError::ExecutorGone(_))), "{outcome:?}");
    }
    given_up.replace(true);
    // A stop of its own would race with the harness's.
    assert!(matches!(client.done().await, End::ClosedByHarness(_)));
    rig.finish().await;
}
