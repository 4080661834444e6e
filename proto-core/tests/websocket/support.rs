//! Two channels joined in memory, and bytes made by hand.

use bma_proto_core::Time;
use bma_proto_core::contract::Secret;
use bma_proto_core::websocket::{
    Channel, ClientConfig, Closed, How, Limits, Output, Role, ServerConfig, Target, UpgradeError, UpgradeRequest,
    Upgraded,
};

pub(crate) const V1_1: &str = "bma.executor.v1.1";
pub(crate) const TOKEN: &str = "tok-3f9a1c77";

/// What a channel said, in a form that compares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    Request,
    Open(String),
    Text(String),
    Closed(Closed),
}

pub(crate) fn client_config() -> ClientConfig {
    let mut config = ClientConfig::new("brain.example:8443", "/executors?region=eu", Target::Control);
    config.bearer = Some(Secret::new(TOKEN));
    config
}

/// Both ends of a connection, and everything they said.
pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) client: Channel,
    pub(crate) server: Channel,
    pub(crate) client_said: Vec<Said>,
    pub(crate) server_said: Vec<Said>,
    pub(crate) requests: Vec<UpgradeRequest>,
    /// Bytes on their way.
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
    /// Whether the server accepts by itself.
    pub(crate) accepting: bool,
}

impl Pair {
    pub(crate) fn new(client: ClientConfig, server: ServerConfig) -> Self {
        let now = Time::from_millis(1);
        Self {
            now,
            client: Channel::client(now, client).unwrap(),
            server: Channel::server(now, server),
            client_said: Vec::new(),
            server_said: Vec::new(),
            requests: Vec::new(),
            to_server: Vec::new(),
            to_client: Vec::new(),
            accepting: true,
        }
    }

    /// Two ends that are open, and have said so.
    pub(crate) fn open(limits: Limits) -> Self {
        let mut client = client_config();
        client.limits = limits;
        let mut pair = Self::new(client, ServerConfig { limits, ..ServerConfig::default() });
        pair.settle();
        assert_eq!(pair.client_said, [Said::Open(V1_1.into())]);
        assert_eq!(pair.server_said, [Said::Request, Said::Open(V1_1.into())]);
        pair.client_said.clear();
        pair.server_said.clear();
        pair
    }

    /// Carries bytes both ways until nothing moves any more.
    pub(crate) fn settle(&mut self) {
        self.settle_in_chunks(|left| left);
    }

    /// The same, each read as long as `chunk` says of what is left.
    pub(crate) fn settle_in_chunks(&mut self, mut chunk: impl FnMut(usize) -> usize) {
        for _ in 0..64 {
            self.client.transmit(&mut self.to_server);
            self.server.transmit(&mut self.to_client);
            let (up, down) = (std::mem::take(&mut self.to_server), std::mem::take(&mut self.to_client));
            if up.is_empty() && down.is_empty() {
                return;
            }
            let mut left = up.as_slice();
            while !left.is_empty() {
                let (now, rest) = left.split_at(chunk(left.len()).clamp(1, left.len()));
                self.server.receive(self.now, now);
                self.drain_server();
                left = rest;
            }
            let mut left = down.as_slice();
            while !left.is_empty() {
                let (now, rest) = left.split_at(chunk(left.len()).clamp(1, left.len()));
                self.client.receive(self.now, now);
                self.drain_client();
                left = rest;
            }
        }
        panic!("the two ends never come to rest");
    }

    pub(crate) fn drain_server(&mut self) {
        while let Some(output) = self.server.poll() {
            let said = match output {
                Output::AuthRequired(request) => {
                    self.requests.push(*request);
                    if self.accepting {
                        self.server.accept(self.now).unwrap();
                    }
                    Said::Request
                }
                other => said(other),
            };
            self.server_said.push(said);
        }
    }

    pub(crate) fn drain_client(&mut self) {
        while let Some(output) = self.client.poll() {
            self.client_said.push(said(output));
        }
    }
}

fn said(output: Output) -> Said {
    match output {
        Output::AuthRequired(_) => Said::Request,
        Output::Open { protocol } => Said::Open(protocol),
        Output::Text(text) => Said::Text(text.into()),
        Output::Closed(closed) => Said::Closed(*closed),
    }
}

/// Everything that waits to be polled.
pub(crate) fn drain(channel: &mut Channel) -> Vec<Said> {
    std::iter::from_fn(|| channel.poll()).map(said).collect()
}

/// Everything that waits to be transmitted.
pub(crate) fn transmitted(channel: &mut Channel) -> Vec<u8> {
    let mut wire = Vec::new();
    channel.transmit(&mut wire);
    wire
}

pub(crate) fn closed(code: impl Into<Option<u16>>, reason: &str, how: How) -> Said {
    Said::Closed(Closed { code: code.into(), reason: reason.into(), how })
}

pub(crate) fn upgrade_failed(error: UpgradeError) -> Said {
    closed(None, "", How::Upgrade(error))
}

/// One end of a connection that is already open.
pub(crate) fn opened(role: Role, limits: Limits) -> Channel {
    let upgraded = Upgraded { role, protocol: V1_1.into(), target: Target::Control, limits };
    let mut channel = Channel::upgraded(Time::ORIGIN, upgraded);
    assert_eq!(drain(&mut channel), [Said::Open(V1_1.into())]);
    channel
}

/// A frame by its parts: the first byte (FIN, RSV and opcode), the payload, masked or not.
pub(crate) fn frame(first: u8, payload: &[u8], masked: bool) -> Vec<u8> {
    let mask_bit = if masked { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(mask_bit | length as u8),
        length @ 126..65_536 => {
            bytes.push(mask_bit | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(mask_bit | 127);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    let mask = if masked { [0x11, 0x22, 0x33, 0x44] } else { [0; 4] };
    if masked {
        bytes.extend_from_slice(&mask);
    }
    bytes.extend(payload.iter().enumerate().map(|(place, byte)| byte ^ mask[place % 4]));
    bytes
}

/// The opcodes and payloads of the frames that one end wrote.
pub(crate) fn read_frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        let (length, mut rest) = match second & 0x7f {
            126 => (u16::from_be_bytes(rest[..2].try_into().unwrap()) as usize, &rest[2..]),
            127 => (u64::from_be_bytes(rest[..8].try_into().unwrap()) as usize, &rest[8..]),
            short => (short as usize, rest),
        };
        let mut mask = [0; 4];
        if second & 0x80 != 0 {
            mask.copy_from_slice(&rest[..4]);
            rest = &rest[4..];
        }
        let payload = rest[..length].iter().enumerate().map(|(place, byte)| byte ^ mask[place % 4]).collect();
        frames.push((first & 0x0f, payload));
        bytes = &rest[length..];
    }
    assert!(bytes.is_empty(), "half a frame was written");
    frames
}

/// The code and reason of the close frame that ends these bytes.
pub(crate) fn close_sent(bytes: &[u8]) -> (u16, String) {
    let frames = read_frames(bytes);
    let (opcode, payload) = frames.last().unwrap();
    assert_eq!(*opcode, 8, "the last frame is no close frame");
    (u16::from_be_bytes([payload[0], payload[1]]), String::from_utf8(payload[2..].to_vec()).unwrap())
}
