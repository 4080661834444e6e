//! Upgrade requests that a server must refuse, each with the status that tells why.

use bma_proto_core::Time;
use bma_proto_core::websocket::{Channel, MAX_HEAD_BYTES, Output, ServerConfig, Target, UpgradeError};

use crate::support::*;

const GOOD: &str = "GET /executors HTTP/1.1\r\n\
    Host: brain.example\r\n\
    Upgrade: websocket\r\n\
    Connection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: bma.executor.v1.1\r\n\
    \r\n";

/// What the server says to these bytes, and the status it ends with.
fn refusal(request: &[u8]) -> (String, u16) {
    let mut server = Channel::server(Time::ORIGIN, ServerConfig::default());
    server.receive(Time::ORIGIN, request);
    let said = drain(&mut server);
    let [Said::Closed(closed)] = said.as_slice() else { panic!("not refused: {said:?}") };
    let bma_proto_core::websocket::How::Upgrade(UpgradeError::Refused { status, .. }) = closed.how else {
        panic!("not refused: {closed:?}")
    };
    assert!(server.is_over());
    let answer = String::from_utf8(transmitted(&mut server)).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\nConnection: close\r\n"));
    assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
    // Whatever still comes changes nothing.
    server.receive(Time::ORIGIN, GOOD.as_bytes());
    assert!(server.poll().is_none() && transmitted(&mut server).is_empty());
    (answer, status)
}

#[test]
fn a_good_request_is_accepted_in_every_spelling() {
    for (from, to) in [
        ("Host", "hOST"),
        ("Upgrade: websocket", "Upgrade: h2c, WebSocket"),
        ("Connection: Upgrade", "Connection: keep-alive,  UPGRADE "),
        ("Connection: Upgrade", "Connection: keep-alive\r\nConnection: upgrade"),
        ("/executors", "http://brain.example/executors?channel=control"),
        ("bma.executor.v1.1\r\n", "other, \r\nSec-WebSocket-Protocol: ,bma.executor.v1.1\r\n"),
        ("Host:", "Content-Length: 0\r\nHost:"),
        ("Host:", "X-Latin: caf\u{e9}\r\nHost:"),
        ("", ""),
    ] {
        let request = GOOD.replacen(from, to, 1);
        let mut server = Channel::server(Time::ORIGIN, ServerConfig::default());
        server.receive(Time::ORIGIN, request.as_bytes());
        let Some(Output::AuthRequired(found)) = server.poll() else { panic!("refused: {request}") };
        assert_eq!((found.path.as_str(), &found.target), ("/executors", &Target::Control));
        assert_eq!(found.protocol.as_deref(), Some(V1_1));
        assert_eq!(found.bearer, None);
        server.accept(Time::ORIGIN).unwrap();
        let answer = String::from_utf8(transmitted(&mut server)).unwrap();
        assert!(answer.contains("\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
    }
}

#[test]
fn malformed_requests_are_refused_with_a_telling_status() {
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let table: &[(&str, &str, u16, &str)] = &[
        ("GET /", "POST /", 405, "GET request"),
        ("HTTP/1.1", "HTTP/1.0", 505, "HTTP/1.1"),
        ("HTTP/1.1", "HTTP/2.0", 505, "HTTP/1.1"),
        ("HTTP/1.1", "SMTP/1.1", 505, "HTTP/1.1"),
        ("GET /", "\u{16}\u{3}\u{1} /", 400, "no HTTP request"),
        ("Host: brain.example\r\n", "", 400, "Host header is missing"),
        ("Host: brain.example\r\n", "Host: a\r\nHost: b\r\n", 400, "host header stands more than once"),
        ("Host: brain", "Host : brain", 400, "no HTTP request"),
        ("Upgrade: websocket\r\n", "", 426, "WebSocket endpoint"),
        ("Upgrade: websocket", "Upgrade: h2c", 426, "must name websocket"),
        ("Connection: Upgrade\r\n", "", 400, "Connection header"),
        ("Connection: Upgrade", "Connection: close", 400, "Connection header"),
        ("Version: 13", "Version: 8", 426, "must be 13"),
        ("Version: 13", "Version: 13, 8", 426, "must be 13"),
        ("Version: 13\r\n", "Version: 13\r\nSec-WebSocket-Version: 13\r\n", 400, "more than once"),
        ("Sec-WebSocket-Version: 13\r\n", "", 426, "must be 13"),
        (key, "", 400, "16 bytes in base64"),
        (key, "Sec-WebSocket-Key: dGhlIHNhbXBsZQ==\r\n", 400, "16 bytes in base64"),
        (key, "Sec-WebSocket-Key: ????????????????????????\r\n", 400, "16 bytes in base64"),
        (key, &format!("{key}{key}"), 400, "more than once"),
        ("Host:", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\nHost:", 400, "more than once"),
        ("Host:", "Content-Length: 5\r\nHost:", 400, "no body"),
        ("Host:", "Transfer-Encoding: chunked\r\nHost:", 400, "no body"),
        ("Protocol: bma", "Protocol: a b, bma", 400, "list of tokens"),
        ("Host:", " folded: line\r\nHost:", 400, "no HTTP request"),
        ("/executors", "executors", 400, "path and a query"),
        ("/executors", "*", 400, "path and a query"),
        ("/executors", "/executors?channel=video", 400, "unknown channel"),
        ("/executors", "/executors?channel=mcp&session_id=s", 400, "needs session_id and server_key"),
        ("/executors", "/executors?channel=mcp&session_id=%ff&server_key=k", 400, "percent-encoded"),
        ("/executors", "/executors?channel=control&channel=mcp", 400, "only once"),
    ];
    for (from, to, status, telling) in table {
        let request = GOOD.replacen(from, to, 1);
        assert_ne!(request, GOOD, "{from} is not in the request");
        let (answer, ended) = refusal(request.as_bytes());
        assert_eq!(ended, *status, "{to}: {answer}");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{to}: {answer}");
        assert!(answer.contains(telling), "{to}: {answer}");
    }
}

#[test]
fn a_refusal_says_how_it_would_be_done() {
    let (answer, _) = refusal(GOOD.replace("Version: 13", "Version: 7").as_bytes());
    assert!(answer.contains("\r\nSec-WebSocket-Version: 13\r\n"));
    let (answer, _) = refusal(GOOD.replace("GET", "PUT").as_bytes());
    assert!(answer.contains("\r\nAllow: GET\r\n"));
}

#[test]
fn a_head_is_bounded() {
    let padded = |length: usize| GOOD.replacen("Host:", &format!("X-Pad: {}\r\nHost:", "x".repeat(length)), 1);
    let room = MAX_HEAD_BYTES - padded(0).len();
    let mut server = Channel::server(Time::ORIGIN, ServerConfig::default());
    server.receive(Time::ORIGIN, padded(room).as_bytes());
    assert_eq!(drain(&mut server), [Said::Request]);
    assert_eq!(refusal(padded(room + 1).as_bytes()).1, 431);
    assert_eq!(refusal(&[b'A'; 100_000]).1, 431);
    let many = GOOD.replacen("Host:", &format!("{}Host:", "X-A: b\r\n".repeat(64)), 1);
    assert_eq!(refusal(many.as_bytes()).1, 431);

    // Byte by byte, a head that never ends holds no more than the bound.
    let mut server = Channel::server(Time::ORIGIN, ServerConfig::default());
    let endless = format!("GET / HTTP/1.1\r\nX-Pad: {}", "x".repeat(MAX_HEAD_BYTES));
    for byte in endless.as_bytes() {
        server.receive(Time::ORIGIN, &[*byte]);
        assert!(server.buffer_bytes() <= 2 * MAX_HEAD_BYTES);
    }
    assert!(server.is_over());
}

#[test]
fn tokens_of_other_schemes_are_not_bearer_tokens() {
    for (header, token) in [
        ("Basic dXNlcjpwdw==", None),
        ("Bearer", None),
        ("bearer   abc", Some("abc")),
        ("BEARER a.b-c~d+e/f=", Some("a.b-c~d+e/f=")),
    ] {
        let request = GOOD.replacen("Host:", &format!("Authorization: {header}\r\nHost:"), 1);
        let mut server = Channel::server(Time::ORIGIN, ServerConfig::default());
        server.receive(Time::ORIGIN, request.as_bytes());
        let Some(Output::AuthRequired(found)) = server.poll() else { panic!("refused: {header}") };
        assert_eq!(found.bearer.as_ref().map(|bearer| bearer.expose()), token);
    }
}
