//! Frames after the upgrade: messages in both directions, limits, floods, memory.

use bma_proto_core::Time;
use bma_proto_core::websocket::{How, Limits, Misuse, Role, Violation};

use crate::support::*;

const NOW: Time = Time::ORIGIN;
const MIB: usize = 1 << 20;

#[test]
fn texts_arrive_whole_and_in_order_at_every_split() {
    let texts = ["", "a", "grüße", &"x".repeat(125), &"y".repeat(126), &"z\u{2028}".repeat(40)];
    let mut bytes = Vec::new();
    let mut sender = opened(Role::Client, Limits::default());
    for text in texts {
        sender.send_text(text, &mut bytes).unwrap();
    }
    let expected = texts.map(|text| Said::Text(text.into()));
    for at in 0..=bytes.len() {
        let mut server = opened(Role::Server, Limits::default());
        server.receive(NOW, &bytes[..at]);
        let mut said = drain(&mut server);
        server.receive(NOW, &bytes[at..]);
        said.extend(drain(&mut server));
        assert_eq!(said, expected, "split at {at}");
        assert!(server.is_idle());
    }
}

#[test]
fn a_whole_connection_is_the_same_at_every_split_and_byte_by_byte() {
    let run = |chunk: &mut dyn FnMut(usize) -> usize| {
        let mut pair = Pair::new(client_config(), Default::default());
        pair.settle_in_chunks(&mut *chunk);
        for text in ["one", "zwölf", ""] {
            pair.client.send_text(text, &mut pair.to_server).unwrap();
            pair.server.send_text(text, &mut pair.to_client).unwrap();
        }
        pair.server.close(pair.now, 4001, "token expired").unwrap();
        pair.settle_in_chunks(&mut *chunk);
        (pair.client_said, pair.server_said)
    };
    let expected = run(&mut |left| left);
    assert_eq!(expected.0.len(), 5);
    assert_eq!(run(&mut |_| 1), expected);
    for at in 1..700 {
        let mut left_to_split = at;
        let split_once = &mut |left: usize| {
            let now = left_to_split.min(left);
            left_to_split -= now;
            if now == 0 { left } else { now }
        };
        assert_eq!(run(split_once), expected, "split at {at}");
    }
}

#[test]
fn fragments_are_joined_also_around_pings_and_inside_characters() {
    let text = "fragmentierte Grüße".as_bytes();
    let mut bytes = frame(0x01, &text[..17], true);
    bytes.extend(frame(0x89, b"are you there", true));
    bytes.extend(frame(0x00, b"", true));
    bytes.extend(frame(0x8a, b"unasked pong", true));
    bytes.extend(frame(0x80, &text[17..], true));
    let mut server = opened(Role::Server, Limits::default());
    for byte in bytes {
        assert!(drain(&mut server).is_empty());
        server.receive(NOW, &[byte]);
    }
    assert_eq!(drain(&mut server), [Said::Text("fragmentierte Grüße".into())]);
    assert_eq!(read_frames(&transmitted(&mut server)), [(10, b"are you there".to_vec())]);
    assert!(server.is_idle());
}

/// A library's own default limit must not bite: 15.9, 16 and 17 MiB in both
/// directions, under limits that allow or forbid them.
#[test]
fn f71_messages_around_sixteen_mib_obey_the_configured_limit_and_no_other() {
    for (limit, bytes, fits) in [
        (16 * MIB, 16 * MIB - MIB / 10, true),
        (16 * MIB, 16 * MIB, true),
        (16 * MIB, 17 * MIB, false),
        (70 * MIB, 17 * MIB, true),
        (70 * MIB, 66 * MIB, true),
    ] {
        let limits = Limits { max_message_bytes: limit, ..Limits::default() };
        let text = "x".repeat(bytes);
        let mut pair = Pair::open(limits);
        let sent = pair.client.send_text(&text, &mut pair.to_server);
        let answered = pair.server.send_text(&text, &mut pair.to_client);
        let verdict = if fits { Ok(()) } else { Err(Misuse::TooLarge { bytes, limit }) };
        assert_eq!((sent, answered), (verdict, verdict));
        if fits {
            pair.settle_in_chunks(|left| left.min(64 * 1024));
            let said = [Said::Text(text)];
            assert!(pair.client_said == said && pair.server_said == said, "{bytes} under {limit}");
            continue;
        }
        // A peer that sends it all the same: as one frame, and as two that only together are too long.
        for (role, masked) in [(Role::Server, true), (Role::Client, false)] {
            let half = &text.as_bytes()[..bytes / 2];
            let whole = frame(0x81, text.as_bytes(), masked);
            let fragments = [frame(0x01, half, masked), frame(0x80, half, masked)].concat();
            for bytes in [whole, fragments] {
                let mut channel = opened(role, limits);
                channel.receive(NOW, &bytes);
                assert_eq!(close_sent(&transmitted(&mut channel)).0, 1009);
            }
        }
    }
}

#[test]
fn limits_hold_for_messages_and_frames_alike() {
    let limits = Limits { max_message_bytes: 10, ..Limits::default() };
    for (bytes, fits) in [
        (frame(0x81, b"0123456789", true), true),
        (frame(0x81, b"0123456789a", true), false),
        ([frame(0x01, b"01234", true), frame(0x80, b"56789", true)].concat(), true),
        ([frame(0x01, b"01234", true), frame(0x80, b"56789a", true)].concat(), false),
        // The length alone is enough, also the largest there is: nothing is kept for it.
        (vec![0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0], false),
        (vec![0x81, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], false),
    ] {
        let mut server = opened(Role::Server, limits);
        server.receive(NOW, &bytes);
        let wire = transmitted(&mut server);
        if fits {
            assert_eq!(drain(&mut server), [Said::Text("0123456789".into())]);
            assert!(wire.is_empty());
        } else {
            assert_eq!(close_sent(&wire), (1009, "message over the limit of 10 bytes".into()));
        }
    }
    // Control frames have a limit of their own.
    let mut server = opened(Role::Server, limits);
    server.receive(NOW, &frame(0x89, &[b'p'; 125], true));
    assert_eq!(read_frames(&transmitted(&mut server)), [(10, vec![b'p'; 125])]);
    // The sender is stopped before it does harm.
    let mut wire = Vec::new();
    let sent = server.send_text("0123456789a", &mut wire);
    assert_eq!(sent, Err(Misuse::TooLarge { bytes: 11, limit: 10 }));
    assert!(wire.is_empty() && server.is_open());
}

#[test]
fn an_mcp_channel_has_a_limit_of_its_own() {
    let mut config = client_config();
    config.target = bma_proto_core::websocket::Target::Mcp { session_id: "s".into(), server_key: "k".into() };
    let mut pair = Pair::new(config, Default::default());
    pair.settle();
    let text = "x".repeat(8 * MIB);
    pair.client.send_text(&text, &mut pair.to_server).unwrap();
    pair.server.send_text(&text, &mut pair.to_client).unwrap();
    pair.settle();
    assert!(pair.client_said.last() == Some(&Said::Text(text.clone())));
    assert!(pair.server_said.last() == Some(&Said::Text(text)));
    let mut server = opened(Role::Server, Limits::default());
    assert!(server.send_text(&"x".repeat(MIB + 1), &mut Vec::new()).is_err());
}

#[test]
fn frames_against_the_rules_are_closed_for() {
    let table: &[(&str, Vec<u8>, u16)] = &[
        ("unmasked", frame(0x81, b"x", false), 1002),
        ("binary", frame(0x82, b"x", true), 1003),
        ("binary in fragments", [frame(0x02, b"x", true), frame(0x80, b"y", true)].concat(), 1003),
        ("not UTF-8", frame(0x81, b"caf\xe9", true), 1007),
        ("not UTF-8 over two fragments", [frame(0x01, b"\xc3", true), frame(0x80, b"x", true)].concat(), 1007),
        ("half a character at the end", [frame(0x01, b"a", true), frame(0x80, b"\xc3", true)].concat(), 1007),
        ("a surrogate", frame(0x81, b"\xed\xa0\x80", true), 1007),
        ("reserved bit", frame(0xc1, b"x", true), 1002),
        ("reserved data opcode", frame(0x83, b"x", true), 1002),
        ("reserved control opcode", frame(0x8b, b"x", true), 1002),
        ("continuation of nothing", frame(0x80, b"x", true), 1002),
        ("text inside a message", [frame(0x01, b"x", true), frame(0x81, b"y", true)].concat(), 1002),
        ("fragmented ping", frame(0x09, b"x", true), 1002),
        ("long ping", frame(0x89, &[b'x'; 126], true), 1002),
        ("close of one byte", frame(0x88, b"x", true), 1002),
        ("close with a reason that is not UTF-8", frame(0x88, b"\x03\xe8\xff", true), 1007),
    ];
    for (name, bytes, code) in table {
        for split in [bytes.len(), 1] {
            let mut server = opened(Role::Server, Limits::default());
            server.receive(NOW, &frame(0x81, b"before", true));
            for chunk in bytes.chunks(split) {
                server.receive(NOW, chunk);
            }
            // What follows is not read, even if it is well-formed.
            server.receive(NOW, &frame(0x81, b"after", true));
            let wire = transmitted(&mut server);
            assert_eq!(close_sent(&wire).0, *code, "{name}");
            assert_eq!(read_frames(&wire).len(), 1, "{name}");
            assert_eq!(server.send_text("more", &mut Vec::new()), Err(Misuse::Closing));
            server.end_of_stream(NOW);
            let said = drain(&mut server);
            let [Said::Text(before), Said::Closed(closed)] = said.as_slice() else { panic!("{name}: {said:?}") };
            assert_eq!((before.as_str(), closed.code), ("before", Some(*code)), "{name}");
            let How::Violation(violation) = &closed.how else { panic!("{name}: {closed:?}") };
            assert_eq!(violation.close_code(), *code);
            assert_eq!(violation.to_string(), closed.reason);
        }
    }
    let mut client = opened(Role::Client, Limits::default());
    client.receive(NOW, &frame(0x81, b"masked", true));
    assert_eq!(close_sent(&transmitted(&mut client)).0, 1002);
}

#[test]
fn a_large_refused_message_is_skipped_without_being_kept() {
    let mut server = opened(Role::Server, Limits::default());
    let message = frame(0x82, &vec![b'x'; 3 * MIB], true);
    for chunk in message.chunks(64 * 1024) {
        server.receive(NOW, chunk);
        assert!(server.buffer_bytes() < 16 * 1024);
    }
    // The close frame behind it is still found.
    server.receive(NOW, &frame(0x88, &1000u16.to_be_bytes(), true));
    let violation = Violation::TooLarge { limit: MIB };
    assert_eq!(drain(&mut server), [closed(1009, &violation.to_string(), How::Violation(violation))]);
}

#[test]
fn a_ping_flood_with_nothing_written_keeps_one_pong() {
    let mut server = opened(Role::Server, Limits::default());
    let flood: Vec<u8> = (0..500u32).flat_map(|n| frame(0x89, &[n.to_be_bytes(), [0; 4]].concat(), true)).collect();
    for _ in 0..200 {
        server.receive(NOW, &flood);
        assert!(server.buffer_bytes() < 6 * 1024);
    }
    let mut wire = Vec::new();
    server.send_text("after the pong", &mut wire).unwrap();
    let last = [499u32.to_be_bytes(), [0; 4]].concat();
    assert_eq!(read_frames(&wire), [(10, last), (1, b"after the pong".to_vec())]);
    assert!(transmitted(&mut server).is_empty());
    assert!(server.is_idle());
}

#[test]
fn an_idle_channel_is_small_and_is_so_again_after_a_large_frame() {
    let mut pair = Pair::open(Limits::default());
    assert!(pair.server.is_idle() && pair.client.is_idle());
    assert!(pair.server.buffer_bytes() < 6 * 1024, "{} bytes", pair.server.buffer_bytes());
    assert!(pair.client.buffer_bytes() < 6 * 1024, "{} bytes", pair.client.buffer_bytes());
    let text = "x".repeat(256 * 1024);
    for _ in 0..3 {
        pair.client.send_text(&text, &mut pair.to_server).unwrap();
        pair.server.send_text(&text, &mut pair.to_client).unwrap();
        pair.settle_in_chunks(|left| left.min(10_000));
        assert!(pair.server.buffer_bytes() < 6 * 1024, "{} bytes", pair.server.buffer_bytes());
        assert!(pair.client.buffer_bytes() < 6 * 1024, "{} bytes", pair.client.buffer_bytes());
    }
    assert_eq!(pair.server_said.len(), 3);
    // Many small messages at once leave no long queue behind.
    for _ in 0..1000 {
        pair.client.send_text("{}", &mut pair.to_server).unwrap();
    }
    pair.settle();
    assert!(pair.server.buffer_bytes() < 6 * 1024, "{} bytes", pair.server.buffer_bytes());
}

#[test]
fn an_output_is_small() {
    assert!(size_of::<bma_proto_core::websocket::Output>() <= 40);
}

#[test]
fn masks_differ_from_frame_to_frame() {
    let mut client = opened(Role::Client, Limits::default());
    let frames: Vec<Vec<u8>> = (0..8)
        .map(|_| {
            let mut wire = Vec::new();
            client.send_text("same text", &mut wire).unwrap();
            wire
        })
        .collect();
    assert!(frames.iter().any(|frame| frame != &frames[0]));
}

#[test]
fn nothing_that_debug_prints_shows_a_text() {
    let mut server = opened(Role::Server, Limits::default());
    server.receive(NOW, &frame(0x81, b"open sesame", true));
    server.receive(NOW, &frame(0x01, b"open sesame", true));
    assert!(!format!("{server:?}").contains("sesame"));
    let output = server.poll().unwrap();
    assert_eq!(format!("{output:?}"), "Text(Text(11 bytes))");
}
