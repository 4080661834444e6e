//! The bash tool beside the same shell, spawned directly, in one run: `cargo bench -p bma-hands-posix --bench bash`.
//!
//! Rounds alternate the contestants, so that a busy moment of the machine meets all of them. Printed are medians
//! and their ratios to the shell alone; the aim is 1.2, on a machine that does nothing else. The second contestant is
//! the shell alone in a session of its own: Linux schedules each session as a group, so on a busy machine a new one
//! waits for its first slice, and that is no cost of ours.
#![allow(clippy::unwrap_used)] // a bench panics on purpose

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bma_hands_posix::Posix;
use bma_hands_posix::hands::bash::{Bash, BashCall, BashOptions, SessionProcesses};
use bma_hands_posix::hands::env::EnvPolicy;
use bma_hands_posix::hands::os::Os;
use bma_hands_posix::hands::workspace::Workspace;
use bma_proto_core::contract::BashInput;

const ROUNDS: usize = 300;

fn main() {
    // `cargo test` runs benches too, to see that they start.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { ROUNDS } else { 3 };
    let home = tempfile::tempdir().unwrap();
    let root = tempfile::tempdir().unwrap();
    let home = home.path().to_str().unwrap().to_owned();
    let systems = systems();
    bma_runtime_tokio::run(|runtime| async move {
        println!("{:<14} {:>12} {:>20} {:>20} {:>20}", "command", "shell alone", "in own session", "direct", "keeper");
        for command in ["true", "ls", "seq 1 20000"] {
            let mut times = vec![Vec::new(); 2 + systems.len()];
            for _ in 0..rounds {
                for (own_session, times) in [false, true].into_iter().zip(&mut times) {
                    let started = Instant::now();
                    let mut alone = Command::new("bash");
                    alone.args(["-lc", command]).env("HOME", &home).current_dir(root.path()).stdin(Stdio::null());
                    if own_session {
                        in_own_session(&mut alone);
                    }
                    assert!(alone.output().unwrap().status.success());
                    times.push(started.elapsed());
                }
                for (os, times) in systems.iter().zip(&mut times[2..]) {
                    let policy = EnvPolicy::inherit().fixed([("HOME".to_owned(), home.clone())]).unwrap();
                    let bash = Bash::new(runtime.clone(), os.clone(), BashOptions::new(policy));
                    let workspace = Arc::new(Workspace::open(root.path()).unwrap());
                    let processes = SessionProcesses::new(os.as_ref());
                    let input = BashInput { command: command.to_owned(), ..BashInput::default() };
                    let started = Instant::now();
                    let report = bash.run(BashCall::new(input, workspace, processes)).await.unwrap();
                    times.push(started.elapsed());
                    assert!(report.exit.is_some() && report.survivors.is_empty());
                }
            }
            let medians: Vec<Duration> = times.iter_mut().map(|times| median(times)).collect();
            print!("{command:<14} {:>9.0} us", medians[0].as_secs_f64() * 1e6);
            for one in &medians[1..] {
                print!(" {:>9.0} us = {:.2}", one.as_secs_f64() * 1e6, one.as_secs_f64() / medians[0].as_secs_f64());
            }
            println!();
        }
    })
    .unwrap();
}

fn in_own_session(command: &mut Command) {
    #[allow(unsafe_code)] // there is no safe way to run code in the child
    // SAFETY: one system call, which is safe after a fork.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
    }
}

#[cfg(target_os = "linux")]
fn systems() -> Vec<Arc<dyn Os>> {
    let program = bma_hands_posix::keeper::KeeperProgram::at(env!("CARGO_BIN_EXE_bma-keeper"));
    vec![Arc::new(Posix::direct()), Arc::new(Posix::with_keeper(program).unwrap())]
}

#[cfg(not(target_os = "linux"))]
fn systems() -> Vec<Arc<dyn Os>> {
    vec![Arc::new(Posix::direct())]
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
