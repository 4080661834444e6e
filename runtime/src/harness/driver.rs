//! The task that drives one executor's machine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bma_proto_core::contract::{AnyParams, AnyResult, CloseCode, ErrorCode, JSONRPCError, SessionEventResult};
use bma_proto_core::harness::{CallError, Completion, Event, ExecutorPeer, Gone, Input, Output, Registration};
use bma_proto_core::rpc::InboundId;
use bma_proto_core::time::earliest;
use bma_proto_core::websocket;
use bma_proto_core::{Machine, Time};

use super::accept::{announce, register_again};
use super::executor::{Executor, ExecutorEvent, ExecutorShared, Locked, Waiter};
use super::{HarnessEvent, Shared};
use crate::client::RequestContext;
use crate::runtime::Timer;
use crate::task::{self, Caught};
use crate::upgrade::goodbye;
use crate::wire::{Progress, Wire};

/// Rounds that one poll makes before it lets other tasks run.
const MAX_ROUNDS: usize = 16;

/// Outputs that a driver keeps room for between two bursts.
const MAX_KEPT_ROOM: usize = 16;

/// The close code of an end that comes back to another harness (RFC 6455, section 7.4.1).
const GOING_AWAY: u16 = 1001;

/// For how long frames wait for somebody to take an outcome who does not get to it.
const MAX_HOLD: Duration = Duration::from_millis(5);

/// Something that the machine told, and who it is for.
enum Told {
    Outcome(Waiter, Result<Completion, CallError>),
    Event(Event),
}

/// One task for one executor, across its connections.
pub(super) struct Driver {
    shared: Arc<ExecutorShared>,
    timer: Box<dyn Timer>,
    wire: Option<Wire>,
    /// What the machine told, in its order.
    told: Vec<Told>,
    gone: Option<Gone>,
    /// Why the executor is to be let go, once somebody asked for it.
    released: Option<String>,
    /// Others were let run once before this round's frames are written.
    yielded: bool,
    /// Somebody who waits was given an outcome in this poll.
    answered: bool,
}

impl Driver {
    pub(super) fn new(shared: Arc<ExecutorShared>) -> Self {
        let timer = shared.runtime.timer();
        Self {
            shared,
            timer,
            wire: None,
            told: Vec::new(),
            gone: None,
            released: None,
            yielded: false,
            answered: false,
        }
    }

    /// Takes a new connection over. The one before is told that it was replaced.
    fn take_over(&mut self, now: Time) -> bool {
        let (incoming, replaced) = {
            let mut locked = self.shared.lock();
            self.released = locked.released.take();
            (locked.incoming.take(), std::mem::take(&mut locked.replaced))
        };
        let Some((wire, registration)) = incoming else { return false };
        for old in self.wire.replace(wire).into_iter().chain(replaced) {
            self.replace(old, now);
        }
        self.attach(registration, now);
        true
    }

    fn attach(&mut self, registration: Registration, now: Time) {
        let unix_time = self.shared.runtime.unix_time();
        self.shared.lock().machine.attach(now, registration, unix_time);
    }

    fn replace(&self, mut wire: Wire, now: Time) {
        wire.close(now, CloseCode::Replaced.number(), CloseCode::Replaced.meaning());
        self.see_off(wire);
    }

    fn see_off(&self, wire: Wire) {
        self.see_off_then(wire, || ());
    }

    /// Says goodbye to a connection in a task of its own, and then does what is to follow.
    fn see_off_then(&self, wire: Wire, then: impl FnOnce() + Send + 'static) {
        let runtime = Arc::clone(&self.shared.runtime);
        let task = async move {
            goodbye(runtime.as_ref(), wire).await;
            then();
        };
        self.shared.runtime.spawn(Box::pin(task));
    }

    /// Reads from the connection and feeds the machine.
    fn receive(&mut self, cx: &mut Context<'_>, now: Time) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        if self.shared.lock().machine.has_too_many_answers() {
            return false; // goes on when the drain has taken some of them
        }
        let read = wire.poll_receive(cx, now);
        let mut locked = self.shared.lock();
        let mut any = false;
        let mut closed = false;
        while let Some(output) = wire.output() {
            any = true;
            match output {
                websocket::Output::Text(text) => locked.machine.feed(now, Input::Frame(&text)),
                websocket::Output::Closed(end) => {
                    tracing::debug!(executor_id = %locked.machine.id(), %end, "connection over");
                    closed = true;
                }
                websocket::Output::Open { .. } | websocket::Output::AuthRequired(_) => {}
            }
        }
        if read.is_ready() && !any {
            locked.machine.feed(now, Input::Alive);
        }
        if closed {
            locked.machine.feed(now, Input::Disconnected);
            drop(locked);
            if let Some(wire) = self.wire.take() {
                self.see_off(wire);
            }
        }
        any || matches!(read, Poll::Ready(Progress::Bytes | Progress::More))
    }

    /// Does what the machine wants done, until it wants nothing any more. The
    /// last look registers the waker, so that nothing queued later is missed.
    fn drain(&mut self, cx: &mut Context<'_>, now: Time) -> bool {
        let mut any = false;
        loop {
            let shared = Arc::clone(&self.shared);
            let mut locked = shared.lock();
            while let Some(output) = next_output(&mut locked.machine, self.wire.as_ref()) {
                any = true;
                match output {
                    Output::Frame(text) => {
                        if let Some(wire) = &mut self.wire {
                            wire.send(&text);
                        }
                    }
                    Output::Close { code, reason } => {
                        if let Some(wire) = &mut self.wire {
                            wire.close(now, code, reason);
                        }
                    }
                    Output::Event(Event::Done { token, outcome }) => {
                        let waiter = locked.waiting.remove(&token);
                        self.told.extend(waiter.map(|waiter| Told::Outcome(waiter, outcome)));
                    }
                    Output::Event(Event::Gone(gone)) => self.gone = Some(gone),
                    Output::Event(event) => self.told.push(Told::Event(event)),
                }
            }
            if self.told.is_empty() {
                register(&mut locked, cx);
                return any;
            }
            // What is queued meanwhile is seen by the next look: nobody needs to wake this task for it.
            locked.waker = None;
            drop(locked);
            let mut told = std::mem::take(&mut self.told);
            for told in told.drain(..) {
                match told {
                    // Whoever asked may have stopped waiting.
                    Told::Outcome(waiter, outcome) => self.answered |= waiter.send(outcome).is_ok(),
                    Told::Event(event) => self.dispatch(event),
                }
            }
            // The room is used again, unless a burst has made it large.
            if told.capacity() <= MAX_KEPT_ROOM {
                self.told = told;
            }
        }
    }

    fn dispatch(&self, event: Event) {
        let shared = &self.shared;
        match event {
            Event::Registered { resumed } => {
                let executor = Executor::from_shared(Arc::clone(shared));
                tracing::info!(executor_id = %executor.id(), resumed, "executor registered");
                if let Some(harness) = shared.harness.upgrade() {
                    announce(&harness, &executor, resumed);
                }
            }
            Event::Disconnected => {
                let executor = Executor::from_shared(Arc::clone(shared));
                tracing::info!(executor_id = %executor.id(), "executor disconnected");
                if let Some(harness) = shared.harness.upgrade() {
                    harness.publish(&HarnessEvent::Disconnected(executor));
                }
            }
            Event::SessionReady(session_id) => shared.publish(&ExecutorEvent::SessionReady(session_id)),
            Event::SessionEnded { session_id, reason } => {
                shared.publish(&ExecutorEvent::SessionEnded { session_id, reason });
            }
            Event::SessionStatus(status) => shared.publish(&ExecutorEvent::SessionStatus(status)),
            Event::ToolProgress(progress) => shared.publish(&ExecutorEvent::ToolProgress(progress)),
            Event::ProcessStatus(status) => shared.publish(&ExecutorEvent::ProcessStatus(*status)),
            Event::CapabilitiesChanged => shared.publish(&ExecutorEvent::CapabilitiesChanged),
            Event::Notification(params) => shared.publish(&ExecutorEvent::Notification(params)),
            Event::Request { id, params } => serve(shared, id, *params),
            // Taken out by the drain.
            Event::Done { .. } | Event::Gone(_) => {}
        }
    }

    /// The executor is gone: it leaves the harness, and whoever waits is told so.
    fn finish(&mut self, gone: Gone) {
        let executor = Executor::from_shared(Arc::clone(&self.shared));
        let (waiting, incoming) = {
            let harness = self.shared.harness.upgrade();
            // The harness's lock first: a connection that is placed meanwhile must not find this executor.
            let mut known = harness.as_deref().map(Shared::known);
            if let Some(known) = &mut known {
                known.registry.remove(executor.id());
                known.executors.remove(executor.id());
            }
            let mut locked = self.shared.lock();
            locked.finished = true;
            (std::mem::take(&mut locked.waiting), locked.incoming.take())
        };
        drop(waiting);
        if let Some((mut wire, registration)) = incoming {
            register_again(self.shared.runtime.as_ref(), &mut wire, &registration);
            self.see_off(wire);
        }
        tracing::info!(executor_id = %executor.id(), %gone, "executor gone");
        if let Some(harness) = self.shared.harness.upgrade() {
            harness.publish(&HarnessEvent::Gone { executor, gone: gone.clone() });
        }
        self.shared.end(gone);
        match self.wire.take() {
            Some(wire) => {
                let shared = Arc::clone(&self.shared);
                self.see_off_then(wire, move || shared.parted());
            }
            None => self.shared.parted(),
        }
    }

    /// The executor is let go, to come back to whoever listens there next.
    fn let_go(&mut self, now: Time, reason: String) {
        if let Some(wire) = &mut self.wire {
            wire.close(now, GOING_AWAY, &reason);
        }
        self.finish(Gone::Closed(reason));
    }
}

/// Serves a request of the executor.
fn serve(shared: &Arc<ExecutorShared>, id: InboundId, params: AnyParams) {
    let method = params.method();
    let handler = shared.harness.upgrade().and_then(|harness| harness.handler(method));
    let Some(handler) = handler else {
        let answer = default_answer(shared, &params);
        return answer_request(shared, id, answer);
    };
    let context = RequestContext { request_id: id.request_id().clone() };
    let executor = Executor::from_shared(Arc::clone(shared));
    let done = {
        let shared = Arc::clone(shared);
        move |answer: Caught<Result<AnyResult, JSONRPCError>>| {
            let answer = answer.unwrap_or_else(|panic| {
                tracing::error!(method = method.name(), %panic, "a method handler panicked");
                Err(ErrorCode::InternalError.error("the request's handler failed"))
            });
            answer_request(&shared, id, answer);
        }
    };
    task::run(&shared.runtime, move || handler(executor, params, context), done);
}

fn default_answer(shared: &ExecutorShared, params: &AnyParams) -> Result<AnyResult, JSONRPCError> {
    match params {
        AnyParams::SessionEvent(params) => {
            // Not made of the request's id: the next run of the executor's program begins to count anew.
            let own = || format!("evt_{:016x}", shared.runtime.seed());
            let event_id = params.event_id.clone().unwrap_or_else(|| own().into());
            Ok(AnyResult::SessionEvent(SessionEventResult {
                accepted: true,
                event_id,
                acked_sequence: params.sequence,
            }))
        }
        other => {
            let message = format!("this harness does not serve {}", other.method().name());
            Err(ErrorCode::MethodNotFound.error(message))
        }
    }
}

fn answer_request(shared: &ExecutorShared, id: InboundId, answer: Result<AnyResult, JSONRPCError>) {
    shared.with(|locked| match &answer {
        Ok(result) => locked.machine.reply(id, result),
        Err(error) => locked.machine.refuse(id, error),
    });
}

/// The machine's next output. Frames wait in it while the connection has no room for them.
fn next_output(machine: &mut ExecutorPeer, wire: Option<&Wire>) -> Option<Output> {
    if wire.is_none_or(Wire::has_room) { machine.poll() } else { machine.poll_without_frames() }
}

fn register(locked: &mut Locked, cx: &mut Context<'_>) {
    match &mut locked.waker {
        Some(waker) => waker.clone_from(cx.waker()),
        none => *none = Some(cx.waker().clone()),
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let driver = &mut *self;
        driver.answered = false;
        for _ in 0..MAX_ROUNDS {
            let now = driver.shared.runtime.now();
            let mut busy = driver.take_over(now);
            busy |= driver.receive(cx, now);
            busy |= driver.drain(cx, now);
            let orphaned = || (driver.shared.harness.strong_count() == 0).then(|| "the harness is gone".to_owned());
            if let Some(reason) = driver.released.take().or_else(orphaned) {
                driver.let_go(now, reason);
                return Poll::Ready(());
            }
            let open_calls = driver.shared.lock().machine.open_calls();
            // With more than one call open others are about to ask as well: let
            // them, so that all of it leaves in one write.
            if busy && open_calls > 1 && !std::mem::replace(&mut driver.yielded, true) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Whoever was given the last open call's outcome wakes this task by taking it, and is likely to ask
            // again at once: the answer to the result leaves with that.
            let held = driver.answered && open_calls == 0;
            if let Some(wire) = driver.wire.as_mut().filter(|_| !held) {
                busy |= wire.flush(cx, now);
            }
            if let Some(gone) = driver.gone.take() {
                driver.finish(gone);
                return Poll::Ready(());
            }
            if busy {
                continue;
            }
            driver.yielded = false;
            let machine = match &driver.wire {
                Some(wire) if !wire.has_room() => driver.shared.lock().machine.deadline_without_frames(),
                _ => driver.shared.lock().machine.deadline(),
            };
            let wire = driver.wire.as_ref().and_then(Wire::deadline);
            let held_until = held.then(|| now + MAX_HOLD);
            let deadline = earliest(machine, wire).map(|(at, _)| at).into_iter().chain(held_until).min();
            driver.timer.set(deadline);
            if deadline.is_some_and(|at| at <= now) || driver.timer.poll_expired(cx).is_ready() {
                driver.answered = false;
                driver.shared.lock().machine.feed(now, Input::Tick);
                if let Some(wire) = &mut driver.wire {
                    wire.tick(now);
                }
                continue;
            }
            // Looked at again now that the waker is there: the end of the harness may just have missed it.
            if driver.shared.harness.strong_count() == 0 {
                continue;
            }
            return Poll::Pending;
        }
        // Others first; there is more to do here.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
