//! The clock and the timers, which must agree with each other.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bma_runtime::Timer;
use bma_runtime::proto::Time;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep};

/// One origin for the whole process, so that times of two instances compare.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Far enough that nobody waits for it, near enough that tokio and every system can represent it.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(crate) fn now() -> Time {
    let origin = *ORIGIN;
    Time::ORIGIN + Instant::now().saturating_duration_since(origin)
}

/// A tokio `Sleep` behind a time of ours. The sleep is made when it is first
/// waited for, so a timer that is never due costs nothing.
#[derive(Debug)]
pub(crate) struct TokioTimer {
    handle: Handle,
    at: Option<Time>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The sleep stands at `at`.
    armed: bool,
}

impl TokioTimer {
    pub(crate) fn new(handle: Handle) -> Self {
        TokioTimer { handle, at: None, sleep: None, armed: false }
    }

    fn armed_sleep(&mut self, wait: Duration) -> Pin<&mut Sleep> {
        let deadline = Instant::now() + wait.min(FAR);
        let sleep = self.sleep.get_or_insert_with(|| {
            let _context = self.handle.enter();
            self.armed = true;
            Box::pin(tokio::time::sleep_until(deadline))
        });
        if !self.armed {
            self.armed = true;
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut()
    }
}

impl Timer for TokioTimer {
    fn set(&mut self, at: Option<Time>) {
        if self.at != at {
            self.at = at;
            self.armed = false;
        }
    }

    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        loop {
            // The clock first: tokio's cooperative budget can hide a sleep that has ended.
            let now = now();
            if now >= at {
                return Poll::Ready(());
            }
            ready!(self.armed_sleep(at.saturating_since(now)).poll(cx));
            // Early, because the time lies beyond `FAR`: sleep on.
            self.armed = false;
        }
    }
}
