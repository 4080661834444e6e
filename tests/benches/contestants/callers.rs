//! The plain reference: tokio-tungstenite, serde_json, a table of what is pending, and on the executor a task for
//! each call. It speaks the same four frames; it has no deadlines, retries, bounds, sessions or recovery.
//! One task owns each end's socket; what is queued at the same time leaves in one write.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{FutureExt, SinkExt, StreamExt};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::Message;

use super::echo::{Socket, sockets};
use super::{Caller, Contestant, at_once, in_turn};
use crate::support::plain::{Ack, Block, Envelope, ToolCall, ToolResult, write_ack, write_request};
use crate::support::{INPUT, TEXT};

const SESSION: &str = "sess_01J9ZQ4T7R8X2M5N000001";

/// One end: what it sends, and who waits for what.
struct End {
    outgoing: mpsc::UnboundedSender<String>,
    next_id: AtomicU64,
    requests: Mutex<HashMap<String, oneshot::Sender<bool>>>,
    results: Mutex<HashMap<String, oneshot::Sender<ToolResult>>>,
}

impl End {
    fn new() -> (Arc<Self>, mpsc::UnboundedReceiver<String>) {
        let (outgoing, queued) = mpsc::unbounded_channel();
        let (requests, results) = (Mutex::default(), Mutex::default());
        (Arc::new(Self { outgoing, next_id: AtomicU64::new(1), requests, results }), queued)
    }

    /// Sends a request and waits until it is acknowledged.
    async fn request<P: Serialize>(&self, method: &str, params: &P) -> bool {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed).to_string();
        let (done, answer) = oneshot::channel();
        let frame = write_request(&id, method, params);
        self.requests.lock().unwrap().insert(id, done);
        self.outgoing.send(frame).unwrap();
        answer.await.unwrap()
    }

    fn receive(self: &Arc<Self>, frame: &str) {
        let envelope: Envelope<'_> = serde_json::from_str(frame).unwrap();
        let id = envelope.id.unwrap();
        match envelope.method {
            Some("tool.call") => {
                let call: ToolCall = serde_json::from_str(envelope.params.unwrap().get()).unwrap();
                tokio::spawn(serve(self.clone(), id, call));
            }
            Some("tool.result") => {
                let result: ToolResult = serde_json::from_str(envelope.params.unwrap().get()).unwrap();
                self.outgoing.send(write_ack(&id)).unwrap();
                let waiting = self.results.lock().unwrap().remove(&result.tool_call_id);
                let _ = waiting.unwrap().send(result);
            }
            Some(other) => panic!("unknown method {other}"),
            None => {
                let ack: Ack = serde_json::from_str(envelope.result.unwrap().get()).unwrap();
                let waiting = self.requests.lock().unwrap().remove(&id);
                let _ = waiting.unwrap().send(ack.accepted);
            }
        }
    }
}

/// The executor's task for one call.
async fn serve(end: Arc<End>, id: String, call: ToolCall) {
    end.outgoing.send(write_ack(&id)).unwrap();
    let text = Block { r#type: "text".to_owned(), text: Some(TEXT.to_owned()), data: None, mime_type: None };
    let result = ToolResult {
        session_id: call.session_id,
        tool_call_id: call.tool_call_id,
        outcome: "succeeded".to_owned(),
        is_error: false,
        content: vec![text],
        duration_ms: Some(0),
    };
    assert!(end.request("tool.result", &result).await);
}

/// Owns one end's socket.
async fn drive(end: Arc<End>, mut queued: mpsc::UnboundedReceiver<String>, mut socket: Socket) {
    loop {
        let (mut received, mut frame) = tokio::select! {
            Some(frame) = queued.recv() => (None, Some(frame)),
            received = socket.next() => match received {
                Some(Ok(message)) => (Some(message), None),
                _ => return,
            },
        };
        while let Some(message) = received {
            end.receive(message.to_text().unwrap());
            received = socket.next().now_or_never().flatten().transpose().unwrap();
        }
        while let Some(ready) = frame.or_else(|| queued.try_recv().ok()) {
            socket.feed(Message::text(ready)).await.unwrap();
            frame = None;
        }
        socket.flush().await.unwrap();
    }
}

pub(crate) struct Callers {
    caller: Calls,
}

#[derive(Clone)]
struct Calls {
    harness: Arc<End>,
    input: Box<RawValue>,
}

impl Caller for Calls {
    async fn call(&self) {
        let number = self.harness.next_id.fetch_add(1, Ordering::Relaxed);
        let call = ToolCall {
            session_id: SESSION.to_owned(),
            tool_call_id: format!("call_{number:024x}"),
            tool: "bash".to_owned(),
            input: self.input.clone(),
            deadline_ms: None,
        };
        let (done, result) = oneshot::channel();
        self.harness.results.lock().unwrap().insert(call.tool_call_id.clone(), done);
        assert!(self.harness.request("tool.call", &call).await);
        assert_eq!(result.await.unwrap().content[0].text.as_deref(), Some(TEXT));
    }
}

impl Callers {
    pub(crate) async fn connect() -> Self {
        let (client, server) = sockets().await;
        let (executor, queued) = End::new();
        tokio::spawn(drive(executor, queued, client));
        let (harness, queued) = End::new();
        tokio::spawn(drive(harness.clone(), queued, server));
        Self { caller: Calls { harness, input: RawValue::from_string(INPUT.to_owned()).unwrap() } }
    }
}

impl Contestant for Callers {
    async fn one_at_a_time(&self, calls: usize) -> Vec<Duration> {
        in_turn(&self.caller, calls).await
    }

    async fn many(&self, calls: usize, in_flight: usize) {
        at_once(&self.caller, calls, in_flight).await;
    }
}
