//! Events that an executor sends more than once, because an answer got lost.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::contract::{SessionEventParams, SessionEventResult};
use crate::rpc::{InboundId, RequestId};

/// Events that are remembered. Past it the oldest is forgotten: sent once more, it is a new one.
const MAX_REMEMBERED: usize = 1024;

/// The last `session.event` requests: a repeated one gets the first one's
/// answer, and is not handled a second time.
///
/// Two requests are the same when their JSON-RPC ids and their contents are. An
/// id alone does not tell: some executors count anew on each connection.
#[derive(Clone, Debug)]
pub(super) struct Events {
    hasher: FixedState,
    known: BTreeMap<RequestId, Remembered>,
    /// By age.
    order: BTreeMap<u64, RequestId>,
    next_serial: u64,
}

#[derive(Clone, Debug)]
struct Remembered {
    serial: u64,
    content: u64,
    /// The request that the application has.
    first: InboundId,
    /// `None` until the application has answered.
    answer: Option<SessionEventResult>,
    /// Repetitions that wait for the same answer. The bound on unanswered requests bounds them.
    repeated: Vec<InboundId>,
}

/// What is to be done with an event.
pub(super) enum Admission {
    /// It is new: the application answers it.
    New,
    /// It is being answered already, and gets the same answer.
    Waits,
    /// This was the answer.
    Answered(InboundId, SessionEventResult),
}

impl Events {
    pub(super) fn new(seed: u64) -> Self {
        Self { hasher: FixedState::with_seed(seed), known: BTreeMap::new(), order: BTreeMap::new(), next_serial: 0 }
    }

    pub(super) fn admit(&mut self, id: InboundId, params: &SessionEventParams) -> Admission {
        let content = self.content(params);
        if let Some(known) = self.known.get_mut(id.request_id()).filter(|known| known.content == content) {
            return match &known.answer {
                Some(answer) => Admission::Answered(id, answer.clone()),
                None => {
                    known.repeated.push(id);
                    Admission::Waits
                }
            };
        }
        self.forget(id.request_id().clone());
        if self.known.len() >= MAX_REMEMBERED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.known.remove(&oldest);
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.order.insert(serial, id.request_id().clone());
        let remembered = Remembered { serial, content, first: id.clone(), answer: None, repeated: Vec::new() };
        self.known.insert(id.request_id().clone(), remembered);
        Admission::New
    }

    /// The application has answered. Gives the repetitions, to be answered the same.
    pub(super) fn answered(&mut self, id: &InboundId, answer: &SessionEventResult) -> Vec<InboundId> {
        let Some(known) = self.known.get_mut(id.request_id()).filter(|known| known.first == *id) else {
            return Vec::new();
        };
        known.answer = Some(answer.clone());
        std::mem::take(&mut known.repeated)
    }

    /// The application has refused: sent once more, the event is handled anew.
    /// Gives the repetitions, to be refused as well.
    pub(super) fn refused(&mut self, id: &InboundId) -> Vec<InboundId> {
        match self.known.get(id.request_id()) {
            Some(known) if known.first == *id => self.forget(id.request_id().clone()),
            _ => Vec::new(),
        }
    }

    /// Nobody waits any more for what was asked on a connection that is gone.
    pub(super) fn connection_lost(&mut self) {
        self.known.values_mut().for_each(|known| known.repeated.clear());
    }

    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.order.clear();
    }

    fn forget(&mut self, id: RequestId) -> Vec<InboundId> {
        let Some(known) = self.known.remove(&id) else { return Vec::new() };
        self.order.remove(&known.serial);
        known.repeated
    }

    fn content(&self, params: &SessionEventParams) -> u64 {
        let SessionEventParams { session_id, turn_id, event_id, sequence, idempotency_key, event } = params;
        self.hasher.hash_one((session_id, turn_id, event_id, sequence, idempotency_key, event.get()))
    }
}
