//! `cargo run --release -p bma-tests --bin simulate -- --seeds N`: many worlds, one after the other.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bma_tests::simulation::{self, Tally, storm};

const USAGE: &str = "usage: simulate [--from SEED] [--seeds N | --seconds S] [--jobs J]
       simulate --seed SEED      replays one seed, and prints every frame
       simulate --storm N        a fleet of N executors loses its harness";

struct Options {
    from: u64,
    seeds: u64,
    time: Option<Duration>,
    jobs: u64,
    seed: Option<u64>,
    storm: Option<u32>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { from: 0, seeds: 1_000, time: None, jobs: 1, seed: None, storm: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: a number must follow"))?;
        let number: u64 = value.parse().map_err(|_| format!("{word}: {value:?} is no whole number"))?;
        match word.as_str() {
            "--from" => options.from = number,
            "--seeds" => options.seeds = number,
            "--seconds" => options.time = Some(Duration::from_secs(number)),
            "--jobs" => options.jobs = number.max(1),
            "--seed" => options.seed = Some(number),
            "--storm" => options.storm = Some(u32::try_from(number).map_err(|_| "--storm: that is too many")?),
            _ => return Err(format!("{word}: there is no such option")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = options.seed {
        println!("{:?}", simulation::run(seed, true).1);
        return ExitCode::SUCCESS;
    }
    if let Some(executors) = options.storm {
        storms(executors);
        return ExitCode::SUCCESS;
    }
    seeds(&options)
}

fn seeds(options: &Options) -> ExitCode {
    let begun = Instant::now();
    let next = AtomicU64::new(options.from);
    let end = if options.time.is_some() { u64::MAX } else { options.from.saturating_add(options.seeds) };
    let work = || {
        let (mut ran, mut failed, mut all) = (0, Vec::new(), Tally::default());
        while options.time.is_none_or(|time| begun.elapsed() < time) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                break;
            }
            ran += 1;
            match simulation::holds(seed) {
                Some(tally) => all = all.plus(tally),
                None => {
                    eprintln!("seed {seed} failed; this replays it:\n{}", simulation::replay(seed));
                    failed.push(seed);
                }
            }
        }
        (ran, failed, all)
    };
    let done: Vec<(u64, Vec<u64>, Tally)> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let ran: u64 = done.iter().map(|(ran, ..)| ran).sum();
    let failed: Vec<u64> = done.iter().flat_map(|(_, failed, _)| failed.iter().copied()).collect();
    let all = done.iter().fold(Tally::default(), |all, (.., tally)| all.plus(*tally));
    let seconds = begun.elapsed().as_secs_f64();
    println!("seeds {} to {}: {ran} run in {seconds:.1} s", options.from, options.from + ran.saturating_sub(1));
    println!("simulated hours: {:.1}", all.time.as_secs_f64() / 3600.0);
    println!("events: {} ({:.0} a second and thread)", all.events, all.events as f64 / seconds / options.jobs as f64);
    println!("frames: {}, connections: {}", all.frames, all.connections);
    println!("results: {}, unknown outcomes: {}, leases run out: {}", all.results, all.unknown, all.leases);
    println!("{:?}", all.faults);
    println!("violations: {} {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn storms(executors: u32) {
    println!("{executors} executors lose their harness at once");
    println!(
        "{:>8} {:>10} {:>12} {:>12} {:>14} {:>12} {:>12}",
        "away s", "capacity/s", "peak dials/s", "once back", "peak regs/s", "all back s", "failed dials"
    );
    for capacity in [0, 1_000] {
        for outage in [0, 10, 60, 600] {
            let storm = storm::run(executors, Duration::from_secs(outage), capacity, 1);
            let capacity = if capacity == 0 { "any".to_owned() } else { capacity.to_string() };
            println!(
                "{outage:>8} {capacity:>10} {:>12} {:>12} {:>14} {:>12.1} {:>12}",
                storm.peak_dials,
                storm.peak_dials_back,
                storm.peak_registrations,
                storm.all_back.as_secs_f64(),
                storm.failed_dials
            );
        }
    }
}
