//! Seeded randomness: jitter and generated ids, replayed exactly by the seed.

/// SplitMix64: small, fast, and good enough for jitter. Never for credentials.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A whole number from 0 up to and including `max`.
    pub(crate) fn up_to(&mut self, max: u64) -> u64 {
        match max.checked_add(1) {
            Some(bound) => self.next_u64() % bound,
            None => self.next_u64(),
        }
    }

    /// A fresh identifier: `prefix` and 24 hex digits.
    pub(crate) fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}{:016x}{:08x}", self.next_u64(), self.next_u64() >> 32)
    }
}
