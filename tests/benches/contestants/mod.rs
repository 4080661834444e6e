//! Who is measured beside whom. Each connects once, over loopback, with both ends in this process.

pub(crate) mod callers;
pub(crate) mod echo;
pub(crate) mod ours;
pub(crate) mod rpsee;

use std::future::Future;
use std::time::{Duration, Instant};

/// Two connected ends between which tool calls are made.
pub(crate) trait Contestant {
    /// Prepares a round, outside of what is measured.
    async fn renew(&mut self) {}

    /// Makes calls one at a time; how long each took.
    async fn one_at_a_time(&self, calls: usize) -> Vec<Duration>;

    /// Makes calls, with `in_flight` of them open at any time.
    async fn many(&self, calls: usize, in_flight: usize);
}

/// One end that makes a call and waits for its result.
pub(crate) trait Caller: Clone + Send + Sync + 'static {
    /// Makes one call.
    fn call(&self) -> impl Future<Output = ()> + Send;
}

/// Calls one after the other, from a task of the runtime as a program's own code would.
pub(crate) async fn in_turn(caller: &impl Caller, calls: usize) -> Vec<Duration> {
    let caller = caller.clone();
    let task = async move {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let begun = Instant::now();
            caller.call().await;
            times.push(begun.elapsed());
        }
        times
    };
    tokio::spawn(task).await.unwrap()
}

/// Calls from `in_flight` tasks at a time.
pub(crate) async fn at_once(caller: &impl Caller, calls: usize, in_flight: usize) {
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| {
            let caller = caller.clone();
            tokio::spawn(async move {
                for _ in 0..calls / in_flight {
                    caller.call().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
