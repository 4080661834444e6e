//! Waiting for everything that can happen to a running command.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bma_proto_core::Time;
use bma_runtime::{BoxFuture, Readiness, Runtime, Stream, Timer};
use futures_io::AsyncRead as _;

use super::streams::{Output, Scratch};

/// No more progress messages than this.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// A progress message is the newest text, of at most this many bytes.
const PROGRESS_BYTES: usize = 1_024;

/// Told the newest output of a command while it runs. Must not block.
pub type ProgressFn = Arc<dyn Fn(&str) + Send + Sync>;

/// A running command's events, in one place.
pub(super) struct Watch {
    pub(super) stdout: Output,
    pub(super) stderr: Output,
    begun: Begun,
    exit: Box<dyn Readiness>,
    exited: bool,
    timer: Box<dyn Timer>,
    scratch: Scratch,
    progress: Option<Progress>,
}

/// Whether the command has begun.
enum Begun {
    /// Not told here.
    Untold,
    /// Not yet.
    Waiting(Box<dyn Stream>),
    Yes,
    /// It never will.
    No,
}

struct Progress {
    tell: ProgressFn,
    runtime: Arc<dyn Runtime>,
    newest: Vec<u8>,
    timer: Box<dyn Timer>,
    timer_set: bool,
}

/// Until when a wait goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The shell has exited.
    Exit,
    /// The shell has exited and nothing holds its output any more.
    EndOfOutput,
    /// Nothing: only the time or the interruption ends the wait.
    Never,
}

/// What ended a wait.
#[derive(Debug)]
pub(super) enum Woke<T> {
    /// What was waited for.
    Reached,
    /// The time was up.
    TimeUp,
    /// The interruption came.
    Interrupted(T),
}

impl Watch {
    pub(super) fn new(
        runtime: &Arc<dyn Runtime>,
        stdout: Output,
        stderr: Output,
        begun: Option<Box<dyn Stream>>,
        exit: Box<dyn Readiness>,
        progress: Option<ProgressFn>,
    ) -> Self {
        let progress = progress.map(|tell| Progress {
            tell,
            runtime: runtime.clone(),
            newest: Vec::new(),
            timer: runtime.timer(),
            timer_set: false,
        });
        Self {
            stdout,
            stderr,
            begun: begun.map_or(Begun::Untold, Begun::Waiting),
            exit,
            exited: false,
            timer: runtime.timer(),
            scratch: Scratch::default(),
            progress,
        }
    }

    /// Reads the output meanwhile. The interruption and the time come before all output, however much there is; only
    /// what is over already is not interrupted any more.
    pub(super) async fn wait<T>(
        &mut self,
        until: Until,
        time: Option<Time>,
        mut interruption: BoxFuture<T>,
    ) -> Woke<T> {
        self.timer.set(time);
        std::future::poll_fn(|cx| {
            // An error of the readiness itself ends the wait too: the status is asked for next in any case.
            self.exited = self.exited || self.exit.poll_ready(cx).is_ready();
            if self.exited && until == Until::Exit {
                return Poll::Ready(Woke::Reached);
            }
            // One pass, which is bounded.
            self.poll_read(cx);
            if self.exited && until == Until::EndOfOutput && self.stdout.is_at_end() && self.stderr.is_at_end() {
                return Poll::Ready(Woke::Reached);
            }
            if let Poll::Ready(value) = interruption.as_mut().poll(cx) {
                return Poll::Ready(Woke::Interrupted(value));
            }
            if time.is_some() && self.timer.poll_expired(cx).is_ready() {
                return Poll::Ready(Woke::TimeUp);
            }
            Poll::Pending
        })
        .await
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) {
        self.begun.poll(cx);
        let mut progress = self.progress.as_mut();
        for output in [&mut self.stdout, &mut self.stderr] {
            output.poll_read(cx, &mut self.scratch, |bytes| {
                if let Some(progress) = &mut progress {
                    progress.add(bytes);
                }
            });
        }
        if let Some(progress) = progress {
            progress.poll(cx);
        }
    }

    /// Whether the command began, once the shell has exited.
    pub(super) fn has_begun(&mut self) -> Option<bool> {
        // The byte may be there unread. Nobody waits for it any more.
        self.begun.poll(&mut Context::from_waker(std::task::Waker::noop()));
        match self.begun {
            Begun::Untold => None,
            Begun::Yes => Some(true),
            // Something of the profile may still hold the pipe; the shell itself is gone.
            Begun::Waiting(_) | Begun::No => Some(false),
        }
    }
}

impl Begun {
    fn poll(&mut self, cx: &mut Context<'_>) {
        let Begun::Waiting(stream) = self else { return };
        let mut byte = [0];
        match Pin::new(stream).poll_read(cx, &mut byte) {
            Poll::Pending => {}
            Poll::Ready(Ok(1..)) => *self = Begun::Yes,
            Poll::Ready(Ok(0) | Err(_)) => *self = Begun::No,
        }
    }
}

impl Progress {
    fn add(&mut self, bytes: &[u8]) {
        self.newest.extend_from_slice(&bytes[bytes.len().saturating_sub(PROGRESS_BYTES)..]);
        if self.newest.len() > PROGRESS_BYTES {
            self.newest.drain(..self.newest.len() - PROGRESS_BYTES);
        }
        if !self.timer_set {
            self.timer.set(Some(self.runtime.now() + PROGRESS_INTERVAL));
            self.timer_set = true;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        if !self.timer_set || self.timer.poll_expired(cx).is_pending() {
            return;
        }
        self.timer_set = false;
        self.timer.set(None);
        // A character that is cut at either end is left out.
        let start = self.newest.iter().take(3).take_while(|&&byte| byte & 0xC0 == 0x80).count();
        let mut text = String::new();
        for chunk in self.newest[start..].utf8_chunks() {
            text.push_str(chunk.valid());
        }
        self.newest.clear();
        if !text.trim().is_empty() {
            (self.tell)(text.trim_end());
        }
    }
}
