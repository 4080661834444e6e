//! A core whose brains are harnesses of their own, and proof that nothing of it is left.
#![allow(dead_code)] // each test program uses a part

use std::fmt;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bma_hands_posix::Posix;
use bma_hands_posix::hands::env::EnvPolicy;
use bma_hands_posix::hands::os::Os;
use bma_hands_posix::hands::{Core, CoreOptions};
use bma_runtime::proto::contract::{
    GrepInput, ReadInput, SessionAssignParams, ToolCallId, ToolOutcome, ToolResultParams, WriteInput,
};
use bma_runtime::proto::harness::CallError;
use bma_runtime::{CallToolOptions, Client, ClientOptions, Executor, HarnessOptions, Runtime, Session};
use bma_tests::exchange_suite::{Rig, assignment, eventually, options, within};
use bma_tests::support::logs;
use bma_tests::support::proxy::Proxy;

/// How long a case may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The variable that all children of a case bear.
const RUN_VARIABLE: &str = "CORE_TEST_RUN";

/// A result, or why there is none.
pub(crate) type Called = Result<Arc<ToolResultParams>, CallError>;

type ChangeCore = Box<dyn FnOnce(&mut CoreOptions, &Path)>;

/// What a case runs with.
pub(crate) struct Setup {
    os: Arc<dyn Os>,
    core: ChangeCore,
    harness: Box<dyn FnOnce(&mut HarnessOptions)>,
    by_proxy: bool,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("os", &self.os).finish_non_exhaustive()
    }
}

impl Setup {
    /// Programs are children of the test program.
    pub(crate) fn direct() -> Self {
        Self::on(Arc::new(Posix::direct()))
    }

    /// Programs are children of a keeper.
    #[cfg(target_os = "linux")]
    pub(crate) fn with_keeper() -> Self {
        let program = bma_hands_posix::keeper::KeeperProgram::at(env!("CARGO_BIN_EXE_bma-tests-keeper"));
        Self::on(Arc::new(Posix::with_keeper(program).unwrap()))
    }

    fn on(os: Arc<dyn Os>) -> Self {
        Self { os, core: Box::new(|_, _| ()), harness: Box::new(|_| ()), by_proxy: false }
    }

    /// Changes the core's options; told the case's folder.
    pub(crate) fn core(self, change: impl FnOnce(&mut CoreOptions, &Path) + 'static) -> Self {
        Self { core: Box::new(change), ..self }
    }

    /// Changes the first harness's options.
    pub(crate) fn harness(self, change: impl FnOnce(&mut HarnessOptions) + 'static) -> Self {
        Self { harness: Box::new(change), ..self }
    }

    /// The first brain is reached through a proxy.
    pub(crate) fn by_proxy(self) -> Self {
        Self { by_proxy: true, ..self }
    }

    /// Runs a case on worker threads.
    pub(crate) fn run(self, case: impl AsyncFnOnce(&Hands)) {
        bma_runtime_tokio::run(|runtime| self.run_on(runtime, case)).unwrap();
    }

    /// Runs a case on a runtime of one's own.
    pub(crate) async fn run_on(self, runtime: Arc<dyn Runtime>, case: impl AsyncFnOnce(&Hands)) {
        logs::record();
        let rig = Rig::with(Arc::clone(&runtime), self.harness).await;
        let folder = tempfile::tempdir().unwrap();
        // The name by which answers spell it.
        let base = folder.path().canonicalize().unwrap();
        let home = base.join("home");
        std::fs::create_dir(&home).unwrap();
        let marker = unique();
        let mut core_options = CoreOptions::new(base.join("work"));
        // An account's profile is slow; an empty home has none.
        let fixed = [("HOME", home.to_str().unwrap().to_owned()), (RUN_VARIABLE, marker.clone())];
        let fixed = fixed.map(|(name, value)| (name.to_owned(), value));
        core_options.env = EnvPolicy::inherit().fixed(fixed).unwrap();
        (self.core)(&mut core_options, &base);
        let core = Core::new(Arc::clone(&rig.runtime), self.os, core_options).unwrap();
        let proxy = self.by_proxy.then(|| rig.proxy());
        let client = match &proxy {
            Some(proxy) => rig.client_by(proxy),
            None => rig.client(),
        };
        core.attach("cloud", &client).unwrap();
        let executor = rig.join(&client).await;
        let hands = Hands { runtime, core, client, executor, proxy, rig, base, marker, others: Mutex::default() };
        let done = within(&hands.runtime, PATIENCE, case(&hands)).await;
        done.expect("the case is over in time");
        hands.finish().await;
    }
}

/// A core with the brain `cloud`, which is joined.
pub(crate) struct Hands {
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) core: Core,
    pub(crate) client: Client,
    pub(crate) executor: Executor,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) rig: Rig,
    /// The case's folder: `work` and `home` are in it.
    pub(crate) base: PathBuf,
    marker: String,
    others: Mutex<Vec<Rig>>,
}

impl Hands {
    /// Another brain of the same core: a harness and a client of its own.
    pub(crate) async fn other_brain(&self, name: &str) -> Executor {
        let rig = Rig::new(Arc::clone(&self.runtime)).await;
        let client = rig.client_of(client_options(&rig));
        self.core.attach(name, &client).unwrap();
        let executor = rig.join(&client).await;
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(rig);
        executor
    }

    /// A session of the brain `cloud` that is ready.
    pub(crate) async fn session(&self, id: &str) -> Session {
        open(&self.executor, assignment(id)).await.unwrap()
    }

    /// The workspace of a session of the brain `cloud` whose id is a plain name.
    pub(crate) fn workspace(&self, id: &str) -> PathBuf {
        self.base.join("work/cloud").join(id)
    }

    /// The living processes of this case, the keeper aside.
    pub(crate) fn processes(&self) -> Vec<String> {
        processes_with(&format!("{RUN_VARIABLE}={}", self.marker))
    }

    /// Waits for a condition that nobody announces.
    pub(crate) async fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        eventually(&self.runtime, what, holds).await;
    }

    /// Runs a future in a task of its own.
    pub(crate) fn start<T, F>(&self, future: F) -> impl Future<Output = T> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (sender, receiver) = bma_runtime::sync::oneshot::channel();
        self.runtime.spawn(Box::pin(async move {
            let _ = sender.send(future.await);
        }));
        async move { receiver.await.expect("the task came to its end") }
    }

    /// Starts a command and waits until it has made the file `started` in its workspace, which its text must do.
    pub(crate) async fn start_bash(
        &self,
        session: &Session,
        call: CallToolOptions,
        command: &str,
    ) -> impl Future<Output = Called> + Send + 'static + use<> {
        let started = self.workspace(session.id().as_str()).join("started");
        let (session, command) = (session.clone(), command.to_owned());
        let running = self.start(async move { session.tools().with(call).bash(input(&command)).await });
        self.until("the command is under way", || started.exists()).await;
        running
    }

    /// Ends everything, and fails when something is left.
    async fn finish(self) {
        let Hands { core, client, executor, proxy, rig, base, marker, others, .. } = self;
        drop((client, executor));
        for rig in others.into_inner().unwrap_or_else(PoisonError::into_inner) {
            rig.finish().await;
        }
        // A client that nobody lets through could not say goodbye.
        if let Some(proxy) = &proxy {
            proxy.refuse(false);
        }
        rig.finish().await;
        assert_eq!(core.session_count(), 0, "the clients' ends ended all sessions");
        assert!(core.close().await);
        let left = processes_with(&format!("{RUN_VARIABLE}={marker}"));
        assert!(left.is_empty(), "left behind: {left:?}");
        std::fs::remove_dir_all(base).unwrap();
    }
}

fn client_options(rig: &Rig) -> ClientOptions {
    options("machine", &rig.url(), &rig.token)
}

/// Assigns a session and waits until it is ready.
pub(crate) async fn open(executor: &Executor, params: SessionAssignParams) -> Result<Session, CallError> {
    let session = executor.assign(params).await?;
    session.ready().await?;
    Ok(session)
}

/// A text that no other case has, in this run or another one at the same time.
fn unique() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The living processes that have this in their environment.
#[cfg(target_os = "linux")]
fn processes_with(variable: &str) -> Vec<String> {
    let has_it = |path: &Path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").unwrap().filter_map(|entry| Some(entry.ok()?.path()));
    let named = |path: PathBuf| std::fs::read_to_string(path.join("comm")).unwrap_or_default().trim().to_owned();
    entries.filter(|path| has_it(path)).map(named).collect()
}

/// Elsewhere the system shows no environment of others: the cases look at what their commands do.
#[cfg(not(target_os = "linux"))]
fn processes_with(_: &str) -> Vec<String> {
    Vec::new()
}

/// The input of a command.
pub(crate) use bma_tests::exchange_suite::command as input;

/// A call with an id of its own.
pub(crate) fn call(id: &str) -> CallToolOptions {
    CallToolOptions { tool_call_id: ToolCallId::from(id), ..CallToolOptions::default() }
}

/// A call that may take this long.
pub(crate) fn call_within(milliseconds: i64) -> CallToolOptions {
    CallToolOptions { deadline_ms: Some(milliseconds), ..CallToolOptions::default() }
}

/// What a brain sees of a result: outcome, `is_error`, text.
#[track_caller]
pub(crate) fn seen(called: Called) -> (ToolOutcome, bool, String) {
    let result = called.unwrap();
    (result.outcome.clone(), result.is_error, text(&result))
}

/// The text of a result.
pub(crate) fn text(result: &ToolResultParams) -> String {
    bma_tests::exchange_suite::text(result)
}

/// The text of a result that must be a success.
#[track_caller]
pub(crate) fn good(called: Called) -> String {
    let (outcome, is_error, text) = seen(called);
    assert_eq!((outcome, is_error), (ToolOutcome::Succeeded, false), "{text}");
    text
}

/// The text of a result that tells the model of an error.
#[track_caller]
pub(crate) fn bad(called: Called) -> String {
    let (outcome, is_error, text) = seen(called);
    assert_eq!((outcome, is_error), (ToolOutcome::Succeeded, true), "{text}");
    text
}

/// The text of a result that must be canceled.
#[track_caller]
pub(crate) fn canceled(called: Called) -> String {
    let (outcome, is_error, text) = seen(called);
    assert_eq!((outcome, is_error), (ToolOutcome::Canceled, true), "{text}");
    text
}

pub(crate) fn read(path: &str) -> ReadInput {
    ReadInput { path: path.into(), offset: None, limit: None }
}

pub(crate) fn write(path: &str, content: &str) -> WriteInput {
    WriteInput { path: path.into(), content: content.into() }
}

/// A search that takes a while: much text, and a pattern that looks at every byte of it and finds nothing.
pub(crate) fn long_grep(workspace: &Path) -> GrepInput {
    let text = workspace.join("long/0.txt");
    std::fs::create_dir_all(workspace.join("long")).unwrap();
    // One file by many names: 3 GB to search, 8 MB on disk.
    std::fs::write(&text, format!("{}\n", "ab ".repeat(25)).repeat(100_000)).unwrap();
    for number in 1..400 {
        std::fs::hard_link(&text, workspace.join(format!("long/{number}.txt"))).unwrap();
    }
    GrepInput { pattern: "(a|b|ab)+[0-9]".into(), path: Some("long".into()), glob: None }
}
