//! One upgraded connection: a stream and the channel over it.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use bma_proto_core::Time;
use bma_proto_core::time::{Reason, earliest};
use bma_proto_core::websocket::{Channel, Closed, How, Output};
use futures_io::{AsyncRead, AsyncWrite};

use crate::runtime::Stream;

/// Bytes read at a time. The scratch belongs to the thread, not to a connection.
const SCRATCH_BYTES: usize = 64 * 1024;

/// Reads that one pass makes before it lets others run.
const MAX_READS: usize = 4;

/// While this much waits to be written, no more frames are taken: they wait
/// in their machine, where each kind of them has its bound.
const FULL_WIRE_BYTES: usize = 64 * 1024;

/// A wire buffer with more room than this is not kept for the next connection.
const MAX_SPARE_BYTES: usize = 2 * FULL_WIRE_BYTES;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
    /// A wire buffer that no connection needs now: a busy one finds room for a
    /// burst of frames here, and an idle one keeps none.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A connection as a driver sees it: text frames in and out. It owns no task.
#[derive(Debug)]
pub(crate) struct Wire {
    stream: Box<dyn Stream>,
    channel: Channel,
    unsent: Vec<u8>,
    written: usize,
    /// Nothing more comes from the stream, or nothing more can go there.
    broken: bool,
}

/// What reading brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Bytes came: outputs may be there.
    Bytes,
    /// Bytes came, and there may be more: come again.
    More,
}

impl Wire {
    pub(crate) fn new(stream: Box<dyn Stream>, channel: Channel) -> Self {
        Self { stream, channel, unsent: Vec::new(), written: 0, broken: false }
    }

    pub(crate) fn channel(&mut self) -> &mut Channel {
        &mut self.channel
    }

    /// Reads what is there, up to a bound. Pending when there is nothing (any more).
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<Progress> {
        if self.broken || self.channel.is_over() {
            return Poll::Pending;
        }
        SCRATCH.with_borrow_mut(|scratch| {
            for read in 0..MAX_READS {
                match Pin::new(&mut self.stream).poll_read(cx, scratch) {
                    Poll::Ready(Ok(0)) => self.stream_ended(now),
                    Poll::Ready(Ok(bytes)) => {
                        self.channel.receive(now, &scratch[..bytes]);
                        continue;
                    }
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Poll::Ready(Err(_)) => self.stream_ended(now),
                    Poll::Pending if read == 0 => return Poll::Pending,
                    Poll::Pending => {}
                }
                return Poll::Ready(Progress::Bytes);
            }
            Poll::Ready(Progress::More)
        })
    }

    fn stream_ended(&mut self, now: Time) {
        self.broken = true;
        self.channel.end_of_stream(now);
    }

    /// The next output of the channel.
    pub(crate) fn output(&mut self) -> Option<Output> {
        self.channel.poll()
    }

    /// Whether a frame can be taken. One that is broken takes all of them, to nowhere.
    pub(crate) fn has_room(&self) -> bool {
        self.broken || self.unsent.len() - self.written < FULL_WIRE_BYTES
    }

    /// Queues a text frame. False when the channel takes none any more: its end follows.
    pub(crate) fn send(&mut self, text: &str) -> bool {
        if self.unsent.capacity() == 0 {
            self.unsent = SPARE.take();
        }
        self.channel.send_text(text, &mut self.unsent).is_ok()
    }

    pub(crate) fn close(&mut self, now: Time, code: u16, reason: &str) {
        // A code that may not be sent is one of ours gone wrong; an ordinary end is always allowed.
        if self.channel.close(now, code, reason).is_err() {
            let _ = self.channel.close(now, 1000, reason);
        }
    }

    /// Writes what can be written now. True when there was no room for frames and now is.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>, now: Time) -> bool {
        let was_full = !self.has_room();
        let _ = self.poll_flush(cx, now);
        was_full && self.has_room()
    }

    /// Writes everything that waits. Ready once all of it is gone, or cannot go.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<()> {
        self.channel.transmit(&mut self.unsent);
        while self.written < self.unsent.len() && !self.broken {
            match Pin::new(&mut self.stream).poll_write(cx, &self.unsent[self.written..]) {
                Poll::Ready(Ok(0)) => self.stream_ended(now),
                Poll::Ready(Ok(bytes)) => self.written += bytes,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(_)) => self.stream_ended(now),
                Poll::Pending => {
                    // What is written is given back also while there is always something left.
                    if self.written >= self.unsent.len() / 2 {
                        self.unsent.drain(..self.written);
                        self.written = 0;
                    }
                    return Poll::Pending;
                }
            }
        }
        self.written = 0;
        let mut empty = mem::take(&mut self.unsent);
        if (1..=MAX_SPARE_BYTES).contains(&empty.capacity()) {
            empty.clear();
            SPARE.set(empty);
        }
        Poll::Ready(())
    }

    pub(crate) fn deadline(&self) -> Option<(Time, Reason)> {
        earliest(self.channel.deadline(), None)
    }

    /// Feeds the clock to the channel.
    pub(crate) fn tick(&mut self, now: Time) {
        self.channel.tick(now);
    }

    /// Shuts the stream down, best effort.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.broken {
            return Poll::Ready(());
        }
        Pin::new(&mut self.stream).poll_close(cx).map(drop)
    }
}

/// The close code and reason that the machines are told: what the peer said, or what broke.
pub(crate) fn told(closed: &Closed) -> (Option<u16>, String) {
    match &closed.how {
        How::Peer => (closed.code, closed.reason.clone()),
        _ => (None, closed.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

    use std::task::Waker;

    use bma_proto_core::websocket::{Limits, Role, Target, Upgraded};

    use super::*;

    /// A stream that takes little at a time and gives nothing.
    #[derive(Debug)]
    struct Narrow {
        taken: usize,
        takes_now: usize,
    }

    impl AsyncRead for Narrow {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Narrow {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if self.takes_now == 0 {
                self.takes_now = 9_000;
                return Poll::Pending;
            }
            let takes = bytes.len().min(self.takes_now);
            self.takes_now -= takes;
            self.taken += takes;
            Poll::Ready(Ok(takes))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn wire() -> Wire {
        let upgraded = Upgraded {
            role: Role::Server,
            protocol: "bma.executor.v1.1".to_owned(),
            target: Target::Control,
            limits: Limits::default(),
        };
        let mut wire =
            Wire::new(Box::new(Narrow { taken: 0, takes_now: 0 }), Channel::upgraded(Time::ORIGIN, upgraded));
        assert!(matches!(wire.output(), Some(Output::Open { .. })));
        wire
    }

    #[test]
    fn a_link_that_is_never_idle_costs_no_more_for_it() {
        let mut wire = wire();
        let mut cx = Context::from_waker(Waker::noop());
        let frame = "x".repeat(10_000);
        let mut sent = 0;
        for _ in 0..10_000 {
            while wire.has_room() {
                assert!(wire.send(&frame));
                sent += frame.len();
            }
            let _ = wire.flush(&mut cx, Time::ORIGIN);
            assert!(wire.unsent.capacity() <= 4 * FULL_WIRE_BYTES, "{} bytes", wire.unsent.capacity());
        }
        assert!(sent > 20_000_000, "the link moved on: {sent}");
    }

    #[test]
    fn a_full_link_says_when_there_is_room_again() {
        let mut wire = wire();
        let mut cx = Context::from_waker(Waker::noop());
        while wire.has_room() {
            wire.send(&"x".repeat(10_000));
        }
        let mut passes = 0;
        while !wire.flush(&mut cx, Time::ORIGIN) {
            passes += 1;
            assert!(passes < 100, "there is room, and nobody was told");
        }
        assert!(wire.has_room());
    }
}
