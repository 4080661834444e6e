//! One session with an empty home and an empty workspace, on a real runtime.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test program uses a part; a test panics on purpose

use std::future::Future;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bma_hands_posix::hands::bash::{Bash, BashCall, BashError, BashOptions, BashReport, SessionProcesses};
use bma_hands_posix::hands::env::EnvPolicy;
use bma_hands_posix::hands::os::Os;
use bma_hands_posix::hands::workspace::Workspace;
use bma_proto_core::contract::BashInput;
use bma_runtime::{CancelReason, Canceler, Runtime};

/// A session.
#[derive(Clone)]
pub struct Session {
    pub runtime: Arc<dyn Runtime>,
    pub os: Arc<dyn Os>,
    pub bash: Bash,
    pub workspace: Arc<Workspace>,
    pub processes: SessionProcesses,
    pub home: PathBuf,
    pub root: PathBuf,
}

/// Runs a test in a session, and proves that the session leaves nothing behind.
pub fn session<F: Future<Output = ()>>(test: impl FnOnce(Session) -> F) {
    session_on(crate::os(), |_| {}, test);
}

/// As [`session`], with a system and options of one's own.
pub fn session_on<F: Future<Output = ()>>(
    os: Arc<dyn Os>,
    change: impl FnOnce(&mut BashOptions),
    test: impl FnOnce(Session) -> F,
) {
    session_with(os, |runtime| runtime, change, true, test);
}

/// As [`session_on`], but it is no failure that something of the session lives on.
pub fn session_without_end<F: Future<Output = ()>>(os: Arc<dyn Os>, test: impl FnOnce(Session) -> F) {
    session_with(os, |runtime| runtime, |_| {}, false, test);
}

/// As [`session_on`], on a runtime that is wrapped.
pub fn session_with<F: Future<Output = ()>>(
    os: Arc<dyn Os>,
    wrap: impl FnOnce(Arc<dyn Runtime>) -> Arc<dyn Runtime>,
    change: impl FnOnce(&mut BashOptions),
    must_be_empty: bool,
    test: impl FnOnce(Session) -> F,
) {
    let home = tempfile::tempdir().unwrap();
    let root = tempfile::tempdir().unwrap();
    bma_runtime_tokio::run(|runtime| async {
        let runtime = wrap(runtime);
        let vars = [("HOME".to_owned(), home.path().to_str().unwrap().to_owned())];
        let mut options = BashOptions::new(EnvPolicy::inherit().fixed(vars).unwrap());
        change(&mut options);
        let session = Session {
            bash: Bash::new(runtime.clone(), os.clone(), options),
            runtime,
            os: os.clone(),
            workspace: Arc::new(Workspace::open(root.path()).unwrap()),
            processes: SessionProcesses::new(os.as_ref()),
            home: home.path().to_owned(),
            root: root.path().to_owned(),
        };
        test(session.clone()).await;
        let report = session.processes.end_all(&session.runtime, Duration::from_secs(10)).await;
        if must_be_empty {
            assert!(report.is_empty(), "{report:?}");
            assert_eq!(session.processes.count(), 0);
        }
    })
    .unwrap();
}

pub fn input(command: &str) -> BashInput {
    BashInput { command: command.to_owned(), ..BashInput::default() }
}

impl Session {
    pub fn call(&self, input: BashInput) -> BashCall {
        BashCall::new(input, self.workspace.clone(), self.processes.clone())
    }

    /// Runs a command that is expected to run.
    pub async fn run(&self, command: &str) -> BashReport {
        self.run_input(input(command)).await.unwrap()
    }

    pub async fn run_input(&self, input: BashInput) -> Result<BashReport, BashError> {
        self.bash.run(self.call(input)).await
    }

    /// Runs a command with a time-out.
    pub async fn run_for(&self, command: &str, timeout: Duration) -> BashReport {
        let mut input = input(command);
        input.timeout_ms = Some(timeout.as_millis().try_into().unwrap());
        self.run_input(input).await.unwrap()
    }

    /// Runs a command, and cancels it once it has made the file `ready`.
    pub async fn run_and_cancel(&self, command: &str) -> BashReport {
        let (canceler, cancellation) = Canceler::new();
        let mut call = self.call(input(command));
        call.cancellation = cancellation;
        let report = self.start(call);
        self.until("the command is under way", || self.root.join("ready").exists()).await;
        canceler.cancel(CancelReason::Canceled);
        report.await.unwrap()
    }

    /// Starts a call and returns its future.
    pub fn start(&self, call: BashCall) -> impl Future<Output = Result<BashReport, BashError>> + use<> {
        let (sender, receiver) = bma_runtime::sync::oneshot::channel();
        let bash = self.bash.clone();
        self.runtime.spawn(Box::pin(async move {
            let _ = sender.send(bash.run(call).await);
        }));
        async { receiver.await.unwrap() }
    }

    /// Waits for a condition, at most ten seconds.
    pub async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < Duration::from_secs(10), "waited in vain: {what}");
            self.pause(Duration::from_millis(5)).await;
        }
    }

    pub async fn pause(&self, duration: Duration) {
        let mut timer = self.runtime.timer();
        timer.set(Some(self.runtime.now() + duration));
        std::future::poll_fn(|cx| timer.poll_expired(cx)).await;
    }
}

pub fn stdout(report: &BashReport) -> String {
    String::from_utf8(report.stdout.kept()).unwrap()
}

pub fn stderr(report: &BashReport) -> String {
    String::from_utf8(report.stderr.kept()).unwrap()
}

pub fn text(report: &BashReport) -> String {
    report.output().joined_text()
}

/// A number of seconds to sleep that no other process of the system sleeps, to look for in the process table.
pub fn unique_seconds() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("600.{:07}{:03}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The living processes whose command line contains `text`, this one aside.
pub fn running(text: &str) -> Vec<u32> {
    let own = std::fs::read_link("/proc/self").expect("the test needs /proc to look for processes");
    assert_eq!(own.to_str(), Some(&*std::process::id().to_string()), "the test needs the /proc of its pid namespace");
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id: &u32| {
        // An empty command line is a zombie's.
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        *id != std::process::id() && line.windows(text.len()).any(|window| window == text.as_bytes())
    })
    .collect()
}

/// The state letter of a process, `None` when it is gone.
pub fn state(id: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// Whether a process runs, also where /proc does not show it, as it does not show a protected one under `hidepid`.
pub fn lives(id: u32) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let pid = rustix::process::Pid::from_raw(id.cast_signed()).unwrap();
    let Ok(process) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else { return false };
    // It is readable once the process has exited, reaped or not.
    rustix::event::poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&Timespec::default())) == Ok(0)
}

/// Waits for a condition, at most twenty seconds.
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// This test program, started anew by `env` with these options to run only the function `entry` of it.
pub fn start_entry(entry: &str, options: &[&str], arguments: &str) -> Child {
    Command::new("env")
        .args(options)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", entry, "--nocapture"])
        .env(ENTRY_VARIABLE, arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

const ENTRY_VARIABLE: &str = "BMA_TEST_ENTRY";

/// What [`start_entry`] passed. `None`: this is an ordinary run of the tests, and the function is nothing in it.
pub fn entry_arguments() -> Option<String> {
    std::env::var(ENTRY_VARIABLE).ok()
}

/// Runs the function `entry` of this test program in a process of its own, to its end.
pub fn run_entry(entry: &str, options: &[&str], arguments: &str) {
    let mut child = start_entry(entry, options, arguments);
    let mut output = String::new();
    child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert!(child.wait().unwrap().success(), "{output}");
}
