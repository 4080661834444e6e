//! What hostile peers write once they have an open channel. It is the same from
//! both ends, but for what asks for something.

use std::io::{self, Write};

use bma_tests::support::raw::{Raw, frame, opcode};

/// One attack. An error of the stream is no failure: the victim may have closed.
pub(crate) type Attack = (&'static str, fn(&mut Raw) -> io::Result<()>);

/// Attacks that use the frames of RFC 6455.
pub(crate) const FRAMES: &[Attack] = &[
    ("a binary message", |raw| raw.write(true, opcode::BINARY, b"\0\x01\x02")),
    ("text that is no UTF-8", |raw| raw.write(true, opcode::TEXT, b"{\"a\":\"\xff\xfe\"}")),
    ("a character cut off at the end", |raw| raw.write(true, opcode::TEXT, b"\"\xe2\x82\"")),
    ("a surrogate", |raw| raw.write(true, opcode::TEXT, b"\"\xed\xa0\x80\"")),
    ("a message over the hard bound", |raw| raw.write(true, opcode::TEXT, &vec![b'x'; (1 << 20) + 1])),
    ("the same in pieces", |raw| {
        raw.write(false, opcode::TEXT, &vec![b'x'; 1 << 19])?;
        (0..3).try_for_each(|_| raw.write(false, opcode::CONTINUATION, &vec![b'x'; 1 << 19]))
    }),
    ("a frame that says it is huge", |raw| {
        raw.stream.write_all(&[0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }),
    ("a length with its top bit set", |raw| {
        raw.stream.write_all(&[0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])
    }),
    ("endless empty pieces", |raw| {
        raw.write(false, opcode::TEXT, b"")?;
        (0..20_000).try_for_each(|_| raw.write(false, opcode::CONTINUATION, b""))
    }),
    ("a piece of nothing", |raw| raw.write(true, opcode::CONTINUATION, b"x")),
    ("a message within a message", |raw| {
        raw.write(false, opcode::TEXT, b"{")?;
        raw.write(true, opcode::TEXT, b"{}")
    }),
    ("a ping in pieces", |raw| raw.write(false, opcode::PING, b"x")),
    ("a ping that is too long", |raw| raw.write(true, opcode::PING, &[0; 126])),
    ("many pings", |raw| (0..20_000).try_for_each(|_| raw.write(true, opcode::PING, &[b'p'; 125]))),
    ("pongs that nobody asked for", |raw| (0..20_000).try_for_each(|_| raw.write(true, opcode::PONG, &[b'p'; 125]))),
    ("an opcode that is reserved", |raw| raw.write(true, 3, b"x")),
    ("another one", |raw| raw.write(true, 15, b"x")),
    ("reserved bits", |raw| raw.stream.write_all(&[0xf1, 0x80, 0, 0, 0, 0])),
    ("the other side's masking", |raw| {
        let bytes = frame(true, opcode::TEXT, b"{}", false);
        raw.stream.write_all(&bytes)?;
        let bytes = frame(true, opcode::TEXT, b"{}", true);
        raw.stream.write_all(&bytes)
    }),
    ("a close with half a code", |raw| raw.write(true, opcode::CLOSE, b"\x03")),
    ("a close with a code that is none", |raw| raw.write(true, opcode::CLOSE, &[0x03, 0xee])),
    ("a close with a reason that is no UTF-8", |raw| raw.write(true, opcode::CLOSE, b"\x03\xe8\xff\xff")),
    ("frames after the close", |raw| {
        raw.write(true, opcode::CLOSE, &[0x03, 0xe8])?;
        (0..1_000).try_for_each(|_| raw.text("{}"))
    }),
    ("half a frame, then nothing", |raw| raw.stream.write_all(&[0x81, 0xfe, 0xff])),
    ("random bytes", |raw| raw.stream.write_all(&noise(65_536))),
];

/// Attacks that use JSON.
pub(crate) const MESSAGES: &[Attack] = &[
    ("no JSON", |raw| (0..100).try_for_each(|_| raw.text("not json"))),
    ("nothing at all", |raw| (0..100).try_for_each(|_| raw.text(""))),
    ("deep nesting", |raw| {
        raw.text(&format!("{}{}", "[".repeat(500_000), "]".repeat(500_000)))?;
        raw.text(&format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000)))?;
        raw.text(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"session.event","params":{}}}"#, "[".repeat(30_000)))
    }),
    ("batches", |raw| {
        let one = r#"{"jsonrpc":"2.0","id":1,"method":"executor.heartbeat","params":{}}"#;
        raw.text(&format!("[{}]", vec![one; 500].join(",")))?;
        raw.text("[]")?;
        raw.text("[1,2,3]")
    }),
    ("names that stand twice", |raw| {
        raw.text(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"tool.call","params":{},"params":[]}"#)
    }),
    ("ids of every kind", |raw| {
        ["{}", "[]", "1.5", "true", "null", "1e400", "-0", "\"\\ud800\""].iter().try_for_each(|id| {
            raw.text(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tool.call","params":{{}}}}"#))
        })
    }),
    ("an id as long as a frame", |raw| {
        raw.text(&format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"x"}}"#, "i".repeat(60_000)))
    }),
    ("a method as long as a frame", |raw| {
        raw.text(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "m".repeat(65_000)))
    }),
    ("a frame over the limit, again and again", |raw| {
        let large = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tool.result","params":"{}"}}"#, "x".repeat(100_000));
        (0..20).try_for_each(|_| raw.text(&large))
    }),
    ("answers to nothing", |raw| {
        (0..5_000)
            .try_for_each(|id| raw.text(&format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{"accepted":true}}}}"#)))
    }),
    ("answers that are none", |raw| {
        raw.text(r#"{"jsonrpc":"2.0","id":"1"}"#)?;
        raw.text(r#"{"jsonrpc":"2.0","id":"1","result":1,"error":{}}"#)?;
        raw.text(r#"{"jsonrpc":"2.0","id":"1","error":{"code":"x"}}"#)
    }),
    ("numbers beyond all bounds", |raw| {
        raw.text(r#"{"jsonrpc":"2.0","id":1,"method":"tool.result","params":{"duration_ms":1e999}}"#)?;
        raw.text(&format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{}}}"#, "9".repeat(60_000)))
    }),
    ("notifications without end", |raw| {
        (0..5_000).try_for_each(|n| raw.text(&format!(r#"{{"jsonrpc":"2.0","method":"no.such.{n}","params":{{}}}}"#)))
    }),
];

/// Bytes that look random, and are the same each time.
pub(crate) fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
