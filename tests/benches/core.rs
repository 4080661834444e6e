//! The protocol's core beside serde_json: tool calls per second, one thread, no I/O.
//!
//! An `Executor` and an `ExecutorPeer` are wired back to back. Each call is four
//! frames (`tool.call`, its answer, `tool.result`, its answer) with everything
//! that the machines do about them: tables, deadlines, retries, events. The
//! yardstick does nothing but JSON with the same four frames: it writes each
//! from a typed struct, and reads each as an envelope with raw params, then the
//! params into an owned type.
//!
//! `cargo bench -p bma-tests --bench core`; `-- --quick` for a smoke run.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench panics on purpose")]

mod support;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::proto::contract::{
    ContentBlock, ExecutorInfo, ExecutorTokenResponse, Json, ProtocolVersion, SessionAssignParams, SessionId,
    SessionStopParams, ToolCallParams, ToolName, ToolOutcome, ToolResultParams,
};
use bma_runtime_tokio::proto::{Machine, Time, executor, harness};
use support::plain::{self, read_ack, read_request, write_ack, write_request};
use support::{INPUT, TEXT, Target, median, median_ratio, thread_cpu, verdict};

/// After so many calls a new session begins, outside of what is measured: recorded results stay until their session
/// ends, and large tables would measure the memory and not the machines.
const CALLS_PER_SESSION: usize = 250;

/// Both machines, registered, with an open session.
struct Pair {
    executor: executor::Executor,
    harness: harness::ExecutorPeer,
    now: Time,
    session_id: SessionId,
    sessions: u64,
    input: Json,
    /// What the two applications have at hand, as the yardstick has its structs: making it is not measured.
    calls: Vec<ToolCallParams>,
    contents: Vec<Vec<ContentBlock>>,
    results: u64,
    /// Frames as they pass, while that is wanted.
    seen: Option<Vec<String>>,
}

impl Pair {
    fn new() -> Self {
        let now = Time::from_millis(1);
        let info = ExecutorInfo { name: "bench".into(), ..ExecutorInfo::default() };
        let mut executor = executor::Executor::new(executor::Config::new(info, 1));
        executor.serve_tool(ToolName::Bash);
        executor.start(now);
        let token = ExecutorTokenResponse { ws_url: "ws://bench/".into(), ..ExecutorTokenResponse::default() };
        executor.feed(now, executor::Input::Token(Ok(token)));
        executor.feed(now, executor::Input::Connected(ProtocolVersion::V1_1));
        let register = std::iter::from_fn(|| executor.poll()).find_map(|output| match output {
            executor::Output::Frame(frame) => Some(frame),
            _ => None,
        });
        let registration = harness::read_registration(&register.unwrap()).unwrap();
        let config = Arc::new(harness::Config::default());
        let mut harness = harness::ExecutorPeer::new(config, "exec_bench".into(), now, 2);
        harness.attach(now, registration, Duration::ZERO);
        let session_id = SessionId::from("unset");
        let input = Json::from_text(INPUT.to_owned()).unwrap();
        let mut pair = Self {
            executor,
            harness,
            now,
            session_id,
            sessions: 0,
            input,
            calls: Vec::new(),
            contents: Vec::new(),
            results: 0,
            seen: None,
        };
        pair.exchange();
        pair.next_session();
        pair
    }

    fn next_session(&mut self) {
        if self.sessions > 0 {
            let params =
                SessionStopParams { session_id: self.session_id.clone(), reason: "done".into(), deadline_ms: None };
            self.harness.stop_session(self.now, params, 0).unwrap();
            self.exchange();
        }
        self.sessions += 1;
        self.session_id = format!("sess_01J9ZQ4T7R8X2M5N{:06}", self.sessions).into();
        let params = SessionAssignParams { session_id: self.session_id.clone(), ..SessionAssignParams::default() };
        self.harness.assign(self.now, params, 0).unwrap();
        self.exchange();
        let call = || ToolCallParams {
            session_id: self.session_id.clone(),
            tool: ToolName::Bash,
            input: self.input.clone(),
            ..ToolCallParams::default()
        };
        self.calls = std::iter::repeat_with(call).take(CALLS_PER_SESSION).collect();
        let content = || vec![ContentBlock::text(TEXT)];
        self.contents = std::iter::repeat_with(content).take(CALLS_PER_SESSION).collect();
    }

    /// One tool call, from its request to the last answer.
    fn call(&mut self) {
        self.now = self.now + Duration::from_micros(5);
        let params = self.calls.pop().unwrap();
        self.harness.call_tool(self.now, params, 1).unwrap();
        self.exchange();
    }

    /// Carries frames over until neither side has anything to say.
    fn exchange(&mut self) {
        loop {
            let mut idle = true;
            while let Some(output) = self.harness.poll() {
                idle = false;
                match output {
                    harness::Output::Frame(frame) => {
                        self.executor.feed(self.now, executor::Input::Frame(&frame));
                        self.see(frame);
                    }
                    harness::Output::Event(harness::Event::Done { outcome, .. }) => {
                        if let harness::Completion::Tool(result) = outcome.unwrap() {
                            self.results += u64::from(result.content.len() == 1);
                        }
                    }
                    harness::Output::Event(_) => {}
                    harness::Output::Close { .. } => panic!("the harness closed the connection"),
                }
            }
            while let Some(output) = self.executor.poll() {
                idle = false;
                match output {
                    executor::Output::Frame(frame) => {
                        self.harness.feed(self.now, harness::Input::Frame(&frame));
                        self.see(frame);
                    }
                    executor::Output::Event(event) => self.answer(event),
                    _ => panic!("the executor gave the connection up"),
                }
            }
            if idle {
                return;
            }
        }
    }

    /// What an application does: takes sessions, answers calls at once.
    fn answer(&mut self, event: executor::Event) {
        match event {
            executor::Event::SessionAssign { offer, .. } => {
                self.executor.accept_session(&offer).unwrap();
                self.executor.session_ready(self.now, offer.session_id()).unwrap();
            }
            executor::Event::SessionStop { session_id, .. } => {
                self.executor.session_stopped(&session_id, true).unwrap();
                self.executor.session_ended(self.now, &session_id, "done").unwrap();
            }
            executor::Event::ToolCall(params) => {
                let params = *params;
                self.executor.accept_tool_call(&params.session_id, &params.tool_call_id).unwrap();
                let result = ToolResultParams {
                    session_id: params.session_id,
                    tool_call_id: params.tool_call_id,
                    outcome: ToolOutcome::Succeeded,
                    content: self.contents.pop().unwrap(),
                    ..ToolResultParams::default()
                };
                self.executor.finish_tool_call(self.now, result).unwrap();
            }
            _ => {}
        }
    }

    fn see(&mut self, frame: String) {
        if let Some(seen) = &mut self.seen {
            seen.push(frame);
        }
    }

    /// The four frames of one call.
    fn sample(&mut self) -> Vec<String> {
        self.seen = Some(Vec::new());
        self.call();
        self.seen.take().unwrap()
    }

    /// Makes calls in sessions of their own; gives the CPU time of the calls.
    fn calls(&mut self, sessions: usize) -> Duration {
        let before = self.results;
        let mut time = Duration::ZERO;
        for _ in 0..sessions {
            self.next_session();
            let begun = thread_cpu();
            for _ in 0..CALLS_PER_SESSION {
                self.call();
            }
            time += thread_cpu() - begun;
        }
        assert_eq!(self.results - before, (sessions * CALLS_PER_SESSION) as u64, "a call has no result");
        time
    }
}

/// The yardstick: the four frames of one call, written and read.
struct Plain {
    call_id: String,
    call: plain::ToolCall,
    result_id: String,
    result: plain::ToolResult,
}

impl Plain {
    /// Takes the values from the frames that the machines sent, and checks that it writes the same ones.
    fn new(frames: &[String]) -> Self {
        let (call_id, call) = read_request(&frames[0]);
        let (result_id, result) = read_request(&frames[2]);
        let plain = Self { call_id, call, result_id, result };
        assert_eq!(plain.write_all(), frames, "both write the same frames");
        plain
    }

    fn write_all(&self) -> [String; 4] {
        [
            write_request(&self.call_id, "tool.call", &self.call),
            write_ack(&self.call_id),
            write_request(&self.result_id, "tool.result", &self.result),
            write_ack(&self.result_id),
        ]
    }

    /// Moves the frames of as many calls; gives the CPU time.
    fn calls(&self, calls: usize) -> Duration {
        let begun = thread_cpu();
        for _ in 0..calls {
            let frame = write_request(&self.call_id, "tool.call", &self.call);
            let (id, call) = read_request::<plain::ToolCall>(&frame);
            black_box(call);
            let frame = write_ack(&id);
            assert!(read_ack(&frame));
            let frame = write_request(&self.result_id, "tool.result", &self.result);
            let (id, result) = read_request::<plain::ToolResult>(&frame);
            black_box(result);
            let frame = write_ack(&id);
            assert!(read_ack(&frame));
        }
        thread_cpu() - begun
    }
}

fn main() {
    let (rounds, sessions) = if support::is_quick() { (3, 8) } else { (201, 16) };
    let calls = sessions * CALLS_PER_SESSION;
    let mut pair = Pair::new();
    let frames = pair.sample();
    let plain = Plain::new(&frames);
    let sizes: Vec<_> = frames.iter().map(String::len).collect();
    println!("core: one thread, no I/O; {rounds} rounds of {calls} calls; frames of {sizes:?} bytes");

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let times = (pair.calls(sessions), plain.calls(calls));
        // The first round warms up.
        if round > 0 {
            let per_call = |time: Duration| time.as_secs_f64() * 1e9 / calls as f64;
            ours.push(per_call(times.0));
            theirs.push(per_call(times.1));
        }
    }
    println!("  {:<58} {:>12} {:>12}", "", "CPU ns/call", "calls/s");
    for (name, figures) in [("Executor and ExecutorPeer back to back", &ours), ("serde_json, the same frames", &theirs)]
    {
        let nanos = median(figures.iter().copied());
        println!("  {name:<58} {nanos:>12.0} {:>12.0}", 1e9 / nanos);
    }
    println!("  {:<58} {:>6}", "", "ratio");
    verdict("calls/s, machines to serde_json", median_ratio(&theirs, &ours), Target::AtLeast(0.75, 0.9));
}
