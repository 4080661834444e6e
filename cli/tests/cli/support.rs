//! Running `bma`, waiting for what it says, and seeing what it leaves.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Nothing that a test waits for takes longer, on a machine that is very busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The program.
const BMA: &str = env!("CARGO_BIN_EXE_bma");

/// The token of every test that does not say otherwise.
pub(crate) const TOKEN: &str = "s3cret-t0ken-of-the-test";

/// A test's own place: an empty home, a folder for workspaces, a token file, and a mark by which the
/// processes that the test has caused are found.
pub(crate) struct Place {
    folder: TempDir,
    mark: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let place = Self { folder: tempfile::Builder::new().prefix("bma-cli-test-").tempdir().unwrap(), mark };
        for folder in ["home", "tmp"] {
            std::fs::create_dir(place.path(folder)).unwrap();
        }
        place.write_private("token", TOKEN);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same as text, for arguments.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A file that only its owner can read.
    pub(crate) fn write_private(&self, name: &str, content: &str) {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(self.path(name)).unwrap();
        file.write_all(content.as_bytes()).unwrap();
    }

    /// `bma` with these arguments, in the test's own surroundings.
    pub(crate) fn bma(&self, arguments: &[&str]) -> Command {
        self.command(BMA, arguments)
    }

    /// Any program in the test's own surroundings, in which `bma` is on the path.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).env("CLI_TEST_MARK", &self.mark);
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp")).env_remove("XDG_STATE_HOME");
        for variable in ["BMA_URL", "BMA_TOKEN", "BMA_LOG"] {
            command.env_remove(variable);
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = Path::new(BMA).parent().map(Path::to_owned);
        command.env("PATH", std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path))).unwrap());
        command
    }

    /// Hands for the harness at `url`.
    pub(crate) fn hand(&self, url: &str) -> Running {
        Running::start(self.bma(&["hand", "--url", url, "--token-file", &self.text("token"), "--name", "testhand"]))
    }

    /// `bma call` on a free port. With its URL.
    pub(crate) fn call(&self, arguments: &[&str]) -> (Running, String) {
        let token = self.text("token");
        let common = ["call", "--listen", "127.0.0.1:0", "--token-file", &token];
        let call = Running::start(self.bma(&[&common, arguments].concat()));
        let url = call.listening();
        (call, url)
    }

    /// Calls a tool on hands that come and go for it, and gives what `bma call` said.
    pub(crate) fn call_once(&self, arguments: &[&str]) -> Ended {
        let (call, url) = self.call(arguments);
        let hand = self.hand(&url);
        let ended = call.end();
        hand.signal("TERM");
        assert_eq!(hand.end().code(), Some(0));
        ended
    }

    /// The processes that this test has caused and that still run.
    pub(crate) fn processes(&self) -> Vec<String> {
        let mark = format!("CLI_TEST_MARK={}", self.mark);
        let of_mark = |process: &Process| process.environment.split('\0').any(|variable| variable == mark);
        processes().into_iter().filter(of_mark).map(|process| process.command_line).collect()
    }

    /// Waits until none runs any more.
    pub(crate) fn assert_nothing_runs(&self) {
        eventually("no process is left", || {
            let left = self.processes();
            if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
        });
    }
}

/// A process as the system shows it.
pub(crate) struct Process {
    pub(crate) environment: String,
    pub(crate) command_line: String,
}

/// Every process that can be looked at.
pub(crate) fn processes() -> Vec<Process> {
    let read = |path: PathBuf| std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    entries
        .filter_map(|entry| {
            let environment = read(entry.path().join("environ"))?;
            let command_line = read(entry.path().join("cmdline"))?.replace('\0', " ");
            Some(Process { environment, command_line })
        })
        .collect()
}

/// Waits until something holds that nothing announces.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> Result<(), String>) {
    let limit = Instant::now() + PATIENCE;
    while let Err(instead) = holds() {
        assert!(Instant::now() < limit, "not in time: {what}; instead: {instead}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A `bma` that runs. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

/// A `bma` that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Everything that it said.
    pub(crate) fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Fails with everything it said unless this was its exit code.
    pub(crate) fn expect_code(&self, code: i32) {
        assert_eq!(self.code(), Some(code), "{}", self.said());
    }
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        let stdin = child.stdin.take();
        Self { child, stdin, stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The URL of its `LISTEN` line.
    pub(crate) fn listening(&self) -> String {
        let line = self.stderr.wait_for(|line| line.starts_with("LISTEN "));
        line.strip_prefix("LISTEN ").unwrap().to_owned()
    }

    /// Writes a line to its stdin.
    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n")).unwrap();
    }

    /// Ends its stdin.
    pub(crate) fn end_input(&mut self) {
        self.stdin = None;
    }

    /// Sends it a signal: `INT`, `TERM`, `KILL`.
    pub(crate) fn signal(&self, signal: &str) {
        // The child is not reaped before `end`: its id means nobody else.
        let sent = Command::new("kill").args(["-s", signal, &self.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        self.stdin = None;
        let limit = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > limit {
                panic!("it does not end; it said: {}{}", self.stdout.so_far(), self.stderr.so_far());
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        Ended { status, stdout: self.stdout.all(), stderr: self.stderr.all() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already in a test that succeeds.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What comes out of a pipe, line by line.
pub(crate) struct Lines {
    shared: Arc<(Mutex<Seen>, Condvar)>,
}

#[derive(Default)]
struct Seen {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn of(pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Seen::default()), Condvar::new()));
        let reading = Arc::clone(&shared);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                let Ok(line) = line else { break };
                reading.0.lock().unwrap().lines.push(line);
                reading.1.notify_all();
            }
            reading.0.lock().unwrap().ended = true;
            reading.1.notify_all();
        });
        Self { shared }
    }

    /// The first line that is wanted, whether it has come already or not.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&str) -> bool) -> String {
        self.wait_for_count(1, wanted)
    }

    /// The last of so many lines that are wanted.
    pub(crate) fn wait_for_count(&self, count: usize, wanted: impl Fn(&str) -> bool) -> String {
        let limit = Instant::now() + PATIENCE;
        let mut read = self.shared.0.lock().unwrap();
        loop {
            if let Some(line) = read.lines.iter().filter(|line| wanted(line)).nth(count - 1) {
                return line.clone();
            }
            let left = limit.saturating_duration_since(Instant::now());
            assert!(!read.ended && !left.is_zero(), "the line does not come; there are:\n{}", read.lines.join("\n"));
            read = self.shared.1.wait_timeout(read, left).unwrap().0;
        }
    }

    /// As [`wait_for`](Self::wait_for), for a line that holds a text.
    pub(crate) fn wait_for_text(&self, text: &str) -> String {
        self.wait_for(|line| line.contains(text))
    }

    fn so_far(&self) -> String {
        self.shared.0.lock().unwrap().lines.join("\n")
    }

    /// Everything, up to the end.
    fn all(&self) -> String {
        let limit = Instant::now() + PATIENCE;
        let mut read = self.shared.0.lock().unwrap();
        while !read.ended {
            let left = limit.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "somebody holds the pipe open");
            read = self.shared.1.wait_timeout(read, left).unwrap().0;
        }
        read.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}

/// Whether somebody listens at a `ws://` URL of this machine.
pub(crate) fn is_listening(url: &str) -> bool {
    let address = url.strip_prefix("ws://").unwrap().trim_end_matches('/');
    std::net::TcpStream::connect(address).is_ok()
}

/// The only file or folder in a folder.
pub(crate) fn only_entry(folder: &Path) -> PathBuf {
    let entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries[0].clone()
}
