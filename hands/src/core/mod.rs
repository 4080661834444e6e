//! The execution core: sessions of any number of brains, and the tools that serve them.

mod options;
mod session;
mod tools;
mod turns;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bma_proto_core::contract::{ErrorCode, ErrorReason, JSONRPCError, SessionAssignParams, SessionId};
use bma_runtime::sync::oneshot;
use bma_runtime::{Client, HandlerTaken, Runtime, SessionStop, WeakClient};

use crate::bash::{Bash, BashOptions};
use crate::blocking::blocking;
use crate::os::Os;

pub use options::{CoreOptions, EndAfterToolCall, WorkspaceFor};
pub use session::CoreSession;

/// How long a session's processes may take to end when the harness names no time.
const END_WITHIN: Duration = Duration::from_secs(15);

/// What is left of the time that a harness names for the answer itself to get there.
const ANSWER_ALLOWANCE: Duration = Duration::from_millis(500);

/// The hands of a machine: attach it to one [`Client`] for each brain.
///
/// Sessions are keyed by (brain, session id): two brains may use the same id
/// without seeing each other, and a request reaches only sessions that its own
/// brain assigned. Each has a workspace and processes of its own; capacity is
/// shared. `bash` is no sandbox: every brain runs as the user of this program.
///
/// A cheap clone; all clones are the same core.
#[derive(Clone)]
pub struct Core {
    shared: Arc<Shared>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("sessions", &self.shared.sessions().len()).finish_non_exhaustive()
    }
}

type Key = (Arc<str>, SessionId);

struct Shared {
    runtime: Arc<dyn Runtime>,
    os: Arc<dyn Os>,
    options: CoreOptions,
    bash: Bash,
    /// Who is attached. One whose client has ended is forgotten when the next one comes.
    brains: Mutex<BTreeMap<Arc<str>, WeakClient>>,
    sessions: Mutex<BTreeMap<Key, Slot>>,
    assignments: AtomicU64,
}

/// A place in the capacity: taken before the set-up begins.
enum Slot {
    /// By the assignment of this number: a later one for the same id is another.
    SettingUp(u64),
    Open(Arc<CoreSession>),
}

/// A core cannot be made, or attached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoreError {
    /// The work root cannot be made or is no directory.
    #[error("work root {}: {source}; choose a directory that this user can write", path.display())]
    WorkRoot {
        /// The path as given.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A brain of this name is attached already.
    #[error("brain {0:?} is attached already: give each brain a name of its own")]
    DuplicateBrain(String),
    /// The client has a handler of its own for what the core decides.
    #[error("{0}: attach the core to a client without one")]
    Handler(#[from] HandlerTaken),
    /// A limit that makes no sense.
    #[error("{field}: {problem}")]
    Option {
        /// The option.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Core {
    /// Checks the options and makes the work root.
    ///
    /// # Errors
    /// [`CoreError`].
    pub fn new(runtime: Arc<dyn Runtime>, os: Arc<dyn Os>, options: CoreOptions) -> Result<Self, CoreError> {
        let options = options.checked()?;
        let mut bash = BashOptions::new(options.env.clone());
        bash.timeout = options.bash_timeout;
        bash.max_output_bytes = options.max_output_bytes;
        bash.launch = options.launch.clone();
        let bash = Bash::new(Arc::clone(&runtime), Arc::clone(&os), bash);
        Ok(Self {
            shared: Arc::new(Shared {
                runtime,
                os,
                options,
                bash,
                brains: Mutex::default(),
                sessions: Mutex::new(BTreeMap::new()),
                assignments: AtomicU64::new(0),
            }),
        })
    }

    /// Serves one brain on `client`: its sessions, and the seven tools in them.
    /// Call it before [`Client::start`]. `brain` names the harness, such as
    /// `cloud` or `local`, and is part of its sessions' paths. The name is free
    /// again when the client has ended, or nobody holds it any more.
    ///
    /// The core decides about the client's sessions, ends them, and hears of
    /// finished calls: leave `on_session_assign`, `on_session_stop` and
    /// `on_tool_call_finished` of this client to it.
    ///
    /// # Errors
    /// [`CoreError::DuplicateBrain`], and [`CoreError::Handler`] when the client has such a handler
    /// already. Nothing was changed then.
    pub fn attach(&self, brain: &str, client: &Client) -> Result<(), CoreError> {
        let brain: Arc<str> = brain.into();
        let mut brains = self.shared.brains.lock().unwrap_or_else(PoisonError::into_inner);
        brains.retain(|_, client| client.upgrade().is_some_and(|client| client.end_state().is_none()));
        if brains.contains_key(&brain) {
            return Err(CoreError::DuplicateBrain(brain.to_string()));
        }
        let (shared, owner) = (Arc::clone(&self.shared), Arc::clone(&brain));
        let assign = move |params| {
            let (shared, brain) = (Arc::clone(&shared), Arc::clone(&owner));
            async move { shared.assign(brain, params).await.map(|()| true) }
        };
        let (shared, owner) = (Arc::clone(&self.shared), Arc::clone(&brain));
        let stop = move |stop: SessionStop| {
            let (shared, brain) = (Arc::clone(&shared), Arc::clone(&owner));
            async move { shared.stop((brain, stop.session_id), stop.within).await }
        };
        client.on_sessions(assign, stop)?;
        brains.insert(Arc::clone(&brain), client.downgrade());
        drop(brains);
        tools::serve(&self.shared, &brain, client);
        Ok(())
    }

    /// Ends every session of every brain, and everything of them. Nothing is
    /// reported to the harnesses: stop the clients first. True when all is gone.
    pub async fn close(&self) -> bool {
        let keys: Vec<Key> = self.shared.sessions().keys().cloned().collect();
        // Side by side: each may take its whole time.
        let stopping: Vec<_> = keys
            .into_iter()
            .map(|key| {
                let (sender, stopped) = oneshot::channel();
                let shared = Arc::clone(&self.shared);
                self.shared.runtime.spawn(Box::pin(async move {
                    // Nobody may be waiting any more.
                    let _ = sender.send(shared.stop(key, None).await);
                }));
                stopped
            })
            .collect();
        let mut all_gone = true;
        for stopped in stopping {
            // Without an answer the runtime has ended, and it is not known.
            all_gone &= stopped.await.unwrap_or(false);
        }
        all_gone
    }

    /// An open session.
    pub fn session(&self, brain: &str, session_id: &SessionId) -> Option<Arc<CoreSession>> {
        self.shared.session(&(brain.into(), session_id.clone()))
    }

    /// How many sessions are open.
    pub fn session_count(&self) -> usize {
        self.shared.sessions().len()
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, BTreeMap<Key, Slot>> {
        // Nothing under the lock is left half done by a panic.
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self, key: &Key) -> Option<Arc<CoreSession>> {
        match self.sessions().get(key) {
            Some(Slot::Open(session)) => Some(Arc::clone(session)),
            Some(Slot::SettingUp(_)) | None => None,
        }
    }

    /// Takes a place, if there is one.
    fn reserve<'s>(&'s self, key: &'s Key) -> Result<Place<'s>, JSONRPCError> {
        let mut sessions = self.sessions();
        let busy = |message: String| Err(ErrorCode::ExecutorBusy.error(message).with_retryable(true));
        let of_brain = sessions.keys().filter(|(brain, _)| *brain == key.0).count();
        let max_per_brain = self.options.max_sessions_per_brain.unwrap_or(self.options.max_sessions);
        if sessions.contains_key(key) {
            return Err(ErrorCode::Conflict.error(format!("session {} is open here already", key.1)));
        }
        if sessions.len() >= self.options.max_sessions {
            return busy(format!("all {} sessions of this machine are taken", sessions.len()));
        }
        if of_brain >= max_per_brain {
            return busy(format!("all {of_brain} sessions for this brain are taken"));
        }
        let number = self.assignments.fetch_add(1, Ordering::Relaxed);
        sessions.insert(key.clone(), Slot::SettingUp(number));
        Ok(Place { shared: self, key, number })
    }

    async fn assign(self: &Arc<Self>, brain: Arc<str>, params: SessionAssignParams) -> Result<(), JSONRPCError> {
        if params
            .mcp_servers
            .iter()
            .any(|server| server.connection_origin == bma_proto_core::contract::McpConnectionOrigin::Environment)
        {
            let message = "this executor does not run MCP servers: assign the session without them";
            return Err(ErrorCode::CapabilityUnavailable.error(message).with_capability("mcp.stdio"));
        }
        let key = (brain, params.session_id.clone());
        let place = self.reserve(&key)?;
        let (shared, owner) = (Arc::clone(self), Arc::clone(&key.0));
        let opened = blocking(&self.runtime, move || session::open(&shared.options, shared.os.as_ref(), owner, params));
        match opened.await {
            Ok(Ok(session)) => place.fill(session),
            Ok(Err(error)) => {
                let error = ErrorCode::ResourceUnavailable.error(format!("the workspace cannot be opened: {error}"));
                Err(error.with_reason(ErrorReason::WorkspaceUnavailable))
            }
            Err(ended) => Err(ErrorCode::InternalError.error(ended.to_string())),
        }
    }

    /// Ends everything of a session and frees its place. False when something could not be ended.
    async fn stop(&self, key: Key, within: Option<Duration>) -> bool {
        let Some(session) = self.session(&key) else {
            self.sessions().remove(&key);
            return true;
        };
        let limit = within.map_or(END_WITHIN, |within| within.saturating_sub(ANSWER_ALLOWANCE));
        let report = session.processes.end_all(&self.runtime, limit).await;
        if let Some(left) = report.describe() {
            tracing::error!(session_id = %key.1, %left, "a session's processes could not all be ended");
        }
        let mut sessions = self.sessions();
        // Another stop may have been faster, and the id taken again since.
        if matches!(sessions.get(&key), Some(Slot::Open(open)) if Arc::ptr_eq(open, &session)) {
            sessions.remove(&key);
        }
        report.is_empty()
    }
}

/// A place that an assignment has taken. Unless it is filled, it is given back, also when the assignment is given up
/// in the midst of its set-up.
struct Place<'s> {
    shared: &'s Shared,
    key: &'s Key,
    number: u64,
}

impl Place<'_> {
    fn fill(self, session: CoreSession) -> Result<(), JSONRPCError> {
        let mut sessions = self.shared.sessions();
        match sessions.get_mut(self.key) {
            Some(slot) if self.owns(slot) => {
                *slot = Slot::Open(Arc::new(session));
                Ok(())
            }
            // It was stopped while it was set up: the place is gone, or another one's.
            Some(_) | None => Err(ErrorCode::Canceled.error("the session was stopped while it was set up")),
        }
    }

    fn owns(&self, slot: &Slot) -> bool {
        matches!(slot, Slot::SettingUp(number) if *number == self.number)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut sessions = self.shared.sessions();
        if sessions.get(self.key).is_some_and(|slot| self.owns(slot)) {
            sessions.remove(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use std::ffi::OsString;
    use std::future::Future as _;
    use std::path::Path;
    use std::task::{Context, Poll, Waker};

    use super::*;
    use crate::os::{Directory, Mark, Processes, SpawnError, SpawnRequest, Spawned};

    /// A system that starts nothing.
    #[derive(Debug)]
    struct Idle;

    impl Os for Idle {
        fn shell(&self) -> &str {
            "sh"
        }
        fn shell_argv(&self, _: &str) -> Vec<OsString> {
            Vec::new()
        }
        fn max_command_bytes(&self) -> usize {
            0
        }
        fn open_directory(&self, _: &Path) -> Result<Directory, SpawnError> {
            Err(SpawnError::NoCommand)
        }
        fn spawn(&self, _: SpawnRequest) -> Result<Spawned, SpawnError> {
            Err(SpawnError::NoCommand)
        }
        fn new_mark(&self) -> io::Result<Mark> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn marked(&self, _: &Mark) -> Arc<dyn Processes> {
            unreachable!("there are no marks")
        }
    }

    #[test]
    fn an_assignment_that_is_given_up_gives_its_place_back() {
        let folder = tempfile::tempdir().unwrap();
        bma_runtime_tokio::run(|runtime| async move {
            let mut options = CoreOptions::new(folder.path());
            options.max_sessions = 1;
            let core = Core::new(runtime, Arc::new(Idle), options).unwrap();
            let params = || SessionAssignParams { session_id: "s".into(), ..SessionAssignParams::default() };
            let brain: Arc<str> = "cloud".into();
            for _ in 0..20 {
                // At work on another thread, and nobody asks for it any more.
                let mut assigning = Box::pin(core.shared.assign(Arc::clone(&brain), params()));
                let polled = assigning.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if polled == Poll::Ready(Ok(())) {
                    assert!(core.shared.stop((Arc::clone(&brain), "s".into()), None).await);
                    continue;
                }
                assert_eq!(core.session_count(), 1);
                drop(assigning);
                assert_eq!(core.session_count(), 0);
            }
            core.shared.assign(Arc::clone(&brain), params()).await.unwrap();
            let refused = core.shared.assign(Arc::clone(&brain), params()).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::Conflict.number());
            assert!(core.close().await);
            assert_eq!(core.session_count(), 0);
        })
        .unwrap();
    }
}
