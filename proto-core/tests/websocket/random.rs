//! Properties: no split changes what is said, and no bytes do harm.

use std::time::Duration;

use bma_proto_core::Time;
use bma_proto_core::websocket::{Channel, Limits, MAX_HEAD_BYTES, Role, ServerConfig};
use proptest::prelude::*;

use crate::support::*;

/// A small bound, so that random frames reach it.
fn small() -> Limits {
    Limits { max_message_bytes: 300, ..Limits::default() }
}

/// Frames that may or may not be well-formed, one after another.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        6 => Just(0x81u8),
        2 => prop::sample::select(vec![0x01, 0x00, 0x80]),
        2 => prop::sample::select(vec![0x89, 0x8a]),
        1 => Just(0x88),
        1 => any::<u8>(),
    ];
    let payload = prop_oneof![
        4 => "\\PC{0,60}".prop_map(String::into_bytes),
        1 => "[a-z]{100,400}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    let masked = prop::bool::weighted(0.98);
    prop::collection::vec((first, payload, masked), 0..12)
        .prop_map(|frames| frames.iter().flat_map(|(first, payload, masked)| frame(*first, payload, *masked)).collect())
}

/// Feeds the chunks, then the end, then ticks; returns what was said and written.
fn run(channel: &mut Channel, chunks: &[&[u8]]) -> (Vec<Said>, Vec<u8>) {
    let now = Time::ORIGIN;
    let mut said = Vec::new();
    for chunk in chunks {
        channel.receive(now, chunk);
        for output in drain(channel) {
            if output == Said::Request {
                channel.accept(now).unwrap();
            }
            said.push(output);
        }
        said.extend(drain(channel));
    }
    channel.end_of_stream(now);
    channel.tick(now + Duration::from_secs(60));
    said.extend(drain(channel));
    assert!(channel.is_over());
    assert!(matches!(said.last(), Some(Said::Closed(_))), "no end was told: {said:?}");
    assert_eq!(said.iter().filter(|said| matches!(said, Said::Closed(_))).count(), 1);
    let wire = transmitted(channel);
    assert_eq!(channel.deadline(), None);
    (said, wire)
}

fn pieces<'a>(bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let (mut left, mut pieces) = (bytes, Vec::new());
    for length in lengths.iter().cycle() {
        if left.is_empty() {
            break;
        }
        let (now, rest) = left.split_at((*length).clamp(1, left.len()));
        pieces.push(now);
        left = rest;
    }
    pieces
}

proptest! {
    #[test]
    fn any_frames_give_the_same_whole_and_in_pieces(bytes in frames(), lengths in prop::collection::vec(1usize..40, 1..8)) {
        let whole = run(&mut opened(Role::Server, small()), &[&bytes]);
        let parts = run(&mut opened(Role::Server, small()), &pieces(&bytes, &lengths));
        prop_assert_eq!(whole, parts);
    }

    #[test]
    fn texts_cross_in_both_directions_however_the_stream_is_cut(
        up in prop::collection::vec("\\PC{0,200}", 0..8),
        down in prop::collection::vec("\\PC{0,200}", 0..8),
        lengths in prop::collection::vec(1usize..300, 1..16),
    ) {
        let mut pair = Pair::new(client_config(), ServerConfig::default());
        let mut lengths = lengths.into_iter().cycle();
        let mut chunk = |left: usize| lengths.next().unwrap_or(left);
        pair.settle_in_chunks(&mut chunk);
        for text in &up {
            pair.client.send_text(text, &mut pair.to_server).unwrap();
        }
        for text in &down {
            pair.server.send_text(text, &mut pair.to_client).unwrap();
        }
        pair.settle_in_chunks(&mut chunk);
        prop_assert!(pair.client.is_idle() && pair.server.is_idle());
        let said = |texts: &[String]| texts.iter().cloned().map(Said::Text).collect::<Vec<_>>();
        prop_assert_eq!(&pair.server_said[2..], &said(&up));
        prop_assert_eq!(&pair.client_said[1..], &said(&down));
    }

    #[test]
    fn any_bytes_do_no_harm_to_either_end(
        bytes in prop::collection::vec(any::<u8>(), 0..600),
        lengths in prop::collection::vec(1usize..200, 1..4),
    ) {
        let now = Time::ORIGIN;
        for mut channel in [
            Channel::server(now, ServerConfig { limits: small(), ..ServerConfig::default() }),
            Channel::client(now, client_config()).unwrap(),
            opened(Role::Server, small()),
            opened(Role::Client, small()),
        ] {
            run(&mut channel, &pieces(&bytes, &lengths));
        }
    }

    /// One byte of a good request changed: an answer, an upgrade, or waiting for more, within bounds.
    #[test]
    fn a_damaged_request_is_answered_or_waited_for(place in 0usize..300, byte: u8, tail in frames()) {
        let now = Time::ORIGIN;
        let mut client = Channel::client(now, client_config()).unwrap();
        let mut bytes = transmitted(&mut client);
        let place = place % bytes.len();
        bytes[place] = byte;
        bytes.extend_from_slice(&tail);
        let mut server = Channel::server(now, ServerConfig { limits: small(), ..ServerConfig::default() });
        let (_, wire) = run(&mut server, &[&bytes]);
        prop_assert!(wire.is_empty() || wire.starts_with(b"HTTP/1.1 "));
        prop_assert!(server.buffer_bytes() <= 2 * MAX_HEAD_BYTES);
    }
}
