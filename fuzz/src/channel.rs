//! Bytes into either end of a WebSocket. The first byte says how the rest is
//! cut into reads: any cut gives the same outputs.

use bma_proto_core::Time;
use bma_proto_core::websocket::{
    Channel, ClientConfig, Limits, MAX_EARLY_BYTES, MAX_HEAD_BYTES, Output, Role, ServerConfig, Target, Upgraded,
};

/// The longest message of these channels: small, so that a fuzzer finds the limit.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Anything that a client could write to a server that accepts every well-formed request.
pub fn channel_server_bytes(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let server = || Channel::server(Time::ORIGIN, ServerConfig { limits: limits(), ..ServerConfig::default() });
    let whole = outputs(server(), bytes, usize::MAX);
    assert_eq!(whole, outputs(server(), bytes, usize::from(*cut).max(1)));
    // The same behind an upgrade that was somebody else's: all of it is frames.
    let upgraded = || Channel::upgraded(Time::ORIGIN, upgraded(Role::Server));
    let whole = outputs(upgraded(), bytes, usize::MAX);
    assert_eq!(whole, outputs(upgraded(), bytes, usize::from(*cut).max(1)));
}

/// Anything that a server could write to a client: as the answer to its upgrade, and as frames.
pub fn channel_client_bytes(data: &[u8]) {
    let Some((cut, bytes)) = data.split_first() else { return };
    let client = || {
        let config = ClientConfig { limits: limits(), ..ClientConfig::new("h", "/", Target::Control) };
        Channel::client(Time::ORIGIN, config).expect("well-formed")
    };
    let whole = outputs(client(), bytes, usize::MAX);
    assert_eq!(whole, outputs(client(), bytes, usize::from(*cut).max(1)));
    let upgraded = || Channel::upgraded(Time::ORIGIN, upgraded(Role::Client));
    let whole = outputs(upgraded(), bytes, usize::MAX);
    assert_eq!(whole, outputs(upgraded(), bytes, usize::from(*cut).max(1)));
}

fn limits() -> Limits {
    Limits { max_message_bytes: MAX_MESSAGE_BYTES, ..Limits::default() }
}

fn upgraded(role: Role) -> Upgraded {
    Upgraded { role, protocol: "bma.executor.v1.1".to_owned(), target: Target::Control, limits: limits() }
}

/// Feeds the bytes in reads of this size, then the end of the stream. Gives what came out.
fn outputs(mut channel: Channel, bytes: &[u8], cut: usize) -> Vec<String> {
    let now = Time::ORIGIN;
    let mut seen = Vec::new();
    let mut wire = Vec::new();
    let mut over = false;
    let mut drain = |channel: &mut Channel, seen: &mut Vec<String>, over: &mut bool| {
        while let Some(output) = channel.poll() {
            assert!(!*over, "nothing follows the end");
            match output {
                Output::AuthRequired(request) => {
                    seen.push(format!("{request:?}"));
                    channel.accept(now).expect("it waits for an answer");
                }
                Output::Open { protocol } => seen.push(format!("open {protocol}")),
                Output::Text(text) => {
                    assert!(text.len() <= MAX_MESSAGE_BYTES, "over the limit");
                    seen.push(format!("text {}", text.as_str()));
                }
                Output::Closed(closed) => {
                    *over = true;
                    seen.push(format!("{closed:?}"));
                }
            }
        }
        wire.clear();
        channel.transmit(&mut wire);
        assert!(channel.poll().is_none(), "an idle poll stays idle");
        let kept = channel.buffer_bytes();
        assert!(kept <= MAX_HEAD_BYTES + MAX_EARLY_BYTES + 64 * MAX_MESSAGE_BYTES, "{kept} bytes are kept");
    };
    for bytes in bytes.chunks(cut.min(bytes.len().max(1))) {
        channel.receive(now, bytes);
        drain(&mut channel, &mut seen, &mut over);
    }
    channel.end_of_stream(now);
    drain(&mut channel, &mut seen, &mut over);
    assert!(over && channel.is_over(), "a stream that ended ends the channel");
    seen
}
