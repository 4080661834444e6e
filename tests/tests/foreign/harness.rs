//! A harness of another make drives our client.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bma_runtime_tokio::proto::contract::ConnectionState;
use bma_runtime_tokio::proto::executor::{End, StopCause};
use bma_runtime_tokio::{Client, SessionStop, ToolError, ToolOutput};
use bma_tests::exchange_suite::{Count, eventually, options};
use bma_tests::support::logs;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::peer::{Peer, V1, V1_1, assignment, listen, registered, runtime};

/// A client for the listener, started in the background.
fn client(url: &str) -> Client {
    let mut options = options("hand", url, &"the-token".into());
    options.labels = vec!["gpu".to_owned()];
    Client::new(runtime(), options).unwrap()
}

fn start(client: &Client) {
    let client = client.clone();
    tokio::spawn(async move { client.start().await.map(drop) });
}

/// A registered connection, and the client.
async fn connected(prepare: impl FnOnce(&Client)) -> (TcpListener, Client, Peer) {
    let (listener, url) = listen().await;
    let client = client(&url);
    prepare(&client);
    start(&client);
    let mut peer = Peer::accept(&listener, V1_1).await;
    peer.register().await;
    (listener, client, peer)
}

/// Ends the client, and sees that it says goodbye.
async fn finish(client: Client, mut peer: Peer) {
    let registered = || matches!(client.state(), ConnectionState::Ready | ConnectionState::Draining);
    eventually(client.runtime(), "the answer to its registration has arrived", registered).await;
    let stop = tokio::spawn({
        let client = client.clone();
        async move { client.stop("done").await }
    });
    loop {
        let message = peer.next().await;
        if message["method"] == "executor.close" {
            assert_eq!(message["params"], json!({"reason": "done"}));
            assert!(message.get("id").is_none());
            break;
        }
        // Whatever is still to be delivered.
        peer.reply(&message, json!({"accepted": true})).await;
    }
    assert_eq!(peer.closed().await.map(|(code, _)| code), Some(1000));
    assert_eq!(stop.await.unwrap(), End::Stopped);
    logs::assert_no_unexpected_error();
}

/// What a tool.call looks like.
fn call(session: &str, id: &str, input: Value) -> Value {
    json!({"input": input, "tool": "bash", "tool_call_id": id, "session_id": session, "deadline_ms": null,
        "permission": {"mode": "always_allow", "future": []}, "future": "x"})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_registration_is_as_the_contract_says() {
    let (listener, url) = listen().await;
    let client = client(&url);
    client.tools().read(|_, _| std::future::ready(Ok::<_, ToolError>("")));
    start(&client);
    let mut peer = Peer::accept(&listener, V1_1).await;
    let request = peer.register().await;
    assert!(request["id"].is_string(), "{request}");
    let params = request["params"].as_object().unwrap();
    assert_eq!(params["protocol"], V1_1);
    assert_eq!(params["environment_id"], "");
    assert_eq!(params["executor"]["name"], "hand");
    assert_eq!(params["executor"]["labels"], json!(["gpu"]));
    for member in ["os", "arch", "version"] {
        assert!(params["executor"][member].as_str().is_some_and(|text| !text.is_empty()), "{member}");
    }
    assert_eq!(params["capabilities"]["files"]["enabled"], true);
    assert!(params["capabilities"].get("shell").is_none(), "absent means not supported");
    assert!(params.get("resume").is_none(), "there is nothing to resume");
    // A connection later there is.
    peer.assign("s").await;
    drop(peer);
    let mut peer = Peer::accept(&listener, V1_1).await;
    let request = peer.register().await;
    let resume = json!({"executor_id": "exec-7", "last_connection_id": "conn-1", "active_sessions": ["s"]});
    assert_eq!(request["params"]["resume"], resume);
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_acknowledged_first_and_its_result_is_sent_until_it_is_accepted() {
    let (listener, client, mut peer) = connected(|client| {
        client.tools().bash(|input, context| async move {
            context.progress("half way");
            Ok::<_, ToolError>(input.command)
        });
    })
    .await;
    peer.assign("s").await;
    let params = call("s", "c", json!({"command": "ls", "cwd": null, "future": 1}));
    peer.send(json!({"jsonrpc": "2.0", "id": 1, "method": "tool.call", "params": params})).await;
    let acknowledged = peer.next().await;
    assert_eq!(acknowledged, json!({"jsonrpc": "2.0", "id": 1, "result": {"accepted": true}}));
    let progress = peer.expect("tool.progress").await;
    assert_eq!(progress["params"], json!({"session_id": "s", "tool_call_id": "c", "message": "half way"}));
    // Busy, in both spellings; then refused in a way that passes.
    for error in [
        json!({"code": -32009, "message": "busy"}),
        json!({"code": -32004, "message": "slow"}),
        json!({"code": -32603, "message": "x", "data": {"retryable": true, "future": 1}}),
    ] {
        let result = peer.expect("tool.result").await;
        assert_eq!(result["params"]["content"], json!([{"type": "text", "text": "ls"}]));
        assert_eq!(result["params"]["outcome"], "succeeded");
        assert_eq!(result["params"]["is_error"], false);
        assert!(result["params"]["duration_ms"].is_i64());
        peer.refuse(&result, error).await;
    }
    let first = peer.expect("tool.result").await;
    // The connection is lost before the answer: that uses up no attempt.
    drop(peer);
    let mut peer = Peer::accept(&listener, V1_1).await;
    peer.register().await;
    let again = peer.serve("tool.result", json!({"accepted": true})).await;
    assert_eq!(again["params"], first["params"]);
    // A repeated call is answered with the recorded result.
    let repeated = peer.result_of(json!("again"), "tool.call", call("s", "c", json!({"command": "other"}))).await;
    assert_eq!(repeated, json!({"accepted": true}));
    let recorded = peer.serve("tool.result", json!({"accepted": true})).await;
    assert_eq!(recorded["params"], first["params"]);
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_refused_for_good_is_given_back() {
    logs::expect("a tool result could not be delivered");
    let lost = Arc::new(Mutex::new(Vec::new()));
    let (_listener, client, mut peer) = connected(|client| {
        client.tools().bash(|input, _| std::future::ready(Ok::<_, ToolError>(input.command)));
        let lost = Arc::clone(&lost);
        client.on_tool_result_lost(move |result, _| lost.lock().unwrap().push(result));
    })
    .await;
    peer.assign("s").await;
    peer.result_of(json!(1), "tool.call", call("s", "c", json!({"command": "kept"}))).await;
    let result = peer.expect("tool.result").await;
    peer.refuse(&result, json!({"code": -32001, "message": "no"})).await;
    eventually(client.runtime(), "it is given back", || !lost.lock().unwrap().is_empty()).await;
    let kept = lost.lock().unwrap().pop().unwrap();
    assert_eq!(kept.tool_call_id.as_str(), "c");
    client.report_tool_result(kept).unwrap();
    let again = peer.serve("tool.result", json!({"accepted": true})).await;
    assert_eq!(again["params"], result["params"]);
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_answered_by_the_contracts_codes() {
    let offers = Count::default();
    let (_listener, client, mut peer) = connected(|client| {
        client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("")));
        let offers = offers.clone();
        client
            .on_session_assign(move |_| {
                offers.add();
                std::future::ready(Ok(true))
            })
            .unwrap();
        client
            .on_session_stop(|stop: SessionStop| {
                let whole = stop.cause != StopCause::Requested("half".to_owned());
                std::future::ready(whole)
            })
            .unwrap();
    })
    .await;
    for (method, params) in [
        ("session.stop", json!({"session_id": "nobody's", "reason": ""})),
        ("tool.call", call("nobody's", "c", json!({"command": "x"}))),
        ("tool.cancel", json!({"session_id": "nobody's", "tool_call_id": "c"})),
    ] {
        let error = peer.error_of(json!(method), method, params).await;
        assert_eq!(error["code"], -32007, "{method}: {error}");
    }
    peer.assign("s").await;
    // Once more: accepted, nothing is set up again, and it is ready as before.
    peer.assign("s").await;
    assert_eq!(offers.value(), 1);
    let canceled = peer.result_of(json!(2), "tool.cancel", json!({"session_id": "s", "tool_call_id": "c"})).await;
    assert_eq!(canceled, json!({"canceled": false}));
    let stopped = peer.result_of(json!(3), "session.stop", json!({"session_id": "s", "reason": "half"})).await;
    assert_eq!(stopped, json!({"stopped": false}));
    let ended = peer.serve("session.ended", json!({"accepted": true})).await;
    assert_eq!(ended["params"]["session_id"], "s");
    peer.assign("t").await;
    let stopped =
        peer.result_of(json!(4), "session.stop", json!({"session_id": "t", "reason": "", "deadline_ms": 9})).await;
    assert_eq!(stopped, json!({"stopped": true}));
    peer.serve("session.ended", json!({"accepted": true})).await;
    eventually(client.runtime(), "both are over", || client.active_sessions().is_empty()).await;
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_is_answered_in_time_even_when_a_tool_does_not_end() {
    let (_listener, client, mut peer) = connected(|client| {
        client.tools().bash(|_, context| async move {
            // Asked to end, it takes until the client does.
            context.cancellation.canceled().await;
            tokio::time::sleep(Duration::from_millis(300)).await;
            Ok::<_, ToolError>(ToolOutput::canceled("late"))
        });
    })
    .await;
    peer.assign("s").await;
    peer.result_of(json!(1), "tool.call", call("s", "c", json!({"command": "x"}))).await;
    let asked = Instant::now();
    let params = json!({"session_id": "s", "reason": "", "deadline_ms": 50});
    assert_eq!(peer.result_of(json!(2), "session.stop", params).await, json!({"stopped": false}));
    assert!(asked.elapsed() >= Duration::from_millis(50));
    assert!(!peer.has_early("tool.result"), "it still runs");
    let result = peer.serve("tool.result", json!({"accepted": true})).await;
    assert_eq!(result["params"]["outcome"], "canceled");
    peer.serve("session.ended", json!({"accepted": true})).await;
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_tell_what_is_held_and_any_answer_is_life() {
    let (listener, url) = listen().await;
    let client = client(&url);
    start(&client);
    let mut peer = Peer::accept(&listener, V1_1).await;
    let request = peer.next().await;
    let mut result = registered();
    result["heartbeat_interval_ms"] = json!(20);
    result["lease_ttl_ms"] = json!(2_000);
    peer.reply(&request, result).await;
    peer.assign("s").await;
    let (mut beats, mut told) = (0, 0);
    // Those that were sent before the session was given do not name it.
    while told < 10 {
        let beat = peer.expect("executor.heartbeat").await;
        assert_eq!(beat["params"]["connection_id"], "conn-1");
        if told > 0 || beat["params"]["active_sessions"] != json!([]) {
            assert_eq!(beat["params"]["active_sessions"], json!(["s"]));
            told += 1;
        }
        beats += 1;
        match beats % 3 {
            0 => peer.refuse(&beat, json!({"code": -32601, "message": "what is that?"})).await,
            _ => peer.reply(&beat, json!({"server_time": "", "lease_ttl_ms": 2_000, "drain": false})).await,
        }
    }
    // A drain can come with an answer.
    let beat = peer.expect("executor.heartbeat").await;
    peer.reply(&beat, json!({"server_time": "", "lease_ttl_ms": 2_000, "drain": true})).await;
    let error = peer.error_of(json!("one more"), "session.assign", assignment("t")).await;
    assert_eq!((&error["code"], &error["data"]["retryable"]), (&json!(-32009), &json!(true)));
    drop(peer);
    client.stop("").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_harness_is_served_in_its_own_version() {
    let (listener, url) = listen().await;
    let client = client(&url);
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    start(&client);
    let mut peer = Peer::accept(&listener, V1).await;
    let request = peer.next().await;
    assert_eq!(request["params"]["protocol"], V1, "the version that the subprotocol says");
    let mut result = registered();
    let members = result.as_object_mut().unwrap();
    members.remove("protocol");
    members.remove("limits");
    peer.reply(&request, result).await;
    peer.assign("s").await;
    peer.result_of(json!(1), "tool.call", call("s", "c", json!({"command": "x"}))).await;
    peer.serve("tool.result", json!({"accepted": true})).await;
    finish(client, peer).await;
}

/// The close codes, and what the client makes of them.
#[tokio::test(flavor = "multi_thread")]
async fn closes_that_end_the_client_end_it() {
    for (code, end) in [(4003, None), (4004, Some(End::Replaced)), (4005, Some(End::Drained))] {
        let (_listener, client, mut peer) = connected(|_| {}).await;
        peer.close(code, "as the contract says").await;
        match (client.done().await, end) {
            (End::UnsupportedProtocol(reason), None) => assert!(reason.contains("as the contract says"), "{reason}"),
            (ended, end) => assert_eq!(Some(ended), end, "{code}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_closes_are_dialled_again() {
    let (listener, client, mut peer) = connected(|_| {}).await;
    for code in [1000, 1001, 1011, 4001, 4002, 4999] {
        peer.close(code, "").await;
        peer = Peer::accept(&listener, V1_1).await;
        peer.register().await;
    }
    // Gone without a word.
    drop(peer);
    let mut peer = Peer::accept(&listener, V1_1).await;
    peer.register().await;
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_refused_registrations_are_enough() {
    let (listener, url) = listen().await;
    let client = client(&url);
    start(&client);
    for refusal in 0..5 {
        let mut peer = Peer::accept(&listener, V1_1).await;
        let request = peer.expect("executor.register").await;
        if refusal % 2 == 0 {
            let error = json!({"code": -32012, "message": "no gpu", "data": {"reason": "capability_missing"}});
            peer.refuse(&request, error).await;
            peer.closed().await;
        } else {
            peer.close(4002, "no gpu").await;
        }
    }
    match client.done().await {
        End::RegistrationRefused { attempts: 5, reason } => assert!(reason.contains("no gpu"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_protocol_that_is_refused_is_final() {
    let (listener, url) = listen().await;
    let client = client(&url);
    start(&client);
    let mut peer = Peer::accept(&listener, V1_1).await;
    let request = peer.expect("executor.register").await;
    peer.refuse(&request, json!({"code": -32010, "message": "only v9 here"})).await;
    assert!(matches!(client.done().await, End::UnsupportedProtocol(reason) if reason.contains("only v9")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_that_closes_says_why() {
    let (_listener, client, mut peer) = connected(|_| {}).await;
    peer.send(json!({"jsonrpc": "2.0", "method": "executor.close", "params": {"reason": "bye", "future": 0}})).await;
    assert_eq!(client.done().await, End::ClosedByHarness("bye".to_owned()));
}
