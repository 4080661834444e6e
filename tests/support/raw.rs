//! WebSocket by hand over a blocking TCP stream: for peers that keep no rules,
//! and must be able to write any byte at any time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use bma_runtime::proto::websocket::accept_key;

/// How long a read may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The subprotocol.
pub const PROTOCOL: &str = "bma.executor.v1.1";

/// The opcodes of RFC 6455.
pub mod opcode {
    #![allow(missing_docs, reason = "the names say it")]
    pub const CONTINUATION: u8 = 0;
    pub const TEXT: u8 = 1;
    pub const BINARY: u8 = 2;
    pub const CLOSE: u8 = 8;
    pub const PING: u8 = 9;
    pub const PONG: u8 = 10;
}

/// One end of a connection that was upgraded, or is about to be.
#[derive(Debug)]
pub struct Raw {
    /// The stream, to write whatever one likes.
    pub stream: TcpStream,
    /// Whether frames are masked, as a client must.
    masked: bool,
}

/// A frame as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The last one of its message.
    pub fin: bool,
    /// The opcode.
    pub opcode: u8,
    /// The payload, unmasked.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The code of a close frame.
    pub fn close_code(&self) -> Option<u16> {
        let code = self.payload.first_chunk::<2>().map(|code| u16::from_be_bytes(*code));
        code.filter(|_| self.opcode == opcode::CLOSE)
    }
}

/// The request head that a well-behaved client sends.
pub fn request_head(token: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\
         Sec-WebSocket-Protocol: {PROTOCOL}\r\nAuthorization: Bearer {token}\r\n\r\n"
    )
}

impl Raw {
    /// Connects and sends nothing.
    pub fn dial(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, masked: true }
    }

    /// Connects and upgrades.
    pub fn client(to: SocketAddr, token: &str) -> io::Result<Self> {
        let mut raw = Raw::dial(to);
        raw.stream.write_all(request_head(token).as_bytes())?;
        let head = raw.read_head()?;
        if !head.starts_with("HTTP/1.1 101") {
            return Err(io::Error::other(head));
        }
        Ok(raw)
    }

    /// The next connection of a listener, upgraded as it asked.
    pub fn accept(listener: &TcpListener) -> io::Result<Self> {
        let mut raw = Raw::accept_plain(listener)?;
        let head = raw.read_head()?;
        raw.upgrade(&head)?;
        Ok(raw)
    }

    /// The next connection of a listener, as it is.
    pub fn accept_plain(listener: &TcpListener) -> io::Result<Self> {
        Ok(Raw::accepted(listener.accept()?.0))
    }

    /// The serving end of a connection.
    pub fn accepted(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Raw { stream, masked: false }
    }

    /// Another handle of the same end, for a thread that only reads, or only writes.
    pub fn another(&self) -> Self {
        Raw { stream: self.stream.try_clone().unwrap(), masked: self.masked }
    }

    /// Answers an upgrade request.
    pub fn upgrade(&mut self, head: &str) -> io::Result<()> {
        self.upgrade_to(head, Some(PROTOCOL))
    }

    /// Answers an upgrade request, with this subprotocol or none.
    pub fn upgrade_to(&mut self, head: &str, protocol: Option<&str>) -> io::Result<()> {
        let key = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap_or_default();
        let accept = accept_key(key);
        let protocol = protocol.map(|protocol| format!("Sec-WebSocket-Protocol: {protocol}\r\n")).unwrap_or_default();
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n{protocol}\r\n"
        );
        self.stream.write_all(answer.as_bytes())
    }

    /// The head of a request or an answer, byte by byte so that nothing after it is lost.
    pub fn read_head(&mut self) -> io::Result<String> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    /// Writes one frame.
    pub fn write(&mut self, fin: bool, opcode: u8, payload: &[u8]) -> io::Result<()> {
        self.stream.write_all(&frame(fin, opcode, payload, self.masked))
    }

    /// Writes one whole text message.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        self.write(true, opcode::TEXT, text.as_bytes())
    }

    /// The next frame.
    pub fn read(&mut self) -> io::Result<Frame> {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head)?;
        let length = match head[1] & 0x7f {
            126 => {
                let mut length = [0; 2];
                self.stream.read_exact(&mut length)?;
                u64::from(u16::from_be_bytes(length))
            }
            127 => {
                let mut length = [0; 8];
                self.stream.read_exact(&mut length)?;
                u64::from_be_bytes(length)
            }
            short => u64::from(short),
        };
        let mut mask = [0; 4];
        if head[1] & 0x80 != 0 {
            self.stream.read_exact(&mut mask)?;
        }
        let mut payload = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.stream.read_exact(&mut payload)?;
        for (place, byte) in payload.iter_mut().enumerate() {
            *byte ^= mask[place % 4];
        }
        Ok(Frame { fin: head[0] & 0x80 != 0, opcode: head[0] & 0x0f, payload })
    }

    /// The next text message that is one frame. Pings are answered.
    pub fn read_text(&mut self) -> io::Result<String> {
        loop {
            let frame = self.read()?;
            match frame.opcode {
                opcode::TEXT => return String::from_utf8(frame.payload).map_err(io::Error::other),
                opcode::PING => self.write(true, opcode::PONG, &frame.payload)?,
                opcode::CLOSE => return Err(io::Error::other(format!("closed: {:?}", frame.close_code()))),
                _ => {}
            }
        }
    }

    /// Reads until the peer closes, and gives the code of its close frame.
    pub fn read_to_close(&mut self) -> Option<u16> {
        let mut code = None;
        while let Ok(frame) = self.read() {
            code = code.or(frame.close_code());
        }
        code
    }
}

/// A frame's bytes.
pub fn frame(fin: bool, opcode: u8, payload: &[u8], masked: bool) -> Vec<u8> {
    let mut bytes = vec![(u8::from(fin) << 7) | opcode];
    let mask_bit = u8::from(masked) << 7;
    match payload.len() {
        short @ ..126 => bytes.push(mask_bit | u8::try_from(short).unwrap()),
        middle @ ..65_536 => {
            bytes.push(mask_bit | 126);
            bytes.extend(u16::try_from(middle).unwrap().to_be_bytes());
        }
        long => {
            bytes.push(mask_bit | 127);
            bytes.extend(u64::try_from(long).unwrap().to_be_bytes());
        }
    }
    if masked {
        let mask = [0x12, 0x34, 0x56, 0x78];
        bytes.extend(mask);
        bytes.extend(payload.iter().enumerate().map(|(place, byte)| byte ^ mask[place % 4]));
    } else {
        bytes.extend(payload);
    }
    bytes
}
