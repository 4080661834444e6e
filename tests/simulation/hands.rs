//! The executor's process: its machine, and an application with handlers that take their time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bma_runtime::proto::Time;
use bma_runtime::proto::contract::{
    ContentBlock, ErrorCode, ExecutorInfo, SessionId, ToolCallId, ToolName, ToolOutcome, ToolResultParams,
};
use bma_runtime::proto::executor::{CancelCause, Config, Event, Executor, OfferId, StopCause};

use super::wire::Dice;

/// Something that the application does after a while.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Accept(OfferId),
    Reject(OfferId),
    Ended(SessionId),
    Run(SessionId, ToolCallId),
    Refuse(SessionId, ToolCallId),
    Finish(SessionId, ToolCallId, ToolOutcome),
}

/// What is known of a call on this side, over all runs of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Calls whose handler ran.
    pub(crate) ran: BTreeSet<ToolCallId>,
    /// What was reported for each call.
    pub(crate) reported: BTreeMap<ToolCallId, ToolResultParams>,
    /// Sessions that were given up here because the lease had run out.
    pub(crate) lease_lost: BTreeSet<SessionId>,
}

/// One run of the executor's program.
#[derive(Clone, Debug)]
pub(crate) struct Hands {
    pub(crate) machine: Executor,
    /// Which run it is.
    pub(crate) run: u64,
    /// Calls of each session that were offered and have no result.
    open: BTreeMap<SessionId, BTreeSet<ToolCallId>>,
    /// Progress reports that were sent.
    pub(crate) progress: u64,
    /// Turns nothing down.
    pub(crate) willing: bool,
}

impl Hands {
    pub(crate) fn new(run: u64, dice: &mut Dice) -> Self {
        let mut config = Config::new(ExecutorInfo::default(), dice.next());
        config.reconnect_max_delay = Duration::from_secs(8);
        let mut machine = Executor::new(config);
        machine.serve_tool(ToolName::Bash);
        Self { machine, run, open: BTreeMap::new(), progress: 0, willing: false }
    }

    /// Calls that a handler works on.
    pub(crate) fn open_calls(&self) -> usize {
        self.open.values().map(BTreeSet::len).sum()
    }

    /// What the application makes of an event: work, each after a while.
    pub(crate) fn event(&mut self, event: Event, ledger: &mut Ledger, dice: &mut Dice) -> Vec<(Duration, Work)> {
        let soon = Duration::from_millis(1_500);
        match event {
            Event::SessionAssign { offer, .. } => {
                let work = if !self.willing && dice.one_in(12) { Work::Reject(offer) } else { Work::Accept(offer) };
                vec![(dice.up_to(soon), work)]
            }
            Event::SessionStop { session_id, reason, .. } => {
                if matches!(reason, StopCause::LeaseExpired | StopCause::NotResumed) {
                    ledger.lease_lost.insert(session_id.clone());
                }
                // Longer than the way back sometimes: the id may be assigned again before it is free.
                vec![(dice.up_to(Duration::from_secs(4)), Work::Ended(session_id))]
            }
            Event::ToolCall(params) => {
                let (session, call) = (params.session_id, params.tool_call_id);
                self.open.entry(session.clone()).or_default().insert(call.clone());
                let work = if !self.willing && dice.one_in(15) {
                    Work::Refuse(session, call)
                } else {
                    Work::Run(session, call)
                };
                let wait = if dice.one_in(2) { Duration::ZERO } else { dice.up_to(soon) };
                vec![(wait, work)]
            }
            Event::ToolCancel { session_id, tool_call_id, cause } => {
                // A session's end takes its calls along by itself.
                let leave = cause == CancelCause::SessionStopped && dice.one_in(2);
                let work = Work::Finish(session_id, tool_call_id, ToolOutcome::Canceled);
                if leave { Vec::new() } else { vec![(dice.up_to(soon), work)] }
            }
            Event::State(_)
            | Event::Reconnecting { .. }
            | Event::Registered(_)
            | Event::TokenNotRenewed { .. }
            | Event::Proven
            | Event::Request { .. }
            | Event::Drain(_)
            | Event::ResultLost { .. }
            | Event::Response { .. }
            | Event::Ended(_) => Vec::new(),
        }
    }

    /// Does a piece of work. Gives what follows from it.
    pub(crate) fn work(
        &mut self,
        now: Time,
        work: Work,
        ledger: &mut Ledger,
        dice: &mut Dice,
    ) -> Option<(Duration, Work)> {
        match work {
            Work::Accept(offer) => {
                // Too late is as good as refused: the machine has told its stop.
                if self.machine.accept_session(&offer).is_ok() {
                    ledger.lease_lost.remove(offer.session_id());
                    self.machine.session_ready(now, offer.session_id()).unwrap();
                }
                None
            }
            Work::Reject(offer) => {
                let error = ErrorCode::ExecutorBusy.error("not today");
                let _ = self.machine.reject_session(&offer, dice.one_in(2).then_some(&error));
                None
            }
            Work::Ended(id) => {
                let stopped_first = dice.one_in(2);
                if stopped_first {
                    let _ = self.machine.session_stopped(&id, true);
                }
                let open = self.open.remove(&id).unwrap_or_default();
                let known = self.machine.active_sessions().contains(&id);
                self.machine.session_ended(now, &id, "over").unwrap();
                if known {
                    // The machine ends what is open in the application's name.
                    for call in open {
                        let result = ToolResultParams {
                            session_id: id.clone(),
                            tool_call_id: call.clone(),
                            outcome: ToolOutcome::Canceled,
                            is_error: true,
                            ..ToolResultParams::default()
                        };
                        self.reported(call, result, ledger);
                    }
                }
                None
            }
            Work::Run(session, call) => {
                if self.machine.accept_tool_call(&session, &call).is_err() {
                    return None; // its session is over
                }
                assert!(ledger.ran.insert(call.clone()), "{call} ran twice");
                if dice.one_in(3) && self.machine.progress(&session, &call, "half").unwrap() {
                    self.progress += 1;
                }
                Some((dice.up_to(Duration::from_secs(6)), Work::Finish(session, call, ToolOutcome::Succeeded)))
            }
            Work::Refuse(session, call) => {
                let error = ErrorCode::Forbidden.error("not this one");
                if self.machine.refuse_tool_call(&session, &call, &error).is_ok() {
                    self.open.get_mut(&session).unwrap().remove(&call);
                }
                None
            }
            Work::Finish(session, call, outcome) => {
                // Some have more to say than a frame holds.
                let bulk = if dice.one_in(40) { "\n\u{e4}".repeat(dice.below(60_000) as usize) } else { String::new() };
                let result = ToolResultParams {
                    session_id: session.clone(),
                    tool_call_id: call.clone(),
                    outcome,
                    content: vec![ContentBlock::text(format!("what {call} gave: {}{bulk}", dice.next()))],
                    ..ToolResultParams::default()
                };
                // It may have ended by a cancel, or with its session.
                if self.machine.finish_tool_call(now, result.clone()).is_ok() {
                    self.open.get_mut(&session).unwrap().remove(&call);
                    self.reported(call, result, ledger);
                }
                None
            }
        }
    }

    fn reported(&mut self, call: ToolCallId, result: ToolResultParams, ledger: &mut Ledger) {
        let before = ledger.reported.insert(call, result);
        assert!(before.is_none(), "reported twice: {before:?}");
    }
}
