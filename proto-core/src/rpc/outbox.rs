//! Frames that wait to be written.

use std::collections::VecDeque;

/// A frame, and what it is to whoever bounds the queue.
#[derive(Clone, Debug)]
struct Queued {
    frame: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An answer to the other side.
    Answer,
    /// A request of ours, by its number.
    Request(u64),
    Notification,
}

/// Frames in the order in which they are written. It has no bound of its own:
/// each kind has the one of whoever queues it. Answers are bounded by reading
/// no further while too many wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Queued>,
    bytes: usize,
    answers: usize,
}

impl Outbox {
    pub(super) fn answer(&mut self, frame: String) {
        self.push(frame, Kind::Answer);
    }

    pub(super) fn request(&mut self, number: u64, frame: String) {
        self.push(frame, Kind::Request(number));
    }

    pub(super) fn notification(&mut self, frame: String) {
        self.push(frame, Kind::Notification);
    }

    fn push(&mut self, frame: String, kind: Kind) {
        self.bytes += frame.len();
        self.answers += usize::from(kind == Kind::Answer);
        self.queue.push_back(Queued { frame, kind });
    }

    pub(super) fn pop(&mut self) -> Option<String> {
        let queued = self.queue.pop_front()?;
        Some(self.taken(queued))
    }

    /// Takes a request back that was not written yet. True when it was there.
    pub(super) fn withdraw(&mut self, number: u64) -> bool {
        let place = self.queue.iter().position(|queued| queued.kind == Kind::Request(number));
        let withdrawn = place.and_then(|place| self.queue.remove(place));
        withdrawn.map(|queued| self.taken(queued)).is_some()
    }

    fn taken(&mut self, queued: Queued) -> String {
        self.bytes -= queued.frame.len();
        self.answers -= usize::from(queued.kind == Kind::Answer);
        queued.frame
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn answers(&self) -> usize {
        self.answers
    }
}
