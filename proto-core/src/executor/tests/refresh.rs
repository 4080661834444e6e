//! The token of an open connection is renewed before its time is over.

use super::connection::seconds;
use super::*;

/// The harness's clock at the registration of `registered()`.
const REGISTERED_AT: u64 = 1_767_225_600;

/// What a harness answers to a renewal: the connection now ends so long after its registration, by its clock.
fn expires(seconds_after_registration: u64) -> Value {
    json!({"expires_at": crate::time::rfc3339(seconds(REGISTERED_AT + seconds_after_registration))})
}

fn lasting(number: u32, expires_in: i64) -> ExecutorTokenResponse {
    ExecutorTokenResponse { expires_in, ..token(number) }
}

/// A registered executor whose token lasts so many seconds.
fn up_for(expires_in: i64) -> Rig {
    up_with(expires_in, ProtocolVersion::V1_1, registered())
}

fn up_with(expires_in: i64, protocol: ProtocolVersion, answer: Value) -> Rig {
    let mut rig = Rig::new(config());
    assert!(matches!(rig.order(), Order::FetchToken));
    rig.feed(Input::Token(Ok(lasting(1, expires_in))));
    assert!(matches!(rig.order(), Order::Dial(_)));
    rig.feed(Input::Connected(protocol));
    rig.register(answer);
    rig.events.clear();
    rig
}

/// Lets time pass with a harness that answers heartbeats; its clock is ahead of the registration by what has passed.
fn live(rig: &mut Rig, duration: Duration) {
    let until = rig.now + duration;
    while rig.now < until {
        rig.wait((until.saturating_since(rig.now)).min(seconds(5)));
        rig.answer_heartbeats();
    }
}

/// The seconds after which the machine asks for a token, all else being well.
fn asks_after(rig: &mut Rig) -> u64 {
    for waited in 0..100_000 {
        if matches!(rig.orders.front(), Some(Order::FetchToken)) {
            rig.orders.clear();
            rig.events.clear();
            return waited;
        }
        live(rig, seconds(1));
    }
    panic!("no token was asked for");
}

/// Hands in a fresh token, and gives the id of the request that takes it to the harness.
fn renew(rig: &mut Rig, number: u32, expires_in: i64) -> Value {
    rig.feed(Input::Token(Ok(lasting(number, expires_in))));
    let (id, params) = rig.request("executor.token.refresh");
    assert_eq!(params, json!({"token": format!("token-{number}")}));
    id
}

#[test]
fn a_token_is_renewed_when_a_quarter_of_its_time_is_left_and_five_minutes_before_its_end_at_the_latest() {
    for (expires_in, after) in [(100, 75), (1200, 900), (3600, 3300), (86_400, 86_100), (4, 3), (1, 1)] {
        assert_eq!(asks_after(&mut up_for(expires_in)), after, "{expires_in}");
    }
}

#[test]
fn a_token_without_an_end_is_not_renewed() {
    for expires_in in [0, -1, i64::MIN] {
        let mut rig = up_for(expires_in);
        live(&mut rig, seconds(10_000));
        assert!(rig.orders.is_empty() && !rig.has("executor.token.refresh"));
    }
    let mut rig = up_for(i64::MAX);
    live(&mut rig, seconds(10_000));
    assert!(rig.orders.is_empty(), "an end that never comes");
}

#[test]
fn the_older_version_has_no_word_for_it() {
    let mut rig = up_with(100, ProtocolVersion::V1, registered());
    live(&mut rig, seconds(1_000));
    assert!(rig.orders.is_empty());
}

#[test]
fn the_new_end_is_what_the_harness_answers_by_its_own_clock() {
    let mut rig = up_for(100);
    assert_eq!(asks_after(&mut rig), 75);
    let id = renew(&mut rig, 2, 1_000_000);
    rig.reply(&id, expires(75 + 400));
    assert_eq!(asks_after(&mut rig), 300);
    // Whatever zone it writes it in.
    let id = renew(&mut rig, 3, 0);
    rig.reply(&id, json!({"expires_at": "2026-01-01T01:09:35+01:00"})); // 575 s after the registration
    assert_eq!(asks_after(&mut rig), 150);
}

#[test]
fn a_machine_that_slept_learns_the_harness_s_clock_from_the_next_heartbeat() {
    let mut rig = up_for(4_000);
    live(&mut rig, seconds(30));
    rig.wait(seconds(10));
    // Asleep for an hour: this clock stood still, that of the harness went on.
    let (id, _) = rig.request("executor.heartbeat");
    let stamp = crate::time::rfc3339(seconds(REGISTERED_AT + 3_600 + 40));
    rig.reply(&id, json!({"server_time": stamp, "lease_ttl_ms": 60_000, "drain": false}));
    let asked_after = 40 + asks_after(&mut rig);
    assert_eq!(asked_after, 3_700, "by its source the token lasts on");
    let id = renew(&mut rig, 2, 0);
    rig.reply(&id, expires(3_600 + asked_after + 100));
    assert_eq!(asks_after(&mut rig), 75);
}

#[test]
fn an_answer_that_names_no_time_to_come_leaves_what_the_source_said() {
    for answer in ["", "soon", "2026-01-01T00:00:00Z", "1969-01-01T00:00:00Z"] {
        let mut rig = up_for(100);
        asks_after(&mut rig);
        let id = renew(&mut rig, 2, 200);
        rig.reply(&id, json!({"expires_at": answer}));
        assert_eq!(asks_after(&mut rig), 150, "{answer}");
    }
    // Nor is there anything to compare with when the harness never said what its clock shows.
    let mut silent = registered();
    silent["server_time"] = json!("");
    let mut rig = up_with(100, ProtocolVersion::V1_1, silent);
    asks_after(&mut rig);
    let id = renew(&mut rig, 2, 200);
    rig.reply(&id, expires(1_000));
    assert_eq!(asks_after(&mut rig), 150);
}

#[test]
fn an_end_in_no_time_does_not_make_it_hurry() {
    let mut rig = up_for(1);
    for number in 2..10 {
        assert_eq!(asks_after(&mut rig), 1);
        let id = renew(&mut rig, number, 1);
        rig.reply(&id, json!({"expires_at": ""}));
    }
}

#[test]
fn what_fails_is_tried_again_for_as_long_as_the_old_token_lasts() {
    let fail: [fn(&mut Rig); 4] = [
        |rig| rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned())))),
        |rig| {
            let id = renew(rig, 2, 400);
            rig.fail(&id, json!({"code": -32001, "message": "unknown token"}));
        },
        |rig| {
            rig.feed(Input::Token(Ok(ExecutorTokenResponse { token: "x".repeat(70_000).as_str().into(), ..token(2) })));
        },
        |rig| {
            // No token within the time for it; one that comes later is not used.
            live(rig, config().connect_timeout);
            rig.orders.retain(|order| !matches!(order, Order::FetchToken));
            rig.feed(Input::Token(Ok(lasting(2, 400))));
            assert!(!rig.has("executor.token.refresh"));
        },
    ];
    for (number, fail) in fail.into_iter().enumerate() {
        let mut rig = up_for(400);
        asks_after(&mut rig);
        let mut attempts = 0;
        while rig.now < Time::from_millis(1_000) + seconds(500) {
            attempts += 1;
            fail(&mut rig);
            assert!(
                matches!(rig.events.pop_front(), Some(Event::TokenNotRenewed { .. })),
                "{number}: {:?}",
                rig.events
            );
            live(&mut rig, Duration::from_millis(400));
            assert!(rig.orders.is_empty(), "{number}: with back-off");
            while rig.orders.is_empty() && rig.now < Time::from_millis(1_000) + seconds(500) {
                live(&mut rig, seconds(1));
            }
            rig.orders.clear();
        }
        assert!((3..20).contains(&attempts), "{number}: {attempts}");
        assert!(rig.events.is_empty(), "the connection is none the worse: {:?}", rig.events);
        assert_eq!(*rig.executor.state(), ConnectionState::Ready);
    }
}

#[test]
fn a_failure_is_made_good_by_the_next_attempt() {
    let mut rig = up_for(400);
    asks_after(&mut rig);
    rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
    assert!(asks_after(&mut rig) <= 2);
    let id = renew(&mut rig, 2, 400);
    rig.reply(&id, json!({"expires_at": ""}));
    assert_eq!(asks_after(&mut rig), 300);
}

#[test]
fn a_rejected_credential_or_a_harness_without_the_method_is_left_to_the_next_dial() {
    let mut rig = up_for(100);
    asks_after(&mut rig);
    rig.feed(Input::Token(Err(TokenError::CredentialRejected("revoked".to_owned()))));
    assert!(matches!(rig.event(), Event::TokenNotRenewed { cause } if cause.contains("revoked")));
    live(&mut rig, seconds(200));
    assert!(rig.orders.is_empty() && rig.executor.end_state().is_none());
    rig.disconnect(Some(4001));
    assert!(matches!(rig.order(), Order::FetchToken));
    rig.feed(Input::Token(Err(TokenError::CredentialRejected("revoked".to_owned()))));
    assert!(matches!(rig.executor.end_state(), Some(End::CredentialRejected(_))));

    let mut rig = up_for(100);
    asks_after(&mut rig);
    let id = renew(&mut rig, 2, 100);
    rig.fail(&id, json!({"code": -32601, "message": "no such method"}));
    assert!(matches!(rig.event(), Event::TokenNotRenewed { .. }));
    live(&mut rig, seconds(200));
    assert!(rig.orders.is_empty());
}

#[test]
fn a_connection_that_goes_takes_its_renewal_with_it() {
    // While the token is fetched, and while the harness is asked.
    for asked in [false, true] {
        let mut rig = up_for(100);
        asks_after(&mut rig);
        if asked {
            renew(&mut rig, 2, 100);
        }
        rig.events.clear();
        rig.disconnect(Some(4001));
        assert!(matches!(rig.order(), Order::FetchToken), "at once, whatever was under way");
        assert!(!rig.events.iter().any(|event| matches!(event, Event::TokenNotRenewed { .. })));
        rig.feed(Input::Token(Ok(lasting(3, 400))));
        let Order::Dial(dial) = rig.order() else { panic!("a dial") };
        assert_eq!(dial.token.expose(), "token-3");
        // The fetch of the old connection comes to its end late.
        rig.feed(Input::Token(Ok(lasting(2, 1))));
        rig.feed(Input::Connected(ProtocolVersion::V1_1));
        rig.register(registered());
        assert_eq!(asks_after(&mut rig), 300);
    }
}
