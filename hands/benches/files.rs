//! The file tools beside what they are measured against, in one run: `glob` and `grep` beside ripgrep on the
//! same tree with the same threads, and `read` beside a plain read of the same file.
//!
//! `cargo bench -p bma-hands --bench files`. The tree is `$BMA_BENCH_TREE`, by default the sources of cargo's
//! registry; ripgrep is `$RG` or `rg` on the path, and left out when there is none.
#![allow(clippy::unwrap_used, missing_docs, reason = "a bench panics on purpose")]

use std::fs;
use std::io::{Read, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use bma_hands::files::{self, FileContext};
use bma_hands::workspace::Workspace;
use bma_proto_core::contract::{GlobInput, GrepInput, ReadInput, SessionId, ToolCallId};

const ROUNDS: usize = 15;

/// Runs the contestants in turns; gives each one's median.
fn alternate(contestants: &mut [&mut dyn FnMut()]) -> Vec<Duration> {
    let mut times = vec![Vec::new(); contestants.len()];
    for round in 0..=ROUNDS {
        for (contestant, times) in contestants.iter_mut().zip(&mut times) {
            let begun = Instant::now();
            contestant();
            // The first round fills the caches.
            if round > 0 {
                times.push(begun.elapsed());
            }
        }
    }
    times
        .into_iter()
        .map(|mut times| {
            times.sort();
            times[times.len() / 2]
        })
        .collect()
}

fn row(name: &str, ours: Duration, other: &str, theirs: Duration) {
    let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
    println!(
        "{name:<34} {:>9.2} ms   {other:<12} {:>9.2} ms   ratio {ratio:.2}",
        ours.as_secs_f64() * 1e3,
        theirs.as_secs_f64() * 1e3
    );
}

fn tree() -> PathBuf {
    let given = std::env::var_os("BMA_BENCH_TREE").map(PathBuf::from);
    given.unwrap_or_else(|| {
        let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
        home.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cargo")).join("registry/src")
    })
}

fn ripgrep() -> Option<PathBuf> {
    let program = std::env::var_os("RG").map_or_else(|| PathBuf::from("rg"), PathBuf::from);
    let runs = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
    runs.is_ok_and(|status| status.success()).then_some(program)
}

/// Runs ripgrep as a search by ours is: the same rule, the output taken and counted.
fn run_rg(program: &Path, tree: &Path, threads: usize, args: &[&str]) -> usize {
    let output = Command::new(program)
        .args([
            "--no-config",
            "--no-require-git",
            "--no-ignore-global",
            "--no-ignore-exclude",
            "--no-ignore-parent",
            "--no-ignore-dot",
        ])
        .args(["--color=never", "-j", &threads.to_string()])
        .args(args)
        .current_dir(tree)
        .output()
        .unwrap();
    output.stdout.iter().filter(|byte| **byte == b'\n').count()
}

fn main() {
    // `cargo test` runs benches too, with `--test`; there is nothing to prove in that.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let tree = tree();
    let workspace = Workspace::open(&tree).unwrap();
    let (session, call, cancel) = (SessionId::from("bench"), ToolCallId::from("bench"), AtomicBool::new(false));
    let threads = std::thread::available_parallelism().unwrap();
    let context = |threads: NonZeroUsize| FileContext::new(&workspace, &session, &call, &cancel).with_threads(threads);
    println!("tree {}, {threads} threads, medians of {ROUNDS} alternating rounds", tree.display());
    match ripgrep() {
        None => println!("no ripgrep here: set RG to measure searches beside it"),
        Some(rg) => {
            for threads in [NonZeroUsize::MIN, threads] {
                for pattern in ["**/*.rs", "**/Cargo.toml"] {
                    let (mut ours, mut theirs) = (0, 0);
                    let times = alternate(&mut [
                        &mut || {
                            ours = files::glob(&context(threads), &GlobInput { pattern: pattern.into(), path: None })
                                .unwrap()
                                .text
                                .len()
                        },
                        &mut || theirs = run_rg(&rg, &tree, threads.get(), &["--files", "-g", pattern]),
                    ]);
                    row(&format!("glob {pattern}, {threads} threads"), times[0], "rg --files", times[1]);
                    assert!(ours > 0 && theirs > 0);
                }
                for pattern in ["unsafe impl", "fn \\w+_with_\\w+\\(", "zzzzqqq", "\\bself\\b"] {
                    let (mut ours, mut theirs) = (0, 0);
                    let input = GrepInput { pattern: pattern.into(), path: None, glob: None };
                    let times = alternate(&mut [
                        &mut || ours = files::grep(&context(threads), &input).unwrap().text.len(),
                        &mut || theirs = run_rg(&rg, &tree, threads.get(), &["-n", "--no-heading", pattern]),
                    ]);
                    row(&format!("grep {pattern}, {threads} threads"), times[0], "rg -n", times[1]);
                    assert!(ours > 0);
                }
            }
        }
    }
    read_a_large_file();
}

fn read_a_large_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.txt");
    let mut file = fs::File::create(&path).unwrap();
    let block: String = (0..10_000).map(|i| format!("this is line {i} of a block of a large text file\n")).collect();
    for _ in 0..800 {
        file.write_all(block.as_bytes()).unwrap();
    }
    drop(file);
    let workspace = Workspace::open(dir.path()).unwrap();
    let (session, call, cancel) = (SessionId::from("bench"), ToolCallId::from("bench"), AtomicBool::new(false));
    let context = FileContext::new(&workspace, &session, &call, &cancel);
    let input = ReadInput { path: "large.txt".into(), offset: Some(7_999_000), limit: Some(100) };
    let mut piece = vec![0; 256 * 1024];
    let times = alternate(&mut [
        &mut || assert!(files::read(&context, &input).unwrap().text.starts_with("this is line")),
        &mut || {
            let mut file = fs::File::open(&path).unwrap();
            while file.read(&mut piece).unwrap() > 0 {}
        },
    ]);
    row(
        &format!("read at the end of {} MB", fs::metadata(&path).unwrap().len() >> 20),
        times[0],
        "plain read",
        times[1],
    );
}
