//! Ending trees: asked first, then made to.

use std::sync::Arc;
use std::time::Duration;

use bma_proto_core::Time;
use bma_runtime::Runtime;

use crate::blocking::{RuntimeEnded, blocking, sleep};
use crate::os::{Member, Processes, Signal};

/// How long a tree may take to end in order.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(2);

/// How long after the grace it is tried to make it end.
pub const KILL_LIMIT: Duration = Duration::from_secs(8);

/// Between two looks: short at first, since most trees end at once.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What became of trees that were ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndReport {
    /// What still lives, although it was killed for as long as there was time. Empty: everything is gone.
    pub remaining: Vec<Member>,
    /// What lives and may belong to them, of which that cannot be told.
    pub strays: Vec<Member>,
    /// Why the members could not be looked up, if so: then it is not known that everything is gone.
    pub unknown: Option<String>,
}

impl EndReport {
    /// Whether everything is known to be gone.
    pub fn is_empty(&self) -> bool {
        self.remaining.is_empty() && self.strays.is_empty() && self.unknown.is_none()
    }

    /// Adds what became of others.
    pub(super) fn add(&mut self, other: EndReport) {
        let new: Vec<Member> = other.remaining.into_iter().filter(|member| !self.remaining.contains(member)).collect();
        self.remaining.extend(new);
        let new: Vec<Member> = other.strays.into_iter().filter(|member| !self.strays.contains(member)).collect();
        self.strays.extend(new);
        self.unknown = self.unknown.take().or(other.unknown);
    }

    /// What there is to say, when something is left.
    pub fn describe(&self) -> Option<String> {
        let list = |members: &[Member]| members.iter().map(Member::to_string).collect::<Vec<_>>().join(", ");
        let mut parts = Vec::new();
        if let Some(error) = &self.unknown {
            parts.push(format!("it is not known whether everything was ended: {error}"));
        }
        if !self.remaining.is_empty() {
            parts.push(format!("still running, although killed: process {}", list(&self.remaining)));
        }
        if !self.strays.is_empty() {
            parts.push(format!("still running, and perhaps of this command: process {}", list(&self.strays)));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Ends trees: terminates them, waits for the grace, then kills again and again until nothing is left or until
/// `deadline`. Dropping the future stops there.
pub(super) async fn end_trees(
    runtime: &Arc<dyn Runtime>,
    trees: Vec<Arc<dyn Processes>>,
    grace: Duration,
    deadline: Time,
) -> Result<EndReport, RuntimeEnded> {
    let grace_ends = (runtime.now() + grace).min(deadline);
    let mut pause = FIRST_PAUSE;
    let mut empty_looks = 0;
    let mut sent = None;
    if trees.is_empty() {
        return Ok(EndReport::default());
    }
    loop {
        let now = runtime.now();
        let wanted = if now < grace_ends { Signal::Terminate } else { Signal::Kill };
        // A TERM is sent once: a handler of it should not be interrupted by the next. A KILL goes out each time,
        // to what was forked since.
        let signal = (sent != Some(Signal::Terminate) || wanted == Signal::Kill).then_some(wanted);
        sent = Some(wanted);
        let looked = trees.clone();
        let report = blocking(runtime, move || look(&looked, signal)).await?;
        // One look is not a moment in time, and may just miss a process that is being forked.
        empty_looks = if report.is_empty() { empty_looks + 1 } else { 0 };
        if empty_looks >= 2 || (runtime.now() >= deadline && wanted == Signal::Kill) {
            let strays = blocking(runtime, move || trees.iter().flat_map(|tree| tree.strays()).collect()).await?;
            let mut whole = EndReport { strays, ..EndReport::default() };
            whole.add(report);
            return Ok(whole);
        }
        if empty_looks == 0 {
            let until_kill = grace_ends.saturating_since(now);
            let next = if wanted == Signal::Terminate { pause.min(until_kill) } else { pause };
            sleep(runtime, next.max(FIRST_PAUSE)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

fn look(trees: &[Arc<dyn Processes>], signal: Option<Signal>) -> EndReport {
    let mut report = EndReport::default();
    for tree in trees {
        let members = match signal {
            Some(signal) => tree.signal(signal).and_then(|()| tree.members()),
            None => tree.members(),
        };
        match members {
            Ok(members) => report.remaining.extend(members),
            Err(error) => report.unknown = Some(error.to_string()),
        }
    }
    report
}
