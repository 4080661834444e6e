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
    /// The token of the connection is to be renewed.
    TokenRefresh,
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

/// A wall-clock stamp as RFC 3339 text in UTC, with milliseconds. `unix_time`
/// is the time since the Unix epoch, which the driver reads: machines have no clock.
pub fn rfc3339(unix_time: Duration) -> String {
    const DAY: u64 = 86_400;
    let (days, second) = (unix_time.as_secs() / DAY, unix_time.as_secs() % DAY);
    // Days are counted from 1 March of the year 0, so that a leap day comes last in its year;
    // 146,097 days are one 400-year cycle, 719,468 lie between that origin and the epoch.
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = cycle * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", unix_time.subsec_millis())
}

/// The time since the Unix epoch that an RFC 3339 text names, in any offset, to the nanosecond. `None` for what is no
/// such text, and for times before the epoch.
pub fn unix_time_of(stamp: &str) -> Option<Duration> {
    const MINUTE: u64 = 60;
    let bytes = stamp.as_bytes();
    let number = |from: usize, to: usize| {
        let digits = bytes.get(from..to)?;
        digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
    };
    let is = |at: usize, wanted: u8| bytes.get(at).is_some_and(|byte| byte.eq_ignore_ascii_case(&wanted));
    if !(is(4, b'-') && is(7, b'-') && is(10, b'T') && is(13, b':') && is(16, b':')) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let leap_day = u64::from(year % 4 == 0 && (year % 100 != 0 || year % 400 == 0));
    let days = match month {
        2 => 28 + leap_day,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second is the 61st of its minute; here it is the first of the next.
    if !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut end = 19;
    let mut nanos: u64 = 0;
    if is(end, b'.') {
        let digits = bytes[end + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        end += 1 + digits;
        // What is finer than a nanosecond is cut off.
        let kept = digits.min(9);
        nanos = number(20, 20 + kept)? * 10_u64.pow(u32::try_from(9 - kept).ok()?);
    }
    let (ahead, offset) = match bytes.get(end)? {
        b'Z' | b'z' if bytes.len() == end + 1 => (true, 0),
        sign @ (b'+' | b'-') if bytes.len() == end + 6 && is(end + 3, b':') => {
            let (hours, minutes) = (number(end + 1, end + 3)?, number(end + 4, end + 6)?);
            if hours > 23 || minutes > 59 {
                return None;
            }
            (*sign == b'+', (hours * 60 + minutes) * MINUTE)
        }
        _ => return None,
    };
    // As in `rfc3339`, the other way around.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let (cycle, year) = (years / 400, years % 400);
    let day_of_year = (153 * months + 2) / 5 + day - 1;
    let days = cycle * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * MINUTE + second;
    let seconds = if ahead { seconds.checked_sub(offset)? } else { seconds + offset };
    Some(Duration::new(seconds, u32::try_from(nanos).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_know_leap_days_and_the_turn_of_years() {
        let at = |secs, millis| rfc3339(Duration::from_secs(secs) + Duration::from_millis(millis));
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_400, 7), "2000-02-29T00:00:00.007Z");
        assert_eq!(at(1_709_251_199, 999), "2024-02-29T23:59:59.999Z");
        assert_eq!(at(1_735_689_599, 0), "2024-12-31T23:59:59.000Z");
        assert_eq!(at(4_107_542_400, 0), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn a_stamp_reads_as_the_time_that_it_was_made_of() {
        for day in 0..60_000 {
            let time = Duration::from_millis(day * 86_400_000 + day * 1_439 % 86_400_000);
            assert_eq!(unix_time_of(&rfc3339(time)), Some(time), "{}", rfc3339(time));
        }
        let seconds = |stamp| unix_time_of(stamp).map(|time| time.as_secs_f64());
        assert_eq!(seconds("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(seconds("1970-01-01t01:00:00.5z"), Some(3600.5));
        assert_eq!(seconds("2024-02-29T23:59:60Z"), Some(1_709_251_200.0));
        assert_eq!(seconds("2024-03-01T01:29:59+01:30"), Some(1_709_251_199.0));
        assert_eq!(seconds("2024-02-29T20:59:59-03:00"), Some(1_709_251_199.0));
        assert_eq!(unix_time_of("1970-01-01T00:00:00.1234567899Z"), Some(Duration::from_nanos(123_456_789)));
    }

    #[test]
    fn what_is_no_stamp_reads_as_none() {
        let good = "2026-11-30T12:34:56.789+02:00";
        assert!(unix_time_of(good).is_some());
        for end in 0..good.len() {
            assert_eq!(unix_time_of(&good[..end]), None, "{}", &good[..end]);
        }
        for bad in [
            "",
            "now",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+00:01",
            "0000-01-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00Z ",
            "2026-01-01 00:00:00Z",
            "2026-1-01T00:00:00Z",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:0é",
        ] {
            assert_eq!(unix_time_of(bad), None, "{bad}");
        }
        assert!(unix_time_of("9999-12-31T23:59:59.999999999Z").is_some());
    }

    #[test]
    fn time_saturates_and_never_runs_backwards() {
        let late = Time::from_nanos(u64::MAX);
        assert_eq!(late + Duration::from_secs(1), late);
        assert_eq!(Time::ORIGIN.saturating_since(late), Duration::ZERO);
        assert_eq!(Time::from_millis(1500).to_string(), "1.500000000s");
    }
}
