//! The executors that lines can name, and what they report.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bma_runtime_tokio::proto::contract::{
    AnyParams, Capabilities, ErrorCode, ExecutorId, ExecutorInfo, ProcessStatusParams, ProtocolVersion, SessionId,
    SessionStatusParams, ToolProgressParams,
};
use bma_runtime_tokio::sync;
use bma_runtime_tokio::{Executor, ExecutorEvent, Harness, HarnessEvent, Session};
use serde::Serialize;
use tokio::task::{AbortHandle, JoinHandle};

use super::answer::{Fault, Out};

/// The executors whose coming was told. A cheap clone.
#[derive(Clone)]
pub(crate) struct Roster {
    shared: Arc<Shared>,
}

struct Shared {
    harness: Harness,
    out: Out,
    known: Mutex<BTreeMap<ExecutorId, Known>>,
    comings: Mutex<Option<AbortHandle>>,
    /// Set once nobody can come back.
    no_return: AtomicBool,
    /// Set once the brain ends: what waits to be told is told, and nothing that comes later.
    ending: sync::StateCell<bool>,
}

/// An executor, and the task that tells what it reports.
struct Known {
    executor: Executor,
    reports: Option<JoinHandle<()>>,
}

/// What lines say of an executor.
#[derive(Serialize)]
pub(crate) struct Description {
    executor: ExecutorId,
    connected: bool,
    #[serde(flatten)]
    info: ExecutorInfo,
    protocol: ProtocolVersion,
    sessions: Vec<SessionId>,
    capabilities: Capabilities,
}

impl Description {
    pub(crate) fn of(executor: &Executor) -> Self {
        Self {
            executor: executor.id().clone(),
            connected: executor.is_connected(),
            info: executor.info(),
            protocol: executor.protocol(),
            sessions: executor.session_ids(),
            capabilities: executor.capabilities(),
        }
    }
}

impl Roster {
    /// Tells of the harness's comings and goings, all of which are in `events`.
    pub(crate) fn start(harness: Harness, mut events: sync::Events<HarnessEvent>, out: Out) -> Self {
        let shared = Shared {
            harness,
            out,
            known: Mutex::default(),
            comings: Mutex::default(),
            no_return: AtomicBool::new(false),
            ending: sync::StateCell::new(false),
        };
        let roster = Self { shared: Arc::new(shared) };
        let comings = {
            let roster = roster.clone();
            tokio::spawn(async move {
                while let Some(event) = events.next().await {
                    roster.tell(event).await;
                }
            })
        };
        *roster.shared.comings.lock().unwrap_or_else(PoisonError::into_inner) = Some(comings.abort_handle());
        roster
    }

    /// Ends the executors that are away, and from now on each that goes: their calls are answered at once. For when
    /// nobody listens any more, so that none of them can come back.
    pub(crate) async fn give_up_those_away(&self) {
        self.shared.no_return.store(true, Ordering::SeqCst);
        for executor in self.all() {
            give_up_if_away(&executor).await;
        }
    }

    /// Tells what there is to tell, and of nothing that comes later.
    pub(crate) async fn finish(&self) {
        let comings = self.shared.comings.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(comings) = comings {
            comings.abort();
        }
        self.shared.ending.replace(true);
        let known = std::mem::take(&mut *self.known());
        for reports in known.into_values().filter_map(|known| known.reports) {
            // It ends by itself, once its last lines are taken.
            let _ = reports.await;
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<ExecutorId, Known>> {
        // A map is whole at every step.
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every executor.
    pub(crate) fn all(&self) -> Vec<Executor> {
        self.known().values().map(|known| known.executor.clone()).collect()
    }

    /// Every session on an executor that can be reached.
    pub(crate) fn sessions(&self) -> Vec<Session> {
        let connected = self.all().into_iter().filter(Executor::is_connected);
        connected.flat_map(|executor| sessions_of(&executor)).collect()
    }

    /// The executor that a line names; without a name the one that is connected first.
    pub(crate) fn executor(&self, named: Option<&ExecutorId>) -> Result<Executor, Fault> {
        let found = match named {
            Some(id) => self.known().get(id).map(|known| known.executor.clone()),
            None => self.all().into_iter().find(Executor::is_connected),
        };
        found.ok_or_else(|| match named {
            Some(id) => Fault::new(ErrorCode::NotFound, format!("`executor`: {:?} is not registered", id.as_str())),
            None => Fault::unavailable("no_executor", "no executor is connected: wait for executor.registered"),
        })
    }

    /// The executors that a line means which may name one, or all of them.
    pub(crate) fn executors(&self, named: Option<&ExecutorId>) -> Result<Vec<Executor>, Fault> {
        match named {
            Some(_) => self.executor(named).map(|executor| vec![executor]),
            None => Ok(self.all()),
        }
    }

    /// The session that a line names. One on an executor that is connected goes before one of the same id that
    /// only waits for its executor to come back: that of a machine which was killed and started again.
    pub(crate) fn session(&self, named: Option<&ExecutorId>, session_id: &SessionId) -> Result<Session, Fault> {
        let executors = self.executors(named)?;
        let bound =
            executors.iter().filter_map(|executor| Some((executor.session(session_id)?, executor.is_connected())));
        let (connected, away): (Vec<_>, Vec<_>) = bound.partition(|(_, is_connected)| *is_connected);
        let mut candidates = if connected.is_empty() { away } else { connected };
        match (candidates.pop(), candidates.is_empty()) {
            (Some((session, _)), true) => Ok(session),
            (Some(_), false) => {
                let message = format!("session {session_id} is bound on several executors: name one, `executor`");
                Err(Fault::new(ErrorCode::Conflict, message))
            }
            (None, _) => {
                let message = format!("session {session_id} is bound on no executor: assign it first");
                Err(Fault::new(ErrorCode::SessionNotActive, message))
            }
        }
    }

    async fn tell(&self, event: sync::Event<HarnessEvent>) {
        match event {
            sync::Event::Item(HarnessEvent::Registered { executor, resumed }) => self.came(executor, resumed).await,
            sync::Event::Item(HarnessEvent::Disconnected(executor)) => {
                self.shared.out.event("executor.disconnected", &Of { executor: executor.id() }).await;
                if self.shared.no_return.load(Ordering::SeqCst) {
                    give_up_if_away(&executor).await;
                }
            }
            sync::Event::Item(HarnessEvent::Gone { executor, gone }) => {
                let known = self.known().remove(executor.id());
                if let Some(reports) = known.and_then(|known| known.reports) {
                    // What it reported last is told first.
                    let _ = reports.await;
                }
                let reason = Reason { reason: gone.to_string() };
                self.shared.out.event("executor.gone", &With { executor: executor.id(), what: reason }).await;
            }
            sync::Event::Item(_) => {}
            sync::Event::Lagged(lost) => {
                self.shared.out.event("lagged", &Lagged { executor: None, lost }).await;
                self.catch_up().await;
            }
        }
    }

    async fn came(&self, executor: Executor, resumed: bool) {
        let id = executor.id().clone();
        // One that comes back is the same, and is listened to still.
        let is_new = !self.known().contains_key(&id);
        let events = is_new.then(|| executor.events());
        if is_new {
            // Before its coming is told: the answer to that may name it.
            self.known().insert(id.clone(), Known { executor: executor.clone(), reports: None });
        }
        let came = Came { resumed, executor: Description::of(&executor) };
        self.shared.out.event("executor.registered", &came).await;
        if let Some(events) = events {
            let reports = tokio::spawn(report_all(self.clone(), executor, events));
            if let Some(known) = self.known().get_mut(&id) {
                known.reports = Some(reports);
            }
        }
    }

    /// After comings or goings that were lost.
    async fn catch_up(&self) {
        let present: BTreeMap<ExecutorId, Executor> =
            self.shared.harness.executors().into_iter().map(|executor| (executor.id().clone(), executor)).collect();
        self.known().retain(|id, _| present.contains_key(id));
        for (id, executor) in present {
            let known = self.known().contains_key(&id);
            if !known {
                self.came(executor, false).await;
            }
        }
    }
}

async fn give_up_if_away(executor: &Executor) {
    if !executor.is_connected() {
        executor.close("the brain ends").await;
    }
}

fn sessions_of(executor: &Executor) -> Vec<Session> {
    executor.session_ids().iter().filter_map(|session_id| executor.session(session_id)).collect()
}

#[derive(Serialize)]
struct Of<'a> {
    executor: &'a ExecutorId,
}

#[derive(Serialize)]
struct With<'a, T> {
    executor: &'a ExecutorId,
    #[serde(flatten)]
    what: T,
}

#[derive(Serialize)]
struct Came {
    resumed: bool,
    #[serde(flatten)]
    executor: Description,
}

#[derive(Serialize)]
struct Lagged<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    executor: Option<&'a ExecutorId>,
    lost: u64,
}

#[derive(Serialize)]
struct Reason {
    reason: String,
}

#[derive(Serialize)]
struct Bound {
    session_id: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// What an executor reports, with the contract's own members.
#[derive(Serialize)]
#[serde(untagged)]
enum Report {
    Bound(Bound),
    Session(SessionStatusParams),
    Tool(ToolProgressParams),
    Process(Box<ProcessStatusParams>),
    Capabilities { capabilities: Box<Capabilities> },
    Other { method: &'static str, params: Box<AnyParams> },
}

/// Tells what an executor reports, until it is gone and all is told.
async fn report_all(roster: Roster, executor: Executor, mut events: sync::Events<ExecutorEvent>) {
    let mut gone = pin!(executor.gone());
    let mut ending = pin!(roster.shared.ending.wait_for(|ending| *ending));
    loop {
        tokio::select! {
            biased;
            Some(event) = events.next() => roster.report(executor.id(), event).await,
            _ = &mut gone => break,
            _ = &mut ending => break,
        }
    }
    while let Some(event) = events.try_next() {
        roster.report(executor.id(), event).await;
    }
}

impl Roster {
    async fn report(&self, executor: &ExecutorId, event: sync::Event<ExecutorEvent>) {
        let out = &self.shared.out;
        let event = match event {
            sync::Event::Item(event) => event,
            sync::Event::Lagged(lost) => return out.event("lagged", &Lagged { executor: Some(executor), lost }).await,
        };
        let (name, what) = match event {
            ExecutorEvent::SessionReady(session_id) => {
                ("session.ready", Report::Bound(Bound { session_id, reason: None }))
            }
            ExecutorEvent::SessionEnded { session_id, reason } => {
                ("session.ended", Report::Bound(Bound { session_id, reason: Some(reason) }))
            }
            ExecutorEvent::SessionStatus(status) => ("session.status", Report::Session(status)),
            ExecutorEvent::ToolProgress(progress) => ("tool.progress", Report::Tool(progress)),
            ExecutorEvent::ProcessStatus(status) => ("process.status", Report::Process(Box::new(status))),
            ExecutorEvent::CapabilitiesChanged => {
                let Ok(executor) = self.executor(Some(executor)) else { return };
                ("executor.capabilities", Report::Capabilities { capabilities: Box::new(executor.capabilities()) })
            }
            ExecutorEvent::Notification(params) => {
                ("notification", Report::Other { method: params.method().name(), params })
            }
            // Kinds of later versions.
            _ => return,
        };
        out.event(name, &With { executor, what }).await;
    }
}
