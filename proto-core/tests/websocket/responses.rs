//! Answers to an upgrade request that a client must not take for an upgrade.

use std::time::Duration;

use bma_proto_core::Time;
use bma_proto_core::websocket::{Channel, How, MAX_HEAD_BYTES, UpgradeError, Violation, accept_key};

use crate::support::*;

const NOW: Time = Time::ORIGIN;

/// A client that has asked, and the answer that would open its channel.
fn asking() -> (Channel, String) {
    let mut client = Channel::client(NOW, client_config()).unwrap();
    let request = String::from_utf8(transmitted(&mut client)).unwrap();
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    let answer = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: {V1_1}\r\n\r\n",
        accept_key(key)
    );
    (client, answer)
}

#[test]
fn an_answer_that_is_no_upgrade_fails() {
    let table: &[(&str, &str, &str)] = &[
        ("HTTP/1.1", "HTTP/1.0", "not HTTP/1.1"),
        ("HTTP/1.1", "SSH-2.0", "not HTTP/1.1"),
        ("Upgrade: websocket", "Upgrade: h2c", "Upgrade header"),
        ("Upgrade: websocket\r\n", "", "Upgrade header"),
        ("Connection: Upgrade", "Connection: close", "Connection header"),
        ("Sec-WebSocket-Accept: ", "Sec-WebSocket-Accept: x", "does not match"),
        ("Sec-WebSocket-Accept: ", "X-Accept: ", "does not match"),
        ("Sec-WebSocket-Accept: ", "Sec-WebSocket-Accept: x\r\nSec-WebSocket-Accept: ", "more than once"),
        ("Upgrade: w", "Sec-WebSocket-Extensions: permessage-deflate\r\nUpgrade: w", "extension"),
        ("Sec-WebSocket-Protocol: ", "Sec-WebSocket-Protocol: a\r\nSec-WebSocket-Protocol: ", "more than once"),
    ];
    for (from, to, telling) in table {
        let (mut client, answer) = asking();
        let answer = answer.replacen(from, to, 1);
        client.receive(NOW, answer.as_bytes());
        let said = drain(&mut client);
        let [Said::Closed(closed)] = said.as_slice() else { panic!("{to}: {said:?}") };
        let How::Upgrade(error @ UpgradeError::Answer(_)) = &closed.how else { panic!("{to}: {closed:?}") };
        assert!(error.to_string().contains(telling), "{to}: {error}");
    }
}

#[test]
fn a_subprotocol_that_was_not_offered_is_closed_with_4003() {
    for chosen in ["Sec-WebSocket-Protocol: bma.executor.v9\r\n", ""] {
        let (mut client, answer) = asking();
        let answer = answer.replace(&format!("Sec-WebSocket-Protocol: {V1_1}\r\n"), chosen);
        client.receive(NOW, answer.as_bytes());
        assert!(drain(&mut client).is_empty());
        let violation = Violation::Subprotocol { ours: "bma.executor.v1.1, bma.executor.v1".into() };
        assert_eq!(close_sent(&transmitted(&mut client)), (4003, violation.to_string()));
        client.receive(NOW, &frame(0x88, &4003u16.to_be_bytes(), false));
        assert_eq!(drain(&mut client), [closed(4003, &violation.to_string(), How::Violation(violation))]);
    }
}

#[test]
fn informational_answers_are_passed_over() {
    let (mut client, answer) = asking();
    let mut bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n".to_vec();
    bytes.extend_from_slice(answer.as_bytes());
    bytes.extend_from_slice(&frame(0x81, b"hi", false));
    let expected = [Said::Open(V1_1.into()), Said::Text("hi".into())];
    for at in 0..=bytes.len() {
        let (mut client, answer) = asking();
        let mut bytes = bytes.clone();
        // Each client has a key of its own.
        let start = bytes.windows(13).position(|window| window == b"HTTP/1.1 101 ").unwrap();
        bytes.splice(start..start + answer.len(), answer.into_bytes());
        client.receive(NOW, &bytes[..at]);
        client.receive(NOW, &bytes[at..]);
        assert_eq!(drain(&mut client), expected, "split at {at}");
    }
    client.receive(NOW, &bytes);
    assert_eq!(drain(&mut client), expected);
}

#[test]
fn a_rejection_carries_status_and_a_bounded_excerpt() {
    let long = format!("{}{TOKEN}", "x".repeat(1024 - 8));
    let table: &[(&str, u16, &str)] = &[
        ("401 Unauthorized\r\nContent-Length: 9\r\n\r\nbad token", 401, "bad token"),
        ("401 Unauthorized\r\nContent-Length: 9\r\n\r\nbad tokenHTTP/1.1 200 OK", 401, "bad token"),
        ("403 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbad\r\n6\r\n token\r\n0\r\n\r\n", 403, "bad token"),
        ("404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, ""),
        ("204 No Content\r\n\r\n", 204, ""),
        ("200 OK\r\nContent-Length: 1000000\r\n\r\n", 200, ""),
        ("302 Found\r\nLocation: /login\r\nContent-Length: 4\r\n\r\nmove", 302, "move"),
        ("500 Oops\r\n\r\n<html>\r\n\t<b>\x1b[31moops</b>", 500, "<html> <b> [31moops</b>"),
        (&format!("401 No\r\nContent-Length: 42\r\n\r\nAuthorization: Bearer {TOKEN} unknown"), 401, {
            "Authorization: Bearer (token) unknown"
        }),
        (&format!("500 Oops\r\n\r\n{long}"), 500, &"x".repeat(1024 - 8)),
    ];
    for (answer, status, body) in table {
        let rejected = UpgradeError::Rejected { status: *status, body: (*body).to_owned() };
        let answer = format!("HTTP/1.1 {answer}");
        for at in 0..=answer.len().min(120) {
            let (mut client, _) = asking();
            client.receive(NOW, &answer.as_bytes()[..at]);
            client.receive(NOW, &answer.as_bytes()[at..]);
            // A body of known length needs no end of the stream.
            if !client.is_over() {
                assert!(body.is_empty() || answer.contains("500"), "{answer}");
                client.end_of_stream(NOW);
            }
            assert_eq!(drain(&mut client), [upgrade_failed(rejected.clone())], "{answer:?} split at {at}");
        }
    }
}

#[test]
fn a_rejection_without_its_whole_body_is_told_at_the_deadline() {
    let (mut client, _) = asking();
    client.receive(NOW, b"HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\nlater");
    client.tick(NOW + Duration::from_secs(10));
    let rejected = UpgradeError::Rejected { status: 503, body: "later".into() };
    assert_eq!(drain(&mut client), [upgrade_failed(rejected)]);
}

#[test]
fn an_answer_is_bounded_and_must_come() {
    let (mut client, _) = asking();
    client.receive(NOW, b"HTTP/1.1 101 Switching Protocols\r\nX: ");
    for _ in 0..100 {
        client.receive(NOW, &[b'x'; 1000]);
        assert!(client.buffer_bytes() <= 3 * MAX_HEAD_BYTES);
    }
    assert_eq!(drain(&mut client), [upgrade_failed(UpgradeError::HeadTooLarge)]);

    let (mut client, answer) = asking();
    client.receive(NOW, &answer.as_bytes()[..answer.len() - 1]);
    client.end_of_stream(NOW);
    assert_eq!(drain(&mut client), [upgrade_failed(UpgradeError::Ended)]);
}
