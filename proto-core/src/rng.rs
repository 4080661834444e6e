//! Seeded randomness: jitter and generated ids, replayed exactly by the seed.

/// A generator for what nobody may foresee as well as for jitter.
///
/// Each number is SipHash-2-4 of a counter under keys made of the seed: whoever
/// sees some of them learns neither the seed nor the next one, which a plain
/// mixing generator would tell. They are as hard to guess as the seed is (64
/// bits). Ids may rest on that; what has to withstand a patient guesser, such
/// as a token, comes from the system's own entropy instead.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    keys: (u64, u64),
    counter: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let keys = (siphash((seed, !seed), 0), siphash((seed, !seed), 1));
        Self { keys, counter: 0 }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(1);
        siphash(self.keys, self.counter)
    }

    /// A whole number from 0 up to and including `max`.
    pub(crate) fn up_to(&mut self, max: u64) -> u64 {
        match max.checked_add(1) {
            Some(bound) => self.next_u64() % bound,
            None => self.next_u64(),
        }
    }

    /// A fresh identifier: `prefix` and 24 hex digits.
    pub(crate) fn id<T: for<'a> From<&'a str>>(&mut self, prefix: &str) -> T {
        const HEX: [u8; 16] = *b"0123456789abcdef";
        const DIGITS: usize = 24;
        const LONGEST_PREFIX: usize = 8;
        let mut bits = u128::from(self.next_u64()) << 32 | u128::from(self.next_u64() >> 32);
        let mut id = [0; LONGEST_PREFIX + DIGITS];
        let (front, digits) = id.split_at_mut(prefix.len());
        front.copy_from_slice(prefix.as_bytes());
        for digit in digits[..DIGITS].iter_mut().rev() {
            *digit = HEX[(bits & 0xf) as usize];
            bits >>= 4;
        }
        let text = std::str::from_utf8(&id[..prefix.len() + DIGITS]);
        T::from(text.expect("a text and hex digits make a text"))
    }
}

/// SipHash-2-4 of one number, as its eight bytes.
fn siphash((k0, k1): (u64, u64), number: u64) -> u64 {
    const LENGTH: u64 = 8 << 56;
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    for block in [number, LENGTH] {
        v[3] ^= block;
        rounds(&mut v, 2);
        v[0] ^= block;
    }
    v[2] ^= 0xff;
    rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn rounds(v: &mut [u64; 4], count: usize) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published test vector of the algorithm for eight bytes, 0 to 7, under the key 0 to 15.
    #[test]
    fn the_hash_is_the_published_one() {
        let keys = (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(siphash(keys, 0x0706_0504_0302_0100), 0x93f5_f579_9a93_2462);
    }

    #[test]
    fn a_seed_replays_its_ids_and_other_seeds_give_others() {
        let ids = |seed: u64| {
            let mut rng = Rng::new(seed);
            [rng.id::<String>("a_"), rng.id("a_")]
        };
        assert_eq!(ids(7), ids(7));
        let [first, second] = ids(7);
        assert_ne!(first, second);
        assert!(!ids(8).contains(&first) && !ids(8).contains(&second));
    }
}
