//! Token, dial, registration, heartbeat, close codes, back-off.

use super::*;

pub(super) fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// How it ended, which must be the last thing that was told.
#[track_caller]
fn ended(rig: &mut Rig) -> End {
    let Some(Event::Ended(end)) = rig.events.pop_back() else { panic!("it has not ended") };
    rig.events.clear();
    assert_eq!(rig.executor.end_state(), Some(&end));
    assert_eq!(rig.executor.state(), &ConnectionState::Closed);
    assert_eq!(rig.executor.deadline(), None, "nothing is left to be done");
    rig.feed(Input::Tick);
    rig.feed(Input::Disconnected { code: None, reason: "" });
    rig.feed(Input::Token(Ok(token(9))));
    assert!(rig.events.is_empty() && rig.frames.is_empty(), "nothing follows");
    end
}

#[test]
fn the_way_up() {
    let mut rig = Rig::new(config());
    assert!(matches!(rig.event(), Event::State(ConnectionState::Connecting)));
    assert!(matches!(rig.order(), Order::FetchToken));
    rig.feed(Input::Token(Ok(token(1))));
    let Order::Dial(dial) = rig.order() else { panic!("a dial") };
    assert_eq!((dial.ws_url.as_str(), dial.token.expose()), ("ws://harness.example/", "token-1"));
    assert!(!format!("{dial:?}").contains("token-1"), "the token shows in nothing");

    rig.feed(Input::Connected(ProtocolVersion::V1_1));
    let (id, params) = rig.request("executor.register");
    assert_eq!(params["protocol"], "bma.executor.v1.1");
    assert_eq!(params["capabilities"]["shell"], json!({"enabled": true}));
    assert_eq!(params.get("resume"), None, "it was never here before");
    rig.reply(&id, registered());
    assert!(matches!(rig.event(), Event::State(ConnectionState::Ready)));
    assert!(matches!(rig.event(), Event::Registered(answer) if answer.connection_id.as_str() == "conn_1"));
    assert_eq!(rig.executor.registration().unwrap().executor_id.as_str(), "exec_1");
    assert!(rig.events.is_empty() && rig.orders.is_empty() && rig.frames.is_empty());
}

#[test]
fn starting_twice_is_starting_once() {
    let mut rig = Rig::new(config());
    rig.executor.start(rig.now);
    rig.drain();
    assert_eq!(rig.orders.len(), 1);
}

#[test]
fn the_registration_says_the_subprotocol_that_was_agreed_on() {
    let mut rig = Rig::new(config());
    rig.order();
    rig.feed(Input::Token(Ok(token(1))));
    rig.order();
    rig.feed(Input::Connected(ProtocolVersion::V1));
    assert_eq!(rig.request("executor.register").1["protocol"], "bma.executor.v1");
}

#[test]
fn nothing_is_served_before_the_registration() {
    let mut rig = Rig::new(config());
    rig.dial();
    let asked = rig.ask_assign("s");
    assert_eq!(rig.code(&asked), ErrorCode::SessionNotActive.number());
    rig.register(registered());
    let asked = rig.ask_assign("s");
    assert!(rig.answered(&asked).is_none());
    assert!(matches!(rig.events.pop_back(), Some(Event::SessionAssign { .. })));
}

#[test]
fn heartbeats_come_at_the_interval_of_the_harness() {
    let mut rig = Rig::up();
    rig.assign("s");
    assert_eq!(rig.due(), (seconds(10), Reason::Heartbeat));
    for _ in 0..5 {
        rig.wait(seconds(10));
        let (id, params) = rig.request("executor.heartbeat");
        assert_eq!(params["connection_id"], "conn_1");
        assert_eq!(params["active_sessions"], json!(["s"]));
        rig.reply(&id, json!({"server_time": "", "lease_ttl_ms": 60_000, "drain": false}));
        assert!(!rig.has("executor.heartbeat"));
    }
}

#[test]
fn the_configuration_may_set_the_interval_but_not_to_nothing() {
    let mut config = config();
    config.heartbeat_interval = Some(Duration::ZERO);
    let mut rig = Rig::up_with(config, registered());
    rig.wait(Duration::from_millis(100));
    assert_eq!(rig.answer_heartbeats(), 10);
}

#[test]
fn nonsense_in_a_registration_does_no_harm() {
    let mut answer = registered();
    for member in ["heartbeat_interval_ms", "lease_ttl_ms", "max_control_frame_bytes"] {
        answer[member] = json!(-1);
    }
    answer["limits"] = json!({"max_inflight_requests": 0, "max_concurrent_process_reads": 0,
        "max_process_read_bytes": 0, "max_process_write_bytes": 0, "max_processes_per_session": 0,
        "max_artifact_bytes": 0});
    let mut rig = Rig::up_with(config(), answer);
    rig.assign("s");
    for _ in 0..10 {
        rig.wait(seconds(15));
        assert_eq!(rig.answer_heartbeats(), 1, "the contract's interval");
    }
    assert!(rig.orders.is_empty(), "the connection lives");
}

#[test]
fn a_lease_always_has_room_for_three_heartbeats() {
    for configured in [None, Some(seconds(500))] {
        let mut config = config();
        config.heartbeat_interval = configured;
        let mut answer = registered();
        answer["heartbeat_interval_ms"] = json!(90_000);
        let mut rig = Rig::up_with(config, answer);
        assert_eq!(rig.due(), (seconds(20), Reason::Heartbeat));
        rig.wait(seconds(20));
        let (id, _) = rig.request("executor.heartbeat");
        rig.reply(&id, json!({"server_time": "", "lease_ttl_ms": 30_000, "drain": false}));
        assert_eq!(rig.due(), (seconds(10), Reason::Heartbeat), "a shorter lease counts at once");
    }
}

#[test]
fn a_token_that_never_comes_and_a_dial_that_never_ends_are_failed_attempts() {
    let mut rig = Rig::new(config());
    rig.wait(seconds(30));
    let Some(Event::Reconnecting { attempt: 1, cause, .. }) = rig.events.pop_back() else { panic!("told") };
    assert_eq!(cause, "no token: none came within 30000 ms");
    rig.orders.clear();
    rig.feed(Input::Token(Ok(token(1))));
    assert!(rig.orders.is_empty(), "too late");
    rig.wait(seconds(1));
    assert!(matches!(rig.order(), Order::FetchToken));
    rig.feed(Input::Token(Ok(token(2))));
    assert!(matches!(rig.order(), Order::Dial(_)));
    rig.wait(seconds(30));
    assert!(matches!(rig.order(), Order::Close(_)), "the driver gives the dial up");
    rig.disconnect(None);
    let Some(Event::Reconnecting { attempt: 2, cause, .. }) = rig.events.pop_back() else { panic!("told") };
    assert_eq!(cause, "no connection: none within 30000 ms");
    rig.wait(seconds(2));
    rig.dial();
    rig.register(registered());
    assert_eq!(rig.executor.state(), &ConnectionState::Ready);
}

#[test]
fn an_executor_that_listens_waits_for_as_long_as_nobody_comes() {
    let mut config = config();
    config.listens = true;
    let mut rig = Rig::new(config);
    assert!(matches!(rig.order(), Order::FetchToken));
    rig.feed(Input::Token(Ok(token(1))));
    assert!(matches!(rig.order(), Order::Dial(_)));
    assert_eq!(rig.executor.deadline(), None);
    rig.wait(seconds(86_400));
    assert!(rig.orders.is_empty() && rig.executor.state() == &ConnectionState::Connecting);
    rig.feed(Input::Connected(ProtocolVersion::V1_1));
    rig.register(registered());
    assert_eq!(rig.executor.state(), &ConnectionState::Ready);
}

#[test]
fn a_refusal_counts_once_and_a_passing_one_not_at_all() {
    // The answer, and the close that says the same, in one go or apart.
    let missing = json!({"code": -32012, "message": "no agent", "data": {"reason": "capability_missing"}});
    for close in [Some(4002), None] {
        let mut rig = Rig::new(config());
        for attempt in 1..=5 {
            assert!(rig.executor.end_state().is_none(), "attempt {attempt}");
            rig.dial();
            let (id, _) = rig.request("executor.register");
            rig.fail(&id, missing.clone());
            rig.disconnect(close);
            rig.orders.retain(|order| !matches!(order, Order::Close(_)));
            rig.back_off();
        }
        assert!(matches!(ended(&mut rig), End::RegistrationRefused { attempts: 5, .. }));
    }
    // One without a reason is a refusal too, whether its close is seen or not.
    let mut rig = Rig::new(config());
    for _ in 0..5 {
        rig.dial();
        let (id, _) = rig.request("executor.register");
        rig.fail(&id, json!({"code": -32001, "message": "not you"}));
        rig.disconnect(None);
        rig.orders.retain(|order| !matches!(order, Order::Close(_)));
        rig.back_off();
    }
    let End::RegistrationRefused { attempts: 5, reason } = ended(&mut rig) else { panic!("refused") };
    assert_eq!(reason, "not you");
    // A harness that is full, or in trouble, may take it the next time.
    for code in [-32009, -32603] {
        let mut rig = Rig::new(config());
        for _ in 0..8 {
            rig.dial();
            let (id, _) = rig.request("executor.register");
            rig.fail(&id, json!({"code": code, "message": "later"}));
            rig.disconnect(Some(4002));
            rig.orders.retain(|order| !matches!(order, Order::Close(_)));
            rig.back_off();
        }
        assert_eq!(rig.executor.end_state(), None, "{code}");
    }
}

#[test]
fn a_registration_that_holds_for_an_interval_is_proven() {
    let mut rig = Rig::up();
    rig.wait(Duration::from_millis(9_999));
    assert!(rig.events.is_empty());
    rig.wait(Duration::from_millis(1));
    assert!(matches!(rig.event(), Event::Proven));
    rig.answer_heartbeats();
    rig.wait(seconds(10));
    assert!(rig.events.is_empty(), "once");
}

#[test]
fn f58_a_silent_harness_counts_as_dead() {
    let mut rig = Rig::up();
    rig.wait(seconds(10));
    // The request time-out and half the lease are both 30 s.
    rig.wait(Duration::from_millis(29_999));
    assert!(rig.orders.is_empty());
    rig.wait(Duration::from_millis(1));
    assert!(matches!(rig.order(), Order::Close(1000)));
    // However long the close takes: one dial, after the back-off.
    rig.wait(seconds(30));
    assert!(rig.orders.is_empty());
    rig.disconnect(Some(1000));
    rig.wait(seconds(2));
    assert!(matches!(rig.order(), Order::FetchToken));
}

#[test]
fn f64_any_received_bytes_are_life() {
    let mut rig = Rig::up();
    for _ in 0..20 {
        rig.wait(seconds(10));
        rig.feed(Input::Alive);
    }
    assert!(rig.orders.is_empty(), "one large message is on its way, the answers behind it");
}

#[test]
fn an_error_answer_is_life_too() {
    let mut rig = Rig::up();
    for _ in 0..20 {
        rig.wait(seconds(10));
        let (id, _) = rig.request("executor.heartbeat");
        rig.fail(&id, json!({"code": -32603, "message": "oops"}));
    }
    assert!(rig.orders.is_empty());
}

#[test]
fn f61_every_dial_has_a_token_of_its_own() {
    let mut rig = Rig::new(config());
    for number in 1..=4 {
        assert!(matches!(rig.order(), Order::FetchToken));
        rig.feed(Input::Token(Ok(token(number))));
        let Order::Dial(dial) = rig.order() else { panic!("a dial") };
        assert_eq!(dial.token.expose(), format!("token-{number}"));
        if number % 2 == 0 {
            rig.feed(Input::DialFailed(DialError::Failed("refused".to_owned())));
        } else {
            rig.feed(Input::Connected(ProtocolVersion::V1_1));
            rig.disconnect(None);
        }
        rig.back_off();
    }
}

#[test]
fn a_lost_connection_is_resumed() {
    let mut rig = Rig::with_session("s");
    let registration = rig.reconnect();
    let resume = &registration["params"]["resume"];
    let expected = json!({"executor_id": "exec_1", "last_connection_id": "conn_1", "active_sessions": ["s"]});
    assert_eq!(*resume, expected);
    assert_eq!(rig.active(), ["s"]);
}

#[test]
fn the_last_connection_is_the_last_that_was_registered() {
    let mut rig = Rig::up();
    rig.disconnect(None);
    rig.wait(seconds(2));
    rig.dial(); // opened, never registered
    rig.disconnect(None);
    rig.frames.clear();
    rig.wait(seconds(4));
    let registration = rig.dial();
    assert_eq!(registration["params"]["resume"]["last_connection_id"], "conn_1");
}

#[test]
fn a_registration_without_an_answer_is_given_up() {
    let mut rig = Rig::new(config());
    rig.dial();
    rig.wait(seconds(30));
    assert!(matches!(rig.order(), Order::Close(1000)));
    assert!(rig.orders.is_empty());
    rig.disconnect(None);
    let Some(Event::Reconnecting { cause, .. }) = rig.events.pop_back() else { panic!("told") };
    assert!(cause.contains("no answer within 30000 ms"), "{cause}");
}

#[test]
fn a_connection_that_is_gone_is_not_closed_as_well() {
    // While the registration waits for its answer.
    let mut rig = Rig::new(config());
    rig.dial();
    rig.disconnect(None);
    assert!(rig.orders.is_empty(), "{:?}", rig.orders);
    assert!(matches!(rig.events.pop_back(), Some(Event::Reconnecting { attempt: 1, .. })));
    // And once it is up.
    let mut rig = Rig::up();
    rig.disconnect(Some(4004));
    assert!(rig.orders.is_empty(), "{:?}", rig.orders);
    assert_eq!(ended(&mut rig), End::Replaced);
}

#[test]
fn stopping_while_a_registration_waits_closes_once() {
    let mut rig = Rig::new(config());
    rig.dial();
    rig.executor.stop(rig.now, "enough");
    rig.drain();
    rig.frames.clear();
    assert!(matches!(rig.order(), Order::Close(1000)));
    assert!(rig.orders.is_empty());
    assert_eq!(ended(&mut rig), End::Stopped);
}

#[test]
fn terminal_closes_end_it() {
    let cases = [(4004, End::Replaced), (4005, End::Drained)];
    for (code, end) in cases {
        let mut rig = Rig::with_session("s");
        rig.disconnect(Some(code));
        let stop = rig.events.iter().find(|event| matches!(event, Event::SessionStop { .. }));
        assert!(matches!(stop, Some(Event::SessionStop { reason: StopCause::ExecutorEnded, .. })));
        assert_eq!(ended(&mut rig), end);
        assert_eq!(end.is_orderly(), code == 4005);
        assert!(rig.active().is_empty());
    }
    let mut rig = Rig::up();
    rig.disconnect(Some(4003));
    assert!(matches!(ended(&mut rig), End::UnsupportedProtocol(_)));
}

#[test]
fn an_unsupported_protocol_is_terminal_wherever_it_is_said() {
    let mut rig = Rig::new(config());
    rig.dial();
    let (id, _) = rig.request("executor.register");
    rig.fail(&id, json!({"code": -32010, "message": "v2 only"}));
    assert!(matches!(rig.order(), Order::Close(_)));
    assert_eq!(ended(&mut rig), End::UnsupportedProtocol("v2 only".to_owned()));

    let mut rig = Rig::new(config());
    rig.order();
    rig.feed(Input::Token(Ok(token(1))));
    rig.order();
    rig.feed(Input::DialFailed(DialError::UnsupportedProtocol("v2 only".to_owned())));
    assert_eq!(ended(&mut rig), End::UnsupportedProtocol("v2 only".to_owned()));
}

#[test]
fn a_rejected_credential_is_terminal() {
    let mut rig = Rig::new(config());
    rig.feed(Input::Token(Err(TokenError::CredentialRejected("401".to_owned()))));
    assert!(matches!(ended(&mut rig), End::CredentialRejected(_)));
}

#[test]
fn a_refused_token_is_tried_again_five_times() {
    let mut rig = Rig::new(config());
    for attempt in 1..=5 {
        rig.order();
        rig.feed(Input::Token(Ok(token(attempt))));
        rig.order();
        rig.feed(Input::DialFailed(DialError::Unauthorized("401".to_owned())));
        rig.back_off();
    }
    assert!(matches!(ended(&mut rig), End::CredentialRejected(_)));
}

#[test]
fn five_refusals_in_a_row_are_terminal() {
    let mut rig = Rig::new(config());
    for attempt in 1..=5 {
        assert!(rig.executor.end_state().is_none(), "attempt {attempt}");
        rig.dial();
        if attempt % 2 == 0 {
            // An answer that says so counts like a close.
            let (id, _) = rig.request("executor.register");
            rig.fail(&id, json!({"code": -32012, "message": "no agent", "data": {"reason": "capability_missing"}}));
            assert!(matches!(rig.order(), Order::Close(_)));
            rig.disconnect(Some(1000));
        } else {
            rig.register(registered());
            rig.disconnect(Some(4002));
        }
        rig.frames.clear();
        rig.back_off();
    }
    assert!(matches!(ended(&mut rig), End::RegistrationRefused { attempts: 5, .. }));
}

#[test]
fn a_registration_that_proved_itself_forgives_earlier_refusals() {
    let mut rig = Rig::new(config());
    for _ in 0..4 {
        rig.dial();
        rig.disconnect(Some(4002));
        rig.frames.clear();
        rig.back_off();
    }
    rig.dial();
    rig.register(registered());
    rig.wait(seconds(10));
    for _ in 0..4 {
        rig.disconnect(Some(4002));
        rig.frames.clear();
        rig.back_off();
        rig.dial();
    }
    assert!(rig.executor.end_state().is_none());
}

#[test]
fn an_expired_token_reconnects_at_once_when_the_registration_had_proved_stable() {
    let mut rig = Rig::up();
    rig.disconnect(Some(4001));
    assert!(rig.orders.is_empty(), "not stable yet: with back-off");
    rig.wait(seconds(1));
    rig.dial();
    rig.register(registered());
    rig.wait(seconds(10));
    rig.events.clear();
    rig.disconnect(Some(4001));
    assert!(matches!(rig.order(), Order::FetchToken), "at once");
    assert!(!rig.events.iter().any(|event| matches!(event, Event::Reconnecting { .. })));
}

#[test]
fn any_other_close_is_followed_by_another_dial() {
    for code in [None, Some(1000), Some(1001), Some(1006), Some(1009), Some(1011), Some(4000), Some(4999)] {
        let mut rig = Rig::up();
        rig.disconnect(code);
        assert!(matches!(rig.events.pop_back(), Some(Event::Reconnecting { .. })), "{code:?}");
        rig.wait(seconds(1));
        assert!(matches!(rig.order(), Order::FetchToken));
    }
}

#[test]
fn attempts_can_be_limited() {
    let mut config = config();
    config.max_reconnect_attempts = 3;
    let mut rig = Rig::new(config);
    for _ in 0..3 {
        rig.order();
        rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
        rig.back_off();
    }
    assert_eq!(ended(&mut rig), End::ReconnectExhausted { attempts: 3, reason: "no token: down".to_owned() });
}

#[test]
fn the_harness_can_close_it_for_good() {
    let mut rig = Rig::with_session("s");
    rig.frame(json!({"jsonrpc": "2.0", "method": "executor.close", "params": {"reason": "maintenance"}}));
    assert!(matches!(rig.order(), Order::Close(1000)));
    assert_eq!(ended(&mut rig), End::ClosedByHarness("maintenance".to_owned()));
}

#[test]
fn stopping_says_goodbye() {
    let mut rig = Rig::up();
    rig.executor.stop(rig.now, "maintenance");
    rig.drain();
    assert_eq!(rig.request("executor.close").1, json!({"reason": "maintenance"}));
    assert!(matches!(rig.order(), Order::Close(1000)));
    assert_eq!(ended(&mut rig), End::Stopped);
}

#[test]
fn stopping_ends_a_wait_for_the_next_dial() {
    let mut rig = Rig::up();
    rig.disconnect(None);
    rig.executor.stop(rig.now, "enough");
    rig.drain();
    assert_eq!(ended(&mut rig), End::Stopped);
    let mut rig = Rig { executor: Executor::new(config()), ..Rig::up() };
    rig.executor.stop(rig.now, "never started");
    rig.drain();
    assert_eq!(ended(&mut rig), End::Stopped);
}

#[test]
fn a_connection_that_is_lost_while_stopping_is_dialled_again_only_for_what_is_undelivered() {
    for code in [None, Some(4001)] {
        let mut rig = Rig::with_session("s");
        rig.wait(seconds(10));
        rig.answer_heartbeats();
        rig.events.clear();
        rig.run("s", "c");
        rig.finish("s", "c");
        rig.executor.stop(rig.now, "enough");
        rig.drain();
        rig.frames.clear();
        rig.disconnect(code);
        assert!(rig.executor.end_state().is_none(), "the result is still to be accepted");
        rig.wait(seconds(1));
        rig.dial();
        rig.disconnect(code);
        rig.wait(seconds(2));
        rig.dial();
        rig.frames.clear();
        rig.wait(seconds(5));
        assert!(rig.events.iter().any(|event| matches!(event, Event::ResultLost { .. })));
        rig.orders.clear();
        assert_eq!(ended(&mut rig), End::Stopped);
    }
    // The answer to a stop that came while it was connecting: nothing to be delivered, nothing to come back for.
    let mut rig = Rig::new(config());
    rig.order();
    rig.feed(Input::Token(Ok(token(1))));
    rig.executor.stop(rig.now, "enough");
    rig.drain();
    assert_eq!(ended(&mut rig), End::Stopped);
}

#[test]
fn what_comes_out_of_turn_changes_nothing() {
    let mut rig = Rig::up();
    rig.feed(Input::Token(Ok(token(2))));
    rig.feed(Input::Connected(ProtocolVersion::V1));
    rig.feed(Input::DialFailed(DialError::Failed("x".to_owned())));
    assert!(rig.orders.is_empty() && rig.events.is_empty() && rig.frames.is_empty());
    rig.disconnect(None);
    rig.events.clear();
    rig.feed(Input::Disconnected { code: Some(4004), reason: "late" });
    rig.feed(Input::Frame("{}"));
    rig.feed(Input::Alive);
    assert!(rig.events.is_empty() && rig.frames.is_empty() && rig.executor.end_state().is_none());
}

#[test]
fn draining_by_any_of_its_names() {
    // A request.
    let mut rig = Rig::with_session("s");
    let asked = rig.ask("executor.drain", json!({"reason": "upgrade"}));
    assert_eq!(rig.answer(&asked)["result"], json!({"accepted": true, "active_sessions": ["s"]}));
    assert!(matches!(rig.event(), Event::State(ConnectionState::Draining)));
    assert!(matches!(rig.event(), Event::Drain(params) if params.reason == "upgrade"));
    let asked = rig.ask_assign("t");
    let answer = rig.answer(&asked);
    assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["retryable"]), (&json!(-32009), &json!(true)));
    rig.run("s", "c"); // open sessions run on
    rig.reconnect();
    let asked = rig.ask_assign("t");
    assert_eq!(rig.code(&asked), -32009, "a reconnect does not end it");

    // A heartbeat's answer.
    let mut rig = Rig::up();
    rig.wait(seconds(10));
    let (id, _) = rig.request("executor.heartbeat");
    rig.reply(&id, json!({"server_time": "", "lease_ttl_ms": 60_000, "drain": true}));
    assert!(matches!(rig.events.pop_back(), Some(Event::Drain(params)) if params.reason.is_empty()));
    assert!(matches!(rig.events.pop_back(), Some(Event::State(ConnectionState::Draining))));
    let asked = rig.ask_assign("t");
    assert_eq!(rig.code(&asked), -32009);
    rig.wait(seconds(10));
    let (id, _) = rig.request("executor.heartbeat");
    rig.events.clear();
    rig.reply(&id, json!({"server_time": "", "lease_ttl_ms": 60_000, "drain": true}));
    assert!(rig.events.is_empty(), "told once");

    // A registration's answer.
    let mut answer = registered();
    answer["drain"] = json!(true);
    let mut rig = Rig::new(config());
    rig.dial();
    rig.register(answer);
    assert!(matches!(rig.events.pop_back(), Some(Event::Drain(_))), "as a request would be");
    assert_eq!(rig.executor.state(), &ConnectionState::Draining);
    let asked = rig.ask_assign("t");
    assert_eq!(rig.code(&asked), -32009);
}
