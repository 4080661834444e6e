//! First frames, and a script of inputs, requests, answers and calls into the
//! harness's machine for one executor.
//!
//! | Line | What happens |
//! |---|---|
//! | `attach` / `attach S S ...` / `attach v1` | a connection: a new run of the program, or one that resumes with these sessions |
//! | `disconnected` / `alive` | the connection is gone; bytes came |
//! | `wait MS` / `back MS` | time passes, or jumps back |
//! | `frame TEXT` | a frame came |
//! | `ready S` / `ended S` / `result S C` / `beat` / `goodbye` / `event ID` | a request or a notification of the executor |
//! | `answer` / `answer busy` / `answer no` / `answer TEXT` | the answer to our oldest request |
//! | `assign S` / `stop S` / `await S` / `call S C` / `cancel S C` / `drain` / `list` / `close` | what the application asks for |

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bma_proto_core::contract::{
    AnyParams, AnyResult, ExecutorDrainParams, Json, ProcessListParams, SessionAssignParams, SessionEventResult,
    SessionId, SessionStopParams, ToolCallId, ToolCallParams, ToolCancelParams, ToolName,
};
use bma_proto_core::harness::{
    CallError, Config, Event, ExecutorPeer, Input, Output, Principal, Registration, Registry, read_registration,
};
use bma_proto_core::{Machine, Time};

use crate::script::{Step, steps};

/// First frames of connections, one on each line, placed by one registry.
pub fn registration(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut config = Config::default();
    config.max_executors = 8;
    let config = Arc::new(config);
    let mut registry = Registry::new(&config, 7);
    for (n, frame) in text.lines().take(64).enumerate() {
        let refusal = match read_registration(frame) {
            Ok(mut registration) => {
                let principal = match n % 3 {
                    0 => Principal::pinned(format!("pinned-{}", n % 5).into()),
                    1 => Principal::subject(format!("subject-{}", n % 2)),
                    _ => Principal::anonymous(),
                };
                match registry.place(&principal, &mut registration) {
                    Ok(placement) => {
                        attach(&config, registration, placement);
                        continue;
                    }
                    Err(refusal) => refusal,
                }
            }
            Err(refusal) => refusal,
        };
        assert!([1013, 4002, 4003].contains(&refusal.code), "{refusal:?}");
        assert!(refusal.frame.len() <= 65_536);
        assert!(!refusal.reason.is_empty());
    }
    assert!(registry.executors().count() <= 8);
}

fn attach(config: &Arc<Config>, registration: Registration, placement: bma_proto_core::harness::Placement) {
    use bma_proto_core::harness::Placement::{Known, New};
    let (New(id) | Known(id)) = placement;
    let mut peer = ExecutorPeer::new(Arc::clone(config), id, Time::ORIGIN, 7);
    peer.attach(Time::ORIGIN, registration, Duration::ZERO);
    let mut answered = 0;
    while let Some(output) = peer.poll() {
        if let Output::Frame(frame) = output {
            assert!(frame.len() <= 65_536);
            answered += usize::from(frame.contains(r#""result":{"executor_id""#));
        }
    }
    assert_eq!(answered, 1);
    assert!(peer.deadline().is_some_and(|(at, _)| at > Time::ORIGIN));
}

/// A script into the harness's machine.
pub fn harness_inputs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut run = Run::new();
    for (token, step) in (0..).zip(steps(&text)) {
        if let Some(Ok(())) = run.take(step, token) {
            run.open.insert(token);
        }
        run.drain();
    }
    // Left alone, the executor is lost at last, and everything ends with it.
    for _ in 0..2_000 {
        let Some((at, reason)) = run.peer.deadline() else { break };
        run.now = run.now.max(at);
        run.peer.feed(run.now, Input::Tick);
        run.drain();
        let next = run.peer.deadline();
        assert!(next.is_none_or(|(next, _)| next > at), "it stays at {reason:?}");
    }
    assert!(run.peer.gone().is_some() && run.gone);
    assert!(run.open.is_empty(), "{:?} never ended", run.open);
    assert_eq!(run.peer.open_calls(), 0);
}

struct Run {
    peer: ExecutorPeer,
    now: Time,
    /// Our requests that have no answer: their ids, as JSON, and their methods.
    requests: VecDeque<(String, String)>,
    next_id: u64,
    /// What was asked for and has not ended.
    open: BTreeSet<u64>,
    gone: bool,
}

impl Run {
    fn new() -> Self {
        let config = Arc::new(Config::default());
        let now = Time::from_millis(1);
        let peer = ExecutorPeer::new(config, "e".into(), now, 7);
        let (requests, open) = Default::default();
        Self { peer, now, requests, next_id: 0, open, gone: false }
    }

    /// Takes a step. What the application asks for has an outcome.
    fn take(&mut self, step: Step<'_>, token: u64) -> Option<Result<(), CallError>> {
        let now = self.now;
        let name = step.argument(0);
        let (session, call) = (SessionId::from(name), ToolCallId::from(step.argument(1)));
        let peer = &mut self.peer;
        match step.word {
            "attach" => self.attach(step.rest),
            "disconnected" => {
                self.requests.clear();
                peer.feed(now, Input::Disconnected);
            }
            "alive" => peer.feed(now, Input::Alive),
            "wait" => {
                self.now = now + Duration::from_millis(step.number(0, 1_000_000));
                peer.feed(self.now, Input::Tick);
            }
            "back" => {
                let earlier = now.as_nanos().saturating_sub(step.number(0, 1_000_000) * 1_000_000);
                peer.feed(Time::from_nanos(earlier), Input::Tick);
            }
            "frame" => peer.feed(now, Input::Frame(step.rest)),
            "ready" => {
                self.tell("session.ready", &format!(r#"{{"session_id":{name:?},"work_id":"w","lease_token":"t"}}"#));
            }
            "ended" => self.tell("session.ended", &format!(r#"{{"session_id":{name:?},"reason":""}}"#)),
            "result" => {
                let call = step.argument(1);
                let params = format!(
                    r#"{{"session_id":{name:?},"tool_call_id":{call:?},"outcome":"succeeded","is_error":false,"content":[]}}"#
                );
                self.tell("tool.result", &params);
            }
            "beat" => self.tell("executor.heartbeat", r#"{"connection_id":"c","active_sessions":[]}"#),
            "event" => {
                let frame = format!(
                    r#"{{"jsonrpc":"2.0","id":{name:?},"method":"session.event","params":{{"session_id":"s","event":{{}}}}}}"#
                );
                peer.feed(now, Input::Frame(&frame));
            }
            "goodbye" => {
                let frame = r#"{"jsonrpc":"2.0","method":"executor.close","params":{"reason":""}}"#;
                peer.feed(now, Input::Frame(frame));
            }
            "answer" => self.answer(step.rest),
            "assign" => {
                let params = SessionAssignParams { session_id: session, ..SessionAssignParams::default() };
                return Some(peer.assign(now, params, token));
            }
            "stop" => {
                let params = SessionStopParams { session_id: session, ..SessionStopParams::default() };
                return Some(peer.stop_session(now, params, token));
            }
            "await" => return Some(peer.wait_ready(&session, token)),
            "call" => {
                let params = ToolCallParams {
                    session_id: session,
                    tool_call_id: call,
                    tool: ToolName::Bash,
                    input: Json::default(),
                    ..ToolCallParams::default()
                };
                return Some(peer.call_tool(now, params, token).map(drop));
            }
            "cancel" => {
                let params = ToolCancelParams { session_id: session, tool_call_id: call, reason: None };
                return Some(peer.cancel_tool(now, &params, token));
            }
            "drain" => {
                let params = AnyParams::ExecutorDrain(ExecutorDrainParams::default());
                return Some(peer.request(now, &params, token, Duration::from_secs(5)));
            }
            "list" => {
                let params = AnyParams::ProcessList(ProcessListParams { session_id: session });
                return Some(peer.request(now, &params, token, Duration::from_secs(5)));
            }
            "close" => peer.close(now, "enough"),
            _ => {}
        }
        None
    }

    fn attach(&mut self, with: &str) {
        self.requests.clear();
        let protocol = if with == "v1" { "bma.executor.v1" } else { "bma.executor.v1.1" };
        let resume = match with {
            "" | "v1" => String::new(),
            sessions => {
                let sessions: Vec<_> = sessions.split(' ').filter(|name| !name.is_empty()).collect();
                format!(r#","resume":{{"executor_id":"e","active_sessions":{sessions:?}}}"#)
            }
        };
        let params = format!(
            r#"{{"protocol":"{protocol}","environment_id":"","executor":{{"name":"n","version":"1","os":"o","arch":"a"}},"capabilities":{{"process":{{"enabled":true,"protocol_version":1}}}}{resume}}}"#
        );
        let frame = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"executor.register","params":{params}}}"#);
        // A fuzzer's names need not be JSON.
        if let Ok(registration) = read_registration(&frame) {
            self.peer.attach(self.now, registration, Duration::ZERO);
        }
    }

    fn tell(&mut self, method: &str, params: &str) {
        self.next_id += 1;
        let id = self.next_id;
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.peer.feed(self.now, Input::Frame(&frame));
    }

    fn answer(&mut self, how: &str) {
        let Some((id, method)) = self.requests.pop_front() else { return };
        let outcome = match (how, method.as_str()) {
            ("busy", _) => r#""error":{"code":-32009,"message":"busy"}"#.to_owned(),
            ("no", _) => r#""error":{"code":-32002,"message":"no"}"#.to_owned(),
            ("", "process.list") => r#""result":{"processes":[]}"#.to_owned(),
            ("", "session.stop") => r#""result":{"stopped":true}"#.to_owned(),
            ("", "tool.cancel") => r#""result":{"canceled":true}"#.to_owned(),
            ("", _) => r#""result":{"accepted":true,"session_id":"s","active_sessions":[]}"#.to_owned(),
            (other, _) => format!(r#""result":{other}"#),
        };
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#);
        self.peer.feed(self.now, Input::Frame(&frame));
    }

    fn drain(&mut self) {
        while let Some(output) = self.peer.poll() {
            match output {
                Output::Frame(text) => {
                    assert!(text.len() <= 65_536, "a frame of {} bytes", text.len());
                    self.remember(&text);
                }
                Output::Close { .. } => {}
                Output::Event(event) => {
                    assert!(!self.gone, "nothing follows the end: {event:?}");
                    match event {
                        Event::Done { token, .. } => assert!(self.open.remove(&token), "{token} ends twice"),
                        Event::Gone(_) => self.gone = true,
                        Event::Request { id, params } => {
                            if let AnyParams::SessionEvent(_) = *params {
                                let result =
                                    SessionEventResult { accepted: true, event_id: "e".into(), acked_sequence: None };
                                self.peer.reply(id, &AnyResult::SessionEvent(result));
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        assert!(self.peer.poll().is_none(), "an idle poll stays idle");
        if let Some((at, reason)) = self.peer.deadline() {
            assert!(at > self.now, "{reason:?} at {at} was due, now is {}", self.now);
        }
    }

    /// Notes a request of ours. What we write ourselves has its members in this order.
    fn remember(&mut self, frame: &str) {
        let Some(rest) = frame.strip_prefix(r#"{"jsonrpc":"2.0","id":"#) else { return };
        let Some((id, rest)) = rest.split_once(',') else { return };
        let Some(method) = rest.strip_prefix(r#""method":""#).and_then(|rest| rest.split('"').next()) else { return };
        self.requests.push_back((id.to_owned(), method.to_owned()));
    }
}
