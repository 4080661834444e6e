//! Floods without reading, measured: what the process holds stays bounded. The
//! measure is the whole process's, so this is a program of its own, and its
//! tests run one after the other.
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

#[path = "../hostile/support.rs"]
mod support;

use std::io::Read;
use std::net::TcpListener;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use bma_runtime_tokio::proto::executor::MAX_HELD_BYTES;
use bma_runtime_tokio::proto::harness::CallError;
use bma_runtime_tokio::proto::rpc::{MAX_WAITING_BYTES, Misuse};
use bma_tests::exchange_suite::{Count, assignment, command, on_a_thread, start};
use bma_tests::support::logs;
use bma_tests::support::raw::Raw;
use bma_tests::support::watched::Watched;

use support::{Good, Target, accept, runtime, victim};

/// What one flood may cost, above what is held anyway.
const MAX_GROWTH: usize = 64 << 20;

/// What one flood sends.
const ENOUGH: usize = 24 << 20;

/// Sessions that are flooded with calls, so that no single one's bound is what counts.
const SESSIONS: usize = 16;

static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Bytes of memory that the process holds now; none where that is not known.
pub(crate) fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: usize = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Keeps an eye on the process's memory while something runs.
async fn measured<T>(what: &str, allowed: usize, work: impl Future<Output = T>) -> T {
    let before = resident_bytes();
    let (stop, stopped) = mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        let mut most = 0;
        while stopped.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
            most = most.max(resident_bytes().unwrap_or(0));
        }
        most
    });
    let outcome = work.await;
    drop(stop);
    let most = watcher.join().unwrap();
    if let Some(before) = before {
        let growth = most.saturating_sub(before);
        println!("{what}: {} KiB more than before", growth >> 10);
        assert!(growth < allowed, "{what}: {growth} bytes");
    }
    outcome
}

/// Writes without reading, until nothing is taken any more or this much was. How much was taken.
fn flood(raw: &mut Raw, enough: usize, message: Message) -> usize {
    raw.stream.set_write_timeout(Some(Duration::from_millis(700))).unwrap();
    let mut sent = 0;
    for number in 0.. {
        let text = message(number);
        if sent > enough || raw.text(&text).is_err() {
            break;
        }
        sent += text.len();
    }
    sent
}

/// A registered executor.
fn registered(target: &Target) -> Raw {
    let mut raw = Raw::client(target.address, &target.token).unwrap();
    raw.text(
        r#"{"jsonrpc":"2.0","id":"r","method":"executor.register","params":{"protocol":"bma.executor.v1.1",
            "environment_id":"","executor":{"name":"deaf","os":"","arch":"","version":""},"capabilities":{}}}"#,
    )
    .unwrap();
    raw.read_text().unwrap();
    raw
}

/// The message with this number.
type Message = fn(usize) -> String;

#[tokio::test(flavor = "multi_thread")]
async fn floods_to_the_harness_cost_a_bounded_amount() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let good = Good::new(|options| options.config.lease_ttl = Duration::from_secs(3)).await;
    let to_harness: [(&str, Message); 6] = [
        ("requests", |n| {
            format!(
                r#"{{"jsonrpc":"2.0","id":"{n}{}","method":"session.event","params":{{"session_id":"s","event":{{}}}}}}"#,
                "i".repeat(900)
            )
        }),
        ("unknown methods", |n| format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"{}"}}"#, "m".repeat(4_000))),
        ("nonsense", |_| "x".repeat(60_000)),
        ("too large", |n| {
            format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"tool.result","params":"{}"}}"#, "x".repeat(900_000))
        }),
        ("progress", |_| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"tool.progress","params":{{"session_id":"s","tool_call_id":"c","message":"{}"}}}}"#,
                "x".repeat(60_000)
            )
        }),
        ("capabilities", |n| {
            format!(
                r#"{{"jsonrpc":"2.0","method":"executor.capabilities.update","params":{{"capabilities":{{"display":"{n}{}"}}}}}}"#,
                "x".repeat(60_000)
            )
        }),
    ];
    for (name, message) in to_harness {
        // Nobody reads these: at their bound the oldest are dropped.
        let _unread = good.executor.events();
        let flooded = good.attacked(move |target| flood(&mut registered(&target), ENOUGH, message));
        let sent = measured(&format!("{name} to the harness"), MAX_GROWTH, flooded).await;
        println!("    {} KiB were taken", sent >> 10);
    }
    good.finish().await;
}

/// What waits is what was asked for, up to the bound; beyond it callers are turned away.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_an_executor_that_reads_none_are_bounded() {
    const CALLS: usize = 6_000;
    const INPUT: usize = 10_000;
    let _alone = ONE_AT_A_TIME.lock().await;
    let good = Good::new(|_| {}).await;
    let target = good.target();
    let mut raw = on_a_thread(move || registered(&target)).await;
    let executors = good.rig.harness.executors();
    let deaf = executors.into_iter().find(|executor| executor.info().name == "deaf").unwrap();
    let assigned = {
        let deaf = deaf.clone();
        start(&good.rig.runtime, async move { deaf.assign(assignment("d")).await })
    };
    let mut raw = on_a_thread(move || {
        raw.read_text().unwrap();
        raw.text(r#"{"jsonrpc":"2.0","id":"1","result":{"accepted":true,"session_id":"d"}}"#).unwrap();
        raw
    })
    .await;
    let session = assigned.await.unwrap();
    let asked = Count::default();
    let all = async {
        let mut calls = Vec::new();
        for _ in 0..CALLS {
            let (session, asked) = (session.clone(), asked.clone());
            calls.push(start(&good.rig.runtime, async move {
                let call = session.tools().bash(command(&"x".repeat(INPUT)));
                asked.add();
                call.await.map(drop)
            }));
        }
        asked.reaches(CALLS).await;
        calls
    };
    // Each is held once as it was asked and once as it is to be sent.
    let calls = measured("calls that nobody reads", 4096 * INPUT * 3 + MAX_GROWTH, all).await;
    deaf.close("").await;
    let mut turned_away = 0;
    for call in calls {
        match call.await.unwrap_err() {
            CallError::Send(Misuse::Backlog(_)) => turned_away += 1,
            CallError::OutcomeUnknown(_) | CallError::ExecutorGone(_) | CallError::SessionEnded { .. } => {}
            other => panic!("{other}"),
        }
    }
    assert!(turned_away > CALLS / 10, "{turned_away} were turned away");
    on_a_thread(move || while raw.stream.read(&mut [0; 65_536]).is_ok_and(|read| read > 0) {}).await;
    good.finish().await;
}

/// Calls are taken up to a bound in bytes, of their session and of all sessions; the rest is told to
/// come later. A result is held by itself, and by the frame that waits to be sent.
#[tokio::test(flavor = "multi_thread")]
async fn floods_to_the_client_cost_a_bounded_amount() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let watched = Watched::new(runtime());
    // Its harness reads nothing: what it is told of that is what is to be told.
    logs::expect("a tool result could not be delivered session_id=c");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = victim(&watched, &listener);
    let started = client.clone();
    tokio::spawn(async move { started.start().await.map(drop) });
    const CALLS_GROWTH: usize = MAX_HELD_BYTES + MAX_WAITING_BYTES + (32 << 20);
    let to_client: [(&str, usize, usize, Message); 5] = [
        ("calls", 4 * CALLS_GROWTH, CALLS_GROWTH, |n| {
            let session = n % SESSIONS;
            if n < SESSIONS {
                return format!(
                    r#"{{"jsonrpc":"2.0","id":{n},"method":"session.assign","params":{{"session_id":"c{session}","work_id":"w",
                    "environment_id":"","lease":{{"token":"l"}}}}}}"#
                );
            }
            format!(
                r#"{{"jsonrpc":"2.0","id":{n},"method":"tool.call","params":{{"session_id":"c{session}",
                "tool_call_id":"c{n}","tool":"bash","input":{{"command":"{}"}}}}}}"#,
                "x".repeat(30_000)
            )
        }),
        ("sessions", ENOUGH, MAX_GROWTH, |n| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{n},"method":"session.assign","params":{{"session_id":"s{n}","work_id":"w",
                "environment_id":"","lease":{{"token":"l"}}}}}}"#
            )
        }),
        ("cancels", ENOUGH, MAX_GROWTH, |n| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{n},"method":"tool.cancel","params":{{"session_id":"s","tool_call_id":"{}"}}}}"#,
                "c".repeat(4_000)
            )
        }),
        ("unknown methods", ENOUGH, MAX_GROWTH, |n| {
            format!(r#"{{"jsonrpc":"2.0","id":{n},"method":"{}"}}"#, "m".repeat(4_000))
        }),
        ("drains", ENOUGH, MAX_GROWTH, |n| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{n},"method":"executor.drain","params":{{"reason":"{}"}}}}"#,
                "r".repeat(4_000)
            )
        }),
    ];
    let mut listener = listener;
    for (name, enough, allowed, message) in to_client {
        // Nobody reads these either.
        let _unread = client.events();
        let flooded = on_a_thread(move || {
            let mut raw = accept(&listener).unwrap();
            let sent = flood(&mut raw, enough, message);
            (listener, sent)
        });
        let (again, sent) = measured(&format!("{name} to the client"), allowed, flooded).await;
        listener = again;
        println!("    {} KiB were taken", sent >> 10);
    }
    client.stop("").await;
    drop(client);
    watched.assert_all_over().await;
}
