//! Tool calls over loopback: our whole stack beside the limit, a plain reference, and a peer.
//!
//! Both ends of every contestant live in this process, on one tokio runtime of one thread: with more of them the latency
//! of a call is that of waking another thread, for every contestant that hands a call from task to task, and not that of
//! its own work. A tool call is four text frames. Contestants take turns, so that what else the machine does hits all
//! alike; figures are medians over the rounds, ratios the medians of each round's ratio.
//!
//! `cargo bench -p bma-tests --bench exchange`; `-- --threads 2` for two worker threads, `-- --quick` for a smoke run.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench panics on purpose")]

mod contestants;
mod support;

use std::time::{Duration, Instant};

use contestants::Contestant;
use contestants::callers::Callers;
use contestants::echo::Echo;
use contestants::ours::Ours;
use contestants::rpsee::Jsonrpsee;
use support::{Target, median, median_ratio, process_cpu, verdict};

/// Calls that are open at a time where it is not one.
const IN_FLIGHT: usize = 64;

/// One contestant's figures, one of each kind for each round.
#[derive(Default)]
struct Figures {
    /// The median of a call, in microseconds.
    latency: Vec<f64>,
    /// With many in flight.
    calls_per_second: Vec<f64>,
    /// With many in flight: CPU time of both ends, in microseconds.
    cpu_per_call: Vec<f64>,
}

impl Figures {
    async fn measure(&mut self, contestant: &mut impl Contestant, size: &Size, keep: bool) {
        contestant.renew().await;
        let times = contestant.one_at_a_time(size.in_turn).await;
        let (cpu, begun) = (process_cpu(), Instant::now());
        contestant.many(size.at_once, IN_FLIGHT).await;
        let (cpu, took) = (process_cpu() - cpu, begun.elapsed());
        if keep {
            self.latency.push(median(times.iter().map(|time| micros(*time))));
            self.calls_per_second.push(size.at_once as f64 / took.as_secs_f64());
            self.cpu_per_call.push(micros(cpu) / size.at_once as f64);
        }
    }

    fn print(&self, name: &str) {
        let figures = [&self.latency, &self.calls_per_second, &self.cpu_per_call];
        let [latency, calls_per_second, cpu] = figures.map(|figures| median(figures.iter().copied()));
        println!("  {name:<58} {latency:>8.1} {calls_per_second:>10.0} {cpu:>8.2}");
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

struct Size {
    rounds: usize,
    in_turn: usize,
    /// A multiple of what is in flight.
    at_once: usize,
}

fn main() {
    let quick = Size { rounds: 3, in_turn: 500, at_once: 50 * IN_FLIGHT };
    let full = Size { rounds: 41, in_turn: 2_000, at_once: 300 * IN_FLIGHT };
    let size = if support::is_quick() { quick } else { full };
    let threads = support::option("--threads").map_or(1, |threads| threads.parse().expect("a number of threads"));
    let mut tokio = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let tokio = tokio.worker_threads(threads).enable_all().build().unwrap();
    println!("exchange: both ends in this process, over loopback, on tokio with {threads} thread(s)");
    tokio.block_on(run(size));
}

async fn run(size: Size) {
    println!(
        "  {} rounds, each of {} calls one at a time and {} with {IN_FLIGHT} in flight",
        size.rounds, size.in_turn, size.at_once
    );
    let mut stack = Ours::connect().await;
    let mut limit = Echo::connect().await;
    let mut reference = Callers::connect().await;
    let mut peer = Jsonrpsee::connect().await;
    let [mut ours, mut echo, mut callers, mut jsonrpsee] = [(); 4].map(|()| Figures::default());
    for round in 0..=size.rounds {
        // The first round warms up.
        let keep = round > 0;
        ours.measure(&mut stack, &size, keep).await;
        echo.measure(&mut limit, &size, keep).await;
        callers.measure(&mut reference, &size, keep).await;
        jsonrpsee.measure(&mut peer, &size, keep).await;
    }
    stack.end().await;

    println!("  {:<58} {:>8} {:>10} {:>8}", "", "p50 us", "calls/s", "CPU us");
    ours.print("Client and Harness");
    echo.print("the limit: tokio-tungstenite, four frames unread");
    callers.print("plain reference: sockets, serde_json, a task a call");
    jsonrpsee.print("jsonrpsee, two calls one after the other");
    println!("  {:<58} {:>6}", "", "ratio");
    let at_most = Target::AtMost;
    verdict("p50 to the limit", median_ratio(&ours.latency, &echo.latency), at_most(1.6, 1.3));
    verdict("p50 to two jsonrpsee calls", median_ratio(&ours.latency, &jsonrpsee.latency), at_most(0.6, 0.6));
    let calls = &ours.calls_per_second;
    let at_least = Target::AtLeast;
    verdict("calls/s to the plain reference", median_ratio(calls, &callers.calls_per_second), at_least(0.8, 1.0));
    verdict(
        "CPU per call to the plain reference",
        median_ratio(&ours.cpu_per_call, &callers.cpu_per_call),
        at_most(1.4, 1.1),
    );
    verdict("calls/s to jsonrpsee", median_ratio(calls, &jsonrpsee.calls_per_second), at_least(2.5, 3.5));
}
