//! Requests of ours: answers, time-outs, lost connections. And who may answer what.

use std::time::Duration;

use super::*;
use crate::contract::{AnyParams, ExecutorCloseParams, SessionStopParams};
use crate::rpc::{Input, Misuse, Output};
use crate::time::{Machine, Reason};

fn answer(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"processes":[]}}}}"#)
}

#[test]
fn answers_in_any_order_find_their_requests() {
    let mut peer = harness();
    let ids: Vec<_> = (0..5).map(|tag| ask(&mut peer, tag)).collect();
    for tag in [3, 0, 4, 1, 2] {
        let event = peer.accept(&answer(&ids[tag as usize]));
        assert!(matches!(event, Some(Event::Response { tag: found, outcome: Ok(_) }) if found == tag));
    }
    assert_eq!(peer.next_expiry(), None);
}

#[test]
fn an_answer_counts_once() {
    let mut peer = harness();
    let id = ask(&mut peer, 1);
    assert!(peer.accept(&answer(&id)).is_some());
    assert!(peer.accept(&answer(&id)).is_none());
    assert_eq!((peer.counters().unmatched_answers, peer.next_frame()), (1, None));
}

#[test]
fn a_request_times_out_and_a_late_answer_is_dropped() {
    let mut peer = harness();
    let id = ask(&mut peer, 1);
    assert_eq!(peer.next_expiry(), Some((Time::from_millis(30_000), Reason::RequestTimeout)));
    assert!(peer.expire(Time::from_millis(29_999)).is_none());
    let (tag, error) = failure(peer.expire(Time::from_millis(30_000)));
    assert_eq!((tag, &error), (1, &RequestError::Timeout(Duration::from_secs(30))));
    assert!(error.is_retryable());
    assert!(peer.accept(&answer(&id)).is_none());
    assert_eq!((peer.counters().unmatched_answers, peer.next_expiry()), (1, None));
}

#[test]
fn time_outs_end_in_their_own_order() {
    let mut peer = harness();
    let any = AnyParams::ProcessList(ProcessListParams { session_id: "s".into() });
    for (tag, millis) in [(1, 300), (2, 100), (3, 200)] {
        peer.request_any(Time::ORIGIN, &any, tag, Duration::from_millis(millis)).unwrap();
    }
    let mut tags = Vec::new();
    while let Some(event) = peer.expire(Time::from_millis(1000)) {
        tags.push(failure(Some(event)).0);
    }
    assert_eq!(tags, [2, 3, 1]);
}

#[test]
fn a_clock_that_runs_backwards_is_clamped() {
    let mut peer = harness();
    let any = AnyParams::ProcessList(ProcessListParams { session_id: "s".into() });
    let later = Time::from_millis(5_000);
    assert!(peer.expire(later).is_none());
    peer.request_any(Time::ORIGIN, &any, 1, Duration::from_secs(1)).unwrap();
    assert_eq!(peer.next_expiry().map(|(at, _)| at), Some(later + Duration::from_secs(1)));
}

#[test]
fn a_disconnect_ends_every_request_oldest_first() {
    let mut peer = harness();
    peer.config_mut().max_inflight = 2;
    let params = ProcessListParams { session_id: "s".into() };
    for tag in [5, 3, 4] {
        peer.request::<methods::ProcessList>(Time::ORIGIN, &params, tag).unwrap();
    }
    assert_eq!(peer.disconnect(), [5, 3, 4], "the one that waited too");
    assert_eq!((peer.next_frame(), peer.next_expiry(), peer.pending_requests()), (None, None, 0));
    // Nothing of it comes back with the next connection.
    peer.connect();
    assert_eq!(peer.next_frame(), None);
    assert!(peer.accept(&answer(r#""1""#)).is_none());
}

#[test]
fn nothing_is_sent_and_nothing_is_taken_without_a_connection() {
    let mut peer: Peer<u32> = Peer::new(Config::new(Side::Executor));
    let params = crate::contract::SessionEndedParams { session_id: "s".into(), reason: String::new() };
    assert_eq!(peer.request::<methods::SessionEnded>(Time::ORIGIN, &params, 1), Err(Misuse::NotConnected));
    let close = ExecutorCloseParams::default();
    assert_eq!(peer.notify::<methods::ExecutorClose>(&close), Err(Misuse::NotConnected));
    assert!(peer.accept(&list("1")).is_none());
    assert!(peer.accept("nonsense").is_none());
    assert_eq!((peer.next_frame(), peer.pending_requests()), (None, 0));
}

#[test]
fn a_reply_goes_to_the_connection_that_asked_or_nowhere() {
    let mut peer = executor();
    let Some(Event::Request { id: old, .. }) = peer.accept(&list("1")) else { panic!("a request") };
    peer.disconnect();
    peer.reply::<methods::ProcessList>(old.clone(), &Default::default());
    assert_eq!(peer.next_frame(), None, "nobody is there");

    peer.connect();
    let Some(Event::Request { id: new, .. }) = peer.accept(&list("1")) else { panic!("a request") };
    peer.reply::<methods::ProcessList>(old.clone(), &Default::default());
    peer.refuse(old, &ErrorCode::NotFound.error("late"));
    assert_eq!(peer.next_frame(), None, "the same id, but another request");
    peer.reply::<methods::ProcessList>(new.clone(), &Default::default());
    assert!(peer.next_frame().is_some());
    peer.refuse(new, &ErrorCode::NotFound.error("twice"));
    assert_eq!(peer.next_frame(), None, "one answer to a request");
}

#[test]
fn a_new_connection_replaces_the_old_one() {
    let mut peer = executor();
    let Some(Event::Request { id: old, .. }) = peer.accept(&list("1")) else { panic!("a request") };
    peer.notify::<methods::ExecutorClose>(&ExecutorCloseParams::default()).unwrap();
    peer.connect();
    assert_eq!(peer.next_frame(), None, "what was for the old one is not for the new one");
    peer.reply::<methods::ProcessList>(old, &Default::default());
    assert_eq!(peer.next_frame(), None);
}

/// What a side does not send in this way is told before anything is queued, whatever the other side would make of it.
#[test]
fn a_method_goes_the_way_that_the_catalogue_gives_it() {
    let close = AnyParams::ExecutorClose(ExecutorCloseParams::default());
    let stop = AnyParams::SessionStop(SessionStopParams::default());
    let ended = AnyParams::SessionEnded(Default::default());
    let progress = AnyParams::ToolProgress(Default::default());
    for (side, requests, notifications) in
        [(Side::Executor, [&ended].as_slice(), [&close, &progress].as_slice()), (Side::Harness, &[&stop], &[&close])]
    {
        for params in [&close, &stop, &ended, &progress] {
            let mut peer = connected(side);
            let asked = peer.request_any(Time::ORIGIN, params, 1, Duration::from_secs(1));
            assert_eq!(asked.is_ok(), requests.contains(&params), "{side}: {asked:?}");
            let told = peer.notify_any(params);
            assert_eq!(told.is_ok(), notifications.contains(&params), "{side}: {told:?}");
            let sent = usize::from(asked.is_ok()) + usize::from(told.is_ok());
            assert_eq!((peer.queued_frames(), peer.pending_requests()), (sent, usize::from(asked.is_ok())));
        }
    }
    let refused = connected(Side::Harness).notify_any(&ended).unwrap_err();
    assert_eq!(refused.to_string(), "session.ended is not for the harness to notify: it is a request of executors");
    assert_eq!((refused.code(), refused.is_retryable()), (-32600, false));
}

#[test]
fn as_a_machine_it_does_the_same_through_one_queue() {
    let mut peer: Peer<u32> = Peer::new(Config::new(Side::Harness));
    assert_eq!(peer.deadline(), None);
    let at = Time::from_millis(7);
    peer.feed(at, Input::Connected);
    let stop = SessionStopParams { session_id: "s".into(), ..SessionStopParams::default() };
    peer.request::<methods::SessionStop>(at, &stop, 1).unwrap();
    assert_eq!(peer.deadline(), Some((at, Reason::OutputQueued)));
    assert!(matches!(peer.poll(), Some(Output::Frame(_))));
    assert_eq!(peer.deadline(), Some((Time::from_millis(30_007), Reason::RequestTimeout)));
    peer.feed(Time::from_millis(30_007), Input::Tick);
    let Some(Output::Event(Event::Response { tag: 1, outcome })) = peer.poll() else { panic!("a response") };
    assert!(matches!(outcome, Err(RequestError::Timeout(_))));
    assert!(peer.poll().is_none());
    assert_eq!(peer.deadline(), None);

    peer.request::<methods::SessionStop>(at, &stop, 2).unwrap();
    peer.feed(at, Input::Disconnected);
    let Some(Output::Event(Event::Response { tag: 2, outcome })) = peer.poll() else { panic!("a response") };
    assert_eq!(outcome, Err(RequestError::Disconnected));
    peer.feed(at, Input::Frame("nonsense"));
    assert!(peer.poll().is_none());
}
