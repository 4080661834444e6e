//! What a client's handlers can rely on: one after the other, and each for its own session and call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bma_runtime::sync::StateCell;
use bma_runtime::{CallToolOptions, HandlerTaken, Runtime, ToolError};

use super::{Count, Rig, assignment, command, eventually, start, text, within};

/// How long something that must not happen is waited for.
const A_WHILE: Duration = Duration::from_millis(50);

/// The set-up of an offer that a lost connection made void is over and taken down before the next one begins.
pub async fn handlers_of_one_session_id_follow_each_other(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    let (told, may_end) = (Arc::new(Mutex::new(Vec::new())), StateCell::new(0));
    {
        let (told, may_end, count) = (Arc::clone(&told), may_end.clone(), Count::default());
        client
            .on_session_assign(move |_| {
                let (told, may_end) = (Arc::clone(&told), may_end.clone());
                count.add();
                let number = count.value();
                told.lock().unwrap().push(format!("set-up {number}"));
                async move {
                    may_end.wait_for(|ended| *ended >= number).await;
                    told.lock().unwrap().push(format!("set-up {number} is over"));
                    Ok(true)
                }
            })
            .unwrap();
    }
    {
        let told = Arc::clone(&told);
        client
            .on_session_stop(move |_| {
                told.lock().unwrap().push("taken down".to_owned());
                std::future::ready(true)
            })
            .unwrap();
    }
    let executor = rig.join(&client).await;
    let first = client.registration().unwrap().connection_id;
    let assigned = {
        let executor = executor.clone();
        start(&rig.runtime, async move { executor.assign(assignment("s")).await })
    };
    let mut assigned = Box::pin(assigned);
    eventually(&rig.runtime, "it is set up", || !told.lock().unwrap().is_empty()).await;
    proxy.cut();
    eventually(&rig.runtime, "it is back", || client.registration().unwrap().connection_id != first).await;
    assert!(within(&rig.runtime, A_WHILE, &mut assigned).await.is_none());
    assert_eq!(told.lock().unwrap().as_slice(), ["set-up 1"], "nothing runs beside it");
    may_end.replace(1);
    let expected = ["set-up 1", "set-up 1 is over", "taken down", "set-up 2"];
    eventually(&rig.runtime, "the next one begins", || told.lock().unwrap().len() == expected.len()).await;
    assert_eq!(told.lock().unwrap().as_slice(), expected);
    assert!(within(&rig.runtime, A_WHILE, &mut assigned).await.is_none(), "the first one is no answer to it");
    may_end.replace(2);
    assigned.await.unwrap().ready().await.unwrap();
    rig.finish().await;
}

/// An id of a session, and one of a call in it, can come again while a handler of the first ones still runs.
pub async fn a_late_handler_does_not_answer_for_a_later_call_of_its_id(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let (begun, may_end) = (Count::default(), StateCell::new(0));
    {
        let (begun, may_end) = (begun.clone(), may_end.clone());
        client.tools().bash(move |_, context| {
            let may_end = may_end.clone();
            begun.add();
            let number = begun.value();
            async move {
                may_end.wait_for(|ended| *ended >= number).await;
                Ok::<_, ToolError>(format!("{number}: {:?}", context.cancellation.reason()))
            }
        });
    }
    let ended = Count::default();
    {
        // Not everything is gone: the session ends as far as it can.
        client.on_session_stop(|_| std::future::ready(false)).unwrap();
        let ended = ended.clone();
        client.on_tool_call_finished(move |_, _| ended.add());
    }
    let executor = rig.join(&client).await;
    let call = |session: bma_runtime::Session| {
        let options = CallToolOptions { tool_call_id: "c".into(), ..CallToolOptions::default() };
        start(&rig.runtime, async move { session.tools().with(options).bash(command("x")).await })
    };
    let session = rig.session(&executor, "s").await;
    let first = call(session.clone());
    begun.reaches(1).await;
    let _ = session.stop("enough").await;
    let _ = first.await;
    eventually(&rig.runtime, "the client has let go of it", || client.active_sessions().is_empty()).await;

    let session = rig.session(&executor, "s").await;
    let mut second = Box::pin(call(session));
    begun.reaches(2).await;
    may_end.replace(1);
    ended.reaches(1).await;
    assert!(within(&rig.runtime, A_WHILE, &mut second).await.is_none(), "another one's answer");
    may_end.replace(2);
    assert_eq!(text(&second.await.unwrap()), "2: None");
    rig.finish().await;
}

/// Who decides is one; who only wants to know can be many.
pub async fn a_second_decider_is_refused_and_every_observer_is_told(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let (decided, checks, told) = (Count::default(), Count::default(), Count::default());
    for number in 0..2 {
        let on_assign = decided.clone();
        let assign = move |_| {
            on_assign.add();
            std::future::ready(Ok(true))
        };
        let on_stop = decided.clone();
        let stop = move |_| {
            on_stop.add();
            std::future::ready(true)
        };
        if number == 0 {
            client.on_session_stop(stop).unwrap();
            // Both or neither: what one is refused for is not half there.
            let both = client.on_sessions(|_| std::future::ready(Ok(false)), |_| std::future::ready(false));
            assert_eq!(both, Err(HandlerTaken { hook: "on_session_stop" }));
            client.on_session_assign(assign).unwrap();
        } else {
            assert_eq!(client.on_session_assign(assign), Err(HandlerTaken { hook: "on_session_assign" }));
            let refused = client.on_session_stop(stop).unwrap_err();
            assert!(refused.to_string().starts_with("on_session_stop: this client has a handler already"));
        }
        let (checks, finished, drained) = (checks.clone(), told.clone(), told.clone());
        client.on_tool_call_accept(move |_| {
            checks.add();
            Ok(())
        });
        client.on_tool_call_finished(move |_, _| finished.add());
        client.on_drain(move |_| drained.add());
    }
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    executor.drain("").await.unwrap();
    told.reaches(4).await;
    session.stop("").await.unwrap();
    assert_eq!((decided.value(), checks.value(), told.value()), (2, 2, 4));
    rig.finish().await;
}
