//! The harness machines against a scripted executor, on a clock of the test's.
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

mod calls;
mod peer;
mod properties;
mod registry;
mod sessions;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::contract::{
    ErrorCode, ExecutorId, ProtocolVersion, SessionAssignParams, SessionId, SessionStopParams, ToolCallId,
    ToolCallParams, ToolName,
};
use crate::time::{Machine, Reason, Time};

/// A machine with its driver and its executor in the test's hands.
struct Rig {
    peer: ExecutorPeer,
    now: Time,
    frames: VecDeque<Value>,
    events: VecDeque<Event>,
    closes: VecDeque<u16>,
    next_id: u64,
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn session(id: &str) -> SessionId {
    id.into()
}

fn call(id: &str) -> ToolCallId {
    id.into()
}

/// The first frame of a connection, read.
fn registration(resume: Value) -> Registration {
    registration_with(resume, ProtocolVersion::V1_1, json!({"shell": {"enabled": true}}))
}

fn registration_with(resume: Value, protocol: ProtocolVersion, capabilities: Value) -> Registration {
    let mut params = json!({
        "protocol": protocol, "environment_id": "", "capabilities": capabilities,
        "executor": {"name": "test", "version": "1", "os": "linux", "arch": "x86_64", "hostname": "h"},
    });
    if !resume.is_null() {
        params["resume"] = resume;
    }
    let frame = json!({"jsonrpc": "2.0", "id": "r", "method": "executor.register", "params": params});
    read_registration(&frame.to_string()).unwrap()
}

fn resume(sessions: &[&str]) -> Value {
    json!({"executor_id": "exec_1", "last_connection_id": "conn_1", "active_sessions": sessions})
}

fn call_params(session_id: &str, id: &str) -> ToolCallParams {
    ToolCallParams {
        session_id: session(session_id),
        tool_call_id: call(id),
        tool: ToolName::Bash,
        input: crate::contract::Json::from_text("{}".to_owned()).unwrap(),
        ..ToolCallParams::default()
    }
}

fn stop_params(session_id: &str) -> SessionStopParams {
    SessionStopParams { session_id: session(session_id), reason: "done".to_owned(), deadline_ms: None }
}

impl Rig {
    /// An executor that was never connected.
    fn new(config: Config) -> Self {
        let now = Time::from_millis(1_000);
        let peer = ExecutorPeer::new(Arc::new(config), "exec_1".into(), now, 7);
        let (frames, events, closes) = Default::default();
        Self { peer, now, frames, events, closes, next_id: 100 }
    }

    /// A connected executor, with the events of getting there taken.
    fn up() -> Self {
        let mut rig = Self::new(Config::default());
        rig.attach(Value::Null);
        rig.request_answered("r");
        rig.events.clear();
        rig
    }

    /// A connected executor with a session that it has accepted.
    fn with_session(id: &str) -> Self {
        let mut rig = Self::up();
        rig.assign(id);
        rig
    }

    fn drain(&mut self) {
        while let Some(output) = self.peer.poll() {
            match output {
                Output::Frame(text) => self.frames.push_back(serde_json::from_str(&text).unwrap()),
                Output::Event(event) => self.events.push_back(event),
                Output::Close { code, .. } => self.closes.push_back(code),
            }
        }
        assert!(self.peer.deadline().is_none_or(|(_, reason)| reason != Reason::OutputQueued), "nothing is left");
    }

    fn feed(&mut self, input: Input<'_>) {
        self.peer.feed(self.now, input);
        self.drain();
    }

    /// Lets time pass, with a tick at each deadline on the way.
    fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        let mut ticks = 0;
        while let Some((at, reason)) = self.peer.deadline() {
            if at > until {
                break;
            }
            ticks += 1;
            assert!(ticks < 10_000, "a deadline that does not move on: {at} {reason:?}");
            self.now = self.now.max(at);
            self.feed(Input::Tick);
        }
        self.now = until;
        self.feed(Input::Tick);
    }

    // The executor's part.

    fn attach(&mut self, resume: Value) {
        self.attach_with(registration(resume));
    }

    fn attach_with(&mut self, registration: Registration) {
        self.peer.attach(self.now, registration, seconds(1_767_225_600));
        self.drain();
    }

    fn disconnect(&mut self) {
        self.feed(Input::Disconnected);
    }

    /// Loses the connection and comes back with these sessions.
    fn reconnect(&mut self, sessions: &[&str]) {
        self.disconnect();
        self.frames.clear();
        self.attach(resume(sessions));
        self.request_answered("r");
    }

    fn frame(&mut self, frame: Value) {
        self.feed(Input::Frame(&frame.to_string()));
    }

    /// The oldest request of this method that was not taken yet.
    #[track_caller]
    fn request(&mut self, method: &str) -> (Value, Value) {
        let at = self.frames.iter().position(|frame| frame["method"] == method);
        let frame = at.and_then(|at| self.frames.remove(at));
        let frame = frame.unwrap_or_else(|| panic!("no {method} among {:?}", self.frames));
        (frame["id"].clone(), frame["params"].clone())
    }

    fn has(&self, method: &str) -> bool {
        self.frames.iter().any(|frame| frame["method"] == method)
    }

    fn reply(&mut self, id: &Value, result: Value) {
        self.frame(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn fail(&mut self, id: &Value, code: i64) {
        self.frame(json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": "no"}}));
    }

    /// Answers the oldest request of this method.
    #[track_caller]
    fn accept(&mut self, method: &str) -> Value {
        let (id, params) = self.request(method);
        self.reply(&id, json!({"accepted": true, "session_id": params["session_id"], "stopped": true}));
        params
    }

    /// Sends a request, and gives its answer.
    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = format!("x{}", self.next_id);
        self.ask_as(&id, method, params)
    }

    #[track_caller]
    fn ask_as(&mut self, id: &str, method: &str, params: Value) -> Value {
        self.frame(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        self.request_answered(id)
    }

    #[track_caller]
    fn request_answered(&mut self, id: &str) -> Value {
        let at = self.frames.iter().position(|frame| frame["id"] == id && frame.get("method").is_none());
        at.and_then(|at| self.frames.remove(at)).unwrap_or(Value::Null)
    }

    #[track_caller]
    fn report(&mut self, session_id: &str, id: &str, text: &str) -> Value {
        let content = json!([{"type": "text", "text": text}]);
        let params = json!({"session_id": session_id, "tool_call_id": id, "outcome": "succeeded", "is_error": false,
            "content": content});
        self.ask("tool.result", params)
    }

    // The application's part.

    #[track_caller]
    fn event(&mut self) -> Event {
        self.events.pop_front().expect("an event")
    }

    /// The next event, which must be the end of this.
    #[track_caller]
    fn done(&mut self, token: u64) -> Result<Completion, CallError> {
        match self.event() {
            Event::Done { token: told, outcome } if told == token => outcome,
            other => panic!("{token} has not ended: {other:?}"),
        }
    }

    fn ask_assign(&mut self, id: &str, token: u64) {
        let params = SessionAssignParams { session_id: session(id), ..SessionAssignParams::default() };
        self.peer.assign(self.now, params, token).unwrap();
        self.drain();
    }

    #[track_caller]
    fn assign(&mut self, id: &str) {
        self.ask_assign(id, 1);
        self.accept("session.assign");
        self.done(1).unwrap();
    }

    fn call(&mut self, session_id: &str, id: &str, token: u64) {
        self.peer.call_tool(self.now, call_params(session_id, id), token).unwrap();
        self.drain();
    }

    fn stop(&mut self, id: &str, token: u64) {
        self.peer.stop_session(self.now, stop_params(id), token).unwrap();
        self.drain();
    }

    fn bound(&self) -> Vec<String> {
        self.peer.session_ids().map(ToString::to_string).collect()
    }
}

/// The text of a call's result.
#[track_caller]
fn text(outcome: Result<Completion, CallError>) -> String {
    match outcome {
        Ok(Completion::Tool(result)) => result.content[0].text.clone().unwrap(),
        other => panic!("no result: {other:?}"),
    }
}

#[test]
fn events_and_outputs_stay_small() {
    assert!(size_of::<Event>() <= 168, "{}", size_of::<Event>());
    assert!(size_of::<Output>() <= 168, "{}", size_of::<Output>());
}
