//! What only a keeper can do, and what becomes of it.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test panics on purpose

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bma_hands_posix::Posix;
use bma_hands_posix::hands::bash::{BashEnd, SessionProcesses};
use bma_hands_posix::hands::os::Os;
use bma_hands_posix::keeper::KeeperProgram;
use bma_proto_core::contract::ToolOutcome;
use bma_runtime::{CancelReason, Canceler};
use rustix::process::{Pid, Signal};
use support::*;

fn program() -> KeeperProgram {
    KeeperProgram::at(env!("CARGO_BIN_EXE_bma-keeper"))
}

fn os() -> Arc<dyn Os> {
    Arc::new(Posix::with_keeper(program()).unwrap())
}

/// The keepers that are children of this process.
fn keepers_of(parent: u32) -> Vec<u32> {
    let children = std::fs::read_dir(format!("/proc/{parent}/task"))
        .unwrap()
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
    let children: Vec<u32> = children.flat_map(|list| ids(&list)).collect();
    // A protected process may not be seen, and of our children only keepers are protected.
    let is_keeper = |id: &u32| match std::fs::read(format!("/proc/{id}/cmdline")) {
        Ok(line) => line.starts_with(b"bma-keeper"),
        Err(_) => lives(*id),
    };
    children.into_iter().filter(is_keeper).collect()
}

fn ids(list: &str) -> Vec<u32> {
    list.split_ascii_whitespace().map(|id| id.parse().unwrap()).collect()
}

/// An executor that starts processes of every kind and then waits to be killed.
#[test]
fn entry_executor() {
    let Some(seconds) = entry_arguments() else { return };
    session(async |session| {
        let command = format!(
            "sleep {seconds} & setsid sleep {seconds} & \
             (env -i setsid sleep {seconds} >/dev/null 2>&1 &); \
             (trap '' TERM; exec sleep {seconds}) & \
             echo started; touch ready; wait"
        );
        let call = session.start(session.call(input(&command)));
        session.until("the command is under way", || session.root.join("ready").exists()).await;
        println!("READY");
        let _ = call.await;
    });
}

#[test]
fn nothing_lives_on_after_the_executor_was_killed() {
    let seconds = unique_seconds();
    let mut executor = start_entry("entry_executor", &[], &seconds);
    let mut lines = BufReader::new(executor.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("READY")));
    wait_until("all four sleep", || running(&seconds).iter().filter(|&&id| comm(id) == "sleep").count() == 4);
    let keepers = keepers_of(executor.id());
    assert_eq!(keepers.len(), 1);

    executor.kill().unwrap();
    executor.wait().unwrap();
    wait_until("everything is gone", || running(&seconds).is_empty());
    wait_until("the keeper is gone", || !lives(keepers[0]));
}

fn comm(id: u32) -> String {
    std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().to_owned()
}

#[test]
fn the_keeper_holds_nothing_of_the_executor() {
    session(async |session| {
        session.run("true").await;
        let keepers = keepers_of(std::process::id());
        assert!(!keepers.is_empty());
        for keeper in keepers {
            let environment = match std::fs::read(format!("/proc/{keeper}/environ")) {
                Ok(environment) => environment,
                // Another test's keeper, which is ending.
                Err(_) if !lives(keeper) => continue,
                // Only root can look.
                Err(_) if !rustix::process::getuid().is_root() => continue,
                Err(error) => panic!("{error}"),
            };
            assert!(environment.is_empty(), "the keeper's environment is empty");
            let descriptors = std::fs::read_dir(format!("/proc/{keeper}/fd")).map_or(0, Iterator::count);
            assert!(descriptors <= 5, "three streams, signals, and perhaps one that is being used: {descriptors}");
        }
    });
}

#[test]
fn what_cut_every_tie_is_reported_and_ended_with_the_executor() {
    let seconds = unique_seconds();
    let os = os();
    let inner = os.clone();
    session_without_end(inner, async |session| {
        // Its parent is gone before anybody looks, and it has neither the session, nor the group, nor the mark.
        let (canceler, cancellation) = Canceler::new();
        let command = format!("(env -i setsid sleep {seconds} >/dev/null 2>&1 &); exec sleep 60");
        let mut call = session.call(input(&command));
        call.cancellation = cancellation;
        let report = session.start(call);
        let escaped =
            |id: &u32| comm(*id) == "sleep" && std::fs::read(format!("/proc/{id}/environ")).unwrap().is_empty();
        session.until("it has escaped", || running(&seconds).iter().any(escaped)).await;
        canceler.cancel(CancelReason::Canceled);
        let report = report.await.unwrap();
        let BashEnd::Canceled { ended, .. } = &report.end else { panic!("{:?}", report.end) };
        assert!(ended.remaining.is_empty() && ended.strays.len() == 1, "{report:?}");
        assert_eq!(running(&seconds), [ended.strays[0].id]);
        assert_eq!(report.output().outcome, ToolOutcome::Failed, "a cancel is reported only when everything is gone");
        assert!(text(&report).contains("perhaps of this command"), "{}", text(&report));
    });
    drop(os);
    wait_until("the keeper ends it", || running(&seconds).is_empty());
}

/// The same in a chain: each link starts the next one and ends.
#[test]
fn a_chain_that_cut_every_tie_is_reported_and_ended_with_the_executor() {
    let mut chains = Vec::new();
    session_without_end(os(), async |session| {
        for round in 0..4 {
            let link = session.root.join(format!("link-{round}"));
            let shown = link.to_str().unwrap().to_owned();
            let next = format!("#!/bin/sh\n[ -e {shown} ] && env -i setsid -f {shown} >/dev/null 2>&1 </dev/null\n");
            std::fs::write(&link, next).unwrap();
            let report = session.run_and_cancel(&format!("chmod 700 {shown}; {shown}; touch ready; sleep 60")).await;
            let mut seen = 0;
            for _ in 0..50 {
                seen += running(&shown).len();
                session.pause(Duration::from_millis(2)).await;
            }
            // A link may be met before its own starter is gone, and then the chain ends with it.
            assert!(seen == 0 || report.output().outcome == ToolOutcome::Failed, "{seen}: {}", text(&report));
            std::fs::remove_file(session.root.join("ready")).unwrap();
            chains.push(shown);
        }
    });
    // The keeper ends what the last link would start, and there is no file to start it from.
    wait_until("every chain is at its end", || chains.iter().all(|link| running(link).is_empty()));
}

#[test]
fn what_a_lost_keeper_has_started_ends_with_it_and_a_new_one_is_started() {
    // In a program of its own, so that the keeper that is killed is no other test's.
    let seconds = unique_seconds();
    run_entry("entry_lost_keeper", &[], &seconds);
    assert!(running(&seconds).is_empty());
}

#[test]
fn entry_lost_keeper() {
    let Some(seconds) = entry_arguments() else { return };
    session(async |session| {
        // One process in the group of a command that runs, one of a command that has ended, and one that left its own.
        let left = format!("sleep {seconds} >/dev/null 2>&1 & setsid sleep {seconds} >/dev/null 2>&1 & true");
        assert_eq!(session.run(&left).await.survivors.len(), 2);
        let call = session.start(session.call(input(&format!("touch ready; sleep {seconds} & sleep {seconds}"))));
        session.until("the command is under way", || session.root.join("ready").exists()).await;
        signal(own_keeper(), Signal::KILL);

        let report = call.await.unwrap();
        assert_eq!(report.exit, None, "the status went with the keeper");
        assert!(report.output().is_error && text(&report).contains("exit code is not known"), "{report:?}");
        // Not when the session ends: nobody would do it after a kill -9 of this program.
        session.until("what it had started is gone", || running(&seconds).is_empty()).await;
        assert_eq!(text(&session.run("echo again").await), "again\nexit_code: 0");
    });
}

/// The one keeper of this process, in an entry of its own.
fn own_keeper() -> u32 {
    let keepers = keepers_of(std::process::id());
    assert_eq!(keepers.len(), 1);
    keepers[0]
}

fn signal(process: u32, signal: Signal) {
    // It may be gone.
    let _ = rustix::process::kill_process(Pid::from_raw(process.cast_signed()).unwrap(), signal);
}

#[test]
fn a_keeper_that_is_stopped_holds_up_neither_a_call_nor_a_cancel_nor_the_end() {
    let started = Instant::now();
    let mut executor = start_entry("entry_stopped_keeper", &[], "");
    let mut lines = BufReader::new(executor.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| Some(line.unwrap().split_once("KEEPER ")?.1.to_owned())).unwrap();
    let keeper = line.parse().unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(executor.wait().unwrap().success(), "{rest:?}");
    wait_until("the keeper is gone", || !lives(keeper));
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn entry_stopped_keeper() {
    if entry_arguments().is_none() {
        return;
    }
    let mut last = 0;
    session(async |session| {
        session.run("true").await;
        last = own_keeper();
        println!("KEEPER {last}");
        let stop = || signal(last, Signal::STOP);
        for _ in 0..10 {
            stop();
            assert_eq!(text(&session.run("echo before").await), "before\nexit_code: 0");
        }
        let call = session.start(session.call(input("touch ready; until [ -e go ]; do sleep 0.01; done; exit 3")));
        session.until("the command is under way", || session.root.join("ready").exists()).await;
        stop();
        std::fs::write(session.root.join("go"), "").unwrap();
        stop();
        assert_eq!(call.await.unwrap().exit.map(|exit| exit.code()), Some(3));

        std::fs::remove_file(session.root.join("ready")).unwrap();
        let (canceler, cancellation) = Canceler::new();
        let mut call = session.call(input("touch ready; sleep 600"));
        call.cancellation = cancellation;
        let report = session.start(call);
        session.until("the command is under way", || session.root.join("ready").exists()).await;
        stop();
        canceler.cancel(CancelReason::Canceled);
        stop();
        let report = report.await.unwrap();
        assert_eq!(report.output().outcome, ToolOutcome::Canceled, "{report:?}");
        let left = session.run("sleep 600 >/dev/null 2>&1 & true").await;
        assert_eq!(left.survivors.len(), 1);
        stop();
    });
    signal(last, Signal::STOP);
}

#[test]
fn a_keeper_that_is_stopped_does_not_outlive_an_executor_that_is_killed() {
    let seconds = unique_seconds();
    let mut executor = start_entry("entry_executor", &[], &seconds);
    let mut lines = BufReader::new(executor.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("READY")));
    let keepers = keepers_of(executor.id());
    assert_eq!(keepers.len(), 1);
    // The executor is stopped first, so that it cannot let the keeper go on.
    signal(executor.id(), Signal::STOP);
    wait_until("the executor has stopped", || state(executor.id()) == Some('T'));
    signal(keepers[0], Signal::STOP);
    executor.kill().unwrap();
    executor.wait().unwrap();
    wait_until("everything is gone", || running(&seconds).is_empty());
    wait_until("the keeper is gone", || !lives(keepers[0]));
}

#[test]
fn a_keeper_that_is_stopped_all_the_time_fails_calls_in_bounded_time() {
    run_entry("entry_storm", &[], "");
}

#[test]
fn entry_storm() {
    if entry_arguments().is_none() {
        return;
    }
    let mut stormed = 0;
    session_without_end(os(), async |session| {
        session.run("true").await;
        let keeper = own_keeper();
        stormed = keeper;
        let storm = std::thread::spawn(move || {
            while lives(keeper) {
                signal(keeper, Signal::STOP);
            }
        });
        // Each either does its work, when the keeper gets a moment now and then, or says who failed.
        for _ in 0..3 {
            match session.run_input(input("echo hello")).await {
                Ok(report) => assert!(text(&report).contains("exit_code: "), "{report:?}"),
                Err(error) => assert!(error.to_string().contains("helper process"), "{error}"),
            }
        }
        signal(keeper, Signal::KILL);
        storm.join().unwrap();
        assert_eq!(text(&session.run("echo again").await), "again\nexit_code: 0");
    });
    assert!(!lives(stormed));
}

#[test]
fn a_command_that_stops_the_keeper_holds_nobody_up() {
    session(async |session| {
        // Of a direct child, the parent is the keeper.
        let stop = "kill -STOP $PPID; echo stopped";
        for _ in 0..3 {
            assert_eq!(text(&session.run_for(stop, Duration::from_secs(20)).await), "stopped\nexit_code: 0");
            assert_eq!(text(&session.run_for("echo next", Duration::from_secs(20)).await), "next\nexit_code: 0");
        }
    });
}

#[test]
fn an_executable_that_is_no_keeper_is_found_out() {
    let refused = |path: &str| Posix::with_keeper(KeeperProgram::at(path)).unwrap_err().to_string();
    assert_eq!(
        refused("/bin/true"),
        "/bin/true was started as the keeper and does not serve: it ended; see to it that its main calls \
         keeper::main_if_requested first, and that it may run here"
    );
    let missing = refused("/nonexistent");
    assert!(missing.starts_with("/nonexistent could not be started as the keeper: No such file"), "{missing}");
    assert!(missing.ends_with("; check its path; /proc/self/exe needs a /proc that is mounted"), "{missing}");
    let directory = refused("/tmp");
    assert!(directory.contains("Permission denied") && directory.contains("that this user may run"), "{directory}");
    // What it says on its way out is told, and not more than a line of it.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("talkative");
    let keeper = env!("CARGO_BIN_EXE_bma-keeper");
    for (script, told) in [
        ("echo \"no such option: $1\" >&2; exit 64", "it ended; it said: no such option: --bma-keeper; see"),
        ("ulimit -n 3; exec KEEPER", "cannot open shared object file"),
        ("yes 'a b' | head -n 3000 >&2", "; it said: a b a b a b"),
    ] {
        std::fs::write(&program, format!("#!/bin/sh\n{}\n", script.replace("KEEPER", keeper))).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let error = refused(program.to_str().unwrap());
        assert!(error.contains(told) && error.len() < 1_000, "{error}");
    }
    // And a keeper that is started by hand says so.
    let output = Command::new(env!("CARGO_BIN_EXE_bma-keeper")).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn f6_dropped_trees_leave_no_process_and_no_zombie() {
    for os in [os(), Arc::new(Posix::direct())] {
        let seconds = unique_seconds();
        let mut ids = Vec::new();
        for _ in 0..50 {
            use bma_hands_posix::hands::os::{CommandLine, SpawnRequest};
            let directory = os.open_directory("/".as_ref()).unwrap();
            let argv = vec!["sleep".into(), seconds.clone().into()];
            let path = ("PATH".into(), std::env::var_os("PATH").unwrap());
            let spawned = os.spawn(SpawnRequest::new(CommandLine::Argv(argv), directory, vec![path])).unwrap();
            ids.push(spawned.tree.id());
        }
        wait_until("all are gone, zombies too", || ids.iter().all(|&id| state(id).is_none()));
    }
}

#[test]
fn a_session_without_calls_ends_at_once() {
    let os = os();
    bma_runtime_tokio::run(|runtime| async move {
        let processes = SessionProcesses::new(os.as_ref());
        let started = Instant::now();
        assert!(processes.end_all(&runtime, Duration::from_secs(10)).await.is_empty());
        assert!(started.elapsed() < Duration::from_millis(100));
    })
    .unwrap();
}
