//! What holds for any text and any sequence of inputs.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::contract::{AnyParams, Method};
use crate::rpc::{InboundId, Input, Output};
use crate::time::Machine;

/// Text that is a frame more often than chance would have it.
fn frame() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        Just("null".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        Just("1.5".to_owned()),
        Just(r#""s""#.to_owned()),
        Just(r#"{"session_id":"s"}"#.to_owned()),
        Just(r#"{"session_id":"s","tool_call_id":"c","tool":"bash","input":{}}"#.to_owned()),
        Just(r#"{"code":-32009,"message":"m","data":[1]}"#.to_owned()),
        Just(r#"{"processes":[]}"#.to_owned()),
        Just(r#"{"accepted":true}"#.to_owned()),
        (0..20_u32).prop_map(|n| n.to_string()),
        (0..20_u32).prop_map(|n| format!(r#""{n}""#)),
        "[ -~]{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
    ];
    let method = (0..Method::ALL.len() + 1).prop_map(|n| Method::ALL.get(n).map_or("no.such", |method| method.name()));
    let member = prop_oneof![
        4 => Just(r#""jsonrpc":"2.0""#.to_owned()),
        1 => value.clone().prop_map(|value| format!(r#""jsonrpc":{value}"#)),
        4 => value.clone().prop_map(|value| format!(r#""id":{value}"#)),
        4 => method.prop_map(|name| format!(r#""method":"{name}""#)),
        4 => value.clone().prop_map(|value| format!(r#""params":{value}"#)),
        2 => value.clone().prop_map(|value| format!(r#""result":{value}"#)),
        2 => value.prop_map(|value| format!(r#""error":{value}"#)),
    ];
    let object = proptest::collection::vec(member, 0..6).prop_map(|members| format!("{{{}}}", members.join(",")));
    prop_oneof![
        6 => object.clone(),
        1 => object.clone().prop_map(|object| format!("[{object}]")),
        1 => (object, 0..60_usize).prop_map(|(object, cut)| object.chars().take(cut).collect()),
        1 => any::<String>(),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Frame(String),
    Connect,
    Disconnect,
    Tick(u64),
    Ask(u64),
    Answer(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => frame().prop_map(Step::Frame),
        1 => Just(Step::Connect),
        1 => Just(Step::Disconnect),
        2 => (0..40_000_u64).prop_map(Step::Tick),
        3 => (0..40_000_u64).prop_map(Step::Ask),
        2 => (0..8_usize).prop_map(Step::Answer),
    ]
}

proptest! {
    #[test]
    fn any_text_gets_at_most_one_answer_and_harms_nothing(texts in proptest::collection::vec(frame(), 1..12)) {
        for side in [Side::Executor, Side::Harness] {
            let mut peer = connected(side);
            for text in &texts {
                let event = peer.accept(text);
                let answer = peer.next_frame();
                prop_assert!(peer.next_frame().is_none(), "two answers to {text}");
                prop_assert!(event.is_none() || answer.is_none(), "taken and refused: {text}");
                if let Some(answer) = answer {
                    prop_assert!(answer.len() <= 65_536);
                    // Our answers are frames that the other side can read, and lead to nothing more.
                    let other = if side == Side::Executor { Side::Harness } else { Side::Executor };
                    let mut other = connected(other);
                    prop_assert!(other.accept(&answer).is_none());
                    prop_assert!(other.next_frame().is_none());
                }
            }
        }
    }

    #[test]
    fn what_comes_out_can_be_sent_back_the_way_it_came(text in frame()) {
        let mut peer = executor();
        if let Some(Event::Request { id, params }) = peer.accept(&text) {
            let written = serde_json::to_string(&params).unwrap();
            prop_assert_eq!(AnyParams::read(params.method(), &written).unwrap(), params);
            peer.refuse(id, &ErrorCode::Conflict.error("no"));
            prop_assert!(peer.next_frame().is_some());
        }
    }

    #[test]
    fn every_request_ends_once_and_deadlines_move_on(steps in proptest::collection::vec(step(), 1..60)) {
        let mut peer: Peer<u64> = Peer::new(Config::new(Side::Harness));
        peer.config_mut().max_inflight = 3;
        peer.config_mut().max_waiting = 3;
        peer.config_mut().max_inbound = 2;
        let mut now = 0;
        let mut open = std::collections::BTreeSet::new();
        let mut inbound: Vec<InboundId> = Vec::new();
        let mut next_tag = 0;
        for step in steps {
            match step {
                Step::Frame(text) => peer.feed(Time::from_millis(now), Input::Frame(&text)),
                Step::Connect => {
                    peer.feed(Time::from_millis(now), Input::Disconnected);
                    peer.feed(Time::from_millis(now), Input::Connected);
                }
                Step::Disconnect => peer.feed(Time::from_millis(now), Input::Disconnected),
                Step::Tick(millis) => {
                    now += millis;
                    peer.feed(Time::from_millis(now), Input::Tick);
                }
                Step::Ask(millis) => {
                    let any = AnyParams::ProcessList(ProcessListParams { session_id: "s".into() });
                    let timeout = Duration::from_millis(millis);
                    if peer.request_any(Time::from_millis(now), &any, next_tag, timeout).is_ok() {
                        open.insert(next_tag);
                    }
                    next_tag += 1;
                }
                Step::Answer(n) => {
                    if n < inbound.len() {
                        let id = inbound.swap_remove(n);
                        peer.refuse(id, &ErrorCode::Conflict.error("no"));
                    }
                }
            }
            while let Some(output) = peer.poll() {
                match output {
                    Output::Frame(_) | Output::Event(Event::Notification { .. }) => {}
                    Output::Event(Event::Request { id, .. }) => inbound.push(id),
                    Output::Event(Event::Response { tag, .. }) => {
                        prop_assert!(open.remove(&tag), "{tag} ends twice");
                    }
                }
            }
            // What is due was dealt with: the next deadline lies ahead.
            if let Some((at, _)) = peer.deadline() {
                let due = at <= Time::from_millis(now);
                prop_assert!(!due || matches!(peer.pending_requests(), 1..), "{at} at {now}");
                peer.feed(at, Input::Tick);
                while let Some(output) = peer.poll() {
                    if let Output::Event(Event::Response { tag, .. }) = output {
                        prop_assert!(open.remove(&tag), "{tag} ends twice");
                    }
                }
                prop_assert!(peer.deadline().is_none_or(|(next, _)| next > at), "a tick at the deadline makes progress");
                now = now.max(at.as_nanos() / 1_000_000);
            }
            prop_assert_eq!(peer.pending_requests(), open.len());
        }
        peer.feed(Time::from_millis(now), Input::Disconnected);
        while let Some(output) = peer.poll() {
            if let Output::Event(Event::Response { tag, .. }) = output {
                prop_assert!(open.remove(&tag));
            }
        }
        prop_assert!(open.is_empty(), "every request has its end");
    }
}
