//! What a lost connection, and a lost harness, does to what was under way.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bma_runtime::proto::executor::StopCause;
use bma_runtime::proto::harness::{CallError, Gone};
use bma_runtime::sync::{Event, StateCell};
use bma_runtime::{
    Authenticator, CallToolOptions, CancelReason, Harness, HarnessEvent, HarnessOptions, Runtime, SessionStop,
    ToolError,
};

use super::{
    Count, Rig, Tally, address_of, assignment, command, eventually, localhost, session_names, start, text, within,
};
use crate::support::proxy::Way;

fn call_id(id: &str) -> CallToolOptions {
    CallToolOptions { tool_call_id: id.into(), ..CallToolOptions::default() }
}

/// The same executor, the same sessions, and nobody is told of an end.
pub async fn a_cut_connection_comes_back_with_its_sessions(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let stops = Count::default();
    {
        let stops = stops.clone();
        client
            .on_session_stop(move |_| {
                stops.add();
                std::future::ready(true)
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let first = client.registration().unwrap();
    for _ in 0..5 {
        let mut comings = rig.harness.events();
        proxy.cut();
        let Some(Event::Item(HarnessEvent::Disconnected(gone))) = comings.next().await else { panic!("told") };
        assert_eq!(gone.id(), executor.id());
        let Some(Event::Item(HarnessEvent::Registered { executor: back, resumed: true })) = comings.next().await else {
            panic!("told")
        };
        assert_eq!(back.id(), executor.id());
        assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    }
    let last = client.registration().unwrap();
    assert_eq!(last.executor_id, first.executor_id);
    assert_ne!(last.connection_id, first.connection_id);
    assert_eq!((session_names(&client.active_sessions()), stops.value()), (vec!["s"], 0));
    rig.finish().await;
}

/// The tool ran on through the cut; its result comes on the next connection.
pub async fn a_result_that_was_under_way_arrives_once(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    let (runs, may_end) = (Count::default(), StateCell::new(false));
    {
        let (runs, may_end) = (runs.clone(), may_end.clone());
        client.tools().bash(move |_, context| {
            let may_end = may_end.clone();
            runs.add();
            async move {
                may_end.wait_for(|may| *may).await;
                assert_eq!(context.cancellation.reason(), None);
                Ok::<_, ToolError>("ran through it")
            }
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let call = {
        let session = session.clone();
        start(&rig.runtime, async move { session.tools().with(call_id("c")).bash(command("x")).await })
    };
    runs.reaches(1).await;
    // Once while it runs, ...
    proxy.cut();
    eventually(&rig.runtime, "it is back", || proxy.accepted() == 2 && executor.is_connected()).await;
    // ... and once with the result on the wire, unseen.
    proxy.hold(Way::Up);
    may_end.replace(true);
    let mut call = Box::pin(call);
    assert!(within(&rig.runtime, Duration::from_millis(30), &mut call).await.is_none());
    proxy.cut();
    assert_eq!(text(&call.await.unwrap()), "ran through it");
    assert_eq!(runs.value(), 1);
    rig.finish().await;
}

/// The request, or its acknowledgement, was lost: nobody can tell which.
pub async fn a_call_that_was_not_acknowledged_is_sent_again_and_runs_once(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    let runs = Tally::default();
    {
        let runs = runs.clone();
        client.tools().bash(move |input, _| {
            runs.add(&input.command);
            std::future::ready(Ok::<_, ToolError>(input.command))
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    for (way, name) in [(Way::Down, "the request is lost"), (Way::Up, "the answers are lost")] {
        proxy.hold(way);
        let call = {
            let session = session.clone();
            start(&rig.runtime, async move { session.tools().bash(command(name)).await })
        };
        if way == Way::Up {
            eventually(&rig.runtime, "it ran", || runs.counts().contains_key(name)).await;
        } else {
            let mut events = client.events();
            assert!(within(&rig.runtime, Duration::from_millis(20), events.next()).await.is_none());
        }
        proxy.cut();
        assert_eq!(text(&call.await.unwrap()), name);
        assert_eq!(runs.counts().get(name), Some(&1));
    }
    rig.finish().await;
}

/// Nothing is refused for want of a connection, as long as the lease lasts.
pub async fn a_call_made_while_nothing_is_connected_waits_for_the_return(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    client.tools().bash(|input, _| std::future::ready(Ok::<_, ToolError>(input.command)));
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    proxy.refuse(true);
    proxy.cut();
    eventually(&rig.runtime, "the loss is noticed", || !executor.is_connected()).await;
    let call = {
        let session = session.clone();
        start(&rig.runtime, async move { session.tools().bash(command("x")).await })
    };
    let assigned = {
        let executor = executor.clone();
        start(&rig.runtime, async move { executor.assign(assignment("t")).await })
    };
    let mut call = Box::pin(call);
    assert!(within(&rig.runtime, Duration::from_millis(20), &mut call).await.is_none());
    proxy.refuse(false);
    assert_eq!(text(&call.await.unwrap()), "x");
    let second = assigned.await.unwrap();
    second.ready().await.unwrap();
    assert_eq!(text(&second.tools().bash(command("y")).await.unwrap()), "y");
    rig.finish().await;
}

/// Both sides give the sessions up by themselves, and the executor starts afresh. What a tool still
/// says then is given back whole.
pub async fn a_lease_that_runs_out_ends_everything_on_both_sides(runtime: Arc<dyn Runtime>) {
    let rig = Rig::with(runtime, |options| options.config.lease_ttl = Duration::from_millis(500)).await;
    let proxy = rig.proxy();
    let mut options = super::options("machine", &proxy.url(), &rig.token);
    options.heartbeat_interval = Some(Duration::from_millis(20));
    let client = rig.client_of(options);
    let (started, causes) = (Count::default(), Arc::new(Mutex::new(Vec::new())));
    let lost = Arc::new(Mutex::new(Vec::new()));
    {
        let (started, causes, lost) = (started.clone(), Arc::clone(&causes), Arc::clone(&lost));
        client.on_tool_result_lost(move |result, _| lost.lock().unwrap().push(result));
        client.tools().bash(move |_, context| {
            let started = started.clone();
            async move {
                started.add();
                assert_eq!(context.cancellation.canceled().await, CancelReason::SessionStopped);
                Ok::<_, ToolError>("too late")
            }
        });
        client
            .on_session_stop(move |stop: SessionStop| {
                causes.lock().unwrap().push(stop.cause);
                std::future::ready(true)
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let call = {
        let session = session.clone();
        start(&rig.runtime, async move { session.tools().bash(command("x")).await.map(drop) })
    };
    started.reaches(1).await;
    proxy.refuse(true);
    proxy.cut();
    assert_eq!(executor.gone().await, Gone::LeaseExpired);
    let outcome = call.await;
    assert!(matches!(outcome, Err(CallError::OutcomeUnknown(_))), "{outcome:?}");
    eventually(&rig.runtime, "the client has given it up", || !causes.lock().unwrap().is_empty()).await;
    assert_eq!(causes.lock().unwrap().as_slice(), [StopCause::LeaseExpired]);
    assert!(client.active_sessions().is_empty());
    eventually(&rig.runtime, "the result is given back", || !lost.lock().unwrap().is_empty()).await;
    assert_eq!(lost.lock().unwrap().iter().map(text).collect::<Vec<_>>(), ["too late"]);
    proxy.refuse(false);
    let back = rig.harness.wait_executor().await;
    rig.session(&back, "s").await;
    rig.finish().await;
}

/// F66: and the sessions that it does not know end, with nothing left of them that one of the same id could suffer from.
pub async fn f66_a_harness_that_forgot_everything_gets_a_fresh_registration(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
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
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let executor = rig.join(&client).await;
    rig.session(&executor, "old").await;
    let second = Harness::new(Arc::clone(&rig.runtime), HarnessOptions::new(Authenticator::bearer(rig.token.clone())));
    let listening = second.listen(&localhost(0)).await.unwrap();
    let there: SocketAddr = address_of(listening.endpoint());
    proxy.retarget(there);
    proxy.cut();
    let back = second.wait_executor().await;
    assert_eq!(proxy.accepted(), 2, "the first connection to it was good");
    eventually(&rig.runtime, "its old session is over", || client.active_sessions().is_empty()).await;
    let told = stops.lock().unwrap().clone();
    assert!(matches!(told.as_slice(), [(id, StopCause::NotResumed)] if id == "old"), "{told:?}");
    let session = rig.session(&back, "old").await;
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    assert_eq!(client.registration().unwrap().executor_id, *back.id());
    client.stop("").await;
    second.close("").await;
    listening.stop();
    rig.finish().await;
}

/// What is under way at one time does not wait for each other.
pub async fn a_distant_executor_serves_many_calls_at_once(runtime: Arc<dyn Runtime>) {
    const CALLS: u32 = 50;
    const ONE_WAY: Duration = Duration::from_millis(20);
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    client.tools().bash(|input, _| std::future::ready(Ok::<_, ToolError>(input.command)));
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    proxy.delay(ONE_WAY);
    let begun = Instant::now();
    let calls: Vec<_> = (0..CALLS)
        .map(|call| {
            let (session, asked) = (session.clone(), call.to_string());
            start(&rig.runtime, async move {
                assert_eq!(text(&session.tools().bash(command(&asked)).await.unwrap()), asked);
            })
        })
        .collect();
    for call in calls {
        call.await;
    }
    let took = begun.elapsed();
    assert!(took >= 2 * ONE_WAY, "{took:?}");
    assert!(took < CALLS * 2 * ONE_WAY, "one after the other would be no slower than {took:?}");
    rig.finish().await;
}

/// A connection that is cut again and again, at no time in particular.
pub async fn cuts_at_any_time_lose_and_repeat_nothing(runtime: Arc<dyn Runtime>) {
    const WORKERS: usize = 8;
    const CALLS: usize = 40;
    let rig = Rig::new(runtime).await;
    let proxy = Arc::new(rig.proxy());
    let mut options = super::options("machine", &proxy.url(), &rig.token);
    options.reconnect_max_delay = Duration::from_millis(5);
    let client = rig.client_of(options);
    let runs = Tally::default();
    {
        let runs = runs.clone();
        client.tools().bash(move |input, _| {
            runs.add(&input.command);
            async move {
                for _ in 0..input.command.len() % 3 {
                    futures_lite::future::yield_now().await;
                }
                Ok::<_, ToolError>(input.command)
            }
        });
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let done = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (session, done) = (session.clone(), Arc::clone(&done));
            start(&rig.runtime, async move {
                for call in 0..CALLS {
                    let asked = format!("{worker}/{call}");
                    let result = session.tools().bash(command(&asked)).await.unwrap();
                    assert_eq!(text(&result), asked);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let mut cuts = 0;
    while done.load(Ordering::SeqCst) < WORKERS * CALLS {
        // Now and then while something is under way: the next cut comes after some calls more.
        let next = done.load(Ordering::SeqCst) + 1 + cuts % 7;
        let reached = || done.load(Ordering::SeqCst) >= next.min(WORKERS * CALLS);
        eventually(&rig.runtime, "calls go on", reached).await;
        proxy.cut();
        cuts += 1;
    }
    for worker in workers {
        worker.await;
    }
    let runs = runs.counts();
    assert_eq!(runs.len(), WORKERS * CALLS);
    assert!(runs.values().all(|runs| *runs == 1), "{:?}", runs.iter().find(|(_, runs)| **runs != 1));
    assert!(cuts > 10, "{cuts}");
    rig.finish().await;
}
