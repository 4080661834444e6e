//! What holds for any sequence of inputs and calls.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Token(u8),
    Connected,
    DialFailed,
    Disconnected(Option<u16>),
    Wait(u64),
    /// Goes back in time.
    Back(u64),
    Text(String),
    /// A request of the harness: which, and about which session and call.
    Ask(u8, u8, u8),
    /// An answer to the oldest request of ours: a result, or an error.
    Answer(u8),
    /// A call of the application.
    Call(u8, u8, u8),
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    let close = prop_oneof![
        8 => Just(None),
        2 => Just(Some(1000)),
        1 => (4001..=4005_u16).prop_map(Some),
    ];
    prop_oneof![
        4 => (0..6_u8).prop_map(Step::Token),
        4 => Just(Step::Connected),
        1 => Just(Step::DialFailed),
        2 => close.prop_map(Step::Disconnected),
        4 => (0..90_000_u64).prop_map(Step::Wait),
        1 => (0..90_000_u64).prop_map(Step::Back),
        1 => "[ -~]{0,20}".prop_map(Step::Text),
        12 => (0..8_u8, 0..2_u8, 0..4_u8).prop_map(|(what, session, call)| Step::Ask(what, session, call)),
        12 => (0..8_u8).prop_map(Step::Answer),
        12 => (0..12_u8, 0..2_u8, 0..4_u8).prop_map(|(what, session, call)| Step::Call(what, session, call)),
        1 => Just(Step::Stop),
    ]
}

/// A rig that takes any step, and watches what must never happen.
struct Any {
    rig: Rig,
    /// Calls that were accepted, or ended: none of them may be offered again.
    taken: BTreeSet<(SessionId, ToolCallId)>,
    ended: bool,
}

impl Any {
    fn take(&mut self, step: Step) {
        let (a, b) = ("s0", "s1");
        let session_of = |n: u8| if n == 0 { a } else { b };
        let rig = &mut self.rig;
        match step {
            Step::Token(0) => rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned())))),
            Step::Token(_) => rig.feed(Input::Token(Ok(token(1)))),
            Step::Connected => rig.feed(Input::Connected(ProtocolVersion::V1_1)),
            Step::DialFailed => rig.feed(Input::DialFailed(DialError::Failed("down".to_owned()))),
            Step::Disconnected(code) => rig.disconnect(code),
            Step::Wait(millis) => rig.wait(Duration::from_millis(millis)),
            Step::Back(millis) => {
                let earlier = Time::from_millis((rig.now.as_nanos() / 1_000_000).saturating_sub(millis));
                rig.executor.feed(earlier, Input::Tick);
                rig.drain();
            }
            Step::Stop => {
                rig.executor.stop(rig.now, "enough");
                rig.drain();
            }
            Step::Text(text) => rig.feed(Input::Frame(&text)),
            Step::Ask(what, session, call) => {
                let (session, call) = (session_of(session), format!("c{call}"));
                match what {
                    0 | 1 => drop(rig.ask_assign(session)),
                    2 => drop(rig.ask_stop(session)),
                    3..=5 => drop(rig.ask_call(session, &call)),
                    6 => drop(rig.ask("tool.cancel", json!({"session_id": session, "tool_call_id": call}))),
                    _ => drop(rig.ask("executor.drain", json!({"reason": ""}))),
                }
            }
            Step::Answer(what) => {
                let request = rig.frames.iter().position(|frame| frame.get("method").is_some());
                let Some(frame) = request.and_then(|at| rig.frames.remove(at)) else { return };
                let id = &frame["id"];
                match (what, frame["method"].as_str().unwrap()) {
                    (0, _) => rig.fail(id, json!({"code": -32009, "message": "busy"})),
                    (1, _) => rig.fail(id, json!({"code": -32002, "message": "no"})),
                    (_, "executor.register") => rig.reply(id, registered()),
                    (_, "executor.heartbeat") => {
                        rig.reply(id, json!({"server_time": "", "lease_ttl_ms": 60_000, "drain": false}));
                    }
                    _ => rig.reply(id, json!({"accepted": true})),
                }
            }
            Step::Call(what, on, which) => {
                let (on, which, now) = (session(session_of(on)), call(&format!("c{which}")), rig.now);
                let error = ErrorCode::Forbidden.error("no");
                let taken = (on.clone(), which.clone());
                let done = match what {
                    0 | 1 => rig.offers.get(&on).map_or(Ok(()), |offer| rig.executor.accept_session(offer)),
                    2 => rig.offers.get(&on).map_or(Ok(()), |offer| rig.executor.reject_session(offer, None)),
                    3 => rig.executor.session_ready(now, &on),
                    4 => rig.executor.session_stopped(&on, true),
                    5 => rig.executor.session_ended(now, &on, "over"),
                    6 | 7 => rig.executor.accept_tool_call(&on, &which),
                    8 => rig.executor.refuse_tool_call(&on, &which, &error),
                    9 | 10 => rig.executor.finish_tool_call(now, result(on.as_str(), which.as_str())),
                    _ => rig.executor.report_tool_result(now, result(on.as_str(), which.as_str())),
                };
                if done.is_ok() && matches!(what, 6 | 7 | 9 | 10) {
                    self.taken.insert(taken);
                }
                rig.drain();
            }
        }
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        for event in self.rig.events.drain(..) {
            prop_assert!(!self.ended, "nothing follows the end: {event:?}");
            match event {
                Event::Ended(_) => self.ended = true,
                Event::ToolCall(params) => {
                    let call = (params.session_id, params.tool_call_id);
                    prop_assert!(!self.taken.contains(&call), "{call:?} was offered again");
                }
                // Another session of the same name has calls of its own.
                Event::SessionAssign { offer, .. } => self.taken.retain(|(session, _)| session != offer.session_id()),
                _ => {}
            }
        }
        let executor = &self.rig.executor;
        prop_assert_eq!(executor.end_state().is_some(), self.ended);
        let closes = self.rig.orders.iter().filter(|order| matches!(order, Order::Close(_))).count();
        let dials = self.rig.orders.iter().filter(|order| matches!(order, Order::Dial(_))).count();
        prop_assert!(closes <= dials + 1, "a connection is closed once");
        prop_assert!(executor.now >= self.rig.now || executor.end_state().is_some());
        if let Some((at, reason)) = executor.deadline() {
            prop_assert!(at > executor.now, "{reason:?} at {at} was due, now is {}", executor.now);
            prop_assert!(executor.end_state().is_none(), "{reason:?} after the end");
        }
        let active = executor.active_sessions();
        for (_, session_id) in &executor.session_deadlines {
            prop_assert!(executor.sessions.contains_key(session_id));
        }
        for (_, session_id, call) in &executor.call_deadlines {
            prop_assert!(executor.sessions[session_id].calls.clone().get_open(call).is_some());
        }
        prop_assert!(executor.held.len() + executor.retries.len() <= executor.under_way.len());
        if executor.end_state().is_some() {
            prop_assert!(active.is_empty() && executor.sessions.is_empty() && executor.under_way.is_empty());
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn any_sequence_keeps_the_invariants(steps in proptest::collection::vec(step(), 1..120)) {
        let mut any = Any { rig: Rig::new(config()), taken: BTreeSet::new(), ended: false };
        any.rig.events.clear();
        // Half-way in, so that most steps find something to do.
        any.rig.dial();
        any.rig.register(registered());
        for step in steps {
            let shown = format!("{step:?}");
            any.take(step);
            any.check().map_err(|error| TestCaseError::fail(format!("after {shown}: {error}")))?;
        }
    }

    #[test]
    fn the_same_seed_and_inputs_give_the_same_run(steps in proptest::collection::vec(step(), 1..80)) {
        let run = |steps: &[Step]| {
            let mut any = Any { rig: Rig::new(config()), taken: BTreeSet::new(), ended: false };
            for step in steps {
                any.take(step.clone());
            }
            format!("{:?} {:?} {:?}", any.rig.frames, any.rig.events, any.rig.orders)
        };
        prop_assert_eq!(run(&steps), run(&steps));
    }
}
