//! Frames that wait to be written, and requests that wait to be among them.

use std::collections::{BTreeMap, VecDeque};

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
    answer_bytes: usize,
    requests: usize,
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
        match kind {
            Kind::Answer => {
                self.answers += 1;
                self.answer_bytes += frame.len();
            }
            Kind::Request(_) => self.requests += 1,
            Kind::Notification => {}
        }
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

    fn taken(&mut self, Queued { frame, kind }: Queued) -> String {
        self.bytes -= frame.len();
        match kind {
            Kind::Answer => {
                self.answers -= 1;
                self.answer_bytes -= frame.len();
            }
            Kind::Request(_) => self.requests -= 1,
            Kind::Notification => {}
        }
        frame
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

    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    pub(super) fn answer_bytes(&self) -> usize {
        self.answer_bytes
    }
}

/// Requests that wait for a place in flight, with their frames: the lowest number goes first.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    frames: BTreeMap<u64, String>,
    bytes: usize,
}

impl Waiting {
    pub(super) fn push(&mut self, number: u64, frame: String) {
        self.bytes += frame.len();
        self.frames.insert(number, frame);
    }

    pub(super) fn pop(&mut self) -> Option<(u64, String)> {
        let (number, frame) = self.frames.pop_first()?;
        self.bytes -= frame.len();
        Some((number, frame))
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let removed = self.frames.remove(&number);
        self.bytes -= removed.as_ref().map_or(0, String::len);
        removed.is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.frames.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}
