//! The wire: connections that deliver in order, until they do not.

use std::time::Duration;

use bma_runtime::proto::Time;

/// The world's dice.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed ^ 0x5DEE_CE66_D1CE_4E5B)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A time up to `max`.
    pub(crate) fn up_to(&mut self, max: Duration) -> Duration {
        Duration::from_nanos(self.below(max.as_nanos() as u64 + 1))
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let n = self.below(of.len() as u64) as usize;
        of.get(n)
    }
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Hands,
    Brain,
}

impl End {
    pub(crate) fn other(self) -> End {
        match self {
            End::Hands => End::Brain,
            End::Brain => End::Hands,
        }
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// A connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Whose it is.
    pub(crate) site: usize,
    /// Whether each end still has it.
    open: [bool; 2],
    /// When the last frame on its way to each end arrives.
    last: [Time; 2],
    /// What arrives at an end later than this is lost.
    cut: [Option<Time>; 2],
}

impl Connection {
    pub(crate) fn new(site: usize) -> Self {
        Self { site, open: [true; 2], ..Self::default() }
    }

    pub(crate) fn is_open(&self, end: End) -> bool {
        self.open[end.index()]
    }

    /// One end is done with it.
    pub(crate) fn leave(&mut self, end: End) {
        self.open[end.index()] = false;
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.iter().any(Option::is_some)
    }

    /// Breaks one direction: what is on its way to one end is lost from some moment on, and nobody is told.
    pub(crate) fn break_way(&mut self, to: End, now: Time, dice: &mut Dice) {
        self.cut[to.index()].get_or_insert(now + dice.up_to(Duration::from_millis(60)));
    }

    /// Breaks it: what is on its way to each end arrives up to some moment, which may lie between two frames of one batch.
    pub(crate) fn break_at(&mut self, now: Time, dice: &mut Dice) {
        for cut in &mut self.cut {
            cut.get_or_insert(now + dice.up_to(Duration::from_millis(60)));
        }
    }

    /// When something sent to an end now arrives there; `None` when it never does.
    pub(crate) fn arrival(&mut self, now: Time, to: End, dice: &mut Dice) -> Option<Time> {
        let arrives = self.last[to.index()].max(now + dice.up_to(Duration::from_millis(50)));
        self.last[to.index()] = arrives;
        self.cut[to.index()].is_none_or(|cut| arrives <= cut).then_some(arrives)
    }
}
