//! Where the process table is not what one takes it for: as a container's first process, which has orphans that
//! nobody reaps; and where /proc is another namespace's or empty, so that a tree must not be taken for gone.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test panics on purpose

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bma_hands_posix::Posix;
use bma_hands_posix::hands::os::{CommandLine, Leftover, Os, Signal, SpawnRequest, Spawned};
use bma_hands_posix::keeper::KeeperProgram;
use support::*;

/// A pid namespace, with the /proc of the one outside.
const FOREIGN_PROC: [&str; 3] = ["--pid", "--fork", "--kill-child"];
/// The same, with its own.
const OWN_PROC: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];
const EMPTY_PROC: [&str; 6] = ["--mount", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh", "env"];

/// How to start a program in a namespace; `None`, and a word why, where the system lets us make none.
fn unshared(options: &[&'static str]) -> Option<Vec<&'static str>> {
    let mut command = vec!["unshare"];
    if !rustix::process::getuid().is_root() {
        command.push("--map-root-user");
    }
    command.extend(options);
    let tried = Command::new("env").args(&command).arg("true").output().unwrap();
    if tried.status.success() {
        return Some(command);
    }
    eprintln!("not shown, since it needs a namespace: {}", String::from_utf8_lossy(&tried.stderr));
    None
}

fn os() -> Arc<dyn Os> {
    Arc::new(Posix::with_keeper(KeeperProgram::at(env!("CARGO_BIN_EXE_bma-keeper"))).unwrap())
}

fn systems() -> [Arc<dyn Os>; 2] {
    [os(), Arc::new(Posix::direct())]
}

fn spawn(os: &dyn Os, script: &str) -> Spawned {
    let directory = os.open_directory("/".as_ref()).unwrap();
    let argv = vec!["sh".into(), "-c".into(), script.into()];
    let path = ("PATH".into(), std::env::var_os("PATH").unwrap());
    os.spawn(SpawnRequest::new(CommandLine::Argv(argv), directory, vec![path])).unwrap()
}

fn wait_for_exit(spawned: &Spawned) {
    wait_until("it exits", || spawned.tree.try_wait().unwrap().is_some());
}

#[test]
fn the_dead_that_nobody_reaps_are_no_leftover() {
    if let Some(options) = unshared(&OWN_PROC) {
        run_entry("entry_first_process", &options, "");
    }
}

#[test]
fn entry_first_process() {
    if entry_arguments().is_none() {
        return;
    }
    assert_eq!(std::process::id(), 1);
    for os in systems() {
        let directory = tempfile::tempdir().unwrap();
        let stop = directory.path().join("stop");
        let one = |before: &str| {
            let stop = stop.display();
            spawn(os.as_ref(), &format!("{before} sh -c 'until [ -e {stop} ]; do sleep 0.01; done' >/dev/null 2>&1 &"))
        };
        // The one stays in the group, the other leaves it, and both lose their parent.
        let trees = [one(""), one("setsid")];
        for spawned in &trees {
            wait_for_exit(spawned);
            let _ = spawned.tree.release();
            assert!(!spawned.tree.members().unwrap().is_empty());
            assert_eq!(spawned.tree.release(), Leftover::Possible);
        }
        std::fs::write(&stop, "").unwrap();
        for spawned in &trees {
            wait_until("it is known to be gone", || spawned.tree.release() == Leftover::None);
        }
    }
}

#[test]
fn a_foreign_process_table_is_no_proof_that_a_tree_is_gone() {
    for place in [&FOREIGN_PROC[..], &EMPTY_PROC] {
        if let Some(options) = unshared(place) {
            run_entry("entry_no_table", &options, "");
        }
    }
}

#[test]
fn entry_no_table() {
    if entry_arguments().is_none() {
        return;
    }
    for os in systems() {
        let spawned = spawn(os.as_ref(), "sleep 600 & wait");
        let error = spawned.tree.members().unwrap_err().to_string();
        assert!(error.contains("/proc"), "{error}");
        // What the group has is ended all the same.
        let error = spawned.tree.signal(Signal::Kill).unwrap_err().to_string();
        assert!(error.contains("/proc"), "{error}");
        wait_for_exit(&spawned);
        let mark = os.new_mark().unwrap();
        assert!(os.marked(&mark).members().is_err());
    }
}

#[test]
fn without_a_process_table_the_groups_end_with_the_executor() {
    let Some(options) = unshared(&EMPTY_PROC) else { return };
    let seconds = unique_seconds();
    let mut executor = start_entry("entry_executor", &options, &seconds);
    let mut lines = BufReader::new(executor.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("READY")));
    wait_until("it sleeps", || !running(&seconds).is_empty());
    executor.kill().unwrap();
    executor.wait().unwrap();
    wait_until("everything is gone", || running(&seconds).is_empty());
}

#[test]
fn entry_executor() {
    let Some(seconds) = entry_arguments() else { return };
    let _running = spawn(os().as_ref(), &format!("trap '' TERM; sleep {seconds} & wait; exec sleep {seconds}"));
    println!("READY");
    std::thread::sleep(Duration::from_secs(600));
}
