//! Lost connections and leases.

use std::time::Duration;

use bma_runtime::HarnessEvent;
use bma_runtime::proto::harness::Gone;
use bma_runtime::sync::Event;

use crate::support::{Hands, Setup, call, good, input};

fn cut_off() -> Setup {
    Setup::direct().by_proxy()
}

#[test]
fn f20_a_command_runs_on_through_a_cut_and_its_output_arrives_whole_and_once() {
    cut_off().run(async |hands| {
        let session = hands.session("s").await;
        let proxy = hands.proxy.as_ref().unwrap();
        let command = "echo ran >> log; for i in $(seq 20); do echo $i; echo > started; \
                       [ $i != 7 ] || until [ -e go ]; do sleep 0.02; done; done; cat log";
        let running = hands.start_bash(&session, call("long"), command).await;
        let mut comings = hands.rig.harness.events();
        proxy.refuse(true);
        proxy.cut();
        let Some(Event::Item(HarnessEvent::Disconnected(_))) = comings.next().await else { panic!("told") };
        // It ends while nothing is connected.
        std::fs::write(hands.workspace("s").join("go"), "").unwrap();
        hands.until("the command has ended", || hands.processes().is_empty()).await;
        proxy.refuse(false);
        let Some(Event::Item(HarnessEvent::Registered { resumed: true, .. })) = comings.next().await else {
            panic!("told")
        };
        let text = good(running.await);
        let lines: String = (1..=20).map(|line| format!("{line}\n")).collect();
        assert_eq!(text, format!("{lines}ran\nexit_code: 0"));
        // The recorded one again, and nothing ran for it.
        assert_eq!(good(session.tools().with(call("long")).bash(input(command)).await), text);
        assert_eq!(good(session.tools().bash(input("cat log")).await), "ran\nexit_code: 0");
    });
}

#[test]
fn f14_a_cancel_of_a_command_that_has_ended_finds_nothing_and_its_result_stays() {
    Setup::direct().run(async |hands| {
        let session = hands.session("s").await;
        let ran = || session.tools().with(call("over")).bash(input("echo out; exit 4"));
        assert_eq!(good(ran().await), "out\nexit_code: 4");
        for _ in 0..2 {
            assert!(!session.cancel_tool(&"over".into(), "too late").await.unwrap());
            assert_eq!(good(ran().await), "out\nexit_code: 4");
        }
    });
}

async fn everything_ends_with_the_lease(hands: &Hands) {
    let session = hands.session("s").await;
    let proxy = hands.proxy.as_ref().unwrap();
    good(session.tools().bash(input("sleep 600 > /dev/null 2>&1 & setsid sleep 601 > /dev/null 2>&1 & echo")).await);
    let running = hands.start_bash(&session, call("long"), "echo > started; sleep 602; echo > survived").await;
    hands.until("all have started", || hands.processes().iter().filter(|name| *name == "sleep").count() == 3).await;
    proxy.refuse(true);
    proxy.cut();
    assert_eq!(hands.executor.gone().await, Gone::LeaseExpired);
    assert!(running.await.is_err(), "its outcome is not known");
    hands.until("nothing of the session is left", || hands.processes().is_empty()).await;
    hands.until("its place is free", || hands.core.session_count() == 0).await;
    assert!(!hands.workspace("s").join("survived").exists());
    // The machine comes back as a new executor, and is used again.
    proxy.refuse(false);
    let back = hands.rig.harness.wait_executor().await;
    let again = crate::support::open(&back, bma_tests::exchange_suite::assignment("s")).await.unwrap();
    assert_eq!(good(again.tools().bash(input("echo again")).await), "again\nexit_code: 0");
}

fn with_short_lease(setup: Setup) -> Setup {
    setup.by_proxy().harness(|options| {
        options.config.heartbeat_interval = Duration::from_millis(100);
        options.config.lease_ttl = Duration::from_millis(400);
    })
}

#[test]
fn f17_a_lease_that_runs_out_ends_everything_of_the_session() {
    with_short_lease(Setup::direct()).run(everything_ends_with_the_lease);
}

#[cfg(target_os = "linux")]
#[test]
fn f17_a_lease_that_runs_out_ends_everything_that_a_keeper_started() {
    with_short_lease(Setup::with_keeper()).run(everything_ends_with_the_lease);
}
