//! A complete executor on `std::net` alone: no async runtime, no threads.
//!
//! ```text
//! BMA_TOKEN=secret cargo run -p bma-proto-core --example blocking -- ws://127.0.0.1:8080/
//! ```
//!
//! It registers, takes every session, and serves a `bash` that runs nothing: it
//! answers with the command that it was given. It comes back after a lost
//! connection, and ends when the harness closes it for good.
//!
//! The loop is the whole of it. Two machines stand between the program and the
//! socket: [`Executor`] speaks the protocol, [`Channel`] the WebSocket. Each is
//! fed with what happened and drained of what it wants, until neither wants
//! anything; then the loop waits for bytes, or for the earlier of the two deadlines.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver is what has the clock and the socket"
)]

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bma_proto_core::contract::{
    BashInput, ContentBlock, ExecutorInfo, ExecutorTokenResponse, ProtocolVersion, ToolCallParams, ToolName,
    ToolOutcome, ToolResultParams,
};
use bma_proto_core::executor::{Config, Dial, DialError, End, Event, Executor, Input, Output};
use bma_proto_core::time::earliest;
use bma_proto_core::websocket::{self, Channel, ClientConfig, Closed, How, Target, Violation};
use bma_proto_core::{Machine, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("give the harness's URL, such as ws://127.0.0.1:8080/")?;
    let token = std::env::var("BMA_TOKEN").unwrap_or_default();
    let end = Driver::new(&url, &token, echo).run();
    println!("{end}");
    if end.is_orderly() { Ok(()) } else { Err(end.into()) }
}

/// The tool: it says what it was asked.
pub fn echo(call: &ToolCallParams) -> (ToolOutcome, String) {
    match call.read_input::<BashInput>() {
        Ok(input) => (ToolOutcome::Succeeded, format!("{}\nexit_code: 0", input.command)),
        Err(error) => (ToolOutcome::Failed, error.to_string()),
    }
}

/// An executor, its connection, and its one tool.
pub struct Driver<F> {
    url: String,
    token: String,
    tool: F,
    started: Instant,
    executor: Executor,
    wire: Option<Wire>,
}

/// A connection: the socket, the machine that makes sense of its bytes, and what is to be written.
struct Wire {
    socket: TcpStream,
    channel: Channel,
    out: Vec<u8>,
}

impl<F: FnMut(&ToolCallParams) -> (ToolOutcome, String)> Driver<F> {
    /// An executor for the harness at `url`, which starts with `ws://`.
    pub fn new(url: &str, token: &str, tool: F) -> Self {
        let info = ExecutorInfo {
            name: "blocking".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            ..ExecutorInfo::default()
        };
        // The seed spreads the waits between dials: it should differ from machine to machine.
        let mut executor = Executor::new(Config::new(info, u64::from(std::process::id())));
        executor.serve_tool(ToolName::Bash);
        let (url, token) = (url.to_owned(), token.to_owned());
        Self { url, token, tool, started: Instant::now(), executor, wire: None }
    }

    /// The time since the start: the one clock of both machines.
    fn now(&self) -> Time {
        Time::ORIGIN + self.started.elapsed()
    }

    /// Serves until the executor has ended for good.
    pub fn run(mut self) -> End {
        self.executor.start(self.now());
        loop {
            while self.drain() {}
            self.flush();
            if let (None, Some(end)) = (&self.wire, self.executor.end_state()) {
                return end.clone();
            }
            self.wait();
        }
    }

    /// Does what both machines want. False once neither wants anything.
    fn drain(&mut self) -> bool {
        let mut any = false;
        while let Some(output) = self.executor.poll() {
            any = true;
            match output {
                Output::FetchToken => {
                    // The same one each time; a program with short-lived tokens fetches a fresh one here.
                    let token = ExecutorTokenResponse {
                        ws_url: self.url.clone(),
                        token: self.token.as_str().into(),
                        ..ExecutorTokenResponse::default()
                    };
                    self.executor.feed(self.now(), Input::Token(Ok(token)));
                }
                Output::Dial(dial) => match connect(self.now(), dial) {
                    // The machine is told once the upgrade is over.
                    Ok(wire) => self.wire = Some(wire),
                    Err(error) => {
                        let error = DialError::Failed(error.to_string());
                        self.executor.feed(self.now(), Input::DialFailed(error));
                    }
                },
                Output::Frame(text) => {
                    if let Some(Wire { channel, out, .. }) = &mut self.wire
                        && let Err(error) = channel.send_text(&text, out)
                    {
                        eprintln!("a frame was not sent: {error}");
                    }
                }
                Output::Close { code, reason } => {
                    let now = self.now();
                    if let Some(wire) = &mut self.wire
                        && let Err(error) = wire.channel.close(now, code, &reason)
                    {
                        eprintln!("closed without a code: {error}");
                    }
                }
                Output::Event(event) => self.event(event),
            }
        }
        let now = self.now();
        while let Some(output) = self.wire.as_mut().and_then(|wire| wire.channel.poll()) {
            any = true;
            match output {
                websocket::Output::Open { protocol } => {
                    self.executor.feed(now, Input::Connected(ProtocolVersion::from(protocol)));
                }
                websocket::Output::Text(text) => self.executor.feed(now, Input::Frame(&text)),
                websocket::Output::Closed(closed) => {
                    self.flush();
                    self.wire = None;
                    self.closed(now, &closed);
                }
                websocket::Output::AuthRequired(_) => {} // only the accepting end gets it
            }
        }
        any
    }

    /// The connection has ended, or never came about.
    fn closed(&mut self, now: Time, closed: &Closed) {
        let input = match &closed.how {
            How::Upgrade(error) if error.is_unauthorized() => {
                Input::DialFailed(DialError::Unauthorized(error.to_string()))
            }
            How::Upgrade(error) => Input::DialFailed(DialError::Failed(error.to_string())),
            How::Violation(Violation::Subprotocol { .. }) => {
                Input::DialFailed(DialError::UnsupportedProtocol(closed.to_string()))
            }
            _ => Input::Disconnected { code: closed.code, reason: &closed.reason },
        };
        self.executor.feed(now, input);
    }

    /// The application: it takes every session and runs its tool on the spot.
    ///
    /// A tool that takes its time would run on a thread of its own; its result is
    /// given to `finish_tool_call` whenever it is there.
    fn event(&mut self, event: Event) {
        let now = self.now();
        let done = match event {
            Event::SessionAssign { offer, .. } => {
                let accepted = self.executor.accept_session(&offer);
                accepted.and_then(|()| self.executor.session_ready(now, offer.session_id()))
            }
            Event::SessionStop { session_id, .. } => self.executor.session_ended(now, &session_id, "stopped"),
            Event::ToolCall(call) => {
                let accepted = self.executor.accept_tool_call(&call.session_id, &call.tool_call_id);
                accepted.and_then(|()| {
                    let (outcome, text) = (self.tool)(&call);
                    let result = ToolResultParams {
                        session_id: call.session_id,
                        tool_call_id: call.tool_call_id,
                        outcome,
                        content: vec![ContentBlock::text(text)],
                        ..ToolResultParams::default()
                    };
                    self.executor.finish_tool_call(now, result)
                })
            }
            Event::Reconnecting { cause, wait, .. } => {
                eprintln!("{cause}; the next dial is in {} ms", wait.as_millis());
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(error) = done {
            eprintln!("too late: {error}");
        }
    }

    /// Writes everything that waits, in one piece.
    fn flush(&mut self) {
        let now = self.now();
        if let Some(Wire { socket, channel, out }) = &mut self.wire {
            channel.transmit(out);
            if socket.write_all(out).is_err() {
                channel.end_of_stream(now);
            }
            out.clear();
        }
    }

    /// Waits for bytes, or for the earlier deadline of the two machines.
    fn wait(&mut self) {
        let channel = self.wire.as_ref().and_then(|wire| wire.channel.deadline());
        let due = earliest(self.executor.deadline(), channel).map(|(at, _)| at.saturating_since(self.now()));
        match &mut self.wire {
            None => std::thread::sleep(due.unwrap_or(Duration::from_secs(1))),
            Some(Wire { socket, channel, .. }) => {
                // A time-out of zero would mean none at all.
                let timeout = due.map(|due| due.max(Duration::from_millis(1)));
                let mut buffer = [0; 16 * 1024];
                let read = socket.set_read_timeout(timeout).and_then(|()| socket.read(&mut buffer));
                let now = Time::ORIGIN + self.started.elapsed();
                match read {
                    Ok(0) => channel.end_of_stream(now),
                    Ok(n) => {
                        channel.receive(now, &buffer[..n]);
                        self.executor.feed(now, Input::Alive);
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => channel.end_of_stream(now),
                }
                channel.tick(now);
            }
        }
        self.executor.feed(self.now(), Input::Tick);
    }
}

/// Opens a socket; the upgrade follows through it.
fn connect(now: Time, dial: Dial) -> io::Result<Wire> {
    let invalid = |message: &str| io::Error::new(ErrorKind::InvalidInput, message.to_owned());
    let rest = dial.ws_url.strip_prefix("ws://").ok_or_else(|| invalid("url: this example speaks ws:// only"))?;
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let mut config = ClientConfig::new(host, path, Target::Control);
    config.bearer = Some(dial.token);
    config.protocols = vec![dial.protocol.as_str().to_owned()];
    let channel = Channel::client(now, config).map_err(|error| invalid(&error.to_string()))?;
    let socket = match host.contains(':') {
        true => TcpStream::connect(host)?,
        false => TcpStream::connect((host, 80))?,
    };
    socket.set_nodelay(true)?;
    // A harness that does not read must not hold the loop up for ever.
    socket.set_write_timeout(Some(Duration::from_secs(10)))?;
    Ok(Wire { socket, channel, out: Vec::new() })
}
