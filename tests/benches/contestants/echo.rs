//! The limit: tokio-tungstenite moves four frames a call, of the usual sizes, and reads none of them.
//! What is ready at the same time leaves in one write.

use std::time::{Duration, Instant};

use futures_util::{FutureExt, SinkExt, StreamExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::Contestant;

const CALL: usize = 220;
const CALL_ACK: usize = 90;
const RESULT: usize = 260;
const RESULT_ACK: usize = 80;

pub(crate) type Socket = WebSocketStream<TcpStream>;

/// Both ends of an upgraded connection over loopback.
pub(crate) async fn sockets() -> (Socket, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dialled = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    dialled.set_nodelay(true).unwrap();
    accepted.set_nodelay(true).unwrap();
    let (client, server) = tokio::join!(
        tokio_tungstenite::client_async("ws://127.0.0.1/", dialled),
        tokio_tungstenite::accept_async(accepted)
    );
    (client.unwrap().0, server.unwrap())
}

fn frame(length: usize) -> Message {
    Message::Text(Utf8Bytes::from("x".repeat(length)))
}

/// The next frame if it is there already.
fn ready(socket: &mut Socket) -> Option<Message> {
    socket.next().now_or_never().flatten().map(Result::unwrap)
}

/// The executor's end: answers every call with two frames.
async fn executor(mut socket: Socket) {
    let (ack, result) = (frame(CALL_ACK), frame(RESULT));
    while let Some(Ok(message)) = socket.next().await {
        let mut next = Some(message);
        while let Some(message) = next {
            if message.len() == CALL {
                socket.feed(ack.clone()).await.unwrap();
                socket.feed(result.clone()).await.unwrap();
            }
            next = ready(&mut socket);
        }
        socket.flush().await.unwrap();
    }
}

/// The harness's end: keeps `in_flight` calls open until `calls` have ended. The answer to a result leaves with the
/// call that follows it.
async fn harness(socket: &mut Socket, calls: usize, in_flight: usize) -> Vec<Duration> {
    let (call, ack) = (frame(CALL), frame(RESULT_ACK));
    let mut times = Vec::with_capacity(calls);
    let mut begun = Instant::now();
    for _ in 0..in_flight {
        socket.feed(call.clone()).await.unwrap();
    }
    let mut started = in_flight;
    socket.flush().await.unwrap();
    while times.len() < calls {
        let mut next = socket.next().await.map(Result::unwrap);
        while let Some(message) = next {
            if message.len() == RESULT {
                times.push(begun.elapsed());
                socket.feed(ack.clone()).await.unwrap();
                begun = Instant::now();
                if started < calls {
                    started += 1;
                    socket.feed(call.clone()).await.unwrap();
                }
            }
            next = ready(socket);
        }
        socket.flush().await.unwrap();
    }
    times
}

struct Order {
    calls: usize,
    in_flight: usize,
    done: oneshot::Sender<Vec<Duration>>,
}

pub(crate) struct Echo {
    orders: Mutex<mpsc::Sender<Order>>,
}

impl Echo {
    pub(crate) async fn connect() -> Self {
        let (client, mut server) = sockets().await;
        tokio::spawn(executor(client));
        let (orders, mut ordered) = mpsc::channel::<Order>(1);
        tokio::spawn(async move {
            while let Some(Order { calls, in_flight, done }) = ordered.recv().await {
                let _ = done.send(harness(&mut server, calls, in_flight).await);
            }
        });
        Self { orders: Mutex::new(orders) }
    }

    async fn run(&self, calls: usize, in_flight: usize) -> Vec<Duration> {
        let (done, times) = oneshot::channel();
        self.orders.lock().await.send(Order { calls, in_flight, done }).await.ok().unwrap();
        times.await.unwrap()
    }
}

impl Contestant for Echo {
    async fn one_at_a_time(&self, calls: usize) -> Vec<Duration> {
        self.run(calls, 1).await
    }

    async fn many(&self, calls: usize, in_flight: usize) {
        self.run(calls, in_flight).await;
    }
}
