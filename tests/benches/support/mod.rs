//! What the benches share: rounds that alternate, medians, CPU time, a table.
#![allow(dead_code, reason = "each bench uses a part of it")]

pub(crate) mod plain;

use std::time::Duration;

/// The result's text, which makes the frames as long as those of a short command.
pub(crate) const TEXT: &str = "total 8\nsrc\ntests\nexit_code: 0";
/// The input of every tool call.
pub(crate) const INPUT: &str = r#"{"command":"ls -la /srv/project | head -n 3","timeout_ms":1000}"#;

/// Whether this is a smoke run (`-- --quick`): it shows that the bench works, and its figures mean little.
pub(crate) fn is_quick() -> bool {
    std::env::args().any(|argument| argument == "--quick")
}

/// What follows `name` on the command line.
pub(crate) fn option(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

/// CPU time of this thread so far.
pub(crate) fn thread_cpu() -> Duration {
    cpu(rustix::time::ClockId::ThreadCPUTime)
}

/// CPU time of this process so far, over all its threads.
pub(crate) fn process_cpu() -> Duration {
    cpu(rustix::time::ClockId::ProcessCPUTime)
}

fn cpu(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// The middle one of some figures.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The median of the ratios of figures that were taken in the same rounds: what
/// the machine did meanwhile hits both alike.
pub(crate) fn median_ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}

/// What a ratio is held against.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// It must be this at least, and should be the second.
    AtLeast(f64, f64),
    /// It must be this at most, and should be the second.
    AtMost(f64, f64),
}

/// Prints one ratio beside its target.
pub(crate) fn verdict(what: &str, ratio: f64, target: Target) {
    let (word, bound, aim, met, aimed) = match target {
        Target::AtLeast(bound, aim) => ("at least", bound, aim, ratio >= bound, ratio >= aim),
        Target::AtMost(bound, aim) => ("at most", bound, aim, ratio <= bound, ratio <= aim),
    };
    let verdict = match (met, aimed) {
        (true, true) => "aim reached",
        (true, false) => "target met",
        (false, _) => "MISSED",
    };
    let aim = if aim == bound { String::new() } else { format!(" (aim {aim})") };
    println!("  {what:<58} {ratio:>6.2}   {word} {bound}{aim}: {verdict}");
}
