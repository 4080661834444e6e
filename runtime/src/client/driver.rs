//! The task that drives an executor's machine.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bma_proto_core::contract::{ConnectionState, ExecutorTokenResponse, ProtocolVersion};
use bma_proto_core::executor::{Dial, DialError, End, Event, Executor, Input, Output, TokenError};
use bma_proto_core::time::earliest;
use bma_proto_core::websocket::{self, Limits};
use bma_proto_core::{Machine, Time};

use super::shared::{Locked, STOP_SESSIONS_WITHIN, Shared, cancel_all};
use super::{Transport, dispatch};
use crate::cancel::CancelReason;
use crate::runtime::{BoxFuture, Timer};
use crate::task;
use crate::wire::{Progress, Wire, told};

/// Rounds that one poll makes before it lets other tasks run.
const MAX_ROUNDS: usize = 16;

/// Events that the driver keeps room for between two bursts.
const MAX_KEPT_ROOM: usize = 64;

type Connecting = BoxFuture<Result<(Wire, ProtocolVersion), DialError>>;

/// One task for one executor, across its connections.
pub(super) struct Driver {
    shared: Arc<Shared>,
    transport: Transport,
    timer: Box<dyn Timer>,
    token: Option<BoxFuture<Result<ExecutorTokenResponse, TokenError>>>,
    connecting: Option<Connecting>,
    wire: Option<Wire>,
    events: Vec<Event>,
    /// Set once the machine has ended, with the time until which handlers are
    /// waited for: what is left is to say goodbye.
    end: Option<(End, Time)>,
}

impl Driver {
    pub(super) fn new(shared: Arc<Shared>, transport: Transport) -> Self {
        let timer = shared.runtime.timer();
        Self { shared, transport, timer, token: None, connecting: None, wire: None, events: Vec::new(), end: None }
    }

    /// What was started outside of the machine and has come to its end.
    fn poll_started(&mut self, cx: &mut Context<'_>, now: Time) -> bool {
        if self.token.is_none() && self.connecting.is_none() {
            return false;
        }
        // What the machine has given up, or has ended with, is nobody's any more. A token also comes for an open connection.
        match *self.shared.lock().machine.state() {
            ConnectionState::Connecting => {}
            ConnectionState::Ready | ConnectionState::Draining => self.connecting = None,
            _ => (self.token, self.connecting) = (None, None),
        }
        if let Some(token) = &mut self.token
            && let Poll::Ready(token) = token.as_mut().poll(cx)
        {
            self.token = None;
            self.shared.lock().machine.feed(now, Input::Token(token));
            return true;
        }
        if let Some(connecting) = &mut self.connecting
            && let Poll::Ready(connected) = connecting.as_mut().poll(cx)
        {
            self.connecting = None;
            match connected {
                Ok((wire, protocol)) => {
                    self.wire = Some(wire);
                    self.shared.lock().machine.feed(now, Input::Connected(protocol));
                }
                Err(error) => self.shared.lock().machine.feed(now, Input::DialFailed(error)),
            }
            return true;
        }
        false
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
        let mut closed = None;
        while let Some(output) = wire.output() {
            any = true;
            match output {
                websocket::Output::Text(text) => locked.machine.feed(now, Input::Frame(&text)),
                websocket::Output::Closed(end) => closed = Some(end),
                websocket::Output::Open { .. } | websocket::Output::AuthRequired(_) => {}
            }
        }
        if read.is_ready() && !any {
            locked.machine.feed(now, Input::Alive);
        }
        if let Some(closed) = closed {
            let (code, reason) = told(&closed);
            locked.machine.feed(now, Input::Disconnected { code, reason: &reason });
            drop(locked);
            // What it still has to say (a close frame's echo) is written best effort, then it is dropped.
            if let Some(mut wire) = self.wire.take() {
                let _ = wire.poll_flush(cx, now);
                let _ = wire.poll_shutdown(cx);
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
            let mut fetch = false;
            while let Some(output) = next_output(&mut locked.machine, self.wire.as_ref()) {
                any = true;
                match output {
                    Output::Frame(text) => {
                        if let Some(wire) = &mut self.wire {
                            wire.send(&text);
                        }
                    }
                    Output::Close { code, reason } => {
                        let over = locked.machine.end_state().is_some();
                        match &mut self.wire {
                            // The goodbye of an orderly end is seen through.
                            Some(wire) if over => wire.close(now, code, &reason),
                            // A connection that is given up may be one that takes nothing any more: not waited for.
                            Some(wire) => {
                                wire.close(now, code, &reason);
                                let _ = wire.poll_flush(cx, now);
                                self.wire = None;
                                locked.machine.feed(now, Input::Disconnected { code: None, reason: "" });
                            }
                            None => locked.machine.feed(now, Input::Disconnected { code: None, reason: "" }),
                        }
                    }
                    Output::Dial(dial) => self.connecting = Some(self.dial(dial)),
                    Output::FetchToken => fetch = true,
                    Output::Event(Event::Ended(end)) => self.end = Some((end, now + STOP_SESSIONS_WITHIN)),
                    Output::Event(event) => self.events.push(event),
                }
            }
            if self.events.is_empty() && !fetch {
                register(&mut locked, cx);
                return any;
            }
            // What is queued meanwhile is seen by the next look: nobody needs to wake this task for it.
            locked.waker = None;
            drop(locked);
            if fetch {
                self.token = Some(self.fetch_token());
            }
            let mut events = std::mem::take(&mut self.events);
            for event in events.drain(..) {
                dispatch::event(&self.shared, event);
            }
            // The room is used again, unless a burst has made it large.
            if events.capacity() <= MAX_KEPT_ROOM {
                self.events = events;
            }
        }
    }

    fn fetch_token(&self) -> BoxFuture<Result<ExecutorTokenResponse, TokenError>> {
        let fetched = task::catching(|| self.shared.token_source.fetch());
        Box::pin(async move {
            fetched.await.unwrap_or_else(|panic| {
                tracing::error!(%panic, "the token source panicked");
                Err(TokenError::Unavailable("the token source failed".to_owned()))
            })
        })
    }

    fn dial(&self, dial: Dial) -> Connecting {
        // An own close gets a second: a harness that is gone must not hold up an orderly end.
        let limits = Limits { close_timeout: std::time::Duration::from_secs(1), ..Limits::default() };
        self.transport.connect(&self.shared.runtime, dial, limits)
    }

    /// The machine has ended: everything that waits is told so, and what runs is
    /// asked to end. True once nothing runs any more, or the time for it is over.
    fn finished(&mut self, cx: &mut Context<'_>, until: Time, now: Time) -> bool {
        let mut locked = self.shared.lock();
        let waiting = std::mem::take(&mut locked.waiting);
        let running = locked.cancelers_of(None);
        let idle = running.is_empty() && locked.teardowns.is_empty();
        if !idle {
            register(&mut locked, cx);
        }
        drop(locked);
        drop(waiting);
        cancel_all(&running, CancelReason::ClientStopped);
        if !idle && until <= now {
            tracing::warn!("handlers that were asked to end still run");
        }
        idle || until <= now
    }

    /// After the end: true once the task is over.
    fn poll_end(&mut self, cx: &mut Context<'_>, now: Time) -> bool {
        let Some((_, until)) = self.end else { return false };
        if self.wire.is_some() && now < until {
            return false; // the goodbye is on its way
        }
        self.wire = None;
        self.timer.set(Some(until));
        if !self.finished(cx, until, now) && self.timer.poll_expired(cx).is_pending() {
            return false;
        }
        if let Some((end, _)) = self.end.take() {
            // Whoever learns of the end finds that nothing listens any more.
            self.transport = Transport::default();
            tracing::info!(%end, "the executor has ended");
            self.shared.end(end);
        }
        true
    }
}

/// The machine's next output. Frames wait in it while the connection has no room for them.
fn next_output(machine: &mut Executor, wire: Option<&Wire>) -> Option<Output> {
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
        for _ in 0..MAX_ROUNDS {
            let now = driver.shared.runtime.now();
            let mut busy = driver.poll_started(cx, now);
            busy |= driver.receive(cx, now);
            busy |= driver.drain(cx, now);
            if let Some(wire) = &mut driver.wire {
                busy |= wire.flush(cx, now);
            }
            if driver.poll_end(cx, now) {
                return Poll::Ready(());
            }
            if busy {
                continue;
            }
            if driver.end.is_some() && driver.wire.is_none() {
                return Poll::Pending; // for the handlers
            }
            let machine = match &driver.wire {
                Some(wire) if !wire.has_room() => driver.shared.lock().machine.deadline_without_frames(),
                _ => driver.shared.lock().machine.deadline(),
            };
            let wire = driver.wire.as_ref().and_then(Wire::deadline);
            let until = driver.end.as_ref().map(|(_, until)| *until);
            let deadline = earliest(machine, wire).map(|(at, _)| at).into_iter().chain(until).min();
            driver.timer.set(deadline);
            if deadline.is_some_and(|at| at <= now) || driver.timer.poll_expired(cx).is_ready() {
                driver.shared.lock().machine.feed(now, Input::Tick);
                if let Some(wire) = &mut driver.wire {
                    wire.tick(now);
                }
                continue;
            }
            return Poll::Pending;
        }
        // Others first; there is more to do here.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
