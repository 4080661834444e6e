//! What the protocol is carried by, beside a listener of the harness's own on TCP.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bma_runtime::proto::harness::Principal;
use bma_runtime::proto::websocket::{Role, Target, Upgraded, accept_key};
use bma_runtime::{Authenticator, Client, Endpoint, Harness, HarnessOptions, Runtime, Stream, ToolError};
use futures_lite::{AsyncReadExt, AsyncWriteExt};

use super::{Rig, address_of, command, localhost, on_a_thread, options, text};
use crate::adapter_suite::accept;
use crate::support::duplex::duplex;
use crate::support::raw::Raw;
use crate::support::watched::Watched;

/// One whole round: a session, a call, the end.
async fn use_it(rig: &Rig, harness: &Harness, client: &Client) {
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let registered = client.start().await.unwrap();
    let executor = harness.wait_executor().await;
    assert_eq!(*executor.id(), registered.executor_id);
    let session = rig.session(&executor, "s").await;
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    session.stop("").await.unwrap();
    client.stop("").await;
    executor.gone().await;
}

/// `unix://`, with a path.
pub async fn a_unix_socket_carries_the_protocol(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    if cfg!(unix) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("harness.sock");
        let listening = rig.harness.listen(&Endpoint::Unix(path.clone())).await.unwrap();
        let client = rig.client_of(options("machine", &listening.url(), &rig.token));
        use_it(&rig, &rig.harness, &client).await;
        listening.stop();
        assert!(!path.exists(), "the socket is removed");
    }
    rig.finish().await;
}

/// No socket at all.
pub async fn a_stream_in_memory_carries_the_protocol(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(Arc::clone(&runtime)).await;
    let harness = rig.harness.clone();
    let dialer = Box::new(move |_: &Endpoint| {
        let (near, far) = duplex();
        harness.serve_stream(Box::new(far));
        Ok(Box::new(near) as Box<dyn Stream>)
    });
    let watched = Watched::with_dialer(runtime, dialer);
    let client = Client::new(watched.clone(), options("machine", "ws://in.memory/", &rig.token)).unwrap();
    use_it(&rig, &rig.harness, &client).await;
    drop(client);
    watched.assert_all_over().await;
    drop(watched);
    rig.finish().await;
}

/// A tiny HTTP server: some pages, and one path where executors come in.
async fn http_server(runtime: Arc<dyn Runtime>, harness: Harness, token: String, connections: usize) -> SocketAddr {
    let mut listener = runtime.listen(&localhost(0)).await.unwrap();
    let address = address_of(listener.local_endpoint());
    let server = async move {
        for _ in 0..connections {
            let (mut stream, _) = accept(&mut listener).await;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).await.unwrap() == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if !head.starts_with("GET /executors") {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
                    .await
                    .unwrap();
                continue;
            }
            if header("Authorization: Bearer") != Some(token.as_str()) {
                stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                continue;
            }
            let accept = accept_key(header("Sec-WebSocket-Key:").unwrap());
            let protocol = header("Sec-WebSocket-Protocol:").unwrap().split(',').next().unwrap().to_owned();
            let answer = format!(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            let upgraded =
                Upgraded { role: Role::Server, protocol, target: Target::Control, limits: Default::default() };
            let principal = Principal::pinned("known-to-the-server".into());
            harness.serve_upgraded(stream, upgraded, principal);
        }
    };
    runtime.spawn(Box::pin(server));
    address
}

/// The server authenticates, and pins the identity.
pub async fn somebody_elses_http_server_hands_its_upgrades_over(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    // Its own authenticator is not asked: nobody would pass it.
    let refusing = Authenticator::new(|_| std::future::ready(Err(bma_runtime::Unauthorized::new("never"))));
    let harness = Harness::new(Arc::clone(&rig.runtime), HarnessOptions::new(refusing));
    let token = rig.token.expose().to_owned();
    let address = http_server(Arc::clone(&rig.runtime), harness.clone(), token, 4).await;
    let page = on_a_thread(move || {
        let mut raw = Raw::dial(address);
        raw.stream.write_all(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        raw.read_head().unwrap()
    });
    assert!(page.await.starts_with("HTTP/1.1 200"));
    let url = format!("ws://{address}/executors");
    let client = rig.client_of(options("machine", &url, &rig.token));
    use_it(&rig, &harness, &client).await;
    let again = rig.client_of(options("machine", &url, &rig.token));
    assert_eq!(again.start().await.unwrap().executor_id.as_str(), "known-to-the-server");
    let stranger = {
        let mut options = options("machine", &url, &"wrong".into());
        options.max_reconnect_attempts = 1;
        rig.client_of(options)
    };
    let end = stranger.start().await.map(drop).unwrap_err();
    assert!(end.to_string().contains("403"), "{end}");
    again.stop("").await;
    harness.close("").await;
    rig.finish().await;
}

/// It counts against the same time.
pub async fn a_connection_that_was_upgraded_elsewhere_must_register_in_time(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let mut harness_options = HarnessOptions::new(Authenticator::anybody());
    harness_options.channel.handshake_timeout = Duration::from_millis(50);
    let harness = Harness::new(Arc::clone(&rig.runtime), harness_options);
    let (mut near, far) = duplex();
    let protocol = crate::support::raw::PROTOCOL.to_owned();
    let upgraded = Upgraded { role: Role::Server, protocol, target: Target::Control, limits: Default::default() };
    harness.serve_upgraded(Box::new(far), upgraded, Principal::default());
    let mut bytes = [0; 2];
    near.read_exact(&mut bytes).await.unwrap();
    assert_eq!(bytes[0], 0x88, "a close frame");
    let mut payload = vec![0; usize::from(bytes[1])];
    near.read_exact(&mut payload).await.unwrap();
    assert_eq!(u16::from_be_bytes([payload[0], payload[1]]), 4002);
    drop(near);
    rig.finish().await;
}
