//! The tool calls of one session, keyed so that one id is one call. Both ends
//! keep such a table: the executor so that nothing runs twice, the harness so
//! that every result is recorded once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::mem;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::contract::{ContentBlock, ToolCallId, ToolCallParams, ToolResultParams};

/// Bytes of recorded results that one session keeps. Past it the oldest
/// settled results lose their content; their ids are still known.
pub(crate) const MAX_RECORDED_BYTES: usize = 4 << 20;

/// Call ids that one session can see. Past it the session takes no new ones:
/// forgetting an id could run a call twice.
pub(crate) const MAX_CALLS_PER_SESSION: usize = 1 << 20;

/// What is known of a call id.
pub(crate) enum Known<'a, A> {
    /// Nothing: the id is new.
    New,
    /// The call is open.
    Open(&'a mut A),
    /// The call is over, and this is its result.
    Done(&'a Arc<ToolResultParams>),
    /// The call is over; its result is no longer kept.
    Forgotten,
}

/// How far a tool call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallState {
    /// It has no result yet.
    Open,
    /// It has its result, which may be kept no longer.
    Ended,
}

/// Open calls, recorded results, and the ids of the rest.
#[derive(Clone, Debug)]
pub(crate) struct CallTable<A> {
    /// Each id once, as what it is now.
    calls: HashMap<ToolCallId, Call<A>, FixedState>,
    open: usize,
    /// Recorded results that may lose their content, oldest first.
    settled: VecDeque<ToolCallId>,
    settled_bytes: usize,
    unsettled_bytes: usize,
    /// Hashes of the ids without content: 8 bytes each instead of a string. Two
    /// ids that collide would make the later one look forgotten, never run twice.
    forgotten: HashSet<u64, FixedState>,
}

#[derive(Clone, Debug)]
enum Call<A> {
    Open(A),
    Done(Recorded),
}

impl<A> Call<A> {
    fn open(&self) -> Option<&A> {
        match self {
            Call::Open(call) => Some(call),
            Call::Done(_) => None,
        }
    }

    fn open_mut(&mut self) -> Option<&mut A> {
        match self {
            Call::Open(call) => Some(call),
            Call::Done(_) => None,
        }
    }

    fn done(&self) -> Option<&Recorded> {
        match self {
            Call::Open(_) => None,
            Call::Done(recorded) => Some(recorded),
        }
    }
}

/// Those who wait for the same thing, in the order in which they came: nearly always one.
#[derive(Clone, Debug)]
pub(crate) struct Waiters<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Waiters<T> {
    pub(crate) fn one(first: T) -> Self {
        Self { first: Some(first), more: Vec::new() }
    }

    pub(crate) fn push(&mut self, waiter: T) {
        match self.first {
            None => self.first = Some(waiter),
            Some(_) => self.more.push(waiter),
        }
    }

    /// All of them; none are left.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.first.take().into_iter().chain(mem::take(&mut self.more))
    }
}

/// A result, and whether it has reached who it is for.
#[derive(Clone, Debug)]
struct Recorded {
    result: Arc<ToolResultParams>,
    bytes: usize,
    settled: bool,
}

impl<A> CallTable<A> {
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            calls: HashMap::with_hasher(hasher.clone()),
            open: 0,
            settled: VecDeque::new(),
            settled_bytes: 0,
            unsettled_bytes: 0,
            forgotten: HashSet::with_hasher(hasher),
        }
    }

    pub(crate) fn lookup(&mut self, id: &ToolCallId) -> Known<'_, A> {
        match self.calls.get_mut(id) {
            Some(Call::Open(call)) => Known::Open(call),
            Some(Call::Done(recorded)) => Known::Done(&recorded.result),
            None if is_forgotten(&self.forgotten, id) => Known::Forgotten,
            None => Known::New,
        }
    }

    /// How far a call is; `None` when its id is new.
    pub(crate) fn state(&self, id: &ToolCallId) -> Option<CallState> {
        match self.calls.get(id) {
            Some(Call::Open(_)) => Some(CallState::Open),
            Some(Call::Done(_)) => Some(CallState::Ended),
            None => is_forgotten(&self.forgotten, id).then_some(CallState::Ended),
        }
    }

    /// Whether another id can be taken.
    pub(crate) fn is_full(&self) -> bool {
        self.calls.len() + self.forgotten.len() >= MAX_CALLS_PER_SESSION
    }

    /// Opens a call whose id is new.
    pub(crate) fn open(&mut self, id: ToolCallId, call: A) {
        let earlier = self.calls.insert(id, Call::Open(call));
        self.open += usize::from(earlier.is_none());
    }

    pub(crate) fn get_open(&mut self, id: &ToolCallId) -> Option<&mut A> {
        self.calls.get_mut(id)?.open_mut()
    }

    /// The id of an open call as it is kept here.
    pub(crate) fn open_id(&self, id: &ToolCallId) -> Option<&ToolCallId> {
        let (id, call) = self.calls.get_key_value(id)?;
        call.open().map(|_| id)
    }

    pub(crate) fn open_len(&self) -> usize {
        self.open
    }

    /// Results that are recorded and not settled yet.
    pub(crate) fn unsettled_len(&self) -> usize {
        self.calls.len() - self.open - self.settled.len()
    }

    /// The bytes that those results hold, about.
    pub(crate) fn unsettled_bytes(&self) -> usize {
        self.unsettled_bytes
    }

    /// The results that are not settled yet, in the order of their ids: the map's own is arbitrary.
    #[allow(clippy::disallowed_methods, reason = "sorted at once")]
    pub(crate) fn unsettled(&self) -> Vec<Arc<ToolResultParams>> {
        let waiting = self.calls.values().filter_map(Call::done).filter(|recorded| !recorded.settled);
        let mut results: Vec<_> = waiting.map(|recorded| Arc::clone(&recorded.result)).collect();
        results.sort_unstable_by(|a, b| a.tool_call_id.cmp(&b.tool_call_id));
        results
    }

    /// The ids of the open calls, in their order: the map's own is arbitrary.
    #[allow(clippy::disallowed_methods, reason = "sorted at once")]
    pub(crate) fn open_ids(&self) -> Vec<ToolCallId> {
        if self.open == 0 {
            return Vec::new();
        }
        let open = self.calls.iter().filter(|(_, call)| call.open().is_some());
        let mut ids: Vec<_> = open.map(|(id, _)| id.clone()).collect();
        ids.sort_unstable();
        ids
    }

    /// Whether there is a call that has ended, or one that is open and of this kind.
    #[allow(clippy::disallowed_methods, reason = "the order cannot matter")]
    pub(crate) fn any(&self, open: impl Fn(&A) -> bool) -> bool {
        !self.forgotten.is_empty() || self.calls.values().any(|call| call.open().is_none_or(&open))
    }

    /// Does the same to every open call; the order cannot matter.
    #[allow(clippy::disallowed_methods, reason = "each call is changed by itself")]
    pub(crate) fn each_open(&mut self, change: impl FnMut(&mut A)) {
        self.calls.values_mut().filter_map(Call::open_mut).for_each(change);
    }

    /// Takes an open call back, as if its id had never come.
    pub(crate) fn withdraw(&mut self, id: &ToolCallId) -> Option<A> {
        self.get_open(id)?;
        self.open -= 1;
        match self.calls.remove(id)? {
            Call::Open(call) => Some(call),
            Call::Done(_) => None,
        }
    }

    /// Ends an open call with its result. `None` when no such call is open.
    pub(crate) fn finish(&mut self, id: &ToolCallId, result: Arc<ToolResultParams>) -> Option<A> {
        let call = self.calls.get_mut(id)?;
        call.open()?;
        let bytes = result_weight(&result);
        let Call::Open(ended) = mem::replace(call, Call::Done(Recorded { result, bytes, settled: false })) else {
            return None;
        };
        self.open -= 1;
        self.unsettled_bytes += bytes;
        Some(ended)
    }

    pub(crate) fn result(&self, id: &ToolCallId) -> Option<&Arc<ToolResultParams>> {
        self.calls.get(id)?.done().map(|recorded| &recorded.result)
    }

    /// The result has reached who it is for: from now on it may lose its content.
    pub(crate) fn settle(&mut self, id: ToolCallId) {
        let Some(Call::Done(recorded)) = self.calls.get_mut(&id) else { return };
        if mem::replace(&mut recorded.settled, true) {
            return;
        }
        self.unsettled_bytes -= recorded.bytes;
        self.settled_bytes += recorded.bytes;
        self.settled.push_back(id);
        while self.settled_bytes > MAX_RECORDED_BYTES {
            let Some(oldest) = self.settled.pop_front() else { break };
            if let Some(Call::Done(recorded)) = self.calls.remove(&oldest) {
                self.settled_bytes -= recorded.bytes;
                self.forgotten.insert(self.forgotten.hasher().hash_one(&oldest));
            }
        }
    }
}

fn is_forgotten(forgotten: &HashSet<u64, FixedState>, id: &ToolCallId) -> bool {
    !forgotten.is_empty() && forgotten.contains(&forgotten.hasher().hash_one(id))
}

/// The bytes that a call holds which waits or runs, about.
pub(crate) fn tool_call_weight(params: &ToolCallParams) -> usize {
    const OVERHEAD: usize = 512;
    params.input.get().len() + params.session_id.as_str().len() + params.tool_call_id.as_str().len() + OVERHEAD
}

/// The bytes that a result holds, about.
pub(crate) fn result_weight(result: &ToolResultParams) -> usize {
    const OVERHEAD: usize = 256;
    let block = |block: &ContentBlock| {
        block.text.as_ref().map_or(0, String::len) + block.data.as_ref().map_or(0, String::len) + OVERHEAD
    };
    result.content.iter().map(block).sum::<usize>() + result.artifacts.len() * OVERHEAD + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(table: &mut CallTable<()>, id: &str, bytes: usize) {
        let block = ContentBlock { text: Some("x".repeat(bytes)), ..ContentBlock::default() };
        table.open(id.into(), ());
        let result = ToolResultParams { content: vec![block], ..ToolResultParams::default() };
        assert!(table.finish(&id.into(), Arc::new(result)).is_some());
    }

    #[test]
    fn an_old_result_loses_its_content_but_never_its_id() {
        let mut table = CallTable::new(1);
        finish(&mut table, "old", 1 << 20);
        table.settle("old".into());
        for n in 0..8 {
            finish(&mut table, &format!("new{n}"), 1 << 20);
            table.settle(format!("new{n}").as_str().into());
        }
        assert!(matches!(table.lookup(&"old".into()), Known::Forgotten));
        assert!(matches!(table.lookup(&"new7".into()), Known::Done(_)));
        assert!(matches!(table.lookup(&"other".into()), Known::New));
    }

    #[test]
    fn a_result_that_nobody_has_yet_is_kept_whatever_it_weighs() {
        let mut table = CallTable::new(1);
        finish(&mut table, "waiting", 8 << 20);
        finish(&mut table, "later", 8 << 20);
        table.settle("later".into());
        assert!(matches!(table.lookup(&"waiting".into()), Known::Done(_)));
        assert_eq!(table.unsettled_len(), 1);
    }

    #[test]
    fn one_id_finishes_once() {
        let mut table = CallTable::new(1);
        finish(&mut table, "a", 1);
        assert!(table.finish(&"a".into(), Arc::default()).is_none());
    }
}
