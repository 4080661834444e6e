//! The machines' clock and the shape that all of them share.

use std::fmt;
use std::time::Duration;

/// A point in time: nanoseconds since an origin that the driver picks.
///
/// A machine never reads a clock. Its driver passes the time with every input,
/// so the same inputs give the same run: on any target, in a simulation, in a
/// model checker. Only differences mean anything, and the driver's clock should
/// be monotonic; time that runs backwards is clamped by the machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The driver's origin.
    pub const ORIGIN: Time = Time(0);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// The point `millis` milliseconds after the origin (saturating).
    pub const fn from_millis(millis: u64) -> Self {
        Time(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to `self`, zero when `earlier` is later.
    pub fn saturating_since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Time {
    type Output = Time;

    /// Saturates at the end of time (some 584 years after the origin).
    fn add(self, rhs: Duration) -> Time {
        let nanos = u64::try_from(rhs.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// Why a machine wants to be fed at its [`deadline`](Machine::deadline). For logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Output is queued: poll now.
    OutputQueued,
    /// A request of ours has had no answer for its time-out.
    RequestTimeout,
    /// The upgrade, the first frame or the closing handshake must be over by then.
    HandshakeTimeout,
    /// The next heartbeat is due.
    Heartbeat,
    /// The peer has been silent for too long: the connection counts as dead.
    PeerSilent,
    /// The lease runs out.
    LeaseExpiry,
    /// The back-off before the next dial ends.
    Reconnect,
    /// The next attempt to deliver something the peer has not accepted yet.
    Retry,
    /// A tool call's own deadline.
    ToolDeadline,
    /// A session's stop or assignment must be answered by then.
    SessionDeadline,
}

/// The shape of every stateful part of the protocol: three verbs, no I/O.
///
/// A driver repeats: [`feed`](Machine::feed) what happened, then
/// [`poll`](Machine::poll) until `None`, then wait for the next input or for
/// [`deadline`](Machine::deadline), whichever comes first; at the deadline it
/// feeds a tick. What an application asks of a machine are ordinary methods
/// beside these, which queue outputs as `feed` does: drain after them too.
///
/// The trait is for static use (generic drivers, tests, fuzzing).
pub trait Machine {
    /// What can happen to the machine. Borrowed: nothing is copied before it is needed.
    type Input<'a>;
    /// What the machine wants done. Owned.
    type Output;

    /// Takes one input. Never blocks and never panics, whatever it is fed.
    fn feed(&mut self, now: Time, input: Self::Input<'_>);

    /// The next output, oldest first. O(1) when there is none.
    #[must_use]
    fn poll(&mut self) -> Option<Self::Output>;

    /// When to feed the next tick, and why. A time in the past means now;
    /// `None` means that only an input can change anything.
    #[must_use]
    fn deadline(&self) -> Option<(Time, Reason)>;
}

/// The earlier of two deadlines; `None` never comes.
pub fn earliest(a: Option<(Time, Reason)>, b: Option<(Time, Reason)>) -> Option<(Time, Reason)> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.0 < a.0 { b } else { a }),
        (a, b) => a.or(b),
    }
}
