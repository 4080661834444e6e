//! The core alone is enough, on both ends: the blocking example's loop against a
//! harness made of [`Registry`], [`ExecutorPeer`] and [`Channel`] on a thread, over loopback.
#![cfg(feature = "websocket")]
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "drivers have the clock and the socket")]

#[path = "../examples/blocking.rs"]
#[allow(dead_code, unreachable_pub, missing_docs, reason = "a program that is looked at as a module")]
mod blocking;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bma_proto_core::contract::{
    Json, SessionAssignParams, SessionStopParams, ToolCallParams, ToolName, ToolOutcome, ToolResultParams,
};
use bma_proto_core::executor::End;
use bma_proto_core::harness::{
    Completion, Config, Event, ExecutorPeer, Input, Output, Placement, Principal, Registry, read_registration,
};
use bma_proto_core::websocket::{self, Channel, ServerConfig};
use bma_proto_core::{Machine, Time};

/// Nothing here takes long; a test that hangs must end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The harness's end of one connection.
struct Seat {
    socket: TcpStream,
    channel: Channel,
    out: Vec<u8>,
}

/// A harness that serves one connection after another, and remembers its executors across them.
struct Brain {
    listener: TcpListener,
    started: Instant,
    registry: Registry,
    peer: Option<ExecutorPeer>,
    results: Vec<Arc<ToolResultParams>>,
    /// Connections that are cut right after the first result, without a word.
    cuts: usize,
}

impl Brain {
    fn now(&self) -> Time {
        Time::ORIGIN + self.started.elapsed()
    }

    /// Serves one connection to its end. False once the executor is gone.
    fn serve_one(&mut self) -> bool {
        let (socket, _) = self.listener.accept().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let channel = Channel::server(self.now(), ServerConfig::default());
        let mut seat = Seat { socket, channel, out: Vec::new() };
        let mut registered = false;
        let mut buffer = [0; 16 * 1024];
        loop {
            assert!(self.started.elapsed() < PATIENCE, "it hangs");
            let now = self.now();
            while let Some(output) = seat.channel.poll() {
                match output {
                    websocket::Output::AuthRequired(request) => match request.bearer {
                        Some(token) if token.matches("secret") => seat.channel.accept(now).unwrap(),
                        _ => seat.channel.refuse(now, 401, "another token").unwrap(),
                    },
                    websocket::Output::Open { .. } => {}
                    websocket::Output::Text(text) if registered => {
                        self.peer.as_mut().unwrap().feed(now, Input::Frame(&text));
                    }
                    websocket::Output::Text(text) => {
                        registered = true;
                        self.register(now, &text);
                    }
                    websocket::Output::Closed(_) => {
                        seat.write();
                        if let Some(peer) = self.peer.as_mut().filter(|_| registered) {
                            peer.feed(now, Input::Disconnected);
                        }
                        return self.peer.as_ref().is_none_or(|peer| peer.gone().is_none());
                    }
                }
            }
            if registered && self.drain(now, &mut seat) && self.cuts > 0 {
                self.cuts -= 1;
                self.peer.as_mut().unwrap().feed(now, Input::Disconnected);
                return true;
            }
            seat.write();
            match seat.socket.read(&mut buffer) {
                Ok(0) => seat.channel.end_of_stream(self.now()),
                Ok(n) => seat.channel.receive(self.now(), &buffer[..n]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => seat.channel.end_of_stream(self.now()),
            }
        }
    }

    fn register(&mut self, now: Time, text: &str) {
        let mut registration = read_registration(text).unwrap();
        let placement = self.registry.place(&Principal::anonymous(), &mut registration).unwrap();
        if let Placement::New(id) = placement {
            assert!(self.peer.is_none(), "one executor");
            self.peer = Some(ExecutorPeer::new(Arc::new(Config::default()), id, now, 7));
        }
        self.peer.as_mut().unwrap().attach(now, registration, Duration::ZERO);
    }

    /// Does what the machine wants. True when a call has ended.
    fn drain(&mut self, now: Time, seat: &mut Seat) -> bool {
        let peer = self.peer.as_mut().unwrap();
        let mut ended = false;
        while let Some(output) = peer.poll() {
            match output {
                Output::Frame(text) => seat.channel.send_text(&text, &mut seat.out).unwrap(),
                Output::Close { code, reason } => seat.channel.close(now, code, reason).unwrap(),
                Output::Event(event) => match event {
                    Event::Registered { resumed: false } => {
                        let params = SessionAssignParams { session_id: "s".into(), ..SessionAssignParams::default() };
                        peer.assign(now, params, 1).unwrap();
                    }
                    Event::Registered { resumed: true } => call(peer, now, "second", 3),
                    Event::Done { token: 1, outcome } => {
                        outcome.unwrap();
                        call(peer, now, "first", 2);
                    }
                    Event::Done { token: 2, outcome: Ok(Completion::Tool(result)) } => {
                        self.results.push(result);
                        ended = true;
                        if self.cuts == 0 {
                            call(peer, now, "second", 3);
                        }
                    }
                    Event::Done { token: 3, outcome: Ok(Completion::Tool(result)) } => {
                        self.results.push(result);
                        let params = SessionStopParams { session_id: "s".into(), ..SessionStopParams::default() };
                        peer.stop_session(now, params, 4).unwrap();
                    }
                    Event::Done { token: 4, outcome } => {
                        assert_eq!(outcome, Ok(Completion::Ended));
                        peer.close(now, "done");
                    }
                    Event::Done { token, outcome } => panic!("{token}: {outcome:?}"),
                    _ => {}
                },
            }
        }
        ended
    }
}

impl Seat {
    fn write(&mut self) {
        self.channel.transmit(&mut self.out);
        // A peer that is gone is noticed by the next read.
        let _ = self.socket.write_all(&self.out);
        self.out.clear();
    }
}

fn call(peer: &mut ExecutorPeer, now: Time, command: &str, token: u64) {
    let params = ToolCallParams {
        session_id: "s".into(),
        tool: ToolName::Bash,
        input: Json::new(&serde_json::json!({"command": command})).unwrap(),
        ..ToolCallParams::default()
    };
    peer.call_tool(now, params, token).unwrap();
}

/// Runs both ends to their end. Gives how the executor ended, and the texts of the results.
fn together(token: &str, cuts: usize) -> (End, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let registry = Registry::new(&Config::default(), 3);
    let mut brain = Brain { listener, started: Instant::now(), registry, peer: None, results: Vec::new(), cuts };
    let token = token.to_owned();
    let hands = std::thread::spawn(move || blocking::Driver::new(&url, &token, blocking::echo).run());
    while !hands.is_finished() && brain.serve_one() {}
    let texts = brain.results.iter().map(|result| {
        assert_eq!(result.outcome, ToolOutcome::Succeeded);
        result.content[0].text.clone().unwrap()
    });
    (hands.join().unwrap(), texts.collect())
}

#[test]
fn the_core_alone_is_enough_on_both_ends() {
    let (end, results) = together("secret", 0);
    assert_eq!(end, End::ClosedByHarness("done".to_owned()));
    assert_eq!(results, ["first\nexit_code: 0", "second\nexit_code: 0"]);
}

#[test]
fn a_cut_connection_is_resumed() {
    let (end, results) = together("secret", 1);
    assert_eq!(end, End::ClosedByHarness("done".to_owned()));
    assert_eq!(results, ["first\nexit_code: 0", "second\nexit_code: 0"]);
}
