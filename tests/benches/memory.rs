//! The heap that a connection costs on the harness, counted byte by byte.
//!
//! The executors' end are plain blocking sockets that hold nothing on the heap, so what is counted is the harness:
//! its tasks, machines, tables and buffers. Each has one session, one tool call behind it, and then one frame of
//! 256 KiB, which is over the frame limit and answered with an error.
//!
//! This is a bench of its own because counting slows allocation for everybody.
//! `cargo bench -p bma-tests --bench memory`; `-- --quick` for a smoke run.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench panics on purpose")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::proto::contract::{Json, Secret, SessionAssignParams, SessionId, ToolCallParams, ToolName};
use bma_runtime_tokio::{Authenticator, Endpoint, Executor, Harness, HarnessOptions, Session, TokioRuntime};
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use support::{INPUT, TEXT, Target, verdict};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const TOKEN: &str = "a-token-of-the-bench";
const LARGE_FRAME: usize = 256 * 1024;

/// An executor's end of a connection: no more than a socket.
struct Socket(TcpStream);

impl Socket {
    fn connect(address: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let request = format!(
            "GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: bma.executor.v1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
        Self(stream)
    }

    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let mut frame = vec![0x81];
        match text.len() {
            short @ ..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
            medium @ ..0x1_0000 => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(medium).unwrap().to_be_bytes());
            }
            long => {
                frame.push(0x80 | 127);
                frame.extend((long as u64).to_be_bytes());
            }
        }
        // A mask of zeros changes nothing.
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.0.write_all(&frame).unwrap();
    }

    fn receive(&mut self) -> Value {
        let mut head = [0; 2];
        self.0.read_exact(&mut head).unwrap();
        assert_eq!(head[0], 0x81, "a whole text frame");
        let length = match head[1] {
            126 => {
                let mut length = [0; 2];
                self.0.read_exact(&mut length).unwrap();
                usize::from(u16::from_be_bytes(length))
            }
            short => usize::from(short),
        };
        let mut text = vec![0; length];
        self.0.read_exact(&mut text).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Receives a request of this method, and gives its id and params.
    fn asked(&mut self, method: &str) -> (Value, Value) {
        let mut request = self.receive();
        assert_eq!(request["method"], method);
        (request["id"].take(), request["params"].take())
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({"jsonrpc": "2.0", "id": "1", "method": method, "params": params}));
        self.receive()["result"].take()
    }

    fn register(&mut self) {
        let executor = json!({"name": "bench", "os": "linux", "arch": "amd64", "version": "1", "labels": []});
        let capabilities = json!({"shell": {"enabled": true}});
        let params = json!({"protocol": "bma.executor.v1.1", "environment_id": "", "executor": executor, "capabilities": capabilities});
        assert!(self.request("executor.register", params)["executor_id"].is_string());
    }

    fn take_session(&mut self) {
        let (id, params) = self.asked("session.assign");
        let session = &params["session_id"];
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"accepted": true, "session_id": session}}));
        let token = &params["lease"]["token"];
        let ready = json!({"session_id": session, "work_id": params["work_id"], "lease_token": token});
        assert_eq!(self.request("session.ready", ready)["accepted"], true);
    }

    fn answer_call(&mut self) {
        let (id, params) = self.asked("tool.call");
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"accepted": true}}));
        let result = json!({
            "session_id": params["session_id"], "tool_call_id": params["tool_call_id"], "outcome": "succeeded",
            "is_error": false, "content": [{"type": "text", "text": TEXT}], "duration_ms": 1,
        });
        assert_eq!(self.request("tool.result", result)["accepted"], true);
    }

    fn send_large_frame(&mut self) {
        let message = json!({"jsonrpc": "2.0", "id": "1", "method": "session.status", "params": {"session_id": ""}});
        let padding = "x".repeat(LARGE_FRAME - message.to_string().len());
        self.send(&json!({"params": {"session_id": padding}, "jsonrpc": "2.0", "id": "1", "method": "session.status"}));
        assert_eq!(self.receive()["error"]["code"], -32006);
    }
}

/// The heap in use, once nothing moves any more.
fn settled() -> usize {
    let mut last = HEAP.current_usage();
    let mut unchanged = 0;
    while unchanged < 5 {
        std::thread::sleep(Duration::from_millis(5));
        let now = HEAP.current_usage();
        unchanged = if now == last { unchanged + 1 } else { 0 };
        last = now;
    }
    last
}

struct Bench {
    tokio: Runtime,
    harness: Harness,
    address: String,
    sockets: Vec<Socket>,
    sessions: Vec<Session>,
}

impl Bench {
    fn connect(&mut self, connections: usize) {
        for _ in 0..connections {
            let mut socket = Socket::connect(&self.address);
            socket.register();
            self.sockets.push(socket);
        }
    }

    /// One session for every executor that has none.
    fn open_sessions(&mut self) {
        let sockets = &mut self.sockets;
        let answering = std::thread::scope(|scope| {
            let without = |executor: &Executor| executor.session_ids().is_empty();
            let executors: Vec<_> = self.harness.executors().into_iter().filter(without).collect();
            let first = sockets.len() - executors.len();
            let answers = scope.spawn(move || sockets[first..].iter_mut().for_each(Socket::take_session));
            let mut sessions = Vec::new();
            let assign = async |executor: Executor| {
                let session_id = SessionId::from("sess_01J9ZQ4T7R8X2M5N000001");
                let params = SessionAssignParams { session_id, ..SessionAssignParams::default() };
                let session = executor.assign(params).await.unwrap();
                session.ready().await.unwrap();
                session
            };
            let all = executors.into_iter().map(assign);
            sessions.extend(self.tokio.block_on(futures_util::future::join_all(all)));
            answers.join().unwrap();
            sessions
        });
        self.sessions.extend(answering);
    }

    /// One call in every session.
    fn call(&mut self) {
        let sockets = &mut self.sockets;
        std::thread::scope(|scope| {
            scope.spawn(move || sockets.iter_mut().for_each(Socket::answer_call));
            let calls = self.sessions.iter().map(async |session| {
                let input = Json::from_text(INPUT.to_owned()).unwrap();
                let params = ToolCallParams { tool: ToolName::Bash, input, ..ToolCallParams::default() };
                session.call_tool(params).await.unwrap();
            });
            self.tokio.block_on(futures_util::future::join_all(calls));
        });
    }
}

fn main() {
    let connections = if support::is_quick() { 50 } else { 1000 };
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (harness, listening) = tokio.block_on(async {
        let runtime = Arc::new(TokioRuntime::current());
        let authenticator = Authenticator::bearer(Secret::new(TOKEN.to_owned()));
        let harness = Harness::new(runtime, HarnessOptions::new(authenticator));
        let listening = harness.listen(&Endpoint::Tcp { host: "127.0.0.1".into(), port: 0 }).await.unwrap();
        (harness, listening)
    });
    let address = listening.endpoint().to_string();
    let all = connections + WARM_UP;
    let (sockets, sessions) = (Vec::with_capacity(all), Vec::with_capacity(all));
    let mut bench = Bench { tokio, harness, address, sockets, sessions };
    // The first connections bring what all share: threads' scratch buffers, the reactor's tables.
    bench.connect(WARM_UP);
    let before = settled();
    let per_connection = |heap: usize| (heap - before) as f64 / connections as f64 / 1024.0;
    bench.connect(connections);
    let registered = per_connection(settled());
    bench.open_sessions();
    let with_session = per_connection(settled());
    bench.call();
    let after_call = per_connection(settled());
    bench.sockets.iter_mut().for_each(Socket::send_large_frame);
    let after_large = per_connection(settled());

    println!("memory: {connections} connections; heap of the harness for each, in KiB");
    println!("  {:<58} {registered:>6.2}", "registered, idle");
    println!("  {:<58} {with_session:>6.2}", "with a session");
    verdict("after a tool call", after_call, Target::AtMost(10.0, 10.0));
    verdict("after one frame of 256 KiB", after_large, Target::AtMost(14.0, 14.0));
}

const WARM_UP: usize = 8;
