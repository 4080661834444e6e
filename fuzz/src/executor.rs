//! A script of inputs, requests, answers and calls, into an executor.
//!
//! | Line | What happens |
//! |---|---|
//! | `token` / `token down` / `token rejected` | the answer to a fetched token |
//! | `connected` / `connected v1` | the connection is open |
//! | `dial down` / `dial unauthorized` / `dial protocol` | it could not be opened |
//! | `disconnected [CODE]` | it is gone |
//! | `wait MS` / `back MS` | time passes, or jumps back |
//! | `alive` | bytes came |
//! | `frame TEXT` | a frame came |
//! | `assign S` / `stop S` / `call S C` / `cancel S C` / `drain` / `close` | a request of the harness |
//! | `answer` / `answer busy` / `answer no` / `answer TEXT` | the answer to our oldest request |
//! | `accept S` / `reject S` / `ready S` / `stopped S` / `ended S` | a call of the application about a session |
//! | `run S C` / `refuse S C` / `finish S C BYTES` / `again S C` / `progress S C` | and about a tool call |
//! | `serve TOOL` / `leave` | what it offers; an orderly end |

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bma_proto_core::contract::{
    ContentBlock, ErrorCode, ExecutorInfo, ExecutorTokenResponse, ProtocolVersion, SessionId, ToolCallId, ToolName,
    ToolOutcome, ToolResultParams,
};
use bma_proto_core::executor::{Config, DialError, Event, Executor, Input, Output, TokenError};
use bma_proto_core::{Machine, Time};

use crate::script::{Step, steps};

/// A script into an executor.
pub fn executor_inputs(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut run = Run::new();
    for step in steps(&text) {
        run.take(step);
        run.drain();
    }
    // Left alone, it always comes to rest: a tick at each deadline moves it on.
    for _ in 0..200 {
        let Some((at, reason)) = run.executor.deadline() else { break };
        run.now = run.now.max(at);
        run.executor.feed(run.now, Input::Tick);
        run.drain();
        let next = run.executor.deadline();
        assert!(next.is_none_or(|(next, _)| next > at), "it stays at {reason:?}");
    }
}

struct Run {
    executor: Executor,
    now: Time,
    /// Our requests: their ids, as JSON, and their methods.
    requests: VecDeque<(String, String)>,
    next_id: u64,
    /// Calls that were accepted or ended, of the sessions that are there.
    taken: BTreeSet<(SessionId, ToolCallId)>,
    ended: bool,
}

impl Run {
    fn new() -> Self {
        let mut executor = Executor::new(Config::new(ExecutorInfo::default(), 7));
        executor.serve_tool(ToolName::Bash);
        executor.start(Time::ORIGIN);
        let now = Time::from_millis(1);
        let (requests, taken) = Default::default();
        let mut run = Self { executor, now, requests, next_id: 0, taken, ended: false };
        run.drain();
        run
    }

    fn take(&mut self, step: Step<'_>) {
        let now = self.now;
        let (session, call) = (SessionId::from(step.argument(0)), ToolCallId::from(step.argument(1)));
        let executor = &mut self.executor;
        match (step.word, step.argument(0)) {
            ("token", "down") => executor.feed(now, Input::Token(Err(TokenError::Unavailable("down".to_owned())))),
            ("token", "rejected") => {
                executor.feed(now, Input::Token(Err(TokenError::CredentialRejected("401".to_owned()))));
            }
            ("token", _) => executor.feed(now, Input::Token(Ok(ExecutorTokenResponse::default()))),
            ("connected", "v1") => executor.feed(now, Input::Connected(ProtocolVersion::V1)),
            ("connected", _) => executor.feed(now, Input::Connected(ProtocolVersion::V1_1)),
            ("dial", "unauthorized") => {
                executor.feed(now, Input::DialFailed(DialError::Unauthorized("401".to_owned())));
            }
            ("dial", "protocol") => {
                executor.feed(now, Input::DialFailed(DialError::UnsupportedProtocol("v9".to_owned())));
            }
            ("dial", _) => executor.feed(now, Input::DialFailed(DialError::Failed("down".to_owned()))),
            ("disconnected", _) => {
                self.requests.clear();
                let code = u16::try_from(step.number(0, 9_999)).ok().filter(|code| *code > 0);
                executor.feed(now, Input::Disconnected { code, reason: "" });
            }
            ("wait", _) => {
                self.now = now + Duration::from_millis(step.number(0, 1_000_000));
                executor.feed(self.now, Input::Tick);
            }
            ("back", _) => {
                let earlier = now.as_nanos().saturating_sub(step.number(0, 1_000_000) * 1_000_000);
                executor.feed(Time::from_nanos(earlier), Input::Tick);
            }
            ("alive", _) => executor.feed(now, Input::Alive),
            ("frame", _) => executor.feed(now, Input::Frame(step.rest)),
            ("assign", s) => self.ask(
                "session.assign",
                &format!(r#"{{"session_id":{s:?},"work_id":"w","environment_id":"","lease":{{"token":"t"}}}}"#),
            ),
            ("stop", s) => self.ask("session.stop", &format!(r#"{{"session_id":{s:?},"reason":""}}"#)),
            ("call", s) => {
                let (call, deadline) = (step.argument(1), step.number(2, 100_000));
                let deadline = if deadline > 0 { format!(r#","deadline_ms":{deadline}"#) } else { String::new() };
                let params =
                    format!(r#"{{"session_id":{s:?},"tool_call_id":{call:?},"tool":"bash","input":{{}}{deadline}}}"#);
                self.ask("tool.call", &params);
            }
            ("cancel", s) => {
                let params = format!(r#"{{"session_id":{s:?},"tool_call_id":{:?}}}"#, step.argument(1));
                self.ask("tool.cancel", &params);
            }
            ("drain", _) => self.ask("executor.drain", r#"{"reason":""}"#),
            ("close", _) => {
                let frame = r#"{"jsonrpc":"2.0","method":"executor.close","params":{"reason":""}}"#;
                executor.feed(now, Input::Frame(frame));
            }
            ("answer", _) => self.answer(step.rest),
            ("accept", _) => drop(executor.offer_of(&session).map(|offer| executor.accept_session(&offer))),
            ("reject", _) => drop(executor.offer_of(&session).map(|offer| executor.reject_session(&offer, None))),
            ("ready", _) => drop(executor.session_ready(now, &session)),
            ("stopped", _) => drop(executor.session_stopped(&session, true)),
            ("ended", _) => drop(executor.session_ended(now, &session, "over")),
            ("run", _) => {
                let accepted = executor.accept_tool_call(&session, &call).is_ok();
                self.taken.extend(accepted.then_some((session, call)));
            }
            ("refuse", _) => {
                drop(executor.refuse_tool_call(&session, &call, &ErrorCode::Forbidden.error("no")));
            }
            ("finish", _) => {
                let bytes = usize::try_from(step.number(2, 200_000)).unwrap_or(0);
                let result = ToolResultParams {
                    session_id: session.clone(),
                    tool_call_id: call.clone(),
                    outcome: ToolOutcome::Succeeded,
                    content: vec![ContentBlock::text("\u{1}".repeat(bytes))],
                    ..ToolResultParams::default()
                };
                if executor.finish_tool_call(now, result).is_ok() {
                    self.taken.insert((session, call));
                }
            }
            ("again", _) => {
                let result =
                    ToolResultParams { session_id: session, tool_call_id: call, ..ToolResultParams::default() };
                drop(executor.report_tool_result(now, result));
            }
            ("progress", _) => drop(executor.progress(&session, &call, "half")),
            ("serve", tool) => executor.serve_tool(tool.into()),
            ("leave", _) => executor.stop(now, "enough"),
            _ => {}
        }
    }

    fn ask(&mut self, method: &str, params: &str) {
        self.next_id += 1;
        let id = self.next_id;
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
        self.executor.feed(self.now, Input::Frame(&frame));
    }

    /// Answers our oldest request.
    fn answer(&mut self, how: &str) {
        let Some((id, method)) = self.requests.pop_front() else { return };
        let outcome = match (how, method.as_str()) {
            ("busy", _) => r#""error":{"code":-32009,"message":"busy"}"#.to_owned(),
            ("no", _) => r#""error":{"code":-32002,"message":"no"}"#.to_owned(),
            ("", "executor.register") => concat!(
                r#""result":{"executor_id":"e","connection_id":"c","server_time":"","heartbeat_interval_ms":10000,"#,
                r#""lease_ttl_ms":60000,"max_control_frame_bytes":65536,"max_mcp_frame_bytes":65536,"drain":false}"#
            )
            .to_owned(),
            ("", "executor.heartbeat") => {
                r#""result":{"server_time":"","lease_ttl_ms":60000,"drain":false}"#.to_owned()
            }
            ("", _) => r#""result":{"accepted":true}"#.to_owned(),
            (other, _) => format!(r#""result":{other}"#),
        };
        let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},{outcome}}}"#);
        self.executor.feed(self.now, Input::Frame(&frame));
    }

    fn drain(&mut self) {
        while let Some(output) = self.executor.poll() {
            assert!(!self.ended, "nothing follows the end: {output:?}");
            match output {
                Output::Frame(text) => {
                    assert!(text.len() <= 65_536, "a frame of {} bytes", text.len());
                    self.remember(&text);
                }
                Output::Event(Event::ToolCall(params)) => {
                    let call = (params.session_id, params.tool_call_id);
                    assert!(!self.taken.contains(&call), "{call:?} was offered again");
                }
                // Another session of the same name has calls of its own.
                Output::Event(Event::SessionAssign { offer, .. }) => {
                    self.taken.retain(|(session, _)| session != offer.session_id());
                }
                Output::Event(Event::Ended(_)) => self.ended = true,
                Output::FetchToken | Output::Dial(_) | Output::Close { .. } | Output::Event(_) => {}
            }
        }
        assert!(self.executor.poll().is_none(), "an idle poll stays idle");
        if let Some((at, reason)) = self.executor.deadline() {
            assert!(at > self.now, "{reason:?} at {at} was due, now is {}", self.now);
            assert!(!self.ended, "{reason:?} after the end");
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
