//! The BMA Executor Protocol (`bma.executor.v1.1`) as pure state machines.
//!
//! A machine with hands, the *executor*, dials a *harness* over WebSocket, registers,
//! gets sessions, and runs tools for it. This crate is both ends of that without
//! any I/O: it reads no clock, opens no socket, starts no task and draws no
//! randomness. Bytes and the time go in; frames and events come out. So it runs
//! under any runtime or none, in a simulation, a fuzzer or a model checker, and
//! the same inputs give the same run.
//!
//! Everything stateful is a [`Machine`] with three verbs: feed it what happened,
//! poll what it wants until there is nothing, and come back at its deadline. This
//! is a whole executor on `std::net`:
//!
//! ```no_run
//! # #[cfg(feature = "websocket")] {
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//! use std::time::{Duration, Instant};
//!
//! use bma_proto_core::contract::*;
//! use bma_proto_core::executor::{Config, DialError, Event, Executor, Input, Output};
//! use bma_proto_core::websocket::{self, Channel, ClientConfig, Target};
//! use bma_proto_core::{Machine, Time, time::earliest};
//!
//! let started = Instant::now();
//! let now = || Time::ORIGIN + started.elapsed();
//! let mut executor = Executor::new(Config::new(ExecutorInfo::default(), 7));
//! executor.serve_tool(ToolName::Bash);
//! executor.start(now());
//! let mut wire: Option<(TcpStream, Channel)> = None;
//!
//! while executor.end_state().is_none() || wire.is_some() {
//!     // What the protocol wants.
//!     let mut out = Vec::new();
//!     while let Some(output) = executor.poll() {
//!         match (output, &mut wire) {
//!             (Output::FetchToken, _) => {
//!                 let ws_url = "ws://127.0.0.1:8080/".to_owned();
//!                 let token = ExecutorTokenResponse { ws_url, token: "secret".into(), ..Default::default() };
//!                 executor.feed(now(), Input::Token(Ok(token)));
//!             }
//!             (Output::Dial(dial), _) => {
//!                 let mut config = ClientConfig::new("127.0.0.1:8080", "/", Target::Control);
//!                 config.bearer = Some(dial.token);
//!                 match TcpStream::connect("127.0.0.1:8080") {
//!                     Ok(socket) => wire = Some((socket, Channel::client(now(), config).unwrap())),
//!                     Err(error) => {
//!                         executor.feed(now(), Input::DialFailed(DialError::Failed(error.to_string())));
//!                     }
//!                 }
//!             }
//!             (Output::Frame(text), Some((_, channel))) => channel.send_text(&text, &mut out).unwrap(),
//!             (Output::Close { code, reason }, Some((_, channel))) => channel.close(now(), code, &reason).unwrap(),
//!             (Output::Event(Event::SessionAssign { offer, .. }), _) => {
//!                 executor.accept_session(&offer).unwrap();
//!                 executor.session_ready(now(), offer.session_id()).unwrap();
//!             }
//!             (Output::Event(Event::SessionStop { session_id, .. }), _) => {
//!                 executor.session_ended(now(), &session_id, "stopped").unwrap();
//!             }
//!             (Output::Event(Event::ToolCall(call)), _) => {
//!                 executor.accept_tool_call(&call.session_id, &call.tool_call_id).unwrap();
//!                 let result = ToolResultParams {
//!                     session_id: call.session_id,
//!                     tool_call_id: call.tool_call_id,
//!                     outcome: ToolOutcome::Succeeded,
//!                     content: vec![ContentBlock::text("hello")],
//!                     ..Default::default()
//!                 };
//!                 executor.finish_tool_call(now(), result).unwrap();
//!             }
//!             _ => {}
//!         }
//!     }
//!     let Some((socket, channel)) = &mut wire else {
//!         let due = executor.deadline().map_or(Duration::ZERO, |(at, _)| at.saturating_since(now()));
//!         std::thread::sleep(due);
//!         executor.feed(now(), Input::Tick);
//!         continue;
//!     };
//!     // What came through the WebSocket.
//!     let mut closed = None;
//!     while let Some(output) = channel.poll() {
//!         match output {
//!             websocket::Output::Open { protocol } => executor.feed(now(), Input::Connected(protocol.into())),
//!             websocket::Output::Text(text) => executor.feed(now(), Input::Frame(&text)),
//!             websocket::Output::Closed(end) => closed = Some(end),
//!             websocket::Output::AuthRequired(_) => {} // the accepting end's
//!         }
//!     }
//!     // Write, then wait for bytes or for the earlier deadline.
//!     channel.transmit(&mut out);
//!     let written = socket.write_all(&out);
//!     if let Some(end) = closed {
//!         executor.feed(now(), Input::Disconnected { code: end.code, reason: &end.reason });
//!         wire = None;
//!         continue;
//!     }
//!     let due = earliest(executor.deadline(), channel.deadline());
//!     let wait = due.map(|(at, _)| at.saturating_since(now()).max(Duration::from_millis(1)));
//!     let mut buffer = [0; 16 * 1024];
//!     match written.and(socket.set_read_timeout(wait)).and_then(|()| socket.read(&mut buffer)) {
//!         Ok(0) => channel.end_of_stream(now()),
//!         Ok(n) => channel.receive(now(), &buffer[..n]),
//!         Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
//!         Err(_) => channel.end_of_stream(now()),
//!     }
//!     channel.tick(now());
//!     executor.feed(now(), Input::Tick);
//! }
//! # }
//! ```
//!
//! `examples/blocking.rs` is the same with its errors handled; a test runs it
//! against a harness that is made of this crate alone.
//!
//! # The machines
//!
//! | Module | What it owns |
//! |---|---|
//! | [`rpc`] | JSON-RPC 2.0: ids, requests and their deadlines, bounds, malformed frames |
//! | `websocket` (a feature) | bytes and text frames: the HTTP upgrade, limits, close codes |
//! | [`executor`] | an executor over all its connections: token, registration, heartbeat, sessions, tool calls and the delivery of their results |
//! | [`harness`] | who is connected, and one machine for each executor: lease, sessions, tool calls |
//!
//! [`contract`] has the wire types and the catalogue of methods that all of them speak.
//!
//! # How to drive one
//!
//! - After every input and every call, drain: [`poll`](Machine::poll) until `None`.
//!   While output is queued the [`deadline`](Machine::deadline) is now.
//! - At the deadline feed a tick. It always moves the deadline on.
//! - Times only need to be monotonic from an origin of your choice. One that runs
//!   backwards is taken for the latest one known.
//! - What the peer does wrong is answered, counted and survived; what the caller
//!   does wrong is the error of the call, and changes nothing.
//! - Everything is bounded, and what happens at each bound stands with it.
//!
//! # Features
//!
//! `websocket` (default): the byte-level channel. It draws frame masks from the
//! operating system, as RFC 6455 wants; without it the crate draws nothing at all.
#![forbid(unsafe_code)]
#![warn(clippy::iter_over_hash_type)]

mod calls;
pub mod contract;
pub mod executor;
mod fault;
pub mod harness;
mod rng;
pub mod rpc;
pub mod time;
#[cfg(feature = "websocket")]
pub mod websocket;

pub use time::{Machine, Reason, Time};
