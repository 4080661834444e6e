//! Getting a connection, and noticing that it is none any more.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bma_runtime::proto::contract::{ExecutorTokenResponse, Secret};
use bma_runtime::proto::executor::{End, StopCause, TokenError};
use bma_runtime::proto::harness::{Gone, Principal};
use bma_runtime::sync::{Event, Events};
use bma_runtime::{
    Authenticator, ClientEvent, ClientOptions, HarnessEvent, Runtime, SessionStop, TokenSource, ToolError,
};

use super::{Count, Rig, command, eventually, localhost, on_a_thread, options, text};
use crate::support::logs;
use crate::support::proxy::Way;
use crate::support::raw::{Raw, request_head};

/// Waits until a connection has failed, and says why.
async fn failure(events: &mut Events<ClientEvent>) -> String {
    loop {
        match events.next().await {
            Some(Event::Item(ClientEvent::Reconnecting { cause, .. })) => return cause,
            Some(_) => {}
            None => panic!("the client has ended"),
        }
    }
}

/// A port that nobody listens on.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Its start resolves once there is one.
pub async fn a_client_waits_for_a_harness_that_is_not_there_yet(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let port = free_port();
    let client = rig.client_of(options("machine", &format!("ws://127.0.0.1:{port}/"), &rig.token));
    let mut events = client.events();
    let started = {
        let client = client.clone();
        super::start(&rig.runtime, async move { client.start().await })
    };
    for _ in 0..3 {
        let cause = failure(&mut events).await;
        assert!(cause.contains(&format!("127.0.0.1:{port}")), "{cause}");
    }
    let listening = rig.harness.listen(&localhost(port)).await.unwrap();
    let registered = started.await.unwrap();
    client.wait_ready().await.unwrap();
    rig.executor(&registered.executor_id).await;
    listening.stop();
    rig.finish().await;
}

/// The last cause is in the end.
pub async fn a_client_gives_up_after_the_attempts_it_was_given(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let port = free_port();
    let mut options = options("machine", &format!("ws://127.0.0.1:{port}/"), &rig.token);
    options.max_reconnect_attempts = 3;
    let client = rig.client_of(options);
    match client.start().await.map(drop) {
        Err(End::ReconnectExhausted { attempts: 3, reason }) => {
            assert!(reason.contains(&port.to_string()), "{reason}");
        }
        other => panic!("another end: {other:?}"),
    }
    assert!(!client.done().await.is_orderly());
    assert!(client.wait_ready().await.is_err());
    rig.finish().await;
}

/// 401 each time; a fresh token may do better, but not for ever.
pub async fn a_wrong_token_is_refused_and_ends_the_client(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client_of(options("machine", &rig.url(), &Secret::from("not-the-token")));
    let mut events = client.events();
    let end = client.start().await.map(drop).unwrap_err();
    assert!(matches!(end, End::CredentialRejected(_)), "{end}");
    assert!(!end.to_string().contains("not-the-token"), "{end}");
    let cause = failure(&mut events).await;
    assert!(cause.contains("401") && !cause.contains("not-the-token"), "{cause}");
    assert!(rig.harness.executors().is_empty());
    // A token source that knows it is of no use says so, and the client does not even dial.
    let useless = TokenSource::new(|| std::future::ready(Err(TokenError::CredentialRejected("revoked".to_owned()))));
    let client = rig.client_of(ClientOptions::new("machine", useless));
    let end = client.start().await.map(drop).unwrap_err();
    assert!(matches!(&end, End::CredentialRejected(reason) if reason.contains("revoked")), "{end}");
    rig.finish().await;
}

/// It counts as a token that is not to be had now.
pub async fn a_token_source_that_panics_ends_nothing(runtime: Arc<dyn Runtime>) {
    logs::expect("the token source panicked");
    let rig = Rig::new(runtime).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let (url, token) = (rig.url(), rig.token.clone());
    let source = TokenSource::new(move || {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        assert!(number != 0, "a source of the user's");
        let token = ExecutorTokenResponse { ws_url: url.clone(), token: token.clone(), ..Default::default() };
        async move {
            assert!(number != 1, "the same, later");
            if number == 2 { Err(TokenError::Unavailable("not yet".to_owned())) } else { Ok(token) }
        }
    });
    let mut client_options = ClientOptions::new("machine", source);
    client_options.reconnect_base_delay = Duration::from_millis(1);
    let client = rig.client_of(client_options);
    let mut events = client.events();
    rig.join(&client).await;
    failure(&mut events).await;
    failure(&mut events).await;
    assert!(failure(&mut events).await.contains("not yet"));
    rig.finish().await;
}

/// More often than there are places for connections that are in their upgrade.
pub async fn an_authenticator_that_panics_lets_nobody_in_and_blocks_nobody(runtime: Arc<dyn Runtime>) {
    logs::expect("the authenticator panicked");
    let asked = AtomicUsize::new(0);
    let authenticator = Authenticator::new(move |_| {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        assert!(!number.is_multiple_of(2) || number > 9, "an authenticator of the user's");
        async move {
            assert!(number > 9, "the same, later");
            Ok(Principal::default())
        }
    });
    let rig = Rig::with(runtime, |options| {
        options.authenticator = authenticator;
        options.max_upgrading = 4;
    })
    .await;
    let client = rig.client();
    let mut events = client.events();
    rig.join(&client).await;
    assert!(failure(&mut events).await.contains("500"));
    rig.finish().await;
}

/// F61: the first one is long out of date.
pub async fn f61_a_token_is_fetched_for_every_dial(runtime: Arc<dyn Runtime>) {
    let issued = Arc::new(AtomicUsize::new(0));
    let newest = {
        let issued = Arc::clone(&issued);
        Authenticator::new(move |request| {
            let expected = format!("token-{}", issued.load(Ordering::SeqCst));
            let same = request.bearer.is_some_and(|shown| shown.matches(&expected));
            let answer =
                if same { Ok(Principal::default()) } else { Err(bma_runtime::Unauthorized::new("out of date")) };
            std::future::ready(answer)
        })
    };
    let rig = Rig::with(runtime, |options| options.authenticator = newest).await;
    let proxy = rig.proxy();
    let source = {
        let url = proxy.url();
        TokenSource::new(move || {
            let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
            let token = Secret::new(format!("token-{number}"));
            std::future::ready(Ok(ExecutorTokenResponse { ws_url: url.clone(), token, ..Default::default() }))
        })
    };
    let mut options = ClientOptions::new("machine", source);
    options.reconnect_base_delay = Duration::from_millis(1);
    let client = rig.client_of(options);
    rig.join(&client).await;
    let mut events = client.events();
    for _ in 0..3 {
        let connection = || client.registration().map(|registered| registered.connection_id);
        let before = connection();
        proxy.cut();
        let cause = failure(&mut events).await;
        assert!(!cause.contains("401"), "{cause}");
        eventually(&rig.runtime, "it is registered again", || connection() != before).await;
    }
    rig.finish().await;
}

/// How far an upgraded connection gets before it is closed.
#[derive(Clone, Copy)]
enum Until {
    Accepted,
    Upgraded,
    Registered,
}

/// F60: at none of the three steps does the back-off begin anew.
pub async fn f60_a_server_that_accepts_and_closes_is_dialled_ever_more_rarely(runtime: Arc<dyn Runtime>) {
    for until in [Until::Accepted, Until::Upgraded, Until::Registered] {
        let rig = Rig::new(Arc::clone(&runtime)).await;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dials = Count::default();
        let server = {
            let dials = dials.clone();
            thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    let mut raw = Raw::accepted(stream);
                    let Ok(head) = raw.read_head() else { return };
                    if head.starts_with("STOP") {
                        return;
                    }
                    dials.add();
                    if matches!(until, Until::Upgraded | Until::Registered) {
                        raw.upgrade(&head).unwrap();
                    }
                    if matches!(until, Until::Registered) {
                        let request: serde_json::Value = serde_json::from_str(&raw.read_text().unwrap()).unwrap();
                        let answer = serde_json::json!({"jsonrpc": "2.0", "id": request["id"], "result": {
                            "executor_id": "e", "connection_id": "c", "server_time": "", "drain": false,
                            "heartbeat_interval_ms": 15_000, "lease_ttl_ms": 45_000,
                            "max_control_frame_bytes": 65_536, "max_mcp_frame_bytes": 65_536}});
                        raw.text(&answer.to_string()).unwrap();
                    }
                }
            })
        };
        let mut options = options("machine", &format!("ws://{address}/"), &rig.token);
        options.reconnect_base_delay = Duration::from_millis(10);
        options.reconnect_max_delay = Duration::from_secs(60);
        let client = rig.client_of(options);
        let mut events = client.events();
        let begun = Instant::now();
        let _started = {
            let client = client.clone();
            super::start(&rig.runtime, async move { client.start().await })
        };
        let mut least = Duration::from_millis(5);
        for _ in 0..6 {
            let wait = loop {
                match events.next().await {
                    Some(Event::Item(ClientEvent::Reconnecting { wait, .. })) => break wait,
                    Some(_) => {}
                    None => panic!("the client has ended"),
                }
            };
            assert!(wait >= least && wait <= 2 * least, "{wait:?} is not from {least:?} to its double");
            least *= 2;
        }
        // The waits before the sixth dial alone take 5 + 10 + 20 + 40 + 80 ms.
        assert!(begun.elapsed() >= Duration::from_millis(155));
        assert_eq!(dials.value(), 6);
        client.stop("").await;
        Raw::dial(address).stream.write_all(b"STOP\r\n\r\n").unwrap();
        server.join().unwrap();
        rig.finish().await;
    }
}

/// F58: nothing is closed, and nothing comes any more.
pub async fn f58_a_silent_connection_is_noticed_by_both_ends(runtime: Arc<dyn Runtime>) {
    let rig = Rig::with(runtime, |options| {
        options.config.heartbeat_interval = Duration::from_millis(50);
        options.config.lease_ttl = Duration::from_millis(1600);
    })
    .await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    let executor = rig.join(&client).await;
    client.wait_ready().await.unwrap();
    // Its last result can arrive without its acknowledgement: then it counts as lost here.
    logs::expect("could not be delivered session_id=held");
    let session = rig.session(&executor, "held").await;
    let mut events = client.events();
    let held_at = Instant::now();
    proxy.hold(Way::Up);
    proxy.hold(Way::Down);
    let cause = failure(&mut events).await;
    assert!(cause.contains("heartbeat"), "{cause}");
    // One interval, then half of the lease; the rest is what a busy machine may add.
    assert!(held_at.elapsed() < Duration::from_secs(5), "noticed after {:?}", held_at.elapsed());
    // Its next connection is a new one, which is not held.
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    // One more exchange, and the result's acknowledgement has arrived before it.
    session.cancel_tool(&"nothing".into(), "").await.unwrap();
    // And when it does not come back: the lease ends it.
    let mut comings = rig.harness.events();
    proxy.refuse(true);
    proxy.hold(Way::Up);
    proxy.hold(Way::Down);
    loop {
        match comings.next().await {
            Some(Event::Item(HarnessEvent::Gone { gone, .. })) => break assert_eq!(gone, Gone::LeaseExpired),
            Some(_) => {}
            None => panic!("the harness is there"),
        }
    }
    rig.finish().await;
}

/// F64: whatever comes is life.
pub async fn f64_a_slow_connection_is_not_taken_for_a_dead_one(runtime: Arc<dyn Runtime>) {
    let rig = Rig::with(runtime, |options| {
        options.config.heartbeat_interval = Duration::from_millis(50);
        options.config.lease_ttl = Duration::from_secs(4);
    })
    .await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("x".repeat(40_000))));
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    // 18 results of 40 KB at 160 KB a second: more time than the lease, and twice what silence is granted.
    proxy.pace(Some(160_000));
    let mut calls = Vec::new();
    for _ in 0..18 {
        let session = session.clone();
        calls.push(super::start(&rig.runtime, async move { session.tools().bash(command("x")).await.unwrap() }));
    }
    for call in calls {
        let result = call.await;
        assert_eq!(text(&result).len(), 40_000);
    }
    assert_eq!(proxy.accepted(), 1, "the one connection was enough");
    rig.finish().await;
}

/// F62: the newer one wins, and the older one does not come back.
pub async fn f62_a_second_program_of_the_same_identity_takes_over(runtime: Arc<dyn Runtime>) {
    let pinned = Authenticator::new(|_| std::future::ready(Ok(Principal::pinned("the-machine".into()))));
    let rig = Rig::with(runtime, |options| options.authenticator = pinned).await;
    let proxy = rig.proxy();
    let first = rig.client_by(&proxy);
    let stops = Count::default();
    {
        let stops = stops.clone();
        first
            .on_session_stop(move |stop: SessionStop| {
                assert_eq!(stop.cause, StopCause::ExecutorEnded);
                stops.add();
                std::future::ready(true)
            })
            .unwrap();
    }
    let executor = rig.join(&first).await;
    rig.session(&executor, "s").await;
    let second = rig.client();
    second.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("the second")));
    second.start().await.unwrap();
    assert_eq!(first.done().await, End::Replaced);
    stops.reaches(1).await;
    assert_eq!(proxy.accepted(), 1, "it does not dial again");
    assert_eq!(executor.id().as_str(), "the-machine");
    eventually(&rig.runtime, "the first one's session is over", || executor.session_ids().is_empty()).await;
    let session = rig.session(&executor, "t").await;
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "the second");
    assert_eq!(rig.harness.executors().len(), 1);
    rig.finish().await;
}

/// Trying again would change nothing.
pub async fn a_harness_without_the_protocol_ends_the_client(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut raw = Raw::accept_plain(&listener).unwrap();
        let head = raw.read_head().unwrap();
        raw.upgrade_to(&head, None).unwrap();
        raw.read_to_close()
    });
    let client = rig.client_of(options("machine", &format!("ws://{address}/"), &rig.token));
    let end = client.start().await.map(drop).unwrap_err();
    assert!(matches!(end, End::UnsupportedProtocol(_)), "{end}");
    let _ = server.join().unwrap();
    // The other way round: a client that offers something else is not upgraded to anything it can use.
    let (address, head) = (rig.address(), request_head(rig.token.expose()).replace("bma.executor", "another"));
    let (answer, code) = on_a_thread(move || {
        let mut raw = Raw::dial(address);
        raw.stream.write_all(head.as_bytes()).unwrap();
        (raw.read_head().unwrap(), raw.read_to_close())
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 101") && !answer.contains("Sec-WebSocket-Protocol"), "{answer}");
    assert_eq!(code, Some(4003));
    rig.finish().await;
}
