//! What the hands cost the process that they live in, and that they leave nothing in it. A program of its own:
//! what is measured is the whole process's.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test panics on purpose

#[path = "core_hands/support.rs"]
mod support;

use std::sync::{Mutex, PoisonError};

use bma_runtime::proto::contract::{BashInput, GlobInput};
use support::{Setup, bad, good, input, read, write};

/// One case at a time: what is measured is the whole process's.
static ALONE: Mutex<()> = Mutex::new(());

/// A line of this process's status, in KiB.
fn kibibytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn output_without_end_costs_a_bounded_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Setup::direct().run(async |hands| {
        let session = hands.session("s").await;
        good(session.tools().bash(input("head -c 8000000 /dev/zero")).await);
        let before = kibibytes("VmRSS");
        let endless = BashInput { timeout_ms: Some(3_000), ..input("yes; yes >&2") };
        let text = bad(session.tools().bash(endless).await);
        assert!(text.starts_with("y\ny\n") && text.contains("timed out after "), "{}", &text[..100]);
        assert!(text.len() <= 48 << 10, "{}", text.len());
        // The peak: two streams of at most 1 MiB each, read in pieces of 64 KiB, and what is made of them.
        let peak = kibibytes("VmHWM").saturating_sub(before);
        assert!(peak < 24 << 10, "{peak} KiB more than before");
        assert_eq!(hands.processes(), [""; 0]);
    });
}

fn five_hundred_calls_leave_nothing(setup: Setup) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    setup.run(async |hands| {
        let session = hands.session("s").await;
        let round = async |number: usize| {
            good(session.tools().bash(input("cat x; exit 0")).await);
            good(session.tools().write(write("x", &number.to_string())).await);
            good(session.tools().read(read("x")).await);
            good(session.tools().glob(GlobInput { pattern: "*".into(), path: None }).await);
            bad(session.tools().read(read("missing")).await);
        };
        good(session.tools().write(write("x", "")).await);
        for number in 0..5 {
            round(number).await;
        }
        let before = descriptors();
        for number in 0..100 {
            round(number).await;
        }
        hands.until("no descriptor more than before", || descriptors() <= before).await;
        assert_eq!(hands.processes(), [""; 0]);
        // What was started has been waited for: no zombie is left.
        hands.until("no zombie of this process", || !parents_of_zombies().contains(&std::process::id())).await;
    });
}

fn parents_of_zombies() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path().join("stat")));
    let stats = entries.filter_map(|path| std::fs::read_to_string(path).ok());
    let parent = |stat: String| {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        (fields.next()? == "Z").then(|| fields.next()?.parse().ok())?
    };
    stats.filter_map(parent).collect()
}

#[test]
fn five_hundred_calls_leave_no_descriptor_and_no_zombie() {
    five_hundred_calls_leave_nothing(Setup::direct());
}

#[test]
fn five_hundred_calls_by_a_keeper_leave_no_descriptor_and_no_zombie() {
    five_hundred_calls_leave_nothing(Setup::with_keeper());
}
