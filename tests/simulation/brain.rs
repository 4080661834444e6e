//! The harness's process: registry and machines, and an application that asks for things.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bma_runtime::proto::Time;
use bma_runtime::proto::contract::{
    AnyParams, ExecutorDrainParams, ExecutorId, Json, SessionAssignParams, SessionId, SessionStopParams, ToolCallId,
    ToolCallParams, ToolCancelParams, ToolName, ToolResultParams,
};
use bma_runtime::proto::harness::{CallError, Completion, Config, Event, ExecutorPeer, Gone, Registry};

use bma_runtime::proto::rpc::RequestError;

use super::hands::Ledger;
use super::wire::Dice;

/// Something that was asked for and has not ended.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Assign(SessionId),
    Ready,
    Call(SessionId, ToolCallId),
    Cancel,
    Stop,
    Drain,
}

/// An executor as this process knows it.
#[derive(Clone, Debug)]
pub(crate) struct Guest {
    pub(crate) machine: ExecutorPeer,
    /// Whose machine it is.
    pub(crate) site: usize,
    /// The connection in use.
    pub(crate) connection: Option<u64>,
    asks: BTreeMap<u64, Ask>,
    sessions: BTreeSet<SessionId>,
    /// When each session was told to stop.
    stops: BTreeMap<SessionId, Time>,
    /// Calls, by their sessions.
    calls: BTreeMap<SessionId, Vec<ToolCallId>>,
    recorded: BTreeMap<ToolCallId, Arc<ToolResultParams>>,
    /// Calls that somebody asked to cancel.
    canceled: BTreeSet<ToolCallId>,
    /// Calls that were canceled before they were sent.
    unsent: BTreeSet<ToolCallId>,
    /// Sessions that the executor has confirmed.
    accepted: BTreeSet<SessionId>,
    /// Sessions whose executor's program is gone.
    lost: BTreeSet<SessionId>,
}

/// One run of the harness's program.
#[derive(Clone, Debug)]
pub(crate) struct Brain {
    pub(crate) config: Arc<Config>,
    pub(crate) registry: Registry,
    pub(crate) guests: BTreeMap<ExecutorId, Guest>,
    /// How the last executor of each site went.
    pub(crate) gone: BTreeMap<usize, Gone>,
}

/// Why an unknown outcome may be told.
pub(crate) struct Excuses<'a> {
    pub(crate) ledger: &'a Ledger,
    /// Whether any excuse is good: the weather was bad lately.
    pub(crate) weather: bool,
}

impl Brain {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        let config = Arc::new(Config::default());
        let registry = Registry::new(&config, dice.next());
        Self { config, registry, guests: BTreeMap::new(), gone: BTreeMap::new() }
    }
}

impl Guest {
    pub(crate) fn new(machine: ExecutorPeer, site: usize) -> Self {
        Self {
            machine,
            site,
            connection: None,
            asks: BTreeMap::new(),
            sessions: BTreeSet::new(),
            stops: BTreeMap::new(),
            calls: BTreeMap::new(),
            recorded: BTreeMap::new(),
            canceled: BTreeSet::new(),
            unsent: BTreeSet::new(),
            accepted: BTreeSet::new(),
            lost: BTreeSet::new(),
        }
    }

    /// The executor's program is gone, and its sessions with it.
    pub(crate) fn lose_program(&mut self) {
        self.lost.extend(self.sessions.iter().cloned());
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.asks.is_empty() && self.sessions.is_empty()
    }

    /// Whether something waits that nobody has to do anything more for.
    pub(crate) fn waits(&self) -> bool {
        self.asks.values().any(|ask| matches!(ask, Ask::Assign(_) | Ask::Call(..) | Ask::Cancel))
    }

    pub(crate) fn describe(&self) -> String {
        format!("asks {:?}, sessions {:?}, open calls {}", self.asks, self.sessions, self.machine.open_calls())
    }

    fn asked(&mut self, asked: Result<(), CallError>, token: u64, ask: Ask) -> bool {
        let sent = asked.is_ok();
        if sent {
            self.asks.insert(token, ask);
        }
        sent
    }

    pub(crate) fn assign(&mut self, now: Time, session_id: SessionId, token: u64) {
        let params = SessionAssignParams { session_id: session_id.clone(), ..SessionAssignParams::default() };
        let asked = self.machine.assign(now, params, token);
        if self.asked(asked, token, Ask::Assign(session_id.clone())) {
            self.sessions.insert(session_id);
        }
    }

    pub(crate) fn wait_ready(&mut self, session_id: &SessionId, token: u64) {
        let asked = self.machine.wait_ready(session_id, token);
        self.asked(asked, token, Ask::Ready);
    }

    pub(crate) fn call(&mut self, now: Time, session_id: &SessionId, call: ToolCallId, token: u64) {
        let params = ToolCallParams {
            session_id: session_id.clone(),
            tool_call_id: call.clone(),
            tool: ToolName::Bash,
            input: Json::from_text(r#"{"command":"true"}"#.to_owned()).unwrap(),
            ..ToolCallParams::default()
        };
        let asked = self.machine.call_tool(now, params, token).map(drop);
        if self.asked(asked, token, Ask::Call(session_id.clone(), call.clone())) {
            self.calls.entry(session_id.clone()).or_default().push(call);
        }
    }

    pub(crate) fn stop(&mut self, now: Time, session_id: &SessionId, token: u64) {
        let params = SessionStopParams { session_id: session_id.clone(), ..SessionStopParams::default() };
        let asked = self.machine.stop_session(now, params, token);
        if self.asked(asked, token, Ask::Stop) {
            self.stops.entry(session_id.clone()).or_insert(now);
        }
    }

    pub(crate) fn drain(&mut self, now: Time, token: u64) {
        let params = AnyParams::ExecutorDrain(ExecutorDrainParams::default());
        let asked = self.machine.request(now, &params, token, Duration::from_secs(10));
        self.asked(asked, token, Ask::Drain);
    }

    pub(crate) fn session_list(&self) -> Vec<SessionId> {
        self.sessions.iter().cloned().collect()
    }

    /// Asks for something, whatever comes to mind.
    pub(crate) fn whim(&mut self, now: Time, dice: &mut Dice, counter: &mut u64) {
        *counter += 1;
        let token = *counter;
        let sessions = self.session_list();
        if sessions.len() < 3 && dice.one_in(4) {
            // A few names, so that some come back once they are free.
            let name = format!("s{}", dice.below(6));
            return self.assign(now, name.as_str().into(), token);
        }
        let Some(session) = dice.pick(&sessions) else { return };
        let calls = self.calls.get(session).cloned().unwrap_or_default();
        match dice.below(20) {
            0 => self.stop(now, session, token),
            1 => self.wait_ready(session, token),
            2..=5 => {
                if let Some(call) = dice.pick(&calls) {
                    self.call(now, session, call.clone(), token);
                }
            }
            6..=7 => {
                if let Some(call) = dice.pick(&calls) {
                    let params = ToolCancelParams {
                        session_id: session.clone(),
                        tool_call_id: call.clone(),
                        ..ToolCancelParams::default()
                    };
                    let asked = self.machine.cancel_tool(now, &params, token);
                    if asked.is_ok() {
                        self.canceled.insert(call.clone());
                    }
                    self.asked(asked, token, Ask::Cancel);
                }
            }
            _ => self.call(now, session, format!("call-{token}").as_str().into(), token),
        }
    }

    /// Takes what the machine tells, and holds it against what is true.
    pub(crate) fn event(&mut self, now: Time, event: Event, excuses: &Excuses<'_>) -> Told {
        assert!(self.unsent.is_disjoint(&excuses.ledger.ran), "what was never sent does not run");
        match event {
            Event::Done { token, outcome } => {
                let ask = self.asks.remove(&token);
                let ask = ask.unwrap_or_else(|| panic!("{token} ends twice, or was never asked for: {outcome:?}"));
                return self.done(now, ask, outcome, excuses);
            }
            Event::SessionEnded { session_id, .. } => {
                self.forget(&session_id);
            }
            Event::SessionReady(session_id) => assert!(self.sessions.contains(&session_id)),
            Event::Gone(gone) => return Told::Gone(gone),
            Event::Registered { .. }
            | Event::CapabilitiesChanged
            | Event::Disconnected
            | Event::SessionStatus(_)
            | Event::ToolProgress(_)
            | Event::ProcessStatus(_)
            | Event::Request { .. }
            | Event::Notification(_) => {}
        }
        Told::Nothing
    }

    fn forget(&mut self, session_id: &SessionId) {
        self.sessions.remove(session_id);
        self.stops.remove(session_id);
        self.calls.remove(session_id);
        self.lost.remove(session_id);
        self.accepted.remove(session_id);
    }

    /// Whether the result is the machine's own word for a call that it took back.
    fn canceled_at_home(&mut self, call: &ToolCallId, result: &ToolResultParams) -> bool {
        let said = result.content.first().and_then(|block| block.text.as_deref()).unwrap_or_default();
        let (unsent, away) = (said.starts_with("canceled before"), said.starts_with("canceled while"));
        if unsent || away {
            assert!(self.canceled.contains(call), "{call} was not to be canceled: {said}");
        }
        if unsent {
            self.unsent.insert(call.clone());
        }
        unsent || away
    }

    fn done(&mut self, now: Time, ask: Ask, outcome: Result<Completion, CallError>, excuses: &Excuses<'_>) -> Told {
        match (ask, outcome) {
            (Ask::Call(session, call), Ok(Completion::Tool(result))) => {
                assert_eq!((&result.session_id, &result.tool_call_id), (&session, &call));
                if !self.canceled_at_home(&call, &result) {
                    let reported = excuses.ledger.reported.get(&call).expect("a result that nobody reported");
                    assert!(is_what_was_reported(&result, reported), "another result than was reported");
                }
                let recorded = self.recorded.entry(call).or_insert_with(|| Arc::clone(&result));
                assert_eq!(*recorded, result, "recorded twice");
                Told::Result
            }
            (Ask::Call(session, call), Err(CallError::OutcomeUnknown(reason))) => {
                assert!(!self.recorded.contains_key(&call), "{call} had a result");
                // A stop that took too long is a loss of its own.
                let overdue = self.stops.get(&session).is_some_and(|at| now.saturating_since(*at).as_secs() >= 30);
                let lost = self.machine.gone().is_some()
                    || self.lost.contains(&session)
                    || excuses.ledger.lease_lost.contains(&session)
                    || !self.accepted.contains(&session);
                // A call that got lost while its session ended never ran, but its harness cannot know.
                let never_ran = !excuses.ledger.ran.contains(&call);
                let excused = never_ran || excuses.weather && (lost || overdue);
                assert!(excused, "{call} of {session} is not unknown: {reason}");
                Told::Unknown
            }
            // It was stopped first: its end is told by itself.
            (Ask::Assign(_), Err(CallError::SessionEnded { .. })) => Told::Nothing,
            (Ask::Assign(session), Err(error)) => {
                assert!(excuses.weather || !timed_out(&error), "{session}: {error}");
                self.forget(&session);
                Told::Nothing
            }
            (Ask::Assign(session), Ok(Completion::Result(_))) => {
                self.accepted.insert(session);
                Told::Nothing
            }
            (Ask::Ready, Ok(Completion::Ready) | Err(_))
            | (Ask::Cancel | Ask::Drain, Ok(Completion::Result(_)) | Err(_))
            | (Ask::Stop, Ok(Completion::Ended)) => Told::Nothing,
            (Ask::Call(_, call), Err(CallError::Request(error))) => {
                // Refused by the application, or not acknowledged in time.
                assert!(!self.recorded.contains_key(&call), "{call}: {error}");
                assert!(excuses.weather || !matches!(error, RequestError::Timeout(_)), "{call}: {error}");
                Told::Nothing
            }
            (Ask::Call(..), Err(CallError::SessionEnded { .. })) => Told::Nothing,
            (ask, outcome) => panic!("{ask:?} ended with {outcome:?}"),
        }
    }
}

/// The same, but for what is filled in. Only one that is too large for a frame is cut: then it has its beginning,
/// and says so.
fn is_what_was_reported(result: &ToolResultParams, reported: &ToolResultParams) -> bool {
    const FITS: usize = 40_000;
    let filled = ToolResultParams { duration_ms: result.duration_ms, ..reported.clone() };
    if *result == filled {
        return true;
    }
    let text = |result: &ToolResultParams| result.content.first().and_then(|block| block.text.clone());
    let (Some(got), Some(wanted)) = (text(result), text(reported)) else { return false };
    let is_cut = |(head, notice): (&str, &str)| {
        wanted.starts_with(head) && notice.ends_with(" bytes left out: the result is over the frame limit]")
    };
    let same_but_for_content = ToolResultParams { content: result.content.clone(), ..filled } == *result;
    wanted.len() > FITS && same_but_for_content && got.rsplit_once("\n[").is_some_and(is_cut)
}

fn timed_out(error: &CallError) -> bool {
    matches!(error, CallError::Request(RequestError::Timeout(_)))
}

/// What an event meant.
#[derive(Debug)]
pub(crate) enum Told {
    Nothing,
    Result,
    Unknown,
    Gone(Gone),
}
