//! The executor machine against a scripted harness, on a clock of the test's.
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

mod back_off;
mod bounds;
mod calls;
mod capabilities;
mod connection;
mod delivery;
mod properties;
mod refresh;
mod sessions;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::contract::{
    ContentBlock, ErrorCode, ExecutorInfo, ExecutorTokenResponse, SessionId, SessionStatusParams, ToolCallId, ToolName,
    ToolOutcome,
};
use crate::time::{Machine, Reason, Time};

/// What the machine wants of its driver, apart from frames and events.
#[derive(Debug)]
enum Order {
    FetchToken,
    Dial(Dial),
    Close(u16),
}

/// A machine with its driver and its harness in the test's hands.
struct Rig {
    executor: Executor,
    now: Time,
    frames: VecDeque<Value>,
    events: VecDeque<Event>,
    orders: VecDeque<Order>,
    /// The latest offer of each session.
    offers: BTreeMap<SessionId, OfferId>,
    next_id: u64,
}

fn config() -> Config {
    Config::new(ExecutorInfo { name: "test".to_owned(), ..ExecutorInfo::default() }, 7)
}

/// A token that is recognised by its number.
fn token(number: u32) -> ExecutorTokenResponse {
    ExecutorTokenResponse {
        token: format!("token-{number}").as_str().into(),
        ws_url: "ws://harness.example/".to_owned(),
        ..ExecutorTokenResponse::default()
    }
}

/// What a harness answers to a registration: a heartbeat each 10 s, a lease of 60 s.
fn registered() -> Value {
    json!({
        "executor_id": "exec_1", "connection_id": "conn_1", "server_time": "2026-01-01T00:00:00.000Z",
        "heartbeat_interval_ms": 10_000, "lease_ttl_ms": 60_000,
        "max_control_frame_bytes": 65_536, "max_mcp_frame_bytes": 8_388_608, "drain": false,
    })
}

fn session(id: &str) -> SessionId {
    id.into()
}

fn call(id: &str) -> ToolCallId {
    id.into()
}

impl Rig {
    fn new(config: Config) -> Self {
        let mut executor = Executor::new(config);
        executor.serve_tool(ToolName::Bash);
        let (frames, events, orders) = Default::default();
        let offers = BTreeMap::new();
        let mut rig = Self { executor, now: Time::from_millis(1_000), frames, events, orders, offers, next_id: 100 };
        rig.executor.start(rig.now);
        rig.drain();
        rig
    }

    /// A registered executor, with the events of getting there taken.
    fn up() -> Self {
        Self::up_with(config(), registered())
    }

    fn up_with(config: Config, answer: Value) -> Self {
        let mut rig = Self::new(config);
        rig.dial();
        rig.register(answer);
        rig.events.clear();
        rig
    }

    /// One session that is ready, on a registered executor.
    fn with_session(id: &str) -> Self {
        let mut rig = Self::up();
        rig.assign(id);
        rig
    }

    fn drain(&mut self) {
        while let Some(output) = self.executor.poll() {
            match output {
                Output::Frame(text) => self.frames.push_back(serde_json::from_str(&text).unwrap()),
                Output::Event(event) => {
                    if let Event::SessionAssign { offer, .. } = &event {
                        self.offers.insert(offer.session_id().clone(), offer.clone());
                    }
                    self.events.push_back(event);
                }
                Output::FetchToken => self.orders.push_back(Order::FetchToken),
                Output::Dial(dial) => self.orders.push_back(Order::Dial(dial)),
                Output::Close { code, .. } => self.orders.push_back(Order::Close(code)),
            }
        }
        assert!(self.executor.poll().is_none(), "an idle poll stays idle");
        let queued = self.executor.deadline().is_some_and(|(_, reason)| reason == Reason::OutputQueued);
        assert!(!queued, "nothing is left");
    }

    fn feed(&mut self, input: Input<'_>) {
        self.executor.feed(self.now, input);
        self.drain();
    }

    /// Lets time pass, with a tick at each deadline on the way.
    fn wait(&mut self, duration: Duration) {
        let until = self.now + duration;
        let mut ticks = 0;
        while let Some((at, reason)) = self.executor.deadline() {
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

    /// The time until the next deadline, and its reason.
    fn due(&self) -> (Duration, Reason) {
        let (at, reason) = self.executor.deadline().unwrap();
        (at.saturating_since(self.now), reason)
    }

    // The driver's part.

    #[track_caller]
    fn order(&mut self) -> Order {
        self.orders.pop_front().expect("the machine wants something")
    }

    /// Gives a token, and gets as far as an open connection and its registration.
    #[track_caller]
    fn dial(&mut self) -> Value {
        assert!(matches!(self.order(), Order::FetchToken));
        self.feed(Input::Token(Ok(token(1))));
        assert!(matches!(self.order(), Order::Dial(_)));
        self.feed(Input::Connected(ProtocolVersion::V1_1));
        self.frames.front().cloned().expect("a registration")
    }

    fn disconnect(&mut self, code: Option<u16>) {
        self.feed(Input::Disconnected { code, reason: "" });
    }

    /// Lets time pass until the machine wants something of its driver.
    fn wait_for_order(&mut self) {
        while self.orders.is_empty() {
            self.wait(self.due().0);
        }
    }

    /// Lets the wait for the next dial pass, if there is another one.
    fn back_off(&mut self) {
        while self.orders.is_empty() && self.executor.deadline().is_some() {
            self.wait(self.due().0);
        }
    }

    /// Loses the connection, and comes back with the next one.
    fn reconnect(&mut self) -> Value {
        self.reconnect_as(registered())
    }

    /// As `reconnect`, with this answer to the registration.
    fn reconnect_as(&mut self, answer: Value) -> Value {
        self.disconnect(None);
        self.wait_for_order();
        let registration = self.dial();
        self.register(answer);
        registration
    }

    // The harness's part.

    /// The oldest frame of this method that was not taken yet: its id and its params.
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

    fn frame(&mut self, frame: Value) {
        self.feed(Input::Frame(&frame.to_string()));
    }

    fn reply(&mut self, id: &Value, result: Value) {
        self.frame(json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    fn fail(&mut self, id: &Value, error: Value) {
        self.frame(json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    /// Answers the oldest request of this method.
    #[track_caller]
    fn accept(&mut self, method: &str) -> Value {
        let (id, params) = self.request(method);
        self.reply(&id, json!({"accepted": true}));
        params
    }

    #[track_caller]
    fn register(&mut self, answer: Value) {
        let (id, _) = self.request("executor.register");
        self.reply(&id, answer);
    }

    /// Answers every heartbeat that waits for it.
    fn answer_heartbeats(&mut self) -> usize {
        let mut count = 0;
        while self.has("executor.heartbeat") {
            let (id, _) = self.request("executor.heartbeat");
            self.reply(&id, json!({"server_time": "", "lease_ttl_ms": 60_000, "drain": false}));
            count += 1;
        }
        count
    }

    /// Sends a request, and gives its id.
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = json!(self.next_id);
        self.frame(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// The answer to this id, if there is one.
    fn answered(&mut self, id: &Value) -> Option<Value> {
        let at = self.frames.iter().position(|frame| frame["id"] == *id && frame.get("method").is_none())?;
        self.frames.remove(at)
    }

    #[track_caller]
    fn answer(&mut self, id: &Value) -> Value {
        self.answered(id).unwrap_or_else(|| panic!("no answer {id} among {:?}", self.frames))
    }

    /// The error code of the answer to this id.
    #[track_caller]
    fn code(&mut self, id: &Value) -> i64 {
        let answer = self.answer(id);
        answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}"))
    }

    fn ask_assign(&mut self, id: &str) -> Value {
        let lease = json!({"token": format!("lease-{id}")});
        let params = json!({"session_id": id, "work_id": format!("work-{id}"), "environment_id": "", "lease": lease});
        self.ask("session.assign", params)
    }

    /// Accepts the latest offer of a session.
    fn accept_offer(&mut self, id: &str) -> Result<(), CallError> {
        let offer = self.offers.get(&session(id)).cloned().unwrap();
        self.executor.accept_session(&offer)
    }

    fn reject_offer(&mut self, id: &str, error: Option<&JSONRPCError>) -> Result<(), CallError> {
        let offer = self.offers.get(&session(id)).cloned().unwrap();
        self.executor.reject_session(&offer, error)
    }

    /// Assigns a session that the application sets up at once.
    #[track_caller]
    fn assign(&mut self, id: &str) {
        let asked = self.ask_assign(id);
        assert!(matches!(self.event(), Event::SessionAssign { params, .. } if params.session_id == session(id)));
        self.accept_offer(id).unwrap();
        self.executor.session_ready(self.now, &session(id)).unwrap();
        self.drain();
        assert_eq!(self.answer(&asked)["result"], json!({"accepted": true, "session_id": id}));
        self.accept("session.ready");
    }

    fn ask_stop(&mut self, id: &str) -> Value {
        self.ask("session.stop", json!({"session_id": id, "reason": "done"}))
    }

    fn ask_call(&mut self, session: &str, id: &str) -> Value {
        let params = json!({"session_id": session, "tool_call_id": id, "tool": "bash", "input": {"command": "true"}});
        self.ask("tool.call", params)
    }

    /// Calls a tool that the application accepts at once.
    #[track_caller]
    fn run(&mut self, session_id: &str, id: &str) {
        let asked = self.ask_call(session_id, id);
        assert!(matches!(self.event(), Event::ToolCall(params) if params.tool_call_id == call(id)));
        self.executor.accept_tool_call(&session(session_id), &call(id)).unwrap();
        self.drain();
        assert_eq!(self.answer(&asked)["result"], json!({"accepted": true}));
    }

    // The application's part.

    #[track_caller]
    fn event(&mut self) -> Event {
        self.events.pop_front().expect("an event")
    }

    fn finish(&mut self, session_id: &str, id: &str) {
        self.executor.finish_tool_call(self.now, result(session_id, id)).unwrap();
        self.drain();
    }

    fn end_session(&mut self, id: &str) {
        self.executor.session_ended(self.now, &session(id), "over").unwrap();
        self.drain();
    }

    fn active(&self) -> Vec<String> {
        self.executor.active_sessions().iter().map(ToString::to_string).collect()
    }
}

fn result(session_id: &str, id: &str) -> ToolResultParams {
    ToolResultParams {
        session_id: session(session_id),
        tool_call_id: call(id),
        outcome: ToolOutcome::Succeeded,
        content: vec![ContentBlock::text("exit_code: 0")],
        ..ToolResultParams::default()
    }
}

#[test]
fn events_and_outputs_stay_small() {
    assert!(size_of::<Event>() <= 96, "{}", size_of::<Event>());
    assert!(size_of::<Output>() <= 96, "{}", size_of::<Output>());
}
