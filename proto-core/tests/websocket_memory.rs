//! What many idle connections cost, seen from outside: the process's resident
//! memory. Alone in its binary, so that no other test's memory is counted.
#![cfg(all(feature = "websocket", target_os = "linux"))]
// A test panics on purpose.
#![allow(clippy::unwrap_used)]

use bma_proto_core::Time;
use bma_proto_core::websocket::{Channel, Limits, Output, Role, Target, Upgraded};

const CHANNELS: usize = 1000;

/// The process's own memory in bytes: resident and not backed by a file.
#[allow(clippy::disallowed_methods, reason = "the kernel is the only one to know")]
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn open(role: Role) -> Channel {
    let upgraded =
        Upgraded { role, protocol: "bma.executor.v1.1".into(), target: Target::Control, limits: Limits::default() };
    let mut channel = Channel::upgraded(Time::ORIGIN, upgraded);
    assert!(matches!(channel.poll(), Some(Output::Open { .. })));
    channel
}

/// Sends a text to each channel, read as a driver reads: through one scratch buffer.
fn send_to_all(sender: &mut Channel, channels: &mut [Channel], text: &str, wire: &mut Vec<u8>) {
    for channel in channels {
        wire.clear();
        sender.send_text(text, wire).unwrap();
        for read in wire.chunks(64 * 1024) {
            channel.receive(Time::ORIGIN, read);
        }
        assert!(matches!(channel.poll(), Some(Output::Text(got)) if got.len() == text.len()));
        assert!(channel.poll().is_none() && channel.is_idle());
    }
}

#[test]
fn an_idle_connection_costs_a_few_kib_also_after_a_call_and_after_a_large_frame() {
    let (small, large) = ("x".repeat(220), "x".repeat(256 * 1024));
    let mut sender = open(Role::Client);
    let mut wire = Vec::with_capacity(300 * 1024);
    // Warm up: what the allocator keeps after a large frame is counted to nobody.
    send_to_all(&mut sender, &mut [open(Role::Server)], &large, &mut wire);
    let mut channels = Vec::with_capacity(CHANNELS);
    channels.push(open(Role::Server));
    let before = resident();
    channels.extend((1..CHANNELS).map(|_| open(Role::Server)));
    let per_channel = |now: usize| now.saturating_sub(before) / CHANNELS;
    let idle = per_channel(resident());
    send_to_all(&mut sender, &mut channels, &small, &mut wire);
    let after_call = per_channel(resident());
    send_to_all(&mut sender, &mut channels, &large, &mut wire);
    let after_large = per_channel(resident());
    println!("bytes a connection: {idle} idle, {after_call} after a call, {after_large} after a 256 KiB frame");
    assert!(idle < 6 * 1024, "{idle} bytes an idle connection");
    assert!(after_call < 6 * 1024, "{after_call} bytes a connection after a call");
    assert!(after_large < 10 * 1024, "{after_large} bytes a connection after a 256 KiB frame");
    // What the channels say of themselves is no less than that.
    assert!(channels.iter().all(|channel| channel.buffer_bytes() >= 2 * 1024));
}
