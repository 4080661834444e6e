//! Connections, leases, heartbeats, drains, and plain requests.

use super::*;
use crate::contract::{ExecutorDrainParams, ProcessListParams, SessionEventResult};

fn drain_params() -> AnyParams {
    AnyParams::ExecutorDrain(ExecutorDrainParams { reason: "upgrade".to_owned(), deadline_ms: None })
}

fn list_params() -> AnyParams {
    AnyParams::ProcessList(ProcessListParams { session_id: session("s") })
}

#[test]
fn a_registration_is_answered_with_everything_that_the_executor_must_know() {
    let mut rig = Rig::new(Config::default());
    assert_eq!(rig.peer.connection_id(), None);
    rig.attach(Value::Null);
    let answer = rig.request_answered("r")["result"].clone();
    let connection_id = rig.peer.connection_id().unwrap().to_string();
    assert_eq!(
        answer,
        json!({
            "executor_id": "exec_1", "connection_id": connection_id, "server_time": "2026-01-01T00:00:00.000Z",
            "heartbeat_interval_ms": 15_000, "lease_ttl_ms": 60_000, "max_control_frame_bytes": 65_536,
            "max_mcp_frame_bytes": 8_388_608, "drain": false, "protocol": "bma.executor.v1.1",
            "limits": {"max_inflight_requests": 64, "max_concurrent_process_reads": 16,
                "max_process_read_bytes": 32_768, "max_process_write_bytes": 32_768,
                "max_processes_per_session": 64, "max_artifact_bytes": 16_777_216},
        })
    );
    assert!(matches!(rig.event(), Event::Registered { resumed: false }));
    assert_eq!(rig.peer.info().name, "test");
    assert!(rig.peer.capabilities().shell.as_ref().unwrap().enabled);

    rig.reconnect(&[]);
    assert!(matches!(rig.event(), Event::Disconnected));
    assert!(matches!(rig.event(), Event::Registered { resumed: true }));
    assert_ne!(rig.peer.connection_id().unwrap().to_string(), connection_id);
}

#[test]
fn an_executor_of_the_first_version_is_not_told_what_it_does_not_know() {
    let mut rig = Rig::new(Config::default());
    let process = json!({"process": {"enabled": true, "protocol_version": 1}});
    rig.attach_with(registration_with(Value::Null, ProtocolVersion::V1, process));
    let answer = rig.request_answered("r")["result"].clone();
    assert_eq!((answer.get("protocol"), answer.get("limits")), (None, None));
    // And not asked for it, whatever it advertises.
    let asked = rig.peer.request(rig.now, &list_params(), 1, seconds(1));
    assert!(matches!(asked, Err(CallError::NotServed { method: "process.list", .. })), "{asked:?}");
}

#[test]
fn a_method_needs_the_capability_that_it_belongs_to() {
    let mut rig = Rig::up();
    let asked = rig.peer.request(rig.now, &list_params(), 1, seconds(1));
    let Err(CallError::NotServed { method, missing }) = asked else { panic!("{asked:?}") };
    assert_eq!((method, missing.contains("process.enabled")), ("process.list", true));
    assert!(rig.frames.is_empty());
    // Advertised later, it is served.
    let params = json!({"capabilities": {"process": {"enabled": true, "protocol_version": 1}}});
    rig.frame(json!({"jsonrpc": "2.0", "method": "executor.capabilities.update", "params": params}));
    assert!(matches!(rig.event(), Event::CapabilitiesChanged));
    rig.peer.request(rig.now, &list_params(), 1, seconds(1)).unwrap();
    rig.drain();
    let (id, _) = rig.request("process.list");
    rig.reply(&id, json!({"processes": []}));
    let Ok(Completion::Result(result)) = rig.done(1) else { panic!("a result") };
    assert!(matches!(*result, AnyResult::ProcessList(_)));
}

#[test]
fn heartbeats_are_answered_and_carry_the_lease() {
    let mut rig = Rig::up();
    for _ in 0..10 {
        rig.wait(seconds(50));
        let answer = rig.ask("executor.heartbeat", json!({"connection_id": "c", "active_sessions": []}));
        assert_eq!((&answer["result"]["lease_ttl_ms"], &answer["result"]["drain"]), (&json!(60_000), &json!(false)));
    }
    assert_eq!(rig.peer.gone(), None);
    let answer = rig.ask("executor.heartbeat", json!({"connection_id": "c", "active_sessions": []}));
    assert_eq!(answer["result"]["server_time"], "2026-01-01T00:08:20.000Z");
}

#[test]
fn any_frame_and_any_bytes_keep_the_lease() {
    let mut rig = Rig::up();
    rig.wait(seconds(59));
    rig.feed(Input::Frame("nonsense"));
    rig.wait(seconds(59));
    rig.feed(Input::Alive);
    rig.wait(seconds(59));
    assert_eq!(rig.peer.gone(), None);
    rig.wait(seconds(1));
    assert_eq!(rig.peer.gone(), Some(&Gone::LeaseExpired));
    assert_eq!(rig.closes, [1001], "whatever is still connected is let go");
}

#[test]
fn a_lease_runs_on_while_nothing_is_connected_and_then_everything_ends() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.accept("tool.call");
    rig.disconnect();
    assert!(matches!(rig.event(), Event::Disconnected));
    rig.peer.wait_ready(&session("s"), 4).unwrap();
    rig.wait(seconds(40));
    rig.stop("s", 3);
    rig.wait(seconds(19));
    assert!(rig.events.is_empty());
    rig.wait(seconds(1));
    assert!(matches!(rig.done(2), Err(CallError::OutcomeUnknown(_))));
    assert!(matches!(rig.done(4), Err(CallError::SessionEnded { .. })));
    assert_eq!(rig.done(3), Ok(Completion::Ended));
    assert!(matches!(rig.event(), Event::SessionEnded { .. }));
    assert!(matches!(rig.event(), Event::Gone(Gone::LeaseExpired)));
    assert_eq!(rig.peer.deadline(), None);
    assert!(rig.closes.is_empty(), "nothing was connected");
}

#[test]
fn an_executor_that_is_gone_stays_gone() {
    let mut rig = Rig::up();
    rig.wait(seconds(60));
    rig.events.clear();
    rig.closes.clear();
    let gone = CallError::ExecutorGone(ExecutorId::from("exec_1"));
    assert_eq!(rig.peer.request(rig.now, &drain_params(), 1, seconds(1)), Err(gone.clone()));
    assert_eq!(rig.peer.assign(rig.now, SessionAssignParams::default(), 1), Err(gone.clone()));
    assert_eq!(rig.peer.call_tool(rig.now, call_params("s", "c"), 1).unwrap_err(), gone);
    assert_eq!(rig.peer.stop_session(rig.now, stop_params("s"), 1), Err(gone));
    rig.attach(Value::Null);
    let answer = rig.request_answered("r");
    assert_eq!((&answer["error"]["code"], &answer["error"]["data"]["retryable"]), (&json!(-32009), &json!(true)));
    assert_eq!(rig.closes, [1013]);
    assert!(rig.events.is_empty());
    assert_eq!((rig.peer.connection_id(), rig.peer.deadline()), (None, None));
}

#[test]
fn a_newer_connection_takes_over() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.frames.clear();
    rig.peer.request(rig.now, &drain_params(), 3, seconds(9)).unwrap();
    rig.drain();
    rig.frames.clear();
    rig.attach(resume(&["s"]));
    assert!(matches!(rig.done(3), Err(CallError::Request(RequestError::Disconnected))));
    assert!(matches!(rig.event(), Event::Registered { resumed: true }));
    rig.accept("tool.call"); // sent again: it was not acknowledged
    rig.report("s", "c", "done");
    assert_eq!(text(rig.done(2)), "done");
}

#[test]
fn a_second_registration_on_one_connection_is_refused() {
    let mut rig = Rig::up();
    let params = json!({"protocol": "bma.executor.v1.1", "environment_id": "", "capabilities": {},
        "executor": {"name": "test", "version": "1", "os": "linux", "arch": "x86_64", "hostname": "h"}});
    let answer = rig.ask("executor.register", params);
    assert_eq!(answer["error"]["code"], ErrorCode::InvalidRequest.number());
    assert!(rig.events.is_empty());
}

#[test]
fn the_harness_closes_an_executor() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.frames.clear();
    rig.peer.close(rig.now, "enough");
    rig.drain();
    assert_eq!(rig.request("executor.close").1, json!({"reason": "enough"}));
    assert_eq!(rig.closes, [1000]);
    assert!(matches!(rig.done(2), Err(CallError::OutcomeUnknown(_))));
    assert!(matches!(rig.event(), Event::SessionEnded { .. }));
    assert!(matches!(rig.event(), Event::Gone(Gone::Closed(reason)) if reason == "enough"));
    rig.peer.close(rig.now, "twice");
    rig.drain();
    assert!(rig.events.is_empty() && rig.frames.is_empty());
}

#[test]
fn an_executor_says_goodbye() {
    let mut rig = Rig::with_session("s");
    rig.call("s", "c", 2);
    rig.frame(json!({"jsonrpc": "2.0", "method": "executor.close", "params": {"reason": "reboot"}}));
    let Err(CallError::OutcomeUnknown(reason)) = rig.done(2) else { panic!("unknown") };
    assert!(reason.contains("it closed: reboot"), "{reason}");
    rig.event();
    assert!(matches!(rig.event(), Event::Gone(Gone::Closed(reason)) if reason == "reboot"));
}

#[test]
fn a_drained_executor_goes_with_its_last_session() {
    let mut rig = Rig::with_session("s");
    rig.assign("t");
    rig.peer.request(rig.now, &drain_params(), 5, seconds(9)).unwrap();
    rig.drain();
    let (id, params) = rig.request("executor.drain");
    assert_eq!(params, json!({"reason": "upgrade"}));
    rig.reply(&id, json!({"accepted": true, "active_sessions": ["s", "t"]}));
    assert!(rig.done(5).is_ok());
    let answer = rig.ask("executor.heartbeat", json!({"connection_id": "c", "active_sessions": []}));
    assert_eq!(answer["result"]["drain"], true);
    rig.reconnect(&["s", "t"]);
    rig.events.clear();
    for (id, last) in [("s", false), ("t", true)] {
        let answer = rig.ask("session.ended", json!({"session_id": id, "reason": "over"}));
        assert_eq!(answer["result"]["accepted"], true, "acknowledged before the close");
        assert!(matches!(rig.event(), Event::SessionEnded { .. }));
        assert_eq!(rig.peer.gone().is_some(), last);
    }
    assert!(matches!(rig.event(), Event::Gone(Gone::Drained)));
    assert_eq!(rig.closes, [4005]);

    // One that was away when it was asked is told when it is back.
    let mut rig = Rig::up();
    rig.peer.request(rig.now, &drain_params(), 5, seconds(9)).unwrap();
    rig.disconnect();
    assert!(rig.done(5).is_err());
    rig.frames.clear();
    rig.attach(resume(&[]));
    assert_eq!(rig.request_answered("r")["result"]["drain"], true);
    assert_eq!((rig.peer.gone(), rig.closes.pop_front()), (Some(&Gone::Drained), Some(4005)));

    // One without sessions goes as soon as it has said yes.
    let mut rig = Rig::up();
    rig.peer.request(rig.now, &drain_params(), 5, seconds(9)).unwrap();
    rig.drain();
    assert_eq!(rig.peer.gone(), None);
    let (id, _) = rig.request("executor.drain");
    rig.reply(&id, json!({"accepted": true, "active_sessions": []}));
    assert!(rig.done(5).is_ok());
    assert!(matches!(rig.event(), Event::Gone(Gone::Drained)));
}

#[test]
fn a_repeated_event_gets_the_first_answer() {
    let mut rig = Rig::up();
    let params = json!({"session_id": "s", "event": {"type": "agent.tool_result"}});
    let event = |rig: &mut Rig, id: &str| rig.ask_as(id, "session.event", params.clone());
    assert_eq!(event(&mut rig, "e1"), Value::Null, "the application answers");
    let Event::Request { id, .. } = rig.event() else { panic!("a request") };
    let stored = SessionEventResult { accepted: true, event_id: "ev_1".into(), acked_sequence: None };
    rig.peer.reply(id, &AnyResult::SessionEvent(stored));
    rig.drain();
    assert_eq!(rig.request_answered("e1")["result"], json!({"accepted": true, "event_id": "ev_1"}));
    // The answer was lost: the executor comes back and asks again.
    rig.reconnect(&[]);
    rig.events.clear();
    assert_eq!(event(&mut rig, "e1")["result"]["event_id"], "ev_1");
    assert!(rig.events.is_empty(), "it is not stored twice");
    assert_eq!(event(&mut rig, "e2"), Value::Null);
    assert!(matches!(rig.event(), Event::Request { .. }));
    // Another run of the program counts its requests from the beginning.
    rig.disconnect();
    rig.attach(Value::Null);
    rig.events.clear();
    assert_eq!(event(&mut rig, "e1"), Value::Null);
    assert!(matches!(rig.event(), Event::Request { .. }));
}

#[test]
fn what_it_tells_reaches_the_application() {
    let mut rig = Rig::with_session("s");
    let tell = |rig: &mut Rig, method: &str, params: Value| {
        rig.frame(json!({"jsonrpc": "2.0", "method": method, "params": params}));
    };
    tell(&mut rig, "session.status", json!({"session_id": "s", "status": "running"}));
    assert!(matches!(rig.event(), Event::SessionStatus(params) if params.status.as_str() == "running"));
    tell(&mut rig, "tool.progress", json!({"session_id": "s", "tool_call_id": "c", "message": "half"}));
    assert!(matches!(rig.event(), Event::ToolProgress(params) if params.message == "half"));
    let delta = json!({"session_id": "s", "turn_id": "t", "event_id": "e", "event_type": "agent.message", "index": 0,
        "text": "x"});
    tell(&mut rig, "session.event_delta", delta);
    assert!(matches!(rig.event(), Event::Notification(_)));
    assert!(rig.frames.is_empty());
}

#[test]
fn other_requests_are_the_applications() {
    let mut rig = Rig::up();
    let answer = rig.ask("executor.token.refresh", json!({"token": "hunter2"}));
    assert_eq!(answer, Value::Null);
    let Event::Request { id, params } = rig.event() else { panic!("a request") };
    assert!(matches!(*params, AnyParams::ExecutorTokenRefresh(_)));
    assert!(!format!("{params:?}").contains("hunter2"));
    rig.peer.refuse(id, &ErrorCode::Forbidden.error("no"));
    rig.drain();
    assert_eq!(rig.frames.pop_front().unwrap()["error"]["code"], -32001);
}

#[test]
fn nothing_is_sent_to_nobody() {
    let mut rig = Rig::new(Config::default());
    let asked = rig.peer.request(rig.now, &drain_params(), 1, seconds(1));
    assert_eq!(asked, Err(CallError::Send(Misuse::NotConnected)));
    rig.attach(Value::Null);
    rig.frames.clear();
    rig.disconnect();
    rig.feed(Input::Frame(r#"{"jsonrpc":"2.0","id":1,"method":"session.ended","params":{}}"#));
    rig.feed(Input::Disconnected);
    assert!(rig.frames.is_empty());
    let told = rig.events.iter().filter(|event| matches!(event, Event::Disconnected)).count();
    assert_eq!(told, 1);
}

#[test]
fn an_event_that_is_being_handled_is_not_handled_twice() {
    let params = json!({"session_id": "s", "event": {"type": "agent.tool_result"}});
    let frame = json!({"jsonrpc": "2.0", "id": "e1", "method": "session.event", "params": params});
    let stored =
        AnyResult::SessionEvent(SessionEventResult { accepted: true, event_id: "ev_1".into(), acked_sequence: None });
    let first = |rig: &mut Rig| {
        rig.frame(frame.clone());
        let Event::Request { id, .. } = rig.event() else { panic!("a request") };
        id
    };
    // The executor comes back while the application still thinks about it, and asks twice.
    let mut rig = Rig::up();
    let id = first(&mut rig);
    rig.reconnect(&[]);
    rig.events.clear();
    rig.frame(frame.clone());
    rig.frame(frame.clone());
    assert!(rig.events.is_empty() && rig.frames.is_empty());
    rig.peer.reply(id, &stored);
    rig.drain();
    for _ in 0..2 {
        assert_eq!(rig.request_answered("e1")["result"]["event_id"], "ev_1");
    }
    assert!(rig.frames.is_empty());
    rig.frame(frame.clone());
    assert_eq!(rig.request_answered("e1")["result"]["event_id"], "ev_1");
    assert!(rig.events.is_empty());

    // A refusal is the answer to all that were asked, and none that is kept.
    let mut rig = Rig::up();
    let id = first(&mut rig);
    rig.frame(frame.clone());
    rig.peer.refuse(id, &ErrorCode::ExecutorBusy.error("later"));
    rig.drain();
    for _ in 0..2 {
        assert_eq!(rig.request_answered("e1")["error"]["code"], -32009);
    }
    first(&mut rig);
}

#[test]
fn another_event_under_the_same_id_is_another_event() {
    let mut rig = Rig::up();
    let base = json!({"session_id": "s", "event": {"type": "agent.message"}});
    let mut others = vec![base.clone()];
    for (member, value) in [
        ("session_id", json!("t")),
        ("event", json!({"type": "agent.thought"})),
        ("event_id", json!("e")),
        ("sequence", json!(1)),
        ("turn_id", json!("t")),
        ("idempotency_key", json!("k")),
    ] {
        let mut other = base.clone();
        other[member] = value;
        others.push(other);
    }
    // Each as the first request of a connection, by an executor that counts anew.
    for (n, params) in others.into_iter().enumerate() {
        rig.reconnect(&[]);
        rig.events.clear();
        assert_eq!(rig.ask_as("1", "session.event", params), Value::Null);
        let Event::Request { id, .. } = rig.event() else { panic!("a request") };
        let event_id = format!("ev_{n}").as_str().into();
        let stored = SessionEventResult { accepted: true, event_id, acked_sequence: None };
        rig.peer.reply(id, &AnyResult::SessionEvent(stored));
        rig.drain();
        assert_eq!(rig.request_answered("1")["result"]["event_id"], format!("ev_{n}"));
    }
}

#[test]
fn events_that_are_remembered_are_bounded() {
    let mut rig = Rig::up();
    let ask = |rig: &mut Rig, n: usize| {
        let params = json!({"session_id": "s", "event": {"n": n}});
        rig.ask_as(&format!("e{n}"), "session.event", params)
    };
    for n in 0..1025 {
        assert_eq!(ask(&mut rig, n), Value::Null);
        let Event::Request { id, .. } = rig.event() else { panic!("a request") };
        rig.peer.reply(id, &AnyResult::SessionEvent(SessionEventResult::default()));
        rig.drain();
        rig.frames.clear();
    }
    assert!(ask(&mut rig, 1).is_object(), "the oldest that is kept");
    assert_eq!(ask(&mut rig, 0), Value::Null, "the oldest is not");
    assert!(matches!(rig.event(), Event::Request { .. }));
}

#[test]
fn what_the_machine_keeps_account_of_is_no_plain_request() {
    let mut rig = Rig::with_session("s");
    let plain = [
        AnyParams::SessionAssign(Box::new(SessionAssignParams { session_id: session("t"), ..Default::default() })),
        AnyParams::SessionStop(stop_params("s")),
        AnyParams::ToolCall(Box::new(call_params("s", "c"))),
        AnyParams::ToolCancel(crate::contract::ToolCancelParams::default()),
        // Nor is what an executor sends, or what has no answer.
        AnyParams::SessionReady(crate::contract::SessionReadyParams::default()),
        AnyParams::ExecutorClose(crate::contract::ExecutorCloseParams::default()),
    ];
    for params in plain {
        let asked = rig.peer.request(rig.now, &params, 9, seconds(1));
        let Err(error @ CallError::NotPlain { .. }) = asked else { panic!("{params:?}: {asked:?}") };
        assert_eq!((error.code(), error.is_retryable()), (-32600, false));
        assert!(error.to_string().contains(params.method().name()), "{error}");
    }
    rig.drain();
    assert!(rig.frames.is_empty() && rig.events.is_empty());
    assert_eq!(rig.bound(), ["s"]);
}

#[test]
fn an_executor_that_refuses_to_drain_does_not_drain() {
    for refusal in [json!({"error": {"code": -32009, "message": "no"}}), json!({"result": {"accepted": false}})] {
        let mut rig = Rig::with_session("s");
        rig.peer.request(rig.now, &drain_params(), 5, seconds(9)).unwrap();
        rig.drain();
        let (id, _) = rig.request("executor.drain");
        let mut frame = json!({"jsonrpc": "2.0", "id": id});
        for (member, value) in refusal.as_object().unwrap() {
            frame[member] = value.clone();
        }
        if frame.get("result").is_some() {
            frame["result"]["active_sessions"] = json!(["s"]);
        }
        rig.frame(frame);
        rig.events.clear();
        let answer = rig.ask("executor.heartbeat", json!({"connection_id": "c", "active_sessions": []}));
        assert_eq!(answer["result"]["drain"], false);
        rig.ask("session.ended", json!({"session_id": "s", "reason": ""}));
        assert_eq!((rig.peer.gone(), rig.closes.len()), (None, 0), "it goes on");
        rig.events.clear();
        rig.assign("t");
    }
}

#[test]
fn a_config_is_brought_into_the_range_that_works() {
    let default = Config::default();
    let clamped = default.clone().clamped(1 << 20, 8 << 20);
    assert_eq!(format!("{clamped:?}"), format!("{default:?}"), "the default works");
    let zero = Config {
        heartbeat_interval: Duration::ZERO,
        lease_ttl: Duration::ZERO,
        request_timeout: Duration::ZERO,
        max_control_frame_bytes: 0,
        max_mcp_frame_bytes: 0,
        limits: Limits {
            max_inflight_requests: 0,
            max_concurrent_process_reads: -1,
            max_process_read_bytes: -1,
            max_process_write_bytes: -1,
            max_processes_per_session: -1,
            max_artifact_bytes: -1,
        },
        ..Config::default()
    };
    let zero = zero.clamped(1 << 20, 8 << 20);
    let times = (zero.heartbeat_interval, zero.lease_ttl, zero.request_timeout);
    assert_eq!(times, (default.heartbeat_interval, default.lease_ttl, default.request_timeout));
    assert_eq!((zero.max_control_frame_bytes, zero.max_mcp_frame_bytes), (4096, 4096));
    assert_eq!((zero.limits.max_inflight_requests, zero.limits.max_process_read_bytes), (1, 0));
    let odd = Config {
        heartbeat_interval: seconds(60),
        lease_ttl: seconds(30),
        max_control_frame_bytes: usize::MAX,
        max_mcp_frame_bytes: usize::MAX,
        ..Config::default()
    };
    let odd = odd.clamped(1 << 20, 8 << 20);
    assert_eq!((odd.heartbeat_interval, odd.lease_ttl), (seconds(10), seconds(30)), "some fit into a lease");
    assert_eq!((odd.max_control_frame_bytes, odd.max_mcp_frame_bytes), (1 << 20, 8 << 20));
    let hasty = Config { lease_ttl: Duration::from_nanos(1), ..Config::default() }.clamped(1 << 20, 8 << 20);
    assert_eq!((hasty.lease_ttl.as_millis(), hasty.heartbeat_interval.as_millis()), (100, 33));
}
