//! An executor of a few lines, which knows the wire and nothing of this SDK: it sees what a harness really sends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::TOKEN;

/// What the harness sends next.
#[derive(Debug, PartialEq)]
pub(crate) enum Came {
    Message(Value),
    /// A close frame, with its code.
    Close(u16),
    /// The connection ended without one.
    Nothing,
}

/// A connection to a harness, upgraded.
pub(crate) struct Scripted {
    stream: BufReader<TcpStream>,
    asked: u64,
}

impl Scripted {
    /// Dials a harness of this machine.
    pub(crate) fn dial(url: &str) -> Self {
        let address = url.strip_prefix("ws://").unwrap().trim_end_matches('/');
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let head = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: bma.executor.v1.1\r\n";
        write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\n{head}\r\n").unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 101 "), "{line}");
        while line != "\r\n" {
            line.clear();
            stream.read_line(&mut line).unwrap();
        }
        Self { stream, asked: 0 }
    }

    /// Dials and registers under a name.
    pub(crate) fn registered(url: &str, name: &str) -> Self {
        let mut executor = Self::dial(url);
        executor.ask(
            "executor.register",
            &json!({
                "protocol": "bma.executor.v1.1", "environment_id": "", "capabilities": {"shell": {"enabled": true}},
                "executor": {"name": name, "os": "any", "arch": "any", "version": "1"},
            }),
        );
        executor
    }

    /// Sends a request. Its answer is among what comes.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) {
        self.asked += 1;
        let id = format!("r{}", self.asked);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
    }

    pub(crate) fn reply(&mut self, request: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
    }

    fn send(&mut self, message: &Value) {
        self.frame(1, message.to_string().as_bytes());
    }

    /// Answers a close frame.
    pub(crate) fn close(&mut self, code: u16) {
        self.frame(8, &code.to_be_bytes());
    }

    fn frame(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode, 0x80 | 126];
        frame.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        // Masked by zeros, which change nothing.
        frame.extend([0; 4]);
        frame.extend(payload);
        // A harness that is gone shows when it is read from.
        let _ = self.stream.get_mut().write_all(&frame);
    }

    /// Waits for the next message, or for the end.
    pub(crate) fn receive(&mut self) -> Came {
        let mut head = [0; 2];
        loop {
            if self.stream.read_exact(&mut head).is_err() {
                return Came::Nothing;
            }
            let length = match head[1] {
                126 => {
                    let mut length = [0; 2];
                    self.stream.read_exact(&mut length).unwrap();
                    usize::from(u16::from_be_bytes(length))
                }
                short => usize::from(short),
            };
            let mut payload = vec![0; length];
            self.stream.read_exact(&mut payload).unwrap();
            match head[0] & 0x0f {
                1 => return Came::Message(serde_json::from_slice(&payload).unwrap()),
                8 => return Came::Close(payload.first_chunk().map_or(1005, |code| u16::from_be_bytes(*code))),
                _ => {}
            }
        }
    }

    /// Does what the harness asks, with the tool's command as its output, until the connection ends.
    pub(crate) fn serve(&mut self) -> Came {
        loop {
            match self.receive() {
                Came::Message(message) => self.answer(&message),
                end => return end,
            }
        }
    }

    /// As [`serve`](Self::serve), until a request of this method, which is not answered.
    pub(crate) fn serve_until(&mut self, method: &str) -> Value {
        loop {
            match self.receive() {
                Came::Message(message) if message["method"] == method => return message,
                Came::Message(message) => self.answer(&message),
                end => panic!("{end:?} before {method}"),
            }
        }
    }

    fn answer(&mut self, message: &Value) {
        let Some(method) = message["method"].as_str() else { return };
        let params = &message["params"];
        let session_id = &params["session_id"];
        match method {
            "session.assign" => {
                self.reply(message, &json!({"accepted": true, "session_id": session_id}));
                let (work_id, lease_token) = (&params["work_id"], &params["lease"]["token"]);
                let ready = json!({"session_id": session_id, "work_id": work_id, "lease_token": lease_token});
                self.ask("session.ready", &ready);
            }
            "tool.call" => {
                self.reply(message, &json!({"accepted": true}));
                let result = json!({
                    "session_id": session_id, "tool_call_id": params["tool_call_id"], "outcome": "succeeded",
                    "is_error": false, "content": [{"type": "text", "text": params["input"]["command"]}],
                });
                self.ask("tool.result", &result);
            }
            "tool.cancel" => self.reply(message, &json!({"canceled": false})),
            "session.stop" => {
                self.reply(message, &json!({"stopped": true}));
                self.ask("session.ended", &json!({"session_id": session_id, "reason": "asked"}));
            }
            method => panic!("nobody has asked for {method}"),
        }
    }
}
