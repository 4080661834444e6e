//! A brain written by hand, frame by frame: for what the order of frames tells.

use std::net::TcpListener;

use bma_runtime::Client;
use bma_tests::exchange_suite::{on_a_thread, options};
use bma_tests::support::raw::Raw;
use serde_json::{Value, json};

use crate::support::Hands;

/// Runs a script as the brain `script` of the core, to the client's end.
pub(crate) async fn scripted(hands: &Hands, script: impl FnOnce(&TcpListener) + Send + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let client: Client = hands.rig.client_of(options("machine", &url, &hands.rig.token));
    hands.core.attach("script", &client).unwrap();
    let starting = {
        let client = client.clone();
        hands.start(async move { client.start().await.map(drop) })
    };
    on_a_thread(move || script(&listener)).await;
    starting.await.unwrap();
    client.done().await;
}

/// One connection of one executor. Heartbeats are answered and not shown.
pub(crate) struct Script {
    raw: Raw,
}

impl Script {
    /// Takes the next connection of a listener and registers it.
    pub(crate) fn register(listener: &TcpListener) -> Self {
        let mut script = Self { raw: Raw::accept(listener).unwrap() };
        let register = script.next();
        assert_eq!(register["method"], "executor.register", "{register}");
        script.answer(
            &register,
            json!({
                "executor_id": "e", "connection_id": "c", "server_time": "2026-01-01T00:00:00Z",
                "heartbeat_interval_ms": 20_000, "lease_ttl_ms": 60_000, "max_control_frame_bytes": 65_536,
                "max_mcp_frame_bytes": 1_048_576, "drain": false
            }),
        );
        script
    }

    /// The next frame.
    pub(crate) fn next(&mut self) -> Value {
        loop {
            let frame: Value = serde_json::from_str(&self.raw.read_text().unwrap()).unwrap();
            match frame["method"].as_str() {
                Some("executor.heartbeat") => self.answer(&frame, json!({ "drain": false })),
                Some("executor.capabilities.update" | "tool.progress" | "session.status") => {
                    if frame.get("id").is_some() {
                        self.answer(&frame, json!({ "accepted": true }));
                    }
                }
                _ => return frame,
            }
        }
    }

    /// The next frame, and an acceptance of it if it is a request.
    pub(crate) fn next_accepted(&mut self) -> Value {
        let frame = self.next();
        if frame.get("method").is_some() && frame.get("id").is_some() {
            self.answer(&frame, json!({ "accepted": true }));
        }
        frame
    }

    /// Answers a request.
    pub(crate) fn answer(&mut self, request: &Value, result: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    /// Sends a request whose id is its name.
    pub(crate) fn ask(&mut self, id: &str, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    fn send(&mut self, frame: &Value) {
        self.send_text(&frame.to_string());
    }

    /// Sends a frame as it is.
    pub(crate) fn send_text(&mut self, frame: &str) {
        self.raw.text(frame).unwrap();
    }

    /// Assigns a session and waits until it is ready.
    pub(crate) fn assign(&mut self, session_id: &str) {
        let params = json!({
            "session_id": session_id, "work_id": "w", "environment_id": "", "lease": { "token": "t" }
        });
        self.ask("assign", "session.assign", params);
        let answer = self.next();
        assert_eq!(answer["result"]["accepted"], true, "{answer}");
        let ready = self.next_accepted();
        assert_eq!(ready["method"], "session.ready", "{ready}");
    }

    /// Calls a tool, its call id being the request's, and waits for the acknowledgement.
    pub(crate) fn call(&mut self, session_id: &str, id: &str, tool: &str, input: Value) {
        let params = json!({ "session_id": session_id, "tool_call_id": id, "tool": tool, "input": input });
        self.ask(id, "tool.call", params);
        let answer = self.next();
        assert_eq!((answer["id"].as_str(), &answer["result"]["accepted"]), (Some(id), &json!(true)), "{answer}");
    }

    /// Tells the executor to close, and fails if anything but its goodbye comes before.
    pub(crate) fn close(mut self) {
        // Answered after whatever was sent before.
        self.ask("last", "tool.cancel", json!({ "session_id": "none", "tool_call_id": "none" }));
        assert_eq!(self.next()["id"], "last");
        self.send(&json!({ "jsonrpc": "2.0", "method": "executor.close", "params": { "reason": "over" } }));
        self.raw.read_to_close();
    }
}
