//! What a user of the bash tool sees, with real shells. Tests named `fN_` prove the row N of the field reports.
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bma_hands_posix::hands::bash::{BashEnd, BashError};
use bma_hands_posix::hands::launch::{LaunchRefusal, LaunchRequest, LaunchSpec};
use bma_hands_posix::hands::os::{Exit, SpawnError};
use bma_proto_core::Time;
use bma_proto_core::contract::ToolOutcome;
use bma_runtime::{BoxFuture, CancelReason, Canceler, Endpoint, Listener, Readiness, Runtime, Stream, Timer};

use crate::support::*;

/// Its session and its group bear its own number, and there is no terminal.
#[test]
fn each_command_leads_a_session_and_a_group_of_its_own() {
    session(async |session| {
        let report = session.run("read -r stat < /proc/$$/stat; set -- ${stat##*) }; echo $$ $3 $4 $5").await;
        let shown = stdout(&report);
        let [own, group, in_session, terminal] = shown.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("{shown}")
        };
        assert_eq!((group, in_session, terminal), (own, own, "0"));
        assert_ne!(own, std::process::id().to_string());
    });
}

#[test]
fn several_lines_run_as_one_script() {
    session(async |session| {
        let report = session.run("f() {\n  echo \"$LINENO $1\"\n}\nf a\ncat <<EOF\n$0 $#\nEOF\nexit 4").await;
        assert_eq!(text(&report), "2 a\nbash 0\nexit_code: 4");
        let report = session.run("echo a\nif; then").await;
        assert!(stderr(&report).contains("line 2"), "{}", stderr(&report));
        assert_eq!(report.exit, Some(Exit::Code(2)));
    });
}

#[test]
fn f1_process_substitution_does_not_hold_the_call() {
    session(async |session| {
        let report = session.run("exec > >(cat); echo hi; exit 3").await;
        assert_eq!(text(&report), "hi\nexit_code: 3");
        assert!(report.duration < Duration::from_secs(2), "{:?}", report.duration);
    });
}

#[test]
fn f1_a_survivor_holds_the_call_for_the_grace_alone() {
    session(async |session| {
        let seconds = unique_seconds();
        let report = session.run(&format!("sleep {seconds} & echo hi; exit 3")).await;
        assert!(report.duration >= Duration::from_millis(900), "{:?}", report.duration);
        assert!(report.duration < Duration::from_secs(2), "{:?}", report.duration);
        let text = text(&report);
        assert!(text.starts_with("hi\nstill running: process "), "{text}");
        assert!(
            text.contains("(sleep)") && text.contains("no longer kept") && text.ends_with("exit_code: 3"),
            "{text}"
        );
        assert_eq!(running(&seconds).len(), 1, "it lives until the session ends");
        let ended = session.processes.end_all(&session.runtime, Duration::from_secs(10)).await;
        assert!(ended.is_empty(), "{ended:?}");
        assert!(running(&seconds).is_empty());
    });
}

#[test]
fn a_survivor_can_go_on_writing() {
    session(async |session| {
        // A closed pipe would end the loop by SIGPIPE, a full one would block it.
        let loop_ = "for i in $(seq 1 20); do head -c 100000 /dev/zero; sleep 0.1; done; touch finished";
        let report = session.run(&format!("({loop_}) & echo started")).await;
        assert!(report.output_held && !report.survivors.is_empty(), "{report:?}");
        session.until("the survivor finishes", || session.root.join("finished").exists()).await;
    });
}

#[test]
fn f10_signals_are_as_a_program_expects_them() {
    session(async |session| {
        let report =
            session.run_for("yes | head -n 1; grep -E 'Sig(Ign|Blk)' /proc/self/status", Duration::from_secs(5)).await;
        let zero = "0000000000000000";
        assert_eq!(stdout(&report), format!("y\nSigBlk:\t{zero}\nSigIgn:\t{zero}\n"));
    });
}

#[test]
fn f23_death_by_signal_is_named_and_apart_from_the_same_code() {
    session(async |session| {
        let report = session.run("kill -SEGV $$").await;
        let shown = text(&report);
        assert!(shown.contains("killed by SIGSEGV (signal 11"), "{shown}");
        assert!(shown.ends_with("exit_code: 139"), "{shown}");
        assert!(!report.output().is_error);
        assert_eq!(text(&session.run("exit 139").await), "exit_code: 139");
        let inner = text(&session.run("sh -c 'kill -KILL $$'").await);
        assert!(inner.ends_with("exit_code: 137"), "{inner}");
    });
}

#[test]
fn f24_f25_timeout_deadline_and_cancel_keep_the_output_and_are_told_apart() {
    session(async |session| {
        let report = session.run_for("echo early; sleep 30", Duration::from_secs(1)).await;
        let timed_out = text(&report);
        assert!(timed_out.starts_with("early\ntimed out after 1."), "{timed_out}");
        assert!(timed_out.contains("timeout_ms was 1000 ms"), "{timed_out}");
        assert!(report.duration >= Duration::from_secs(1) && report.duration < Duration::from_secs(2));
        assert!(report.output().is_error && report.output().outcome == ToolOutcome::Succeeded);

        let mut call = session.call(input("echo early; sleep 30"));
        call.deadline = Some(session.runtime.now() + Duration::from_millis(500));
        let report = session.bash.run(call).await.unwrap();
        assert!(matches!(report.end, BashEnd::TimedOut { deadline: true, .. }));
        assert!(text(&report).starts_with("early\ntimed out after 0."), "{}", text(&report));
        assert!(text(&report).contains("the deadline of the call"), "{}", text(&report));

        let report = session.run_and_cancel("echo early; touch ready; sleep 30").await;
        let canceled = text(&report);
        assert!(canceled.starts_with("early\ncanceled after "), "{canceled}");
        assert_eq!(report.output().outcome, ToolOutcome::Canceled);
    });
}

#[test]
fn f26_failures_of_wrapped_commands_are_kept() {
    session(async |session| {
        assert_eq!(session.run("sh -c 'exit 7' >log 2>&1").await.exit, Some(Exit::Code(7)));
        assert_eq!(session.run("sh -c 'exit 7' >log 2>&1 & wait $!").await.exit, Some(Exit::Code(7)));
    });
}

#[test]
fn f27_a_profile_that_replaces_the_shell_is_no_silent_success() {
    session(async |session| {
        for (profile, exit) in [("exec true", 0), ("exit 5", 5)] {
            std::fs::write(session.home.join(".bash_profile"), profile).unwrap();
            let report = session.run("touch made; exit 9").await;
            assert!(!session.root.join("made").exists());
            assert_eq!(report.begun, Some(false));
            assert_eq!(report.exit, Some(Exit::Code(exit)));
            assert!(report.output().is_error);
            assert!(text(&report).contains("the login profile ended or replaced the shell"), "{}", text(&report));
        }
        std::fs::write(session.home.join(".bash_profile"), "echo hello; sleep 1000 >/dev/null 2>&1 & export A=1")
            .unwrap();
        let report = session.run("touch made; echo $A; exit 9").await;
        assert!(session.root.join("made").exists() && stdout(&report) == "hello\n1\n", "{report:?}");
        assert_eq!((report.begun, report.exit), (Some(true), Some(Exit::Code(9))));

        std::fs::write(session.home.join(".bash_profile"), "sleep 1000").unwrap();
        let report = session.run_for("exit 9", Duration::from_millis(300)).await;
        assert!(text(&report).contains("the login profile was still running"), "{}", text(&report));
    });
}

#[test]
fn f28_f122_a_missing_directory_is_named_and_harms_nothing_else() {
    session(async |session| {
        std::fs::create_dir(session.root.join("d")).unwrap();
        let mut inside = input("echo ok");
        inside.cwd = Some("d".to_owned());
        assert_eq!(text(&session.run_input(inside.clone()).await.unwrap()), "ok\nexit_code: 0");
        assert_eq!(session.run("cd d && rm -rf ../d").await.exit, Some(Exit::Code(0)));
        let error = session.run_input(inside).await.unwrap_err();
        assert_eq!(error.to_string(), "cwd does not exist: d");
        assert!(error.output().is_error && error.output().outcome == ToolOutcome::Succeeded);
        assert_eq!(text(&session.run("echo ok").await), "ok\nexit_code: 0");

        std::fs::remove_dir_all(&session.root).unwrap();
        let error = session.run_input(input("echo ok")).await.unwrap_err();
        assert!(matches!(error, BashError::Spawn(SpawnError::DirectoryMissing { .. })), "{error:?}");
        std::fs::create_dir(&session.root).unwrap();
    });
}

#[test]
fn f29_stdin_is_at_its_end() {
    session(async |session| {
        let report =
            session.run_for("cat; readlink /proc/self/fd/0; tty; exec </dev/tty", Duration::from_secs(5)).await;
        assert_eq!(stdout(&report), "/dev/null\nnot a tty\n");
        assert!(stderr(&report).contains("/dev/tty"), "there is no controlling terminal: {}", stderr(&report));
    });
}

#[test]
fn f31_limits_and_durations_are_no_matter_of_the_wall_clock() {
    session_with(
        crate::os(),
        |inner| Arc::new(SteppedClock { inner, hours: AtomicU64::new(1_000_000) }),
        |_| {},
        true,
        async |session| {
            let report = session.run_for("sleep 0.5", Duration::from_secs(5)).await;
            assert_eq!(report.end, BashEnd::Exited);
            assert!(report.duration >= Duration::from_millis(500) && report.duration < Duration::from_secs(3));
            let report = session.run_for("sleep 30", Duration::from_millis(500)).await;
            assert!(matches!(report.end, BashEnd::TimedOut { .. }));
            assert!(report.duration >= Duration::from_millis(500) && report.duration < Duration::from_secs(3));
        },
    );
}

/// A runtime whose wall clock is an hour earlier at each look.
#[derive(Debug)]
struct SteppedClock {
    inner: Arc<dyn Runtime>,
    hours: AtomicU64,
}

impl Runtime for SteppedClock {
    fn now(&self) -> Time {
        self.inner.now()
    }
    fn unix_time(&self) -> Duration {
        Duration::from_secs(3_600 * self.hours.fetch_sub(1, Ordering::Relaxed))
    }
    fn seed(&self) -> u64 {
        self.inner.seed()
    }
    fn timer(&self) -> Box<dyn Timer> {
        self.inner.timer()
    }
    fn spawn(&self, task: BoxFuture<()>) {
        self.inner.spawn(task);
    }
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.inner.run_blocking(work);
    }
    fn dial(&self, to: &Endpoint) -> BoxFuture<io::Result<Box<dyn Stream>>> {
        self.inner.dial(to)
    }
    fn listen(&self, on: &Endpoint) -> BoxFuture<io::Result<Box<dyn Listener>>> {
        self.inner.listen(on)
    }
    fn pipe(&self, fd: OwnedFd) -> io::Result<Box<dyn Stream>> {
        self.inner.pipe(fd)
    }
    fn readiness(&self, fd: OwnedFd) -> io::Result<Box<dyn Readiness>> {
        self.inner.readiness(fd)
    }
}

#[test]
fn f32_a_long_command_runs_and_a_longer_one_is_refused_clearly() {
    session(async |session| {
        let long = format!(": {}; echo end; exit 6", "a".repeat(200 * 1024));
        assert_eq!(text(&session.run(&long).await), "end\nexit_code: 6");
        let longer = format!(": {}; echo end", "a".repeat(3 * 1024 * 1024));
        let error = session.run_input(input(&longer)).await.unwrap_err();
        let limit = session.os.max_command_bytes();
        assert!(
            error.to_string().starts_with(&format!("command too long: {} bytes, limit {limit}", longer.len())),
            "{error}"
        );
        assert!(matches!(
            session.run_input(input("echo a\0b")).await,
            Err(BashError::Spawn(SpawnError::NulCharacter { .. }))
        ));
    });
}

#[test]
fn f118_nothing_of_the_executor_reaches_a_command() {
    // A descriptor that somebody forgot to protect.
    let leak = std::fs::File::open("/dev/zero").unwrap();
    let inherited = rustix::io::fcntl_dupfd_cloexec(&leak, 40).unwrap();
    rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
    session(async |session| {
        let report = session.run("ls /proc/self/fd | tr '\\n' ' '; ls -l /proc/self/fd | grep -c zero").await;
        assert_eq!(stdout(&report), "0 1 2 3 0\n", "three streams, and the listing itself");
        let report = session.run("sh -c 'ls /proc/self/fd' | tr '\\n' ' '").await;
        assert_eq!(stdout(&report), "0 1 2 3 ");
    });
}

#[test]
fn the_environment_is_checked() {
    session(async |session| {
        let mut refused = input("touch ran");
        refused.env = [("LD_PRELOAD", "/tmp/x.so")].into();
        let error = session.run_input(refused).await.unwrap_err();
        assert_eq!(error.to_string(), "env LD_PRELOAD may not be set by a request");
        assert!(!session.root.join("ran").exists());
    });
}

#[test]
fn a_launch_hook_wraps_moves_changes_and_refuses() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = seen.clone();
    let hook = move |request: LaunchRequest| {
        kept.lock().unwrap().push(request.clone());
        async move {
            let command = request.argv[2].to_str().unwrap().to_owned();
            let mut spec = LaunchSpec::unchanged();
            match command.as_str() {
                "refuse" => return Err(LaunchRefusal::new("local_confirmation_denied", "not on this machine")),
                "wrap" => {
                    spec.argv =
                        Some(vec!["env".into(), "WRAPPED=1".into(), "sh".into(), "-c".into(), "echo $WRAPPED".into()])
                }
                "move" => spec.dir = Some("/usr".into()),
                "gone" => spec.dir = Some("/nonexistent/dir".into()),
                "missing" => spec.argv = Some(vec!["/nonexistent/program".into()]),
                _ => spec.env = Some(vec![("ONLY".into(), "this".into())]),
            }
            Ok(spec)
        }
    };
    session_on(
        crate::os(),
        move |options| options.launch = Some(Arc::new(hook)),
        async |session| {
            let error = session.run_input(input("refuse")).await.unwrap_err();
            assert_eq!(error.to_string(), "local_confirmation_denied: not on this machine");
            assert!(error.output().is_error);
            assert_eq!(stdout(&session.run("wrap").await), "1\n");
            assert_eq!(session.run("move").await.exit, Some(Exit::Code(127)), "the command itself is unknown");
            assert_eq!(stdout(&session.run("echo $ONLY$HOME").await), "this\n");
            let error = session.run_input(input("gone")).await.unwrap_err();
            assert_eq!(error.to_string(), "cwd does not exist: /nonexistent/dir");
            let error = session.run_input(input("missing")).await.unwrap_err();
            assert_eq!(error.to_string(), "program not found: /nonexistent/program");
            let first = seen.lock().unwrap()[0].clone();
            assert_eq!(first.argv, ["bash", "-lc", "refuse"]);
            assert_eq!((first.tool.as_deref(), first.cwd.as_deref()), (Some("bash"), None));
            assert_eq!(first.default_cwd, session.workspace.path());
        },
    );
}

#[test]
fn f77_a_cancel_that_meets_the_end_agrees_with_what_was_done() {
    session(async |session| {
        for round in 0..40u64 {
            let (canceler, cancellation) = Canceler::new();
            let file = session.root.join(format!("done{round}"));
            let mut call = session.call(input(&format!("sleep 0.02; echo x > done{round}")));
            call.cancellation = cancellation;
            let report = session.start(call);
            session.pause(Duration::from_millis(20 + round % 20)).await;
            canceler.cancel(CancelReason::Canceled);
            match report.await {
                Ok(report) if report.end == BashEnd::Exited => {
                    assert_eq!(text(&report), "exit_code: 0");
                    assert!(file.exists());
                }
                Ok(report) => {
                    assert_eq!(report.output().outcome, ToolOutcome::Canceled, "{report:?}");
                    // The shell may have been ended between its last act and its exit.
                    let finished = report.exit == Some(Exit::Code(0));
                    assert!(!finished || file.exists(), "{report:?}");
                }
                Err(error) => assert!(matches!(error, BashError::Canceled(_)) && !file.exists(), "{error:?}"),
            }
        }
    });
}

#[test]
fn a_dropped_wait_abandons_nothing_but_the_wait() {
    session(async |session| {
        let call = session.call(input("sleep 0.3; touch finished"));
        let mut wait = Box::pin(session.bash.run(call));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(wait.as_mut().poll(cx).is_pending())).await;
        assert!(polled);
        drop(wait);
        session.until("the command finishes", || session.root.join("finished").exists()).await;
        session.until("the call is over", || session.processes.count() == 0).await;
    });
}

#[test]
fn a_cancel_before_the_start_starts_nothing() {
    session(async |session| {
        let (canceler, cancellation) = Canceler::new();
        canceler.cancel(CancelReason::Canceled);
        let mut call = session.call(input("touch ran"));
        call.cancellation = cancellation;
        let error = session.bash.run(call).await.unwrap_err();
        assert!(matches!(error, BashError::Canceled(CancelReason::Canceled)));
        assert_eq!(error.output().outcome, ToolOutcome::Canceled);
        assert!(!session.root.join("ran").exists());
        let mut bad = input("touch ran");
        bad.timeout_ms = Some(-1);
        assert!(matches!(session.run_input(bad).await, Err(BashError::InvalidTimeout(-1))));
    });
}

#[test]
fn leftovers_are_bounded_and_those_that_ended_make_room() {
    session(async |session| {
        let command = "touch stop-me; (until [ -e stop ]; do sleep 0.05; done) >/dev/null 2>&1 & ";
        for _ in 0..64 {
            assert!(!session.run(command).await.survivors.is_empty());
        }
        let refused = session.run_input(input("echo more")).await;
        assert!(matches!(refused, Err(BashError::TooManyProcesses)), "{refused:?}");
        std::fs::write(session.root.join("stop"), "").unwrap();
        let started = Instant::now();
        while session.run_input(input("true")).await.is_err() {
            assert!(started.elapsed() < Duration::from_secs(10), "ended leftovers make no room");
            session.pause(Duration::from_millis(20)).await;
        }
    });
}
