//! Reading the pipes of a command.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bma_runtime::{Captured, Readiness, Runtime, Stream};
use futures_io::AsyncRead as _;

use super::capture::Capture;
use crate::blocking::{Either, either};
use crate::os::OsHandle;

/// As much as a pipe holds.
const BUFFER_BYTES: usize = 64 * 1024;

/// How many reads one pass makes at most, so that a command that writes without end delays nobody.
const READS_A_PASS: usize = 4;

/// Wraps the read end of a pipe.
#[cfg(unix)]
pub(super) fn open(runtime: &Arc<dyn Runtime>, handle: OsHandle) -> io::Result<Box<dyn Stream>> {
    runtime.pipe(handle)
}

#[cfg(not(unix))]
pub(super) fn open(_: &Arc<dyn Runtime>, _: OsHandle) -> io::Result<Box<dyn Stream>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Wraps a handle that becomes readable when a program has exited.
#[cfg(unix)]
pub(super) fn exit(runtime: &Arc<dyn Runtime>, handle: OsHandle) -> io::Result<Box<dyn Readiness>> {
    runtime.readiness(handle)
}

#[cfg(not(unix))]
pub(super) fn exit(_: &Arc<dyn Runtime>, _: OsHandle) -> io::Result<Box<dyn Readiness>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Room to read into, made when it is first needed.
#[derive(Debug, Default)]
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    fn room(&mut self) -> &mut [u8] {
        if self.0.is_empty() {
            self.0.resize(BUFFER_BYTES, 0);
        }
        &mut self.0
    }
}

/// One output pipe, read until its end.
#[derive(Debug)]
pub(super) struct Output {
    stream: Option<Box<dyn Stream>>,
    capture: Capture,
}

impl Output {
    pub(super) fn new(stream: Box<dyn Stream>, limit: usize) -> Self {
        Self { stream: Some(stream), capture: Capture::new(limit) }
    }

    /// Whether nothing holds the other end any more.
    pub(super) fn is_at_end(&self) -> bool {
        self.stream.is_none()
    }

    /// Reads what is there, up to a bound; wakes the task again when there is more.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch, mut seen: impl FnMut(&[u8])) {
        let room = scratch.room();
        for _ in 0..READS_A_PASS {
            let Some(stream) = &mut self.stream else { return };
            match Pin::new(stream).poll_read(cx, room) {
                Poll::Ready(Ok(0)) => self.stream = None,
                Poll::Ready(Ok(count)) => {
                    self.capture.push(&room[..count]);
                    seen(&room[..count]);
                }
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(error)) => {
                    // A pipe that cannot be read gives nothing more: its end.
                    tracing::debug!(%error, "reading a command's output failed");
                    self.stream = None;
                }
                Poll::Pending => return,
            }
        }
        cx.waker().wake_by_ref();
    }

    /// What was read; and the pipe, when something still holds its other end.
    pub(super) fn finish(self) -> (Captured, Option<Box<dyn Stream>>) {
        (self.capture.finish(), self.stream)
    }
}

/// Reads a pipe to nowhere until its end or until `stop`: closing it would kill whatever still writes to it.
pub(super) async fn drain(mut stream: Box<dyn Stream>, stop: impl Future<Output = ()> + Send) {
    let mut scratch = vec![0; 4 * 1024];
    let read = std::future::poll_fn(move |cx| {
        for _ in 0..READS_A_PASS * 4 {
            match Pin::new(&mut stream).poll_read(cx, &mut scratch) {
                Poll::Ready(Ok(0)) => return Poll::Ready(()),
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    });
    match either(read, stop).await {
        Either::First(()) | Either::Second(()) => {}
    }
}
