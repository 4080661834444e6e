//! The other end: a WebSocket by tokio-tungstenite, and JSON without types.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::{Runtime, TokioRuntime};
use bma_tests::support::logs;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame, coding::CloseCode};
use tokio_tungstenite::tungstenite::{Error, Message};

/// How long the other end may take.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) const V1_1: &str = "bma.executor.v1.1";
pub(crate) const V1: &str = "bma.executor.v1";

/// The runtime of the test that runs.
pub(crate) fn runtime() -> Arc<dyn Runtime> {
    logs::record();
    Arc::new(TokioRuntime::current())
}

/// A port to serve executors on.
pub(crate) async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    (listener, url)
}

/// One connection, seen from the foreign end.
pub(crate) struct Peer {
    pub(crate) socket: WebSocketStream<TcpStream>,
    /// What came while something else was waited for.
    early: VecDeque<Value>,
}

impl Peer {
    /// The next executor, with the subprotocol given if it offers that.
    pub(crate) async fn accept(listener: &TcpListener, protocol: &'static str) -> Self {
        let (stream, _) = timeout(PATIENCE, listener.accept()).await.expect("nobody dialled").unwrap();
        #[allow(clippy::result_large_err, reason = "the library wants it so")]
        let choose = |request: &Request, mut response: Response| {
            let offered = request.headers().get("Sec-WebSocket-Protocol").unwrap().to_str().unwrap();
            assert!(offered.split(", ").any(|offer| offer == protocol), "{offered}");
            response.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(protocol));
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, choose).await.unwrap();
        Peer { socket, early: VecDeque::new() }
    }

    /// Dials a harness.
    pub(crate) async fn dial(url: &str, token: &str, protocol: &'static str) -> Result<Self, Error> {
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("Sec-WebSocket-Protocol", HeaderValue::from_static(protocol));
        request.headers_mut().insert("Authorization", format!("Bearer {token}").parse().unwrap());
        let host = url.strip_prefix("ws://").unwrap().split('/').next().unwrap().to_owned();
        let stream = TcpStream::connect(host).await.unwrap();
        let (socket, response) = tokio_tungstenite::client_async(request, stream).await?;
        assert_eq!(response.headers().get("Sec-WebSocket-Protocol").unwrap(), protocol);
        Ok(Peer { socket, early: VecDeque::new() })
    }

    /// The next message, whatever it is about.
    pub(crate) async fn next(&mut self) -> Value {
        match self.early.pop_front() {
            Some(value) => value,
            None => self.read().await,
        }
    }

    /// The next message, or none once the connection is gone.
    pub(crate) async fn next_if_open(&mut self) -> Option<Value> {
        match self.early.pop_front() {
            Some(value) => Some(value),
            None => self.read_or_close().await.ok(),
        }
    }

    /// The next message off the wire.
    async fn read(&mut self) -> Value {
        match self.read_or_close().await {
            Ok(value) => value,
            Err(close) => panic!("closed: {close:?}"),
        }
    }

    async fn read_or_close(&mut self) -> Result<Value, Option<(u16, String)>> {
        loop {
            let message = timeout(PATIENCE, self.socket.next()).await.expect("nothing came");
            match message {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    return Err(frame.map(|frame| (frame.code.into(), frame.reason.as_str().to_owned())));
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(other)) => panic!("{other:?}"),
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Reads until the connection is closed: the code and the reason.
    pub(crate) async fn closed(&mut self) -> Option<(u16, String)> {
        loop {
            if let Err(close) = self.read_or_close().await {
                // The answer to the close is under way in the library: let it go out.
                let _ = self.socket.flush().await;
                return close;
            }
        }
    }

    /// Writes a message.
    pub(crate) async fn send(&mut self, message: Value) {
        self.send_text(&message.to_string()).await;
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// Writes frames as they are.
    pub(crate) async fn send_frames(&mut self, frames: Vec<Frame>) {
        for frame in frames {
            self.socket.send(Message::Frame(frame)).await.unwrap();
        }
    }

    pub(crate) async fn close(&mut self, code: u16, reason: &str) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: reason.to_owned().into() };
        self.socket.send(Message::Close(Some(frame))).await.unwrap();
        // Reads the answer, and the end.
        while let Ok(Some(Ok(_))) = timeout(PATIENCE, self.socket.next()).await {}
    }

    /// The next request or notification of this method; other messages wait.
    pub(crate) async fn expect(&mut self, method: &str) -> Value {
        self.find(|message| message["method"] == method).await
    }

    /// The answer under this id; other messages wait.
    pub(crate) async fn answer_to(&mut self, id: &Value) -> Value {
        self.find(|message| message.get("method").is_none() && message["id"] == *id).await
    }

    async fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.early.iter().position(&wanted) {
            return self.early.remove(place).unwrap();
        }
        loop {
            let message = self.read().await;
            assert_eq!(message["jsonrpc"], "2.0", "{message}");
            if wanted(&message) {
                return message;
            }
            self.early.push_back(message);
        }
    }

    /// Nothing of this method has come so far.
    pub(crate) fn has_early(&self, method: &str) -> bool {
        self.early.iter().any(|message| message["method"] == method)
    }

    /// Sends a request under this id and waits for its answer.
    pub(crate) async fn ask(&mut self, id: Value, method: &str, params: Value) -> Value {
        // Members in another order than this project writes them.
        let (id_text, method, params) = (id.to_string(), json!(method), params.to_string());
        self.send_text(&format!(r#"{{"params":{params},"id":{id_text},"method":{method},"jsonrpc":"2.0"}}"#)).await;
        self.answer_to(&id).await
    }

    /// The result in an answer.
    pub(crate) async fn result_of(&mut self, id: Value, method: &str, params: Value) -> Value {
        let answer = self.ask(id, method, params).await;
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    /// The error in an answer.
    pub(crate) async fn error_of(&mut self, id: Value, method: &str, params: Value) -> Value {
        let answer = self.ask(id, method, params).await;
        assert!(answer.get("result").is_none(), "{answer}");
        answer["error"].clone()
    }

    /// Answers a request.
    pub(crate) async fn reply(&mut self, request: &Value, result: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "result": result})).await;
    }

    pub(crate) async fn refuse(&mut self, request: &Value, error: Value) {
        self.send(json!({"jsonrpc": "2.0", "id": request["id"], "error": error})).await;
    }

    /// Waits for a request of this method and answers it.
    pub(crate) async fn serve(&mut self, method: &str, result: Value) -> Value {
        let request = self.expect(method).await;
        self.reply(&request, result).await;
        request
    }

    /// As a harness: takes a registration, with members that nobody knows.
    pub(crate) async fn register(&mut self) -> Value {
        let request = self.next().await;
        assert_eq!(request["method"], "executor.register", "the first frame: {request}");
        self.reply(&request, registered()).await;
        request
    }

    /// As a harness: gives a session and takes its readiness.
    pub(crate) async fn assign(&mut self, id: &str) {
        let result = self.result_of(json!(format!("assign {id}")), "session.assign", assignment(id)).await;
        assert_eq!(result["accepted"], true, "{result}");
        let ready = self.serve("session.ready", json!({"accepted": true})).await;
        assert_eq!(ready["params"], json!({"session_id": id, "work_id": "w", "lease_token": "l"}));
    }
}

/// What a harness answers to a registration.
pub(crate) fn registered() -> Value {
    json!({
        "future": {"nested": [1, null]},
        "executor_id": "exec-7",
        "connection_id": "conn-1",
        "server_time": "2026-01-01T00:00:00Z",
        "heartbeat_interval_ms": 15_000,
        "lease_ttl_ms": 45_000,
        "max_control_frame_bytes": 65_536,
        "max_mcp_frame_bytes": 65_536,
        "drain": false,
        "protocol": V1_1,
        "limits": {"max_inflight_requests": 64, "max_concurrent_process_reads": 4, "max_process_read_bytes": 1024,
            "max_process_write_bytes": 1024, "max_processes_per_session": 8, "max_artifact_bytes": 1024, "more": 1},
    })
}

/// An assignment with the other name of the lease's token, and nulls.
pub(crate) fn assignment(id: &str) -> Value {
    json!({"session_id": id, "work_id": "w", "agent_id": null, "environment_id": "", "deadline_ms": null,
        "lease": {"lease_token": "l"}, "resources": null, "mcp_servers": null, "metadata": null, "future": true})
}

/// What an executor says of itself.
pub(crate) fn registration(protocol: &str) -> Value {
    json!({"resume": null, "future": 1, "capabilities": {"shell": {"enabled": true}, "files": null, "warp": {}},
        "executor": {"version": "0", "arch": "z80", "os": "cpm", "name": "old iron", "labels": null},
        "environment_id": "", "protocol": protocol})
}
