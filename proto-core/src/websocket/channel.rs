//! The channel: upgrade, then frames, then the closing handshake.

use std::collections::VecDeque;
use std::{fmt, mem};

use super::client::{self, Answer};
use super::config::{ClientConfig, ConfigError, Limits, ServerConfig, Upgraded};
use super::error::{Closed, How, Misuse, UpgradeError, Violation};
use super::frames::{self, Boundary, Event, Frames, Text};
use super::server::{self, Refusal, RequestHead, UpgradeRequest};
use super::{MAX_EARLY_BYTES, Target};
use crate::{Machine, Reason, Time};

/// The output queue keeps at most this much room once it is empty.
const KEEP_OUTPUTS: usize = 32;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The end that dialled and asked for the upgrade.
    Client,
    /// The end that accepted.
    Server,
}

/// What can happen to a channel from outside.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Bytes were read.
    Bytes(&'a [u8]),
    /// The stream ended, in order or by an error: nothing more will be read.
    EndOfStream,
    /// The clock moved on.
    Tick,
}

/// What comes of it.
#[derive(Debug)]
pub enum Output {
    /// Server: a well-formed upgrade request waits for [`Channel::accept`] or [`Channel::refuse`].
    AuthRequired(Box<UpgradeRequest>),
    /// The upgrade is done: text can be sent.
    Open {
        /// The subprotocol that was agreed on.
        protocol: String,
    },
    /// A text message.
    Text(Text),
    /// The end; the last output.
    Closed(Box<Closed>),
}

/// One WebSocket connection, either end, without a socket.
///
/// * **Constructors:** [`client`](Self::client), [`server`](Self::server), and
///   [`upgraded`](Self::upgraded) behind somebody else's HTTP server.
/// * **Inputs:** [`receive`](Self::receive), [`end_of_stream`](Self::end_of_stream), [`tick`](Self::tick).
/// * **Calls of the application:** [`accept`](Self::accept), [`refuse`](Self::refuse),
///   [`send_text`](Self::send_text), [`close`](Self::close).
/// * **Drain:** [`poll`](Self::poll) until `None`, then [`transmit`](Self::transmit).
///
/// A driver reads, calls `receive`, drains, writes the wire buffer, and waits for
/// the next bytes or for [`deadline`](Self::deadline). It stops reading while more
/// than a bound of its own waits to be written. After [`Output::Closed`] it
/// writes what is left, shuts down its half of the stream, reads on for a moment
/// where bytes may still be coming (dropping a socket with unread bytes resets it,
/// and the peer may never see a refusal or a close code), and drops it.
pub struct Channel {
    role: Role,
    limits: Limits,
    now: Time,
    /// The end of the time for the upgrade, or for the closing handshake.
    limit: Time,
    phase: Phase,
    outputs: VecDeque<Output>,
    /// What the channel itself has to say, in the order in which it goes out: our
    /// half of the upgrade, the pong to the latest ping, the close frame.
    head: Vec<u8>,
    pong: Vec<u8>,
    close: Vec<u8>,
}

enum Phase {
    /// Client: the request is out.
    Asking(Box<Answer>),
    /// Server: the request is coming.
    Hearing(Box<RequestHead>),
    /// Server: the application decides.
    Deciding(Box<Deciding>),
    Open(Box<Frames>),
    /// Our close frame is out.
    Closing(Box<Closing>),
    Over,
}

#[derive(Default)]
struct Deciding {
    accept: String,
    protocol: Option<String>,
    target: Target,
    /// What this end accepts, for the message when nothing is in common.
    ours: Vec<String>,
    /// What has come after the head.
    early: Vec<u8>,
}

struct Closing {
    reader: Reader,
    code: u16,
    reason: String,
    /// What we closed for, if it was the peer's fault.
    violation: Option<Violation>,
}

/// What is done with the peer's frames while its close frame is awaited.
enum Reader {
    Decode(Box<Frames>),
    /// After a violation: only a close frame is looked for.
    Skip(Boundary),
}

impl Channel {
    /// The dialling end. The request is ready to [`transmit`](Self::transmit).
    ///
    /// # Errors
    /// When no well-formed request can be made of the configuration.
    pub fn client(now: Time, config: ClientConfig) -> Result<Self, ConfigError> {
        let limits = Limits { max_message_bytes: config.limits.max_message_bytes_for(&config.target), ..config.limits };
        let mut channel = Self::new(now, Role::Client, limits, Phase::Over);
        let answer = Answer::new(config, &mut channel.head)?;
        channel.phase = Phase::Asking(Box::new(answer));
        Ok(channel)
    }

    /// The accepting end, before any byte was read.
    pub fn server(now: Time, config: ServerConfig) -> Self {
        let head = RequestHead::new(config.protocols);
        Self::new(now, Role::Server, config.limits, Phase::Hearing(Box::new(head)))
    }

    /// Either end of a connection that was upgraded elsewhere. [`Output::Open`]
    /// is queued at once; bytes read beyond the upgrade's head go to [`receive`](Self::receive).
    pub fn upgraded(now: Time, upgraded: Upgraded) -> Self {
        let mut channel = Self::new(now, upgraded.role, upgraded.limits, Phase::Over);
        channel.open(&upgraded.target, upgraded.protocol);
        channel
    }

    fn new(now: Time, role: Role, limits: Limits, phase: Phase) -> Self {
        Self {
            role,
            limits,
            now,
            limit: now + limits.handshake_timeout,
            phase,
            outputs: VecDeque::new(),
            head: Vec::new(),
            pong: Vec::new(),
            close: Vec::new(),
        }
    }

    /// Takes bytes that were read; any split of the stream gives the same outputs.
    pub fn receive(&mut self, now: Time, bytes: &[u8]) {
        self.advance(now);
        if bytes.is_empty() {
            return;
        }
        match &mut self.phase {
            Phase::Open(_) | Phase::Closing(_) => self.read_frames(bytes),
            Phase::Asking(answer) => match answer.receive(bytes) {
                client::Step::More => {}
                client::Step::Failed(error) => self.fail_upgrade(error),
                client::Step::Upgraded { protocol, consumed } => {
                    self.enter(&Target::Control, protocol);
                    self.receive(now, &bytes[consumed..]);
                }
            },
            Phase::Hearing(head) => match head.receive(bytes) {
                server::Step::More => {}
                server::Step::Refuse(refusal) => self.write_refusal(refusal),
                server::Step::Request { request, accept, consumed } => {
                    self.phase = Phase::Deciding(Box::new(Deciding {
                        accept,
                        protocol: request.protocol.clone(),
                        target: request.target.clone(),
                        ours: head.protocols().to_vec(),
                        early: Vec::new(),
                    }));
                    self.outputs.push_back(Output::AuthRequired(request));
                    self.receive(now, &bytes[consumed..]);
                }
            },
            Phase::Deciding(deciding) => {
                if bytes.len() > MAX_EARLY_BYTES - deciding.early.len() {
                    self.write_refusal(Refusal::new(400, "a client waits for the answer before it sends frames"));
                } else {
                    deciding.early.extend_from_slice(bytes);
                }
            }
            Phase::Over => {}
        }
    }

    /// The stream ended, or failed: nothing more will be read, and nothing need be written.
    pub fn end_of_stream(&mut self, now: Time) {
        self.advance(now);
        match &mut self.phase {
            Phase::Asking(answer) => {
                let error = answer.end_of_stream();
                self.fail_upgrade(error);
            }
            Phase::Hearing(_) | Phase::Deciding(_) => self.fail_upgrade(UpgradeError::Ended),
            Phase::Open(_) => self.end(Closed { code: None, reason: String::new(), how: How::Lost }),
            Phase::Closing(_) => self.end_closing(false),
            Phase::Over => {}
        }
    }

    /// The clock moved on. At the [`deadline`](Self::deadline) this ends what took too long.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
        if self.now < self.limit {
            return;
        }
        let timeout = UpgradeError::Timeout { after: self.limits.handshake_timeout };
        match &mut self.phase {
            Phase::Asking(answer) => {
                let error = answer.rejection().unwrap_or(timeout);
                self.fail_upgrade(error);
            }
            Phase::Hearing(_) => {
                Refusal::new(408, "the upgrade request did not arrive in time").write(&mut self.head);
                self.fail_upgrade(timeout);
            }
            Phase::Deciding(_) => {
                Refusal::new(503, "the upgrade request was not decided in time").write(&mut self.head);
                self.fail_upgrade(timeout);
            }
            Phase::Closing(_) => self.end_closing(false),
            Phase::Open(_) | Phase::Over => {}
        }
    }

    /// Server: answers the request with 101. [`Output::Open`] follows, or, when no
    /// subprotocol is in common, the closing handshake with code 4003: a client
    /// that finds nothing in common must not come back, and only a close code can tell it that.
    ///
    /// # Errors
    /// [`Misuse::NoRequest`] when none waits for an answer, for example because
    /// the client went away while it was decided about.
    pub fn accept(&mut self, now: Time) -> Result<(), Misuse> {
        self.advance(now);
        let Phase::Deciding(deciding) = &mut self.phase else { return Err(Misuse::NoRequest) };
        let Deciding { accept, protocol, target, ours, early } = mem::take(deciding.as_mut());
        server::write_accepted(&accept, protocol.as_deref(), &mut self.head);
        let protocol = protocol.ok_or_else(|| Violation::Subprotocol { ours: ours.join(", ") });
        self.enter(&target, protocol);
        self.receive(now, &early);
        Ok(())
    }

    /// Server: answers the request with an HTTP status and a text, and ends.
    ///
    /// # Errors
    /// [`Misuse::NoRequest`] when none waits for an answer, [`Misuse::Status`] for a status below 400 or above 599.
    pub fn refuse(&mut self, now: Time, status: u16, message: &str) -> Result<(), Misuse> {
        self.advance(now);
        let Phase::Deciding(_) = self.phase else { return Err(Misuse::NoRequest) };
        if !(400..600).contains(&status) {
            return Err(Misuse::Status(status));
        }
        self.write_refusal(Refusal::new(status, message.to_owned()));
        Ok(())
    }

    /// Appends a text message to `wire`, after whatever else waits to be written.
    /// The text is copied once.
    ///
    /// # Errors
    /// When the channel is not open, or the text is over the limit. Nothing is written then.
    pub fn send_text(&mut self, text: &str, wire: &mut Vec<u8>) -> Result<(), Misuse> {
        let limit = match &self.phase {
            Phase::Open(frames) => frames.limit(),
            Phase::Asking(_) | Phase::Hearing(_) | Phase::Deciding(_) => return Err(Misuse::NotOpen),
            Phase::Closing(_) | Phase::Over => return Err(Misuse::Closing),
        };
        if text.len() > limit {
            return Err(Misuse::TooLarge { bytes: text.len(), limit });
        }
        self.transmit(wire);
        frames::write_text(self.role, text, wire);
        Ok(())
    }

    /// Begins the closing handshake; messages still arrive until the peer answers.
    /// During the upgrade it ends the channel at once. The reason is cut to the
    /// 123 bytes that fit, between characters. Again, or after the peer closed, it does nothing.
    ///
    /// # Errors
    /// [`Misuse::CloseCode`] when RFC 6455 does not allow sending this code.
    pub fn close(&mut self, now: Time, code: u16, reason: &str) -> Result<(), Misuse> {
        self.advance(now);
        if !matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999) {
            return Err(Misuse::CloseCode(code));
        }
        match mem::replace(&mut self.phase, Phase::Over) {
            Phase::Open(frames) => self.start_closing(Reader::Decode(frames), code, reason, None),
            Phase::Asking(_) => self.fail_upgrade(UpgradeError::Abandoned),
            Phase::Hearing(_) | Phase::Deciding(_) => {
                Refusal::new(503, "the server is closing").write(&mut self.head);
                self.fail_upgrade(UpgradeError::Abandoned);
            }
            phase @ (Phase::Closing(_) | Phase::Over) => self.phase = phase,
        }
        Ok(())
    }

    /// The next output, oldest first.
    #[must_use]
    pub fn poll(&mut self) -> Option<Output> {
        let output = self.outputs.pop_front();
        if self.outputs.is_empty() && self.outputs.capacity() > KEEP_OUTPUTS {
            self.outputs = VecDeque::new();
        }
        output
    }

    /// Appends to `wire` what the channel itself has to say: handshake, pong, close frame.
    pub fn transmit(&mut self, wire: &mut Vec<u8>) {
        if !self.head.is_empty() {
            wire.append(&mut mem::take(&mut self.head));
        }
        wire.append(&mut self.pong);
        wire.append(&mut self.close);
    }

    /// When to call [`tick`](Self::tick). Now, while outputs are to be polled or bytes to be transmitted.
    #[must_use]
    pub fn deadline(&self) -> Option<(Time, Reason)> {
        if !self.is_drained() {
            return Some((self.now, Reason::OutputQueued));
        }
        match self.phase {
            Phase::Asking(_) | Phase::Hearing(_) | Phase::Deciding(_) | Phase::Closing(_) => {
                Some((self.limit, Reason::HandshakeTimeout))
            }
            Phase::Open(_) | Phase::Over => None,
        }
    }

    /// Which end this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether text can be sent.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// Whether the channel has ended. [`Output::Closed`] and bytes to transmit may still wait.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Whether the channel is open, no message is half received, and nothing waits to be polled or transmitted.
    pub fn is_idle(&self) -> bool {
        matches!(&self.phase, Phase::Open(frames) if frames.is_idle()) && self.is_drained()
    }

    /// The most that the channel's own buffers hold on the heap, in bytes. Messages
    /// that were not polled yet are not counted.
    pub fn buffer_bytes(&self) -> usize {
        let phase = match &self.phase {
            Phase::Asking(answer) => size_of::<Answer>() + answer.capacity(),
            Phase::Hearing(head) => size_of::<RequestHead>() + head.capacity(),
            Phase::Deciding(deciding) => size_of::<Deciding>() + deciding.early.capacity(),
            Phase::Open(frames) => size_of::<Frames>() + frames.capacity(),
            Phase::Closing(closing) => {
                let reader = match &closing.reader {
                    Reader::Decode(frames) => size_of::<Frames>() + frames.capacity(),
                    Reader::Skip(_) => 0,
                };
                size_of::<Closing>() + reader + closing.reason.capacity()
            }
            Phase::Over => 0,
        };
        let words = self.head.capacity() + self.pong.capacity() + self.close.capacity();
        phase + words + self.outputs.capacity() * size_of::<Output>()
    }

    /// Whether nothing waits to be polled or transmitted.
    fn is_drained(&self) -> bool {
        self.outputs.is_empty() && self.head.is_empty() && self.pong.is_empty() && self.close.is_empty()
    }

    /// Time never runs backwards here.
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// The upgrade is done: opens the channel, or closes it again for want of a subprotocol.
    fn enter(&mut self, target: &Target, protocol: Result<String, Violation>) {
        match protocol {
            Ok(protocol) => self.open(target, protocol),
            Err(violation) => {
                let (code, reason) = (violation.close_code(), violation.to_string());
                self.start_closing(Reader::Skip(Boundary::default()), code, &reason, Some(violation));
            }
        }
    }

    fn open(&mut self, target: &Target, protocol: String) {
        let limit = self.limits.max_message_bytes_for(target);
        self.phase = Phase::Open(Box::new(Frames::new(self.role, limit)));
        self.outputs.push_back(Output::Open { protocol });
    }

    fn read_frames(&mut self, bytes: &[u8]) {
        let (frames, answer_pings) = match &mut self.phase {
            Phase::Open(frames) => (frames, true),
            Phase::Closing(closing) => match &mut closing.reader {
                Reader::Decode(frames) => (frames, false),
                Reader::Skip(boundary) => {
                    boundary.advance(bytes);
                    if boundary.is_closed() {
                        self.end_closing(true);
                    }
                    return;
                }
            },
            Phase::Asking(_) | Phase::Hearing(_) | Phase::Deciding(_) | Phase::Over => return,
        };
        let (role, outputs, pong) = (frames.role(), &mut self.outputs, &mut self.pong);
        let mut close = None;
        let result = frames.receive(bytes, |event| match event {
            Event::Text(text) => outputs.push_back(Output::Text(text)),
            Event::Ping(payload) if answer_pings => {
                pong.clear();
                frames::write_pong(role, &payload, pong);
            }
            Event::Ping(_) => {}
            Event::Close(frame) => close = Some(frame),
        });
        match (result, close) {
            (Err(violation), _) => self.break_off(violation),
            (Ok(()), Some(frame)) => self.peer_closed(frame),
            (Ok(()), None) => {}
        }
    }

    /// The peer broke the rules: closes for it, and decodes nothing more.
    fn break_off(&mut self, violation: Violation) {
        match mem::replace(&mut self.phase, Phase::Over) {
            Phase::Open(frames) => {
                let (code, reason) = (violation.close_code(), violation.to_string());
                self.start_closing(Reader::Skip(frames.into_boundary()), code, &reason, Some(violation));
            }
            Phase::Closing(closing) => {
                let Closing { reader, code, reason, violation } = *closing;
                let boundary = match reader {
                    Reader::Decode(frames) => frames.into_boundary(),
                    Reader::Skip(boundary) => boundary,
                };
                let reader = Reader::Skip(boundary);
                self.phase = Phase::Closing(Box::new(Closing { reader, code, reason, violation }));
            }
            phase @ (Phase::Asking(_) | Phase::Hearing(_) | Phase::Deciding(_) | Phase::Over) => self.phase = phase,
        }
        // The peer's close frame may have come in the same bytes.
        self.read_frames(&[]);
    }

    /// The peer's close frame: the answer to ours, or its own, which is answered.
    fn peer_closed(&mut self, frame: Option<(u16, String)>) {
        if let Phase::Closing(closing) = &self.phase {
            match frame {
                Some((code, reason)) if (4000..5000).contains(&code) && code != closing.code => {
                    self.end(Closed { code: Some(code), reason, how: How::Peer });
                }
                Some(_) | None => self.end_closing(true),
            }
            return;
        }
        frames::write_close(self.role, frame.as_ref().map(|(code, _)| (*code, "")), &mut self.close);
        let (code, reason) = frame.map_or((None, String::new()), |(code, reason)| (Some(code), reason));
        self.end(Closed { code, reason, how: How::Peer });
    }

    fn start_closing(&mut self, reader: Reader, code: u16, reason: &str, violation: Option<Violation>) {
        let reason = frames::cut_reason(reason);
        frames::write_close(self.role, Some((code, reason)), &mut self.close);
        self.limit = self.now + self.limits.close_timeout;
        self.phase = Phase::Closing(Box::new(Closing { reader, code, reason: reason.to_owned(), violation }));
    }

    fn end_closing(&mut self, answered: bool) {
        let phase = mem::replace(&mut self.phase, Phase::Over);
        let Phase::Closing(closing) = phase else {
            self.phase = phase;
            return;
        };
        let how = match closing.violation {
            Some(violation) => How::Violation(violation),
            None if answered => How::Local,
            None => How::LocalUnanswered,
        };
        self.end(Closed { code: Some(closing.code), reason: closing.reason, how });
    }

    fn write_refusal(&mut self, refusal: Refusal) {
        refusal.write(&mut self.head);
        self.fail_upgrade(UpgradeError::Refused { status: refusal.status, message: refusal.message.into_owned() });
    }

    fn fail_upgrade(&mut self, error: UpgradeError) {
        self.end(Closed { code: None, reason: String::new(), how: How::Upgrade(error) });
    }

    fn end(&mut self, closed: Closed) {
        self.phase = Phase::Over;
        self.outputs.push_back(Output::Closed(Box::new(closed)));
    }
}

impl Machine for Channel {
    type Input<'a> = Input<'a>;
    type Output = Output;

    fn feed(&mut self, now: Time, input: Input<'_>) {
        match input {
            Input::Bytes(bytes) => self.receive(now, bytes),
            Input::EndOfStream => self.end_of_stream(now),
            Input::Tick => self.tick(now),
        }
    }

    fn poll(&mut self) -> Option<Output> {
        Channel::poll(self)
    }

    fn deadline(&self) -> Option<(Time, Reason)> {
        Channel::deadline(self)
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match &self.phase {
            Phase::Asking(_) => "asking",
            Phase::Hearing(_) => "hearing",
            Phase::Deciding(_) => "deciding",
            Phase::Open(_) => "open",
            Phase::Closing(_) => "closing",
            Phase::Over => "over",
        };
        f.debug_struct("Channel")
            .field("role", &self.role)
            .field("phase", &phase)
            .field("outputs", &self.outputs.len())
            .finish_non_exhaustive()
    }
}
