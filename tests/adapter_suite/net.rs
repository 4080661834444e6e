//! TCP.

use std::io::{ErrorKind, IoSlice};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::time::Duration;

use bma_runtime::{Endpoint, Listener, Runtime, Stream};
use futures_lite::future::{or, zip};
use futures_lite::{AsyncReadExt, AsyncWriteExt};

use super::{accept, sleep};

const LARGE: usize = 8 << 20;

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.to_owned(), port }
}

fn port(listener: &dyn Listener) -> u16 {
    match listener.local_endpoint() {
        Endpoint::Tcp { port, .. } => *port,
        other => panic!("a TCP listener at {other}"),
    }
}

async fn listen(runtime: &Arc<dyn Runtime>) -> Box<dyn Listener> {
    runtime.listen(&tcp("127.0.0.1", 0)).await.unwrap()
}

async fn pair_through(
    runtime: &Arc<dyn Runtime>,
    listener: &mut Box<dyn Listener>,
    to: &Endpoint,
) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let (dialled, (accepted, _)) = zip(runtime.dial(to), accept(listener)).await;
    (dialled.unwrap(), accepted)
}

/// Both ends of a connection.
pub async fn tcp_pair(runtime: &Arc<dyn Runtime>) -> (Box<dyn Stream>, Box<dyn Stream>) {
    let mut listener = listen(runtime).await;
    let to = listener.local_endpoint().clone();
    pair_through(runtime, &mut listener, &to).await
}

/// Sends back what comes until the end, and then the end.
pub async fn echo(mut stream: Box<dyn Stream>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => break,
            n => stream.write_all(&buffer[..n]).await.unwrap(),
        }
    }
    stream.close().await.unwrap();
}

/// A large message through `dialled` and back, and the end after it.
pub async fn check_echo(runtime: &Arc<dyn Runtime>, dialled: Box<dyn Stream>, accepted: Box<dyn Stream>) {
    runtime.spawn(Box::pin(echo(accepted)));
    let sent: Vec<u8> = (0..LARGE).map(|n| (n % 251) as u8).collect();
    let (mut reader, mut writer) = futures_lite::io::split(dialled);
    let mut received = Vec::new();
    zip(
        async {
            writer.write_all(&sent).await.unwrap();
            writer.close().await.unwrap();
        },
        async { reader.read_to_end(&mut received).await.unwrap() },
    )
    .await;
    assert!(sent == received, "{} bytes came back, or others", received.len());
}

/// Closing the writing half ends the peer's reading and not the peer's writing.
pub async fn bytes_come_back_and_the_end_is_seen(runtime: Arc<dyn Runtime>) {
    let (dialled, accepted) = tcp_pair(&runtime).await;
    check_echo(&runtime, dialled, accepted).await;
}

/// `localhost` is often ::1 first, where nobody listens here.
pub async fn a_name_is_dialled_by_any_of_its_addresses(runtime: Arc<dyn Runtime>) {
    let mut listener = listen(&runtime).await;
    let to = tcp("localhost", port(&*listener));
    let (dialled, accepted) = pair_through(&runtime, &mut listener, &to).await;
    check_echo(&runtime, dialled, accepted).await;
}

/// An address without brackets.
pub async fn ipv6_works_where_the_system_has_it(runtime: Arc<dyn Runtime>) {
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return;
    }
    let mut listener = runtime.listen(&tcp("::1", 0)).await.unwrap();
    let to = listener.local_endpoint().clone();
    assert_eq!(to, tcp("::1", port(&*listener)));
    let (dialled, accepted) = pair_through(&runtime, &mut listener, &to).await;
    check_echo(&runtime, dialled, accepted).await;
}

/// Nothing is buffered without a bound.
pub async fn a_full_stream_makes_its_writer_wait(runtime: Arc<dyn Runtime>) {
    let (dialled, mut accepted) = tcp_pair(&runtime).await;
    check_back_pressure(&runtime, dialled).await;
    // And what it had written is there.
    let mut received = Vec::new();
    accepted.read_to_end(&mut received).await.unwrap();
    assert!(!received.is_empty());
}

/// Nobody reads what `stream` writes: it must stop long before all of it is written.
pub async fn check_back_pressure(runtime: &Arc<dyn Runtime>, mut stream: Box<dyn Stream>) {
    let chunk = vec![1; 64 << 10];
    let all = async {
        for _ in 0..1024 {
            stream.write_all(&chunk).await.unwrap();
        }
        true
    };
    let stopped = async {
        sleep(runtime, Duration::from_millis(200)).await;
        false
    };
    assert!(!or(all, stopped).await, "64 MiB were written to nobody");
}

/// One write for several slices.
pub async fn many_slices_are_written_in_order(runtime: Arc<dyn Runtime>) {
    let (mut dialled, mut accepted) = tcp_pair(&runtime).await;
    let slices = [IoSlice::new(b"one "), IoSlice::new(b""), IoSlice::new(b"two "), IoSlice::new(b"three")];
    assert_eq!(dialled.write_vectored(&slices).await.unwrap(), 13);
    let mut received = [0; 13];
    accepted.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"one two three");
}

/// The peer reads what was written, and then the end.
pub async fn a_stream_that_is_dropped_is_closed(runtime: Arc<dyn Runtime>) {
    let (mut dialled, mut accepted) = tcp_pair(&runtime).await;
    dialled.write_all(b"last words").await.unwrap();
    drop(dialled);
    let mut received = String::new();
    accepted.read_to_string(&mut received).await.unwrap();
    assert_eq!(received, "last words");
}

/// Closing with bytes unread resets a connection.
pub async fn a_connection_that_is_reset_says_so(runtime: Arc<dyn Runtime>) {
    let (mut dialled, accepted) = tcp_pair(&runtime).await;
    dialled.write_all(b"unread").await.unwrap();
    drop(accepted);
    let error = dialled.read(&mut [0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
}

/// They may all come before the first is accepted. Each has its peer's address.
pub async fn many_connections_are_all_accepted(runtime: Arc<dyn Runtime>) {
    const MANY: u8 = 150;
    let mut listener = listen(&runtime).await;
    let mut dialled = Vec::new();
    for n in 0..MANY {
        let mut stream = runtime.dial(listener.local_endpoint()).await.unwrap();
        stream.write_all(&[n]).await.unwrap();
        dialled.push(stream);
    }
    for n in 0..MANY {
        let (mut stream, peer) = accept(&mut listener).await;
        assert!(peer.starts_with("127.0.0.1:"), "{peer}");
        let mut received = [0];
        stream.read_exact(&mut received).await.unwrap();
        assert_eq!(received, [n]);
    }
}

/// And the first listener goes on.
pub async fn a_port_in_use_is_refused(runtime: Arc<dyn Runtime>) {
    let mut listener = listen(&runtime).await;
    let at = listener.local_endpoint().clone();
    let error = runtime.listen(&at).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    let (dialled, accepted) = pair_through(&runtime, &mut listener, &at).await;
    check_echo(&runtime, dialled, accepted).await;
}

/// The port of a dialled stream is nobody else's, and nobody listens there.
pub async fn a_port_that_nobody_listens_on_refuses(runtime: Arc<dyn Runtime>) {
    let mut listener = listen(&runtime).await;
    let (dialled, (_accepted, peer)) = zip(runtime.dial(listener.local_endpoint()), accept(&mut listener)).await;
    let taken = peer.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
    let error = runtime.dial(&tcp("127.0.0.1", taken)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    drop(dialled);
}

/// At once, and accepted streams live on.
pub async fn a_listener_that_is_dropped_frees_its_port(runtime: Arc<dyn Runtime>) {
    let mut listener = listen(&runtime).await;
    let at = listener.local_endpoint().clone();
    let (dialled, accepted) = pair_through(&runtime, &mut listener, &at).await;
    drop(listener);
    let again = runtime.listen(&at).await.unwrap();
    assert_eq!(again.local_endpoint(), &at);
    check_echo(&runtime, dialled, accepted).await;
}
