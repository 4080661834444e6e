//! Clock, seeds and timers.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bma_runtime::proto::Time;
use bma_runtime::sync::oneshot;
use bma_runtime::{Runtime, Timer};
use futures_lite::{AsyncRead, AsyncWriteExt};

use super::{net, sleep};

const MOMENT: Duration = Duration::from_millis(20);
const HOUR: Duration = Duration::from_secs(3600);

async fn expired(timer: &mut Box<dyn Timer>) {
    poll_fn(|cx| timer.poll_expired(cx)).await;
}

async fn is_expired(timer: &mut Box<dyn Timer>) -> bool {
    poll_fn(|cx| Poll::Ready(timer.poll_expired(cx).is_ready())).await
}

/// Monotonic.
pub async fn it_never_runs_backwards(runtime: Arc<dyn Runtime>) {
    let mut last = runtime.now();
    for _ in 0..10_000 {
        let now = runtime.now();
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
}

/// One clock, wherever it is read.
pub async fn it_agrees_between_threads(runtime: Arc<dyn Runtime>) {
    let (sender, receiver) = oneshot::channel();
    let before = runtime.now();
    let clock = runtime.clone();
    runtime.run_blocking(Box::new(move || sender.send(clock.now()).unwrap()));
    let between = receiver.await.unwrap();
    let after = runtime.now();
    assert!(before <= between && between <= after, "{before}, {between}, {after}");
}

/// Unix time.
pub async fn the_wall_clock_is_the_systems(runtime: Arc<dyn Runtime>) {
    let system = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let before = system();
    let ours = runtime.unix_time();
    assert!(before <= ours && ours <= system());
}

/// Fresh entropy each time.
pub async fn seeds_differ(runtime: Arc<dyn Runtime>) {
    let seeds: BTreeSet<u64> = (0..1000).map(|_| runtime.seed()).collect();
    assert_eq!(seeds.len(), 1000);
}

/// Also for times that are no whole milliseconds.
pub async fn a_timer_is_never_early(runtime: Arc<dyn Runtime>) {
    let mut timer = runtime.timer();
    for micros in [0, 1, 300, 999, 1001, 5_500, 20_001] {
        let at = runtime.now() + Duration::from_micros(micros);
        timer.set(Some(at));
        expired(&mut timer).await;
        assert!(runtime.now() >= at);
    }
}

/// Ready again and again, also when set to the same time.
pub async fn a_timer_stays_ready_until_it_is_set_anew(runtime: Arc<dyn Runtime>) {
    let mut timer = runtime.timer();
    let at = runtime.now() + MOMENT;
    timer.set(Some(at));
    expired(&mut timer).await;
    assert!(is_expired(&mut timer).await);
    timer.set(Some(at));
    assert!(is_expired(&mut timer).await);
    timer.set(None);
    assert!(!is_expired(&mut timer).await);
    timer.set(Some(runtime.now() + HOUR));
    assert!(!is_expired(&mut timer).await);
    timer.set(Some(runtime.now() + MOMENT));
    expired(&mut timer).await;
}

/// Neither a new one nor one that was set and then unset.
pub async fn a_timer_that_is_not_set_never_fires(runtime: Arc<dyn Runtime>) {
    let mut new = runtime.timer();
    let mut unset = runtime.timer();
    unset.set(Some(runtime.now() + MOMENT));
    assert!(!is_expired(&mut new).await && !is_expired(&mut unset).await);
    unset.set(None);
    sleep(&runtime, 3 * MOMENT).await;
    assert!(!is_expired(&mut new).await && !is_expired(&mut unset).await);
}

/// The task is woken for the new time.
pub async fn a_timer_is_set_to_an_earlier_time(runtime: Arc<dyn Runtime>) {
    let mut timer = runtime.timer();
    timer.set(Some(runtime.now() + HOUR));
    assert!(!is_expired(&mut timer).await);
    timer.set(Some(runtime.now() + MOMENT));
    expired(&mut timer).await;
}

/// The first time passes unnoticed.
pub async fn a_timer_is_set_to_a_later_time(runtime: Arc<dyn Runtime>) {
    let mut timer = runtime.timer();
    let start = runtime.now();
    timer.set(Some(start + MOMENT));
    assert!(!is_expired(&mut timer).await);
    timer.set(Some(start + 3 * MOMENT));
    expired(&mut timer).await;
    assert!(runtime.now() >= start + 3 * MOMENT);
}

/// The two ends of time.
pub async fn a_timer_is_ready_at_once_for_the_past_and_never_for_the_end_of_time(runtime: Arc<dyn Runtime>) {
    let mut timer = runtime.timer();
    timer.set(Some(Time::ORIGIN));
    assert!(is_expired(&mut timer).await);
    timer.set(Some(runtime.now()));
    assert!(is_expired(&mut timer).await);
    timer.set(Some(Time::from_nanos(u64::MAX)));
    assert!(!is_expired(&mut timer).await);
    timer.set(Some(Time::ORIGIN));
    assert!(is_expired(&mut timer).await);
}

/// A runtime may hold a task back that does much in one go, but not the time.
pub async fn a_timer_that_is_due_shows_in_a_busy_task(runtime: Arc<dyn Runtime>) {
    const BYTES: usize = 4096;
    let (mut ours, mut theirs) = net::tcp_pair(&runtime).await;
    theirs.write_all(&[7; BYTES]).await.unwrap();
    let mut timer = runtime.timer();
    let at = runtime.now() + MOMENT;
    timer.set(Some(at));
    let mut read = 0;
    poll_fn(|cx| {
        // As much as the runtime lets through in this turn, then until the time has come.
        while read < BYTES && Pin::new(&mut ours).poll_read(cx, &mut [0]).map(|one| read += one.unwrap()).is_ready() {}
        if runtime.now() < at {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        assert!(timer.poll_expired(cx).is_ready(), "after {read} bytes");
        Poll::Ready(())
    })
    .await;
}

/// None lost, none early, each in a task of its own.
pub async fn many_timers_fire_in_time(runtime: Arc<dyn Runtime>) {
    let done: Vec<_> = (0..2000_u64)
        .map(|n| {
            let (sender, receiver) = oneshot::channel();
            let clock = runtime.clone();
            let mut timer = runtime.timer();
            let at = runtime.now() + Duration::from_micros(n * 7919 % 100_000);
            timer.set(Some(at));
            runtime.spawn(Box::pin(async move {
                expired(&mut timer).await;
                sender.send(clock.now() >= at).unwrap();
            }));
            receiver
        })
        .collect();
    for fired in done {
        assert!(fired.await.unwrap(), "early");
    }
}
