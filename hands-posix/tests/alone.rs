//! What needs a process of its own to be shown: the test starts its program anew, with one function to run.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test panics on purpose

mod support;

use std::sync::Arc;
use std::time::Duration;

use bma_hands_posix::Posix;
use bma_hands_posix::hands::bash::{BashEnd, BashError};
use bma_hands_posix::hands::os::{Exit, Os, SpawnError};
use bma_hands_posix::keeper::KeeperProgram;
use support::*;

fn os() -> Arc<dyn Os> {
    Arc::new(Posix::with_keeper(KeeperProgram::at(env!("CARGO_BIN_EXE_bma-keeper"))).unwrap())
}

#[test]
fn f8_an_ignored_sigchld_loses_no_exit_code() {
    run_entry("entry_ignored_sigchld", &["--ignore-signal=CHLD"], "");
}

#[test]
fn entry_ignored_sigchld() {
    if entry_arguments().is_none() {
        return;
    }
    session(async |session| {
        assert_eq!(session.run("exit 42").await.exit, Some(Exit::Code(42)));
    });
    session_on(
        Arc::new(Posix::direct()),
        |_| {},
        async |session| {
            let refused = session.run_input(input("exit 42")).await;
            assert!(matches!(refused, Err(BashError::Spawn(SpawnError::StatusDiscarded))), "{refused:?}");
            bma_hands_posix::restore_child_status();
            assert_eq!(session.run("exit 42").await.exit, Some(Exit::Code(42)));
        },
    );
}

/// However the executor itself was started: what it ignores and blocks is its own business.
#[test]
fn f10_signals_that_the_executor_ignores_or_blocks_reach_its_commands() {
    // Without SIGCHLD, which is another matter: see F8.
    let signals = "HUP,INT,QUIT,PIPE,ALRM,TERM,USR1,USR2,TSTP,TTIN,TTOU,WINCH,RTMIN,RTMAX";
    run_entry("entry_odd_signals", &[&format!("--ignore-signal={signals}"), "--block-signal"], "");
}

#[test]
fn entry_odd_signals() {
    if entry_arguments().is_none() {
        return;
    }
    ignore_those_of_the_c_library();
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| own.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    assert!(line("SigBlk:") != "0000000000000000" && line("SigIgn:").starts_with("8000000"), "{own}");
    for os in [os(), Arc::new(Posix::direct())] {
        session_on(
            os,
            |_| {},
            async |session| {
                let zero = "0000000000000000";
                let report = session.run("grep -E 'Sig(Ign|Blk)' /proc/self/status").await;
                assert_eq!(stdout(&report), format!("SigBlk:\t{zero}\nSigIgn:\t{zero}\n"));
                // Also for a program that is no shell, which could have reset them itself.
                for signal in ["TERM", "HUP", "PIPE", "USR1"] {
                    let report = session.run_for(&format!("sh -c 'kill -{signal} $$; sleep 60'"), TIMEOUT).await;
                    assert!(report.exit.as_ref().is_some_and(|exit| exit.code() > 128), "{signal}: {report:?}");
                }
                assert_eq!(session.run_for("yes | head -n 1", TIMEOUT).await.exit, Some(Exit::Code(0)));
            },
        );
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);

/// Ignores the two signals that the C library keeps for itself, past it.
fn ignore_those_of_the_c_library() {
    for signal in [32, 33] {
        // The kernel's structure: the handler comes first, and 1 is SIG_IGN.
        let ignore = [1u64, 0, 0, 0, 0, 0, 0, 0];
        #[allow(unsafe_code)] // the safe calls refuse these two
        // SAFETY: the kernel reads one structure from `ignore`, which is longer than that and outlives the call; it runs
        // no code of ours.
        let done = unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, ignore.as_ptr(), std::ptr::null_mut::<u64>(), 8usize)
        };
        assert_eq!(done, 0);
    }
}

#[test]
fn f7_a_greedy_reaper_steals_no_exit_code_unseen() {
    run_entry("entry_greedy_reaper", &[], "");
}

#[test]
fn entry_greedy_reaper() {
    if entry_arguments().is_none() {
        return;
    }
    let kept = os();
    std::thread::spawn(|| {
        loop {
            let waited = rustix::process::wait(rustix::process::WaitOptions::NOHANG);
            if !matches!(waited, Ok(Some(_))) {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    session_on(
        kept,
        |_| {},
        async |session| {
            for _ in 0..50 {
                assert_eq!(session.run("exit 42").await.exit, Some(Exit::Code(42)), "with a keeper always");
            }
        },
    );
    session_on(
        Arc::new(Posix::direct()),
        |_| {},
        async |session| {
            for _ in 0..100 {
                match session.run_input(input("exit 42")).await {
                    Ok(report) => {
                        let shown = text(&report);
                        match report.exit {
                            Some(exit) => assert_eq!(exit, Exit::Code(42)),
                            None => assert!(report.output().is_error && shown.contains("exit status"), "{shown}"),
                        }
                    }
                    // Reaped before it could be watched.
                    Err(error) => assert!(matches!(error, BashError::Spawn(SpawnError::System { .. })), "{error:?}"),
                }
            }
        },
    );
}

#[test]
fn f114_endless_output_leaves_memory_flat() {
    run_entry("entry_endless_output", &[], "");
}

#[test]
fn entry_endless_output() {
    if entry_arguments().is_none() {
        return;
    }
    session(async |session| {
        session.run("true").await;
        let before = peak_kilobytes();
        let report = session.run_for("yes; yes >&2", Duration::from_secs(3)).await;
        assert!(matches!(report.end, BashEnd::TimedOut { .. }));
        let zeros = session.run("head -c 500000000 /dev/zero").await;
        assert_eq!(zeros.stdout.total_bytes(), 500_000_000);
        let grown = peak_kilobytes() - before;
        assert!(grown < 24 * 1024, "{grown} KiB more than before, for {} bytes", report.stdout.total_bytes());
    });
}

/// The most memory that this process ever had.
fn peak_kilobytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn f118_a_protected_executor_cannot_be_read_by_its_commands() {
    let is_root = rustix::process::getuid().is_root();
    // Root may read everything; so the executor is made an ordinary user's.
    let user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    run_entry("entry_protected", if is_root { &user } else { &[] }, "a-secret-token");
}

#[test]
fn entry_protected() {
    let Some(token) = entry_arguments() else { return };
    bma_hands_posix::protect_this_process().unwrap();
    let executor = std::process::id();
    for os in [os(), Arc::new(Posix::direct())] {
        let token = token.clone();
        session_on(
            os,
            |_| {},
            async move |session| {
                let report = session
                    .run(&format!("cat /proc/{executor}/environ /proc/$PPID/environ; ls /proc/{executor}/fd; id -u"))
                    .await;
                let (out, err) = (stdout(&report), stderr(&report));
                // Under `hidepid` it is not even seen.
                let refused = err.matches("Permission denied").count() + err.matches("No such file").count();
                assert!(!out.contains(&token) && refused == 3, "{out} {err}");
            },
        );
    }
}
