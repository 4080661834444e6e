//! Frames: decoded by tungstenite over borrowed memory, written straight into the wire buffer.

use std::fmt;
use std::io::{self, Read, Write};
use std::ops::Deref;

use tungstenite::error::{CapacityError, Error};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};
use tungstenite::protocol::{Role as ContextRole, WebSocketConfig, WebSocketContext};
use tungstenite::{Bytes, Message, Utf8Bytes};

use super::Role;
use super::error::Violation;

/// The decoder's buffer, which an idle connection keeps.
const READ_BUFFER_BYTES: usize = 2 * 1024;

/// Frames up to this size leave the decoder's buffer small enough to keep.
const KEEP_BYTES: u64 = 4 * 1024;

/// The longest control frame's payload (RFC 6455, section 5.5).
const MAX_CONTROL_BYTES: usize = 125;

/// A text message. It shares memory with the others that were read with it, so
/// keep what you need of it and let it go.
#[derive(Clone, PartialEq, Eq)]
pub struct Text(Utf8Bytes);

impl Text {
    /// The message.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl Deref for Text {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Text {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl From<Text> for String {
    fn from(text: Text) -> String {
        text.as_str().to_owned()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Text {
    /// The length only: frames carry what must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} bytes)", self.len())
    }
}

/// What a peer's frames say.
#[derive(Debug)]
pub(super) enum Event {
    Text(Text),
    Ping(Bytes),
    /// The last event: nothing after a close frame is read.
    Close(Option<(u16, String)>),
}

/// Decodes the frames of one connection.
pub(super) struct Frames {
    role: Role,
    limit: usize,
    context: WebSocketContext,
    boundary: Boundary,
}

impl Frames {
    pub(super) fn new(role: Role, limit: usize) -> Self {
        Self { role, limit, context: new_context(role, limit), boundary: Boundary::default() }
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Whether no message is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.boundary.is_idle()
    }

    /// The capacity that the decoder's buffer has at most.
    pub(super) fn capacity(&self) -> usize {
        let largest = usize::try_from(self.boundary.largest).unwrap_or(usize::MAX);
        READ_BUFFER_BYTES.max(largest.saturating_add(MAX_HEADER_BYTES))
    }

    /// Where the peer's frames stand, to go on without decoding them.
    pub(super) fn into_boundary(self) -> Boundary {
        self.boundary
    }

    /// Decodes what arrived. After a violation, or a close frame, call it no more.
    pub(super) fn receive(&mut self, bytes: &[u8], mut event: impl FnMut(Event)) -> Result<(), Violation> {
        self.boundary.advance(bytes);
        let mut memory = Memory { unread: bytes };
        loop {
            match self.context.read(&mut memory) {
                Ok(Message::Text(text)) => event(Event::Text(Text(text))),
                Ok(Message::Ping(payload)) => event(Event::Ping(payload)),
                Ok(Message::Pong(_)) => {}
                Ok(Message::Close(close)) => {
                    event(Event::Close(close.map(|frame| (frame.code.into(), frame.reason.to_string()))));
                    return Ok(());
                }
                Ok(Message::Binary(_)) => return Err(Violation::Binary),
                // Only a raw write produces one.
                Ok(Message::Frame(_)) => {}
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(Error::Capacity(CapacityError::MessageTooLong { .. })) => {
                    return Err(Violation::TooLarge { limit: self.limit });
                }
                Err(Error::Utf8(_)) => return Err(Violation::NotUtf8),
                // Protocol errors are static sentences; no other kind can come from memory.
                Err(error) => return Err(Violation::Frame(error.to_string())),
            }
        }
        // The decoder's buffer never shrinks by itself.
        if self.boundary.is_idle() && self.boundary.largest > KEEP_BYTES {
            self.context = new_context(self.role, self.limit);
            self.boundary.largest = 0;
        }
        Ok(())
    }
}

impl fmt::Debug for Frames {
    /// Not the decoder: its buffer holds what must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("role", &self.role).field("boundary", &self.boundary).finish_non_exhaustive()
    }
}

fn new_context(role: Role, limit: usize) -> WebSocketContext {
    let role = match role {
        Role::Client => ContextRole::Client,
        Role::Server => ContextRole::Server,
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(limit))
        // The frame limit holds for control frames as well.
        .max_frame_size(Some(limit.max(MAX_CONTROL_BYTES)))
        .accept_unmasked_frames(false);
    WebSocketContext::new(role, Some(config))
}

/// The stream that the decoder sees: the bytes at hand, and a sink. What it writes
/// are its own pongs and close frames; those are the channel's to send, bounded.
struct Memory<'a> {
    unread: &'a [u8],
}

impl Read for Memory<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.unread.read(into)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            read => Ok(read),
        }
    }
}

impl Write for Memory<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Appends a text frame.
pub(super) fn write_text(role: Role, text: &str, out: &mut Vec<u8>) {
    write_frame(role, OpCode::Data(Data::Text), text.as_bytes(), out);
}

/// Appends a pong.
pub(super) fn write_pong(role: Role, payload: &[u8], out: &mut Vec<u8>) {
    write_frame(role, OpCode::Control(Control::Pong), payload, out);
}

/// Appends a close frame. The reason must fit: see [`cut_reason`].
pub(super) fn write_close(role: Role, close: Option<(u16, &str)>, out: &mut Vec<u8>) {
    let mut payload = Vec::new();
    if let Some((code, reason)) = close {
        payload.extend_from_slice(&code.to_be_bytes());
        payload.extend_from_slice(reason.as_bytes());
    }
    write_frame(role, OpCode::Control(Control::Close), &payload, out);
}

/// The part of a close reason that fits its frame, cut between characters.
pub(super) fn cut_reason(reason: &str) -> &str {
    let mut end = reason.len().min(MAX_CONTROL_BYTES - 2);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}

fn write_frame(role: Role, opcode: OpCode, payload: &[u8], out: &mut Vec<u8>) {
    let mask: Option<[u8; 4]> = match role {
        Role::Client => Some(rand::random()),
        Role::Server => None,
    };
    out.reserve(MAX_HEADER_BYTES + payload.len());
    let header = FrameHeader { opcode, mask, ..FrameHeader::default() };
    #[allow(clippy::unwrap_used)] // Writing to a Vec cannot fail.
    header.format(payload.len() as u64, out).unwrap();
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        apply_mask(&mut out[start..], mask);
    }
}

fn apply_mask(payload: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (blocks, rest) = payload.as_chunks_mut::<8>();
    for block in blocks {
        *block = (u64::from_ne_bytes(*block) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip([a, b, c, d, a, b, c]) {
        *byte ^= mask;
    }
}

/// Two bytes, eight of length, four of mask.
const MAX_HEADER_BYTES: usize = 14;

/// Follows the frames of a byte stream by their headers alone.
///
/// The decoder does not say whether it stands between frames, nor how large its
/// buffer has become; and after a violation nothing may be decoded, but the
/// peer's close frame is still awaited.
#[derive(Clone, Debug, Default)]
pub(super) struct Boundary {
    header: [u8; MAX_HEADER_BYTES],
    header_length: usize,
    /// Bytes of payload still to come.
    payload_left: u64,
    /// A fragmented message is under way.
    fragmented: bool,
    /// The longest payload since this was last set to zero.
    largest: u64,
    /// A whole close frame has gone by; what follows is not looked at.
    closed: bool,
}

impl Boundary {
    /// Whether a whole close frame has gone by.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether no message is under way.
    fn is_idle(&self) -> bool {
        self.header_length == 0 && !self.fragmented
    }

    /// Follows `bytes`.
    pub(super) fn advance(&mut self, mut bytes: &[u8]) {
        while !self.closed {
            if self.payload_left > 0 {
                let skip = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(bytes.len());
                bytes = &bytes[skip..];
                self.payload_left -= skip as u64;
                if self.payload_left > 0 {
                    return;
                }
                self.end_of_frame();
                continue;
            }
            let Some((byte, rest)) = bytes.split_first() else { return };
            bytes = rest;
            self.header[self.header_length] = *byte;
            self.header_length += 1;
            if let Some(payload) = self.payload_length() {
                self.largest = self.largest.max(payload);
                self.payload_left = payload;
                if payload == 0 {
                    self.end_of_frame();
                }
            }
        }
    }

    /// The payload's length, once the header is complete.
    fn payload_length(&self) -> Option<u64> {
        let [_, second, extended @ ..] = &self.header;
        let extended_length = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_length = if second & 0x80 == 0 { 0 } else { 4 };
        if self.header_length < 2 + extended_length + mask_length {
            return None;
        }
        Some(match extended_length {
            0 => u64::from(second & 0x7f),
            length => extended[..length].iter().fold(0, |value, byte| value << 8 | u64::from(*byte)),
        })
    }

    fn end_of_frame(&mut self) {
        let (opcode, is_final) = (self.header[0] & 0x0f, self.header[0] & 0x80 != 0);
        self.header_length = 0;
        match opcode {
            8 => self.closed = true,
            // Other control frames may come between the fragments of a message.
            9.. => {}
            _ => self.fragmented = !is_final,
        }
    }
}

#[cfg(test)]
mod tests {
    // A test panics on purpose.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        assert_eq!(cut_reason("short"), "short");
        assert_eq!(cut_reason(&"x".repeat(200)).len(), 123);
        assert_eq!(cut_reason(&"é".repeat(100)).len(), 122);
    }

    #[test]
    fn a_boundary_is_seen_at_every_split() {
        let mut stream = Vec::new();
        let mut idle_at = vec![0];
        for length in [0, 1, 125, 126, 65_535, 65_536] {
            for role in [Role::Client, Role::Server] {
                write_text(role, &"x".repeat(length), &mut stream);
                idle_at.push(stream.len());
            }
        }
        // A message in two fragments with a ping between them.
        stream.extend_from_slice(&[0x01, 0, 0x89, 1, b'p', 0x80, 1, b'x']);
        idle_at.push(stream.len());
        let mut boundary = Boundary::default();
        for (place, byte) in stream.iter().enumerate() {
            assert_eq!(boundary.is_idle(), idle_at.contains(&place), "at byte {place}");
            boundary.advance(&[*byte]);
        }
        assert!(boundary.is_idle() && !boundary.is_closed());
        assert_eq!(boundary.largest, 65_536);
        write_close(Role::Client, Some((1000, "bye")), &mut stream);
        let mut boundary = Boundary::default();
        boundary.advance(&stream);
        assert!(boundary.is_closed());
    }

    proptest! {
        #[test]
        fn a_mask_applied_twice_is_gone(payload in prop::collection::vec(any::<u8>(), 0..40), mask: [u8; 4]) {
            let mut masked = payload.clone();
            apply_mask(&mut masked, mask);
            let slowly: Vec<u8> = payload.iter().enumerate().map(|(place, byte)| byte ^ mask[place % 4]).collect();
            prop_assert_eq!(&masked, &slowly);
            apply_mask(&mut masked, mask);
            prop_assert_eq!(masked, payload);
        }

        #[test]
        fn any_bytes_are_followed_alike_whole_and_in_pieces(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..200) {
            let at = at.min(bytes.len());
            let (mut whole, mut pieces) = (Boundary::default(), Boundary::default());
            whole.advance(&bytes);
            pieces.advance(&bytes[..at]);
            pieces.advance(&bytes[at..]);
            prop_assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
        }
    }
}
