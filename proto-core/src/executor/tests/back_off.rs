//! The waits between dials.

use super::connection::seconds;
use super::*;

#[test]
fn f59_the_back_off_doubles_up_to_its_cap_with_jitter_in_its_upper_half() {
    let mut waits = Vec::new();
    for seed in 0..50 {
        let mut config = config();
        config.seed = seed;
        let mut rig = Rig::new(config);
        let mut full = seconds(1);
        for attempt in 1..=9_u32 {
            assert!(matches!(rig.order(), Order::FetchToken));
            rig.feed(Input::Token(Err(TokenError::Unavailable("down".to_owned()))));
            let Some(Event::Reconnecting { attempt: told, wait, .. }) = rig.events.pop_back() else {
                panic!("a failed attempt is told")
            };
            assert_eq!(told, attempt);
            assert!(full / 2 <= wait && wait <= full, "attempt {attempt}: {wait:?} of {full:?}");
            assert_eq!(rig.due(), (wait, Reason::Reconnect));
            if attempt == 7 {
                waits.push(wait);
            }
            rig.wait(wait);
            full = (full * 2).min(seconds(60));
        }
    }
    // Executors that lost their harness in the same instant do not come back in the same instant.
    waits.sort();
    let spread = *waits.last().unwrap() - waits[0];
    assert!(spread > seconds(20), "{spread:?}");
    waits.dedup();
    assert_eq!(waits.len(), 50);
}

#[test]
fn f60_an_accept_that_is_closed_at_once_does_not_reset_the_back_off() {
    let mut rig = Rig::new(config());
    let mut shortest = Duration::ZERO;
    for attempt in 1..=7 {
        rig.dial();
        rig.register(registered());
        rig.disconnect(Some(1001));
        let Some(Event::Reconnecting { attempt: told, wait, .. }) = rig.events.pop_back() else { panic!("told") };
        assert_eq!(told, attempt);
        assert!(wait >= shortest, "{wait:?}");
        shortest = seconds(1 << (attempt - 1)) / 2;
        rig.wait(wait);
    }
    // One that held for an interval does.
    rig.dial();
    rig.register(registered());
    rig.wait(seconds(10));
    rig.disconnect(Some(1001));
    assert!(matches!(rig.events.pop_back(), Some(Event::Reconnecting { attempt: 1, .. })));
}

/// The attempt and the wait that the executor has just told.
#[track_caller]
fn told_to_wait(rig: &mut Rig) -> (u32, Duration) {
    match rig.events.pop_back() {
        Some(Event::Reconnecting { attempt, wait, .. }) => (attempt, wait),
        other => panic!("it goes on to dial, and says so: {other:?}"),
    }
}

#[test]
fn an_orderly_close_after_a_session_was_served_is_no_failure() {
    for code in [1000, 1001] {
        let mut rig = Rig::new(config());
        // Harnesses that come one after the other, each for one session; in between nobody is there.
        for _ in 0..5 {
            rig.dial();
            rig.register(registered());
            rig.events.clear();
            rig.assign("s");
            rig.ask_stop("s");
            rig.executor.session_ended(rig.now, &session("s"), "done").unwrap();
            rig.drain();
            rig.accept("session.ended");
            rig.disconnect(Some(code));
            let (attempt, wait) = told_to_wait(&mut rig);
            assert_eq!(attempt, 1, "{code}");
            assert!(seconds(1) / 2 <= wait && wait <= seconds(1), "never at once: {wait:?}");
            rig.wait(wait);
            assert!(matches!(rig.order(), Order::FetchToken));
            rig.feed(Input::Token(Ok(token(1))));
            assert!(matches!(rig.order(), Order::Dial(_)));
            rig.feed(Input::DialFailed(DialError::Failed("connection refused".to_owned())));
            let (attempt, wait) = told_to_wait(&mut rig);
            assert_eq!(attempt, 2, "that nobody is there is a failure, and the second step");
            rig.wait(wait);
        }
    }
}

#[test]
fn what_served_and_broke_or_closed_and_never_served_is_a_failure() {
    type Scene = fn(&mut Rig, &str);
    let scenes: [(&str, Scene, Option<u16>); 7] = [
        ("no close code", Rig::assign, None),
        ("an internal error", Rig::assign, Some(1011)),
        ("try again later", Rig::assign, Some(1013)),
        ("nothing was asked", |_, _| {}, Some(1000)),
        ("nothing was asked, going away", |_, _| {}, Some(1001)),
        ("an offer that nobody took", |rig, id| drop(rig.ask_assign(id)), Some(1001)),
        (
            "an offer that was turned down",
            |rig, id| {
                rig.ask_assign(id);
                rig.reject_offer(id, None).unwrap();
            },
            Some(1001),
        ),
    ];
    for (name, scene, code) in scenes {
        let mut rig = Rig::new(config());
        for attempt in 1..=4 {
            rig.dial();
            rig.register(registered());
            rig.events.clear();
            scene(&mut rig, &format!("s{attempt}"));
            rig.drain();
            rig.disconnect(code);
            let (told, wait) = told_to_wait(&mut rig);
            assert_eq!(told, attempt, "{name}");
            rig.wait(wait);
        }
    }
}

#[test]
fn the_cause_says_who_ended_the_connection() {
    for (code, reason, expected) in [
        (Some(1001), "the call is over", "the harness closed the connection (close code 1001): the call is over"),
        (Some(1011), "", "the harness closed the connection (close code 1011)"),
        (None, "the stream ended", "the connection was lost: the stream ended"),
        (None, "", "the connection was lost"),
    ] {
        let mut rig = Rig::up();
        rig.feed(Input::Disconnected { code, reason });
        let Some(Event::Reconnecting { cause, .. }) = rig.events.pop_back() else { panic!("told") };
        assert_eq!(cause, expected);
    }
}
