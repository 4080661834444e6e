//! Hostile harnesses against the client.

use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use bma_runtime_tokio::Client;
use bma_runtime_tokio::proto::executor::End;
use bma_tests::exchange_suite::on_a_thread;
use bma_tests::support::logs;
use bma_tests::support::raw::{Raw, opcode};
use bma_tests::support::watched::Watched;

use super::attacks::{FRAMES, MESSAGES, noise};
use super::support::{accept, id_of, registration, reset, runtime, victim};

fn begin(client: &Client) {
    let client = client.clone();
    tokio::spawn(async move { client.start().await.map(drop) });
}

async fn finish(client: Client, watched: std::sync::Arc<Watched>) {
    assert_eq!(client.stop("").await, End::Stopped);
    drop(client);
    watched.assert_all_over().await;
    assert!(!logs::contains("a-token"));
    logs::assert_no_unexpected_error();
}

/// Assigns a session, calls a tool, and takes the result: the client is unharmed.
fn works(raw: &mut Raw) {
    raw.text(
        r#"{"jsonrpc":"2.0","id":1,"method":"session.assign","params":{"session_id":"s","work_id":"w",
            "environment_id":"","lease":{"token":"l"}}}"#,
    )
    .unwrap();
    while !raw.read_text().unwrap().contains(r#""accepted":true"#) {}
    raw.text(
        r#"{"jsonrpc":"2.0","id":2,"method":"tool.call","params":{"session_id":"s","tool_call_id":"c","tool":"bash",
            "input":{"command":"unharmed"}}}"#,
    )
    .unwrap();
    let result = loop {
        let text = raw.read_text().unwrap();
        if text.contains("unharmed") {
            break text;
        }
    };
    raw.text(&format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"accepted":true}}}}"#, id_of(&result))).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_the_upgrade_that_are_none_are_tried_again() {
    let watched = Watched::new(runtime());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = victim(&watched, &listener);
    begin(&client);
    on_a_thread(move || {
        for answer in [
            noise(4096),
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec(),
            b"HTTP/1.1 101 Switching Protocols\r\n\r\n".to_vec(),
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\n\r\n"
                .to_vec(),
            b"HTTP/1.1 302 Found\r\nLocation: http://example.com/?a-token\r\n\r\n".to_vec(),
            b"HTTP/1.1 503 Busy\r\n\r\n".to_vec(),
            format!("HTTP/1.1 500 a-token\r\nContent-Length: 1000000\r\n\r\n{}", "a-token ".repeat(10_000))
                .into_bytes(),
            format!("HTTP/1.1 101 x\r\nX: {}\r\n\r\n", "x".repeat(100_000)).into_bytes(),
            b"HTTP/1.1 101".to_vec(),
            Vec::new(),
        ] {
            let mut raw = Raw::accept_plain(&listener).unwrap();
            raw.read_head().unwrap();
            let _ = raw.stream.write_all(&answer);
            let _ = raw.stream.shutdown(std::net::Shutdown::Write);
        }
        reset(Raw::accept_plain(&listener).unwrap().stream);
        works(&mut accept(&listener).unwrap());
    })
    .await;
    finish(client, watched).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_to_the_registration_that_are_none_are_tried_again() {
    let watched = Watched::new(runtime());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = victim(&watched, &listener);
    begin(&client);
    on_a_thread(move || {
        for change in [
            |answer: String| answer.replace("result", "error"),
            |answer: String| answer.replace("result", "future"),
            |answer: String| answer.replace(r#""executor_id":"e","#, ""),
            |answer: String| answer.replace(r#""e""#, r#""""#),
            |answer: String| answer.replace("15000", "1.5"),
            |answer: String| answer.replace("45000", "1e999"),
            |answer: String| answer[..answer.len() / 2].to_owned(),
            |_| r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}"#.to_owned(),
            |_| "[]".to_owned(),
            // Other things first: they are refused, and the registration runs out of time.
            |_| {
                r#"{"jsonrpc":"2.0","id":1,"method":"session.assign","params":{"session_id":"s","work_id":"w",
                "environment_id":"","lease":{"token":"l"}}}"#
                    .to_owned()
            },
        ] as [fn(String) -> String; 10]
        {
            let mut raw = Raw::accept(&listener).unwrap();
            let request = raw.read_text().unwrap();
            raw.text(&change(registration(&request))).unwrap();
            raw.read_to_close();
        }
        // Numbers that mean nothing are put up with.
        let mut raw = Raw::accept(&listener).unwrap();
        let request = raw.read_text().unwrap();
        let absurd = registration(&request)
            .replace("15000", "0")
            .replace("45000", "-1")
            .replace(r#""max_control_frame_bytes":65536"#, r#""max_control_frame_bytes":9223372036854775807"#);
        raw.text(&absurd).unwrap();
        works(&mut raw);
    })
    .await;
    finish(client, watched).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn attacks_end_one_connection_and_the_client_comes_back() {
    let watched = Watched::new(runtime());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = victim(&watched, &listener);
    begin(&client);
    on_a_thread(move || {
        for (name, attack) in FRAMES.iter().chain(MESSAGES) {
            let mut raw = accept(&listener).unwrap_or_else(|error| panic!("{name}: {error}"));
            let mut writer = raw.another();
            let writer = thread::spawn(move || {
                let _ = attack(&mut writer);
                let _ = writer.write(true, opcode::CLOSE, &[0x03, 0xe8]);
                let _ = writer.stream.shutdown(std::net::Shutdown::Write);
            });
            raw.read_to_close();
            writer.join().unwrap();
            reset(raw.stream);
        }
        works(&mut accept(&listener).unwrap());
    })
    .await;
    finish(client, watched).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resets_in_every_phase_are_dialled_again() {
    let watched = Watched::new(runtime());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = victim(&watched, &listener);
    begin(&client);
    on_a_thread(move || {
        for _ in 0..4 {
            reset(Raw::accept_plain(&listener).unwrap().stream);
            let mut raw = Raw::accept_plain(&listener).unwrap();
            raw.read_head().unwrap();
            reset(raw.stream);
            reset(Raw::accept(&listener).unwrap().stream);
            let mut raw = Raw::accept(&listener).unwrap();
            raw.read_text().unwrap();
            reset(raw.stream);
            let mut raw = accept(&listener).unwrap();
            works(&mut raw);
            raw.stream.write_all(&[0x81, 0x7e]).unwrap();
            reset(raw.stream);
        }
        works(&mut accept(&listener).unwrap());
    })
    .await;
    finish(client, watched).await;
}

/// A byte now and then: the upgrade has its time all the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_never_ends_has_its_time() {
    let watched = Watched::new(runtime());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = victim(&watched, &listener);
    begin(&client);
    on_a_thread(move || {
        let mut raw = Raw::accept_plain(&listener).unwrap();
        raw.read_head().unwrap();
        raw.stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nX: ").unwrap();
        while raw.stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
        works(&mut accept(&listener).unwrap());
    })
    .await;
    finish(client, watched).await;
}
