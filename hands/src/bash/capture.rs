//! The beginning and the end of a stream, in bounded memory.

use bma_runtime::Captured;

/// Keeps the first and the last bytes of a stream and counts all of them.
///
/// Every byte is copied at most twice however long the stream is: the end is kept
/// in a ring that new bytes overwrite in place.
#[derive(Debug)]
pub(super) struct Capture {
    head: Vec<u8>,
    head_limit: usize,
    ring: Vec<u8>,
    ring_limit: usize,
    /// Where the oldest byte of a full ring is.
    oldest: usize,
    total: u64,
}

impl Capture {
    /// Keeps at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        let head_limit = limit / 2;
        Self { head: Vec::new(), head_limit, ring: Vec::new(), ring_limit: limit - head_limit, oldest: 0, total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.head_limit - self.head.len()));
        self.head.extend_from_slice(head);
        // What would be overwritten at once is not copied at all.
        let rest = &rest[rest.len().saturating_sub(self.ring_limit)..];
        let (grow, rest) = rest.split_at(rest.len().min(self.ring_limit - self.ring.len()));
        self.ring.extend_from_slice(grow);
        let (to_end, wrapped) = rest.split_at(rest.len().min(self.ring.len() - self.oldest));
        self.ring[self.oldest..self.oldest + to_end.len()].copy_from_slice(to_end);
        self.oldest += to_end.len();
        if self.oldest == self.ring.len() {
            self.oldest = 0;
        }
        self.ring[self.oldest..self.oldest + wrapped.len()].copy_from_slice(wrapped);
        self.oldest += wrapped.len();
    }

    /// What was kept.
    pub(super) fn finish(mut self) -> Captured {
        self.ring.rotate_left(self.oldest);
        Captured::new(self.head, self.ring, self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_both_ends_whatever_the_pieces() {
        let stream: Vec<u8> = (0..5_000u32).map(|i| (i % 251) as u8).collect();
        for limit in [0, 1, 2, 7, 100, 4_999, 5_000, 9_000] {
            for piece in [1, 3, 64, 1_000, 5_000] {
                let mut capture = Capture::new(limit);
                stream.chunks(piece).for_each(|bytes| capture.push(bytes));
                let captured = capture.finish();
                let head = limit / 2;
                let expected = if limit >= stream.len() {
                    stream.clone()
                } else {
                    [&stream[..head], &stream[stream.len() - (limit - head)..]].concat()
                };
                assert_eq!(captured.kept(), expected, "limit {limit}, pieces of {piece}");
                assert_eq!(captured.total_bytes(), 5_000);
                assert_eq!(captured.omitted_bytes() as usize, stream.len() - expected.len());
            }
        }
    }
}
