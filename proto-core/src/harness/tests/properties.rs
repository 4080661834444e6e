//! What holds for any sequence of inputs and calls.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::contract::{ExecutorDrainParams, ToolCancelParams};

#[derive(Clone, Debug)]
enum Step {
    Attach(Option<u8>),
    Disconnected,
    Wait(u64),
    Back(u64),
    Text(String),
    /// A request of the executor: which, about which session and call.
    Ask(u8, u8, u8),
    /// An answer to the oldest request of ours.
    Answer(u8),
    /// Something that the application asks for.
    Call(u8, u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => proptest::option::of(0..4_u8).prop_map(Step::Attach),
        2 => Just(Step::Disconnected),
        4 => (0..50_000_u64).prop_map(Step::Wait),
        1 => (0..50_000_u64).prop_map(Step::Back),
        1 => "[ -~]{0,20}".prop_map(Step::Text),
        12 => (0..6_u8, 0..2_u8, 0..4_u8).prop_map(|(what, session, call)| Step::Ask(what, session, call)),
        12 => (0..8_u8).prop_map(Step::Answer),
        12 => (0..12_u8, 0..2_u8, 0..4_u8).prop_map(|(what, session, call)| Step::Call(what, session, call)),
    ]
}

fn session_of(n: u8) -> &'static str {
    if n == 0 { "s0" } else { "s1" }
}

/// Takes one step. Gives the token of what was asked for, if anything was.
fn take(rig: &mut Rig, step: Step, token: u64) -> Option<u64> {
    match step {
        Step::Attach(None) => rig.attach(Value::Null),
        Step::Attach(Some(sessions)) => {
            let all: Vec<_> = (0..2).filter(|n| sessions >> n & 1 == 1).map(session_of).collect();
            rig.attach(resume(&all));
        }
        Step::Disconnected => rig.disconnect(),
        Step::Wait(millis) => rig.wait(Duration::from_millis(millis)),
        Step::Back(millis) => {
            let earlier = (rig.now.as_nanos() / 1_000_000).saturating_sub(millis);
            rig.peer.feed(Time::from_millis(earlier), Input::Tick);
            rig.drain();
        }
        Step::Text(text) => rig.feed(Input::Frame(&text)),
        Step::Ask(what, on, which) => {
            let (on, which) = (session_of(on), format!("c{which}"));
            match what {
                0 => drop(rig.ask("session.ready", json!({"session_id": on, "work_id": "w", "lease_token": "t"}))),
                1..=3 => drop(rig.report(on, &which, "text")),
                4 => drop(rig.ask("session.ended", json!({"session_id": on, "reason": ""}))),
                _ => drop(rig.ask("executor.heartbeat", json!({"connection_id": "c", "active_sessions": []}))),
            }
        }
        Step::Answer(what) => {
            let request = rig.frames.iter().position(|frame| frame.get("method").is_some());
            let frame = request.and_then(|at| rig.frames.remove(at))?;
            match what {
                0 => rig.fail(&frame["id"], -32009),
                1 => rig.reply(&frame["id"], json!({"accepted": false, "session_id": ""})),
                _ => rig.reply(
                    &frame["id"],
                    json!({"accepted": true, "session_id": "s0", "stopped": true, "canceled": true,
                        "active_sessions": []}),
                ),
            }
        }
        Step::Call(what, on, which) => {
            let (on, which, now) = (session_of(on), format!("c{which}"), rig.now);
            let asked = match what {
                0..=2 => {
                    let params = SessionAssignParams { session_id: session(on), ..SessionAssignParams::default() };
                    rig.peer.assign(now, params, token)
                }
                3..=7 => rig.peer.call_tool(now, call_params(on, &which), token).map(drop),
                8 => rig.peer.stop_session(now, stop_params(on), token),
                9 => rig.peer.wait_ready(&session(on), token),
                10 => {
                    let params = ToolCancelParams {
                        session_id: session(on),
                        tool_call_id: call(&which),
                        ..ToolCancelParams::default()
                    };
                    rig.peer.cancel_tool(now, &params, token)
                }
                _ => {
                    let drain = AnyParams::ExecutorDrain(ExecutorDrainParams::default());
                    if !token.is_multiple_of(7) {
                        return None; // rarely: it ends everything
                    }
                    rig.peer.request(now, &drain, token, Duration::from_secs(5))
                }
            };
            rig.drain();
            return asked.ok().map(|()| token);
        }
    }
    None
}

proptest! {
    #[test]
    fn everything_that_was_asked_for_ends_once(steps in proptest::collection::vec(step(), 1..120)) {
        let mut rig = Rig::up();
        let mut open = BTreeSet::new();
        let mut gone = false;
        for (token, step) in (0..).zip(steps) {
            let shown = format!("{step:?}");
            open.extend(take(&mut rig, step, token));
            for event in rig.events.drain(..) {
                prop_assert!(!gone, "nothing follows: {event:?}");
                match event {
                    Event::Done { token, .. } => prop_assert!(open.remove(&token), "{token} ends twice, after {shown}"),
                    Event::Gone(_) => gone = true,
                    _ => {}
                }
            }
            if let Some((at, reason)) = rig.peer.deadline() {
                prop_assert!(at > rig.now, "{reason:?} at {at} was due, now is {}", rig.now);
            }
            prop_assert_eq!(rig.peer.gone().is_some(), gone);
            prop_assert!(rig.peer.open_calls() <= 8);
            if gone {
                prop_assert!(rig.peer.deadline().is_none() && rig.bound().is_empty());
                prop_assert_eq!(rig.peer.open_calls(), 0);
            }
        }
        // At the latest when the executor is lost.
        rig.wait(Duration::from_secs(120));
        for event in rig.events.drain(..) {
            if let Event::Done { token, .. } = event {
                prop_assert!(open.remove(&token));
            }
        }
        prop_assert!(rig.peer.gone().is_some());
        prop_assert!(open.is_empty(), "{open:?} never ended");
    }
}
