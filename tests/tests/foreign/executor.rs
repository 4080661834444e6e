//! An executor of another make serves our harness.

use bma_runtime_tokio::proto::contract::{ErrorCode, ProcessListParams, ToolOutcome, methods};
use bma_runtime_tokio::proto::harness::{CallError, Gone};
use bma_runtime_tokio::sync::Event;
use bma_runtime_tokio::{Executor, ExecutorEvent, HarnessEvent};
use bma_tests::exchange_suite::{Rig, assert_code, assignment, command, eventually, refused, text};
use futures_util::FutureExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

use super::peer::{Peer, V1, V1_1, registration, runtime};

/// A registered executor.
async fn connected(rig: &Rig, protocol: &'static str) -> (Peer, Executor) {
    let mut peer = Peer::dial(&rig.url(), rig.token.expose(), protocol).await.unwrap();
    let result = peer.result_of(json!(1), "executor.register", registration(protocol)).await;
    let executor = rig.executor(&result["executor_id"].as_str().unwrap().into()).await;
    (peer, executor)
}

/// Takes a session, in the usual order.
async fn take_session(rig: &Rig, peer: &mut Peer, executor: &Executor, id: &str) -> bma_runtime_tokio::Session {
    let (session, ()) = tokio::join!(rig.session(executor, id), async {
        let assign = peer.expect("session.assign").await;
        peer.reply(&assign, json!({"session_id": id, "accepted": true})).await;
        let params = json!({"session_id": id, "work_id": assign["params"]["work_id"],
            "lease_token": assign["params"]["lease"]["token"]});
        assert_eq!(peer.result_of(json!("ready"), "session.ready", params).await, json!({"accepted": true}));
    });
    session
}

fn result(call: &Value, text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text, "mime_type": null, "future": 1}], "is_error": false,
        "outcome": "succeeded", "tool_call_id": call["params"]["tool_call_id"],
        "session_id": call["params"]["session_id"], "artifacts": null, "duration_ms": null})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_is_answered_as_the_contract_says() {
    let rig = Rig::new(runtime()).await;
    let mut peer = Peer::dial(&rig.url(), rig.token.expose(), V1_1).await.unwrap();
    let result = peer.result_of(json!(0), "executor.register", registration(V1_1)).await;
    for member in ["executor_id", "connection_id", "server_time"] {
        assert!(result[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {result}");
    }
    for member in ["heartbeat_interval_ms", "lease_ttl_ms", "max_control_frame_bytes", "max_mcp_frame_bytes"] {
        assert!(result[member].as_i64().is_some_and(|number| number > 0), "{member}: {result}");
    }
    assert_eq!((&result["drain"], &result["protocol"]), (&json!(false), &json!(V1_1)));
    assert!(result["limits"]["max_inflight_requests"].is_i64());
    let executor = rig.executor(&result["executor_id"].as_str().unwrap().into()).await;
    assert_eq!((executor.info().name.as_str(), executor.info().os.as_str()), ("old iron", "cpm"));
    assert!(executor.capabilities().has("shell"));
    let beat = json!({"connection_id": result["connection_id"], "active_sessions": null, "load": null});
    let answer = peer.result_of(json!("beat"), "executor.heartbeat", beat).await;
    assert!(answer["lease_ttl_ms"].as_i64().is_some_and(|ttl| ttl > 0) && answer["drain"] == false, "{answer}");
    let error = peer.error_of(json!(2), "executor.register", registration(V1_1)).await;
    assert_eq!(error["code"], -32600);
    peer.send(json!({"jsonrpc": "2.0", "method": "executor.close", "params": {"reason": "lunch"}})).await;
    assert_eq!(executor.gone().await, Gone::Closed("lunch".to_owned()));
    drop(peer);
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_in_any_order_is_understood() {
    let rig = Rig::new(runtime()).await;
    let (mut peer, executor) = connected(&rig, V1_1).await;
    // Ready comes before the answer to the assignment.
    let (session, ()) = tokio::join!(rig.session(&executor, "s"), async {
        let assign = peer.expect("session.assign").await;
        let params = json!({"session_id": "s", "work_id": assign["params"]["work_id"],
            "lease_token": assign["params"]["lease"]["token"], "more": null});
        assert_eq!(peer.result_of(json!(-3), "session.ready", params).await, json!({"accepted": true}));
        peer.reply(&assign, json!({"session_id": "s", "accepted": true, "more": {}})).await;
    });
    // The result comes before the acknowledgement.
    let mut events = executor.events();
    let (called, ()) = tokio::join!(session.tools().bash(command("x")), async {
        let call = peer.expect("tool.call").await;
        assert_eq!(call["params"]["input"], json!({"command": "x"}));
        peer.send(json!({"jsonrpc": "2.0", "method": "tool.progress", "params": {"session_id": "s",
            "tool_call_id": call["params"]["tool_call_id"], "message": ""}}))
            .await;
        assert_eq!(peer.result_of(json!(9), "tool.result", result(&call, "early")).await, json!({"accepted": true}));
        peer.reply(&call, json!({"accepted": true})).await;
        // Once more: acknowledged, and nothing changes.
        assert_eq!(peer.result_of(json!(10), "tool.result", result(&call, "late")).await, json!({"accepted": true}));
    });
    assert_eq!(text(&called.unwrap()), "early");
    assert!(matches!(events.next().await, Some(Event::Item(ExecutorEvent::ToolProgress(_)))));
    // Ended before the answer to the stop.
    let (stopped, ()) = tokio::join!(session.stop("enough"), async {
        let stop = peer.expect("session.stop").await;
        assert_eq!(stop["params"]["reason"], "enough");
        let params = json!({"session_id": "s", "reason": ""});
        assert_eq!(peer.result_of(json!("x"), "session.ended", params.clone()).await, json!({"accepted": true}));
        peer.reply(&stop, json!({"stopped": true})).await;
        assert_eq!(
            peer.result_of(json!("y"), "session.ended", params).await,
            json!({"accepted": true}),
            "as ended as can be"
        );
    });
    stopped.unwrap();
    drop(peer);
    executor.close("").await;
    rig.finish().await;
}

/// Frames are held back for who was given an outcome: not for long if that one does not take it, or has gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_answered_whether_or_not_its_caller_takes_it() {
    let rig = Rig::new(runtime()).await;
    let (mut peer, executor) = connected(&rig, V1_1).await;
    let session = take_session(&rig, &mut peer, &executor, "s").await;
    for gone in [false, true] {
        let mut called = Some(Box::pin(session.tools().bash(command("x"))));
        assert!(called.as_mut().unwrap().now_or_never().is_none());
        let call = peer.expect("tool.call").await;
        if gone {
            called = None;
        }
        peer.reply(&call, json!({"accepted": true})).await;
        assert_eq!(peer.result_of(json!(9), "tool.result", result(&call, "x")).await, json!({"accepted": true}));
        if let Some(called) = called {
            assert_eq!(text(&called.await.unwrap()), "x");
        }
    }
    drop(peer);
    executor.close("").await;
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_reach_the_caller() {
    let rig = Rig::new(runtime()).await;
    let (mut peer, executor) = connected(&rig, V1_1).await;
    let (assigned, ()) = tokio::join!(executor.assign(assignment("a")), async {
        let assign = peer.expect("session.assign").await;
        peer.reply(&assign, json!({"session_id": "", "accepted": false})).await;
    });
    assert_eq!(assigned.map(drop), Err(CallError::AssignRejected));
    let session = take_session(&rig, &mut peer, &executor, "s").await;
    let (called, ()) = tokio::join!(session.tools().bash(command("x")), async {
        let call = peer.expect("tool.call").await;
        peer.refuse(&call, json!({"code": -32012, "message": "no", "data": {"capability": "tool:bash"}, "more": 1}))
            .await;
    });
    let error = refused(called);
    assert_code(&error, ErrorCode::CapabilityUnavailable);
    let (called, ()) = tokio::join!(session.tools().bash(command("x")), async {
        let call = peer.expect("tool.call").await;
        peer.refuse(&call, json!({"code": 7, "message": "own code", "data": "a string"})).await;
    });
    assert_eq!(refused(called).code, 7);
    let (called, ()) = tokio::join!(session.tools().bash(command("x")), async {
        let call = peer.expect("tool.call").await;
        peer.reply(&call, json!({"accepted": false})).await;
    });
    assert_code(&refused(called), ErrorCode::Conflict);
    // An outcome of the future is passed on.
    let (called, ()) = tokio::join!(session.tools().bash(command("x")), async {
        let call = peer.expect("tool.call").await;
        peer.reply(&call, json!({"accepted": true})).await;
        let mut result = result(&call, "x");
        result["outcome"] = json!("vaporized");
        peer.result_of(json!(1), "tool.result", result).await;
    });
    assert_eq!(called.unwrap().outcome, ToolOutcome::from("vaporized"));
    drop(peer);
    executor.close("").await;
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_that_fit_nothing_are_answered_by_the_contracts_codes() {
    let rig = Rig::new(runtime()).await;
    let (mut peer, executor) = connected(&rig, V1_1).await;
    let call = json!({"params": {"session_id": "nobody's", "tool_call_id": "c"}});
    assert_eq!(peer.error_of(json!(1), "tool.result", result(&call, "")).await["code"], -32007);
    let ready = json!({"session_id": "nobody's", "work_id": "w", "lease_token": "l"});
    assert_eq!(peer.error_of(json!(2), "session.ready", ready).await["code"], -32007);
    take_session(&rig, &mut peer, &executor, "s").await;
    let call = json!({"params": {"session_id": "s", "tool_call_id": "never asked"}});
    assert_eq!(peer.error_of(json!(3), "tool.result", result(&call, "")).await["code"], -32002);
    assert_eq!(peer.error_of(json!(4), "session.assign", json!({})).await["code"], -32601, "the wrong direction");
    assert_eq!(peer.error_of(json!(5), "tool.result", json!({"session_id": "s"})).await["code"], -32602);
    drop(peer);
    executor.close("").await;
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_sent_again_gets_the_first_answer() {
    let rig = Rig::new(runtime()).await;
    let (mut peer, executor) = connected(&rig, V1_1).await;
    let event = json!({"session_id": "s", "event": {"type": "agent.message", "content": []}});
    let first = peer.result_of(json!("e1"), "session.event", event.clone()).await;
    assert_eq!(first["accepted"], true);
    let again = peer.result_of(json!("e1"), "session.event", event.clone()).await;
    assert_eq!(again, first);
    let numeric = peer.result_of(json!(1), "session.event", event.clone()).await;
    let other = peer.result_of(json!("1"), "session.event", event).await;
    assert_ne!(numeric["event_id"], first["event_id"]);
    assert_ne!(numeric["event_id"], other["event_id"], "7 and \"7\" are two ids");
    drop(peer);
    executor.close("").await;
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_executor_is_not_sent_what_it_does_not_know() {
    let rig = Rig::new(runtime()).await;
    let mut peer = Peer::dial(&rig.url(), rig.token.expose(), V1).await.unwrap();
    let mut params = registration(V1);
    params["capabilities"]["process"] = json!({"enabled": true});
    let result = peer.result_of(json!(1), "executor.register", params).await;
    assert!(result.get("protocol").is_none() && result.get("limits").is_none(), "{result}");
    let executor = rig.executor(&result["executor_id"].as_str().unwrap().into()).await;
    let outcome = executor.call::<methods::ProcessList>(ProcessListParams { session_id: "s".into() }).await;
    assert!(matches!(outcome, Err(CallError::NotServed { .. })), "{outcome:?}");
    take_session(&rig, &mut peer, &executor, "s").await;
    drop(peer);
    executor.close("").await;
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_does_not_register_first_is_closed() {
    let rig = Rig::new(runtime()).await;
    for (first, code) in [
        (
            json!({"jsonrpc": "2.0", "id": 5, "method": "executor.heartbeat", "params": {"connection_id": "c",
            "active_sessions": []}}),
            Some(-32600),
        ),
        (json!({"jsonrpc": "2.0", "method": "executor.close", "params": {"reason": ""}}), None),
        (json!({"jsonrpc": "2.0", "id": 5, "method": "executor.register", "params": {"protocol": V1_1}}), Some(-32602)),
        (json!([]), Some(-32600)),
    ] {
        let mut peer = Peer::dial(&rig.url(), rig.token.expose(), V1_1).await.unwrap();
        peer.send(first.clone()).await;
        if let Some(code) = code {
            assert_eq!(peer.next().await["error"]["code"], code, "{first}");
        }
        assert_eq!(peer.closed().await.map(|(code, _)| code), Some(4002), "{first}");
    }
    let mut peer = Peer::dial(&rig.url(), rig.token.expose(), V1_1).await.unwrap();
    let error = peer.error_of(json!(1), "executor.register", registration("bma.executor.v9")).await;
    assert_eq!(error["code"], -32010);
    assert_eq!(peer.closed().await.map(|(code, _)| code), Some(4003));
    assert!(rig.harness.executors().is_empty());
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_shows_no_token_is_refused() {
    let rig = Rig::new(runtime()).await;
    for (token, query) in [("wrong", ""), ("", ""), ("", "?token=")] {
        let query = if query.is_empty() { String::new() } else { format!("{query}{}", rig.token.expose()) };
        match Peer::dial(&format!("{}{query}", rig.url()), token, V1_1).await.map(drop) {
            Err(Error::Http(response)) => assert_eq!(response.status(), 401),
            other => panic!("{other:?}"),
        }
    }
    let channel = format!("{}?channel=mcp&session_id=s&server_key=k", rig.url());
    match Peer::dial(&channel, rig.token.expose(), V1_1).await.map(drop) {
        Err(Error::Http(response)) => assert_eq!(response.status(), 501),
        other => panic!("{other:?}"),
    }
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_that_comes_back_goes_on_with_its_sessions() {
    let rig = Rig::new(runtime()).await;
    let (mut peer, executor) = connected(&rig, V1_1).await;
    let session = take_session(&rig, &mut peer, &executor, "s").await;
    let mut comings = rig.harness.events();
    let call = tokio::spawn({
        let session = session.clone();
        async move { session.tools().bash(command("x")).await }
    });
    let asked = peer.expect("tool.call").await;
    let connection = executor.connection_id().unwrap();
    drop(peer);
    assert!(matches!(comings.next().await, Some(Event::Item(HarnessEvent::Disconnected(_)))));
    let mut peer = Peer::dial(&rig.url(), rig.token.expose(), V1_1).await.unwrap();
    let mut params = registration(V1_1);
    params["resume"] = json!({"executor_id": executor.id().as_str(), "last_connection_id": connection.as_str(),
        "active_sessions": ["s", "a stray one"]});
    peer.result_of(json!(1), "executor.register", params).await;
    // What was not acknowledged is asked again, under the same call id; the stray session is to stop.
    let again = peer.expect("tool.call").await;
    assert_eq!(again["params"], asked["params"]);
    let stray = peer.expect("session.stop").await;
    assert_eq!(stray["params"]["session_id"], "a stray one");
    peer.refuse(&stray, json!({"code": -32007, "message": "?"})).await;
    peer.reply(&again, json!({"accepted": true})).await;
    peer.result_of(json!(2), "tool.result", result(&again, "at last")).await;
    assert_eq!(text(&call.await.unwrap().unwrap()), "at last");
    eventually(&rig.runtime, "it is the same executor", || rig.harness.executors().len() == 1).await;
    drop(peer);
    executor.close("").await;
    rig.finish().await;
}
