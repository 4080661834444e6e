//! `bma brain`: a harness that a script drives over stdin and stdout, one JSON object a line.
//!
//! `docs/BRAIN.md` describes the lines.

mod answer;
mod lines;
mod ops;
mod request;
mod roster;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::{Runtime, Session};
use tokio::sync::Semaphore;

use crate::common::{Failure, SUCCESS, harness, on_runtime, tell};
use crate::reach::{self, Way};
use crate::signals::Signals;
use crate::token::Token;
use answer::{Fault, Out};
use lines::Line;
use ops::Ops;
use request::{Op, Request};
use roster::Roster;

/// Requests that may be at work at a time. One more is answered `executor_busy`.
const MAX_IN_FLIGHT: usize = 1024;

/// How long the sessions may take to end when the brain does.
const STOP_WITHIN: Duration = Duration::from_secs(40);

/// How long a reader of stdout may take for the last lines.
const LAST_LINES_WITHIN: Duration = Duration::from_secs(5);

/// Keep a harness running, and drive it by JSON lines.
///
/// Requests go in on stdin; answers, progress, and executors' coming and going
/// come out on stdout, one JSON object a line. Prints `LISTEN <ws-url>` on
/// stderr. docs/BRAIN.md describes the lines; the shortest useful ones are
///
/// {"id":1,"op":"assign","session_id":"s1"}
///
/// {"id":2,"op":"call","session_id":"s1","tool":"bash","input":{"command":"date"}}
///
/// At the end of stdin it waits for what is in flight; then, as at SIGINT and
/// SIGTERM, it stops the sessions and ends; a second signal ends it at once.
/// Exit code 0 after an orderly end, 130 or 143 after a second signal, 2 otherwise.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: reach::Reach,
    /// Holds the token of executors and harness; readable by you alone [or: BMA_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    let way = args.reach.way()?;
    let token = Token::read(args.token_file.as_deref())?;
    on_runtime(move |runtime| serve(runtime, way, token))
}

/// Why no more requests are taken.
enum Over {
    EndOfInput,
    Signal,
    NobodyReads,
}

async fn serve(runtime: Arc<dyn Runtime>, way: Way, token: Token) -> Result<u8, Failure> {
    let mut signals = Signals::catch()?;
    let harness = harness(&runtime, token.secret());
    // From before anybody can come: who has come is known from here alone.
    let comings = harness.events();
    let reached = reach::open("bma brain", &harness, &way, &token).await?;
    let (out, written) = lines::writer()?;
    let mut input = lines::reader()?;
    out.event(reached.event(), &answer::At { url: reached.url() }).await;
    let roster = Roster::start(harness.clone(), comings, out.clone());
    let ops = Ops::new(roster.clone(), runtime);

    let in_flight = InFlight::new();
    let over = loop {
        // Also a request can take its time to be taken: there may be no room for it, or for the answer that says so.
        let taken = async {
            match input.recv().await {
                Some(line) => {
                    in_flight.take(line, &ops, &out).await;
                    true
                }
                None => false,
            }
        };
        tokio::select! {
            biased;
            caught = signals.caught() => {
                tell(&format!("bma brain: {caught}: stopping (once more ends at once)"));
                break Over::Signal;
            }
            () = out.closed() => break Over::NobodyReads,
            more = taken => {
                if !more {
                    break Over::EndOfInput;
                }
            }
        }
    };
    if matches!(over, Over::EndOfInput) {
        tokio::select! {
            () = in_flight.answered() => {}
            caught = signals.caught() => tell(&format!("bma brain: {caught}: stopping (once more ends at once)")),
            () = out.closed() => {}
        }
    }
    drop(reached);
    // Nobody comes back any more: what waits for one that is away would wait until its lease is over.
    roster.give_up_those_away().await;
    let stopped = tokio::time::timeout(STOP_WITHIN, async {
        stop_all(roster.sessions()).await;
        in_flight.done().await;
    });
    let stopped = stopped.await.is_ok();
    drop((ops, in_flight));
    let last_lines = async {
        roster.finish().await;
        drop((roster, out));
        written.await.is_ok()
    };
    let all_written = tokio::time::timeout(LAST_LINES_WITHIN, last_lines).await == Ok(true);
    // Last, so that nothing is told of it: executors dial again, and this is no end that they are to blame for.
    harness.release("the brain has ended").await;
    match over {
        Over::NobodyReads => Err(Failure::not_done("stdout: it was closed, so the brain has stopped")),
        _ if !stopped => Err(Failure::not_done(format!("not all sessions ended within {} s", STOP_WITHIN.as_secs()))),
        _ if !all_written => Err(Failure::not_done("stdout: the last lines were not read")),
        _ => Ok(SUCCESS),
    }
}

/// Stops sessions side by side.
async fn stop_all(sessions: Vec<Session>) {
    let mut stopping = tokio::task::JoinSet::new();
    for session in sessions {
        stopping.spawn(async move {
            if let Err(error) = session.stop("the brain ends").await {
                tracing::info!(session_id = %session.id(), %error, "a session did not end in order");
            }
        });
    }
    stopping.join_all().await;
}

/// Counts requests at work.
struct InFlight {
    /// For what may take as long as a tool. Held until the answer is on its way.
    long: Arc<Semaphore>,
    /// For what must get through so that the others end. Held as long.
    short: Arc<Semaphore>,
    /// For either, until the answer is known. There is room for all of both.
    working: Arc<Semaphore>,
}

impl InFlight {
    fn new() -> Self {
        let room = |for_requests| Arc::new(Semaphore::new(for_requests));
        Self { long: room(MAX_IN_FLIGHT), short: room(MAX_IN_FLIGHT), working: room(2 * MAX_IN_FLIGHT) }
    }

    /// Starts what a line asks for. Waits while very many short requests are at work, or very many lines are not
    /// read. Dropping the future then loses the line.
    async fn take(&self, line: Line, ops: &Ops, out: &Out) {
        let request = match Request::read(line) {
            Ok(Some(request)) => request,
            Ok(None) => return,
            Err((id, fault)) => return out.failed(id.as_ref(), &fault).await,
        };
        let permit = match request.op {
            Op::Assign(_) | Op::Call(_) | Op::Any(_) => Arc::clone(&self.long).try_acquire_owned().ok(),
            _ => Arc::clone(&self.short).acquire_owned().await.ok(),
        };
        let Some(permit) = permit else {
            let fault = Fault::busy(format!("{MAX_IN_FLIGHT} requests are at work: wait for some to end"));
            return out.failed(Some(&request.id), &fault).await;
        };
        let working = Arc::clone(&self.working).try_acquire_owned();
        let (ops, out) = (ops.clone(), out.clone());
        tokio::spawn(async move {
            let performed = ops.perform(request.op).await;
            drop(working);
            match performed {
                Ok(answer) => out.done(&request.id, &answer).await,
                Err(fault) => out.failed(Some(&request.id), &fault).await,
            }
            drop(permit);
        });
    }

    /// Waits until every answer is known.
    async fn done(&self) {
        all(&self.working, 2 * MAX_IN_FLIGHT).await;
    }

    /// Waits until every answer is on its way, which takes as long as the reader of stdout likes.
    async fn answered(&self) {
        all(&self.long, MAX_IN_FLIGHT).await;
        all(&self.short, MAX_IN_FLIGHT).await;
    }
}

/// Waits until all permits of a semaphore are there.
async fn all(semaphore: &Semaphore, permits: usize) {
    // The number fits: it is some thousands. The semaphores are never closed.
    let _ = semaphore.acquire_many(u32::try_from(permits).unwrap_or(u32::MAX)).await;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use bma_runtime_tokio::{Authenticator, Harness, HarnessOptions};
    use serde_json::Value;

    use super::*;

    #[test]
    fn at_the_bound_long_requests_are_turned_away_and_short_ones_get_through() {
        let tested = bma_runtime_tokio::run(|runtime| async move {
            let (sender, mut lines) = tokio::sync::mpsc::channel(8);
            let out = Out::new(sender);
            let harness = Harness::new(Arc::clone(&runtime), HarnessOptions::new(Authenticator::anybody()));
            let comings = harness.events();
            let roster = Roster::start(harness, comings, out.clone());
            let ops = Ops::new(roster.clone(), runtime);
            let in_flight = InFlight::new();
            let mut answer = async |in_flight: &InFlight, line: &str| {
                in_flight.take(Line::Text(line.to_owned()), &ops, &out).await;
                serde_json::from_str::<Value>(&lines.recv().await.unwrap()).unwrap()
            };
            let (assign, list) = (r#"{"id":1,"op":"assign"}"#, r#"{"id":2,"op":"executors"}"#);

            let long = Arc::clone(&in_flight.long);
            let held = long.acquire_many(u32::try_from(MAX_IN_FLIGHT).unwrap()).await.unwrap();
            let refused = answer(&in_flight, assign).await;
            assert_eq!((&refused["id"], &refused["error"]["code"]), (&1.into(), &(-32009).into()), "{refused}");
            assert_eq!(refused["error"]["retryable"], true);
            assert_eq!(answer(&in_flight, list).await["ok"], true);
            drop(held);
            // There is nobody to assign to; but there is room again.
            assert_eq!(answer(&in_flight, assign).await["error"]["reason"], "no_executor");
            in_flight.answered().await;
            roster.finish().await;
        });
        tested.unwrap();
    }
}
