//! JSON-RPC and WebSocket framing, as others write it. A harness of another
//! make is at the other end.

use std::sync::{Arc, Mutex};

use bma_runtime_tokio::{Client, ToolError};
use bma_tests::exchange_suite::{Count, options};
use bma_tests::support::logs;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use super::peer::{Peer, V1_1, listen, runtime};

/// A client that echoes commands and counts them, with one session.
async fn echo() -> (Client, Peer, Count, Arc<Mutex<Vec<String>>>) {
    let (listener, url) = listen().await;
    let client = Client::new(runtime(), options("hand", &url, &"".into())).unwrap();
    let (runs, ids) = (Count::default(), Arc::<Mutex<Vec<String>>>::default());
    {
        let (runs, ids) = (runs.clone(), Arc::clone(&ids));
        client.tools().bash(move |input, context| {
            runs.add();
            ids.lock().unwrap().push(context.tool_call_id.as_str().to_owned());
            std::future::ready(Ok::<_, ToolError>(input.command))
        });
    }
    let started = client.clone();
    tokio::spawn(async move { started.start().await.map(drop) });
    let mut peer = Peer::accept(&listener, V1_1).await;
    peer.register().await;
    peer.assign("s").await;
    (client, peer, runs, ids)
}

fn call(id: &str, command: &str) -> Value {
    json!({"session_id": "s", "tool_call_id": id, "tool": "bash", "input": {"command": command}})
}

async fn finish(client: Client, mut peer: Peer) {
    let stop = tokio::spawn(async move { client.stop("").await });
    // Whatever is still to be delivered, so that nothing is lost.
    while let Some(message) = peer.next_if_open().await {
        if message["method"] == "executor.close" {
            break;
        }
        if message.get("method").is_some() && message.get("id").is_some() {
            peer.reply(&message, json!({"accepted": true})).await;
        }
    }
    drop(peer);
    stop.await.unwrap();
    logs::assert_no_unexpected_error();
}

#[tokio::test(flavor = "multi_thread")]
async fn f68_ids_come_back_with_their_type_and_value() {
    let (client, mut peer, runs, _) = echo().await;
    let ids =
        ["7", "\"7\"", "\"a-b\"", "0", "-1", "9007199254740993", "18446744073709551615", "\"\"", "\"\\u0041\"", "null"];
    for (number, id) in ids.iter().enumerate() {
        let params = call(&format!("c{number}"), "x");
        peer.send_text(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tool.call","params":{params}}}"#)).await;
        // As text: a reader of JSON would not see the difference that counts.
        let answer = loop {
            let message = futures_util::StreamExt::next(&mut peer.socket).await.unwrap().unwrap();
            let Message::Text(text) = message else { continue };
            if !text.contains("\"method\"") {
                break text;
            }
            let request: Value = serde_json::from_str(&text).unwrap();
            peer.reply(&request, json!({"accepted": true})).await;
        };
        assert!(
            answer.contains(&format!(r#""id":{id},"#)) || answer.contains(&format!(r#""id":{id}}}"#)),
            "{id}: {answer}"
        );
        assert!(answer.contains(r#""accepted":true"#), "{id}: {answer}");
    }
    runs.reaches(ids.len()).await;
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f69_an_id_that_is_of_no_use_is_refused_before_anything_runs() {
    let (client, mut peer, runs, _) = echo().await;
    for id in ["{}", "1.5", "[1]", "true", "1e3"] {
        let params = call("c", "x");
        peer.send_text(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tool.call","params":{params}}}"#)).await;
        let answer = peer.answer_to(&Value::Null).await;
        assert_eq!(answer["error"]["code"], -32600, "{id}: {answer}");
    }
    assert_eq!(runs.value(), 0);
    assert_eq!(peer.result_of(json!(1), "tool.call", call("c", "x")).await, json!({"accepted": true}));
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn f67_separators_in_a_string_split_nothing() {
    let (client, mut peer, _, _) = echo().await;
    let text = "a\u{2028}b\u{2029}c\u{85}d\u{b}e\\nf";
    // Raw on the wire, as JSON allows.
    let raw = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{{"session_id":"s","tool_call_id":"c","tool":"bash",
           "input":{{"command":"{}"}}}}}}"#,
        text.replace('\u{b}', "\\u000b")
    );
    peer.send_text(&raw).await;
    let result = peer.serve("tool.result", json!({"accepted": true})).await;
    assert_eq!(result["params"]["content"][0]["text"], "a\u{2028}b\u{2029}c\u{85}d\u{b}e\nf");
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_that_are_no_request_are_answered_and_the_connection_goes_on() {
    let (client, mut peer, runs, _) = echo().await;
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    let deep_params = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{deep}}}"#);
    for (frame, code) in [
        ("", -32700),
        ("{", -32700),
        ("not json", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tool.call\",\"params\":{\"a\":\"\u{0}\"}}", -32700),
        ("null", -32600),
        ("1", -32600),
        ("\"x\"", -32600),
        ("[]", -32600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"tool.cancel","params":{}}]"#, -32600),
        ("{}", -32600),
        (r#"{"id":1,"method":"tool.call"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"tool.call","params":{}}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"no.such"}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"executor.register","params":{}}"#, -32601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tool.call"}"#, -32602),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tool.call","params":[]}"#, -32602),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tool.call","params":{"session_id":"s","tool":"bash","input":{}}}"#,
            -32602,
        ),
    ] {
        peer.send_text(frame).await;
        let answer = peer.next().await;
        assert_eq!(answer["error"]["code"], code, "{frame}: {answer}");
        assert!(answer["id"] == json!(1) || answer["id"].is_null(), "{frame}: {answer}");
    }
    peer.send_text(&deep).await;
    assert!(peer.next().await["error"]["code"].is_i64(), "too deep is answered too");
    peer.send_text(&deep_params).await;
    assert!(peer.next().await["error"]["code"].is_i64());
    // Notifications have no answer, whatever is wrong with them.
    for frame in [
        r#"{"jsonrpc":"2.0","method":"no.such","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"tool.call","params":{}}"#,
        r#"{"jsonrpc":"2.0","method":"executor.close","params":7}"#,
    ] {
        peer.send_text(frame).await;
    }
    // Answers to nothing.
    peer.send(json!({"jsonrpc": "2.0", "id": "12345", "result": {}})).await;
    peer.send(json!({"jsonrpc": "2.0", "id": {"a": 1}, "result": {}})).await;
    peer.send(json!({"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": ""}})).await;
    assert_eq!(peer.result_of(json!("last"), "tool.call", call("c", "x")).await, json!({"accepted": true}));
    assert!(runs.value() <= 1);
    finish(client, peer).await;
}

/// Pieces of a message, with pings between them and a character across a border.
#[tokio::test(flavor = "multi_thread")]
async fn messages_in_pieces_are_put_together() {
    let (client, mut peer, _, _) = echo().await;
    let text = json!({"jsonrpc": "2.0", "id": 1, "method": "tool.call", "params": call("c", "z\u{20ac}\u{1f600}")})
        .to_string();
    let bytes = text.into_bytes();
    let mut frames = Vec::new();
    for (number, byte) in bytes.iter().enumerate() {
        let kind = if number == 0 { Data::Text } else { Data::Continue };
        frames.push(Frame::message(vec![*byte], OpCode::Data(kind), number + 1 == bytes.len()));
        if number % 40 == 3 {
            frames.push(Frame::ping(vec![b'?']));
        }
    }
    peer.send_frames(frames).await;
    let result = peer.serve("tool.result", json!({"accepted": true})).await;
    assert_eq!(result["params"]["content"][0]["text"], "z\u{20ac}\u{1f600}");
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pings_are_answered_with_what_they_carry() {
    let (client, mut peer, _, _) = echo().await;
    for payload in [&b""[..], b"x", &[0xff; 125]] {
        futures_util::SinkExt::send(&mut peer.socket, Message::Ping(payload.to_vec().into())).await.unwrap();
        loop {
            let message = futures_util::StreamExt::next(&mut peer.socket).await.unwrap().unwrap();
            if let Message::Pong(echoed) = message {
                assert_eq!(&echoed[..], payload);
                break;
            }
        }
    }
    finish(client, peer).await;
}

/// F71: the limits are the project's own, and stated.
#[tokio::test(flavor = "multi_thread")]
async fn f71_a_frame_over_the_limit_is_refused_and_a_much_larger_one_closes() {
    let (client, mut peer, runs, ids) = echo().await;
    let fits = "x".repeat(65_536 - 200);
    assert_eq!(peer.result_of(json!(1), "tool.call", call("fits", &fits)).await, json!({"accepted": true}));
    peer.serve("tool.result", json!({"accepted": true})).await;
    for bytes in [65_537, 1 << 19] {
        let error = peer.error_of(json!(bytes), "tool.call", call("large", &"x".repeat(bytes))).await;
        assert_eq!(error["code"], -32006, "{error}");
    }
    assert_eq!(runs.value(), 1);
    assert_eq!(ids.lock().unwrap().as_slice(), ["fits"]);
    peer.send_text(&"x".repeat((1 << 20) + 1)).await;
    assert_eq!(peer.closed().await.map(|(code, _)| code), Some(1009));
    finish(client, peer).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn binary_messages_are_refused() {
    let (client, mut peer, _, _) = echo().await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tool.call", "params": call("c", "x")}).to_string();
    futures_util::SinkExt::send(&mut peer.socket, Message::binary(request.into_bytes())).await.unwrap();
    assert_eq!(peer.closed().await.map(|(code, _)| code), Some(1003));
    finish(client, peer).await;
}
