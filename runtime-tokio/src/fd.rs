//! Descriptors as streams and as events: pipes, PTY masters, pidfds.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bma_runtime::{Readiness, Timer};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use crate::clock::{self, TokioTimer};

/// How often to look at a descriptor that was hung up and then came to life again.
const HUNG_UP_POLL: Duration = Duration::from_millis(20);

#[allow(deprecated)] // Newer constructors are unsafe for types that could close their descriptor early; an OwnedFd cannot.
fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, interest)
}

/// A descriptor that is read, written, or both.
#[derive(Debug)]
pub(crate) struct FdStream {
    /// `None` once closed.
    fd: Option<AsyncFd<OwnedFd>>,
    interest: Interest,
    read_again: TokioTimer,
    write_again: TokioTimer,
}

impl FdStream {
    /// Must be called in the runtime's context.
    pub(crate) fn new(fd: OwnedFd, handle: Handle) -> io::Result<Self> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK)?;
        let interest = match flags & OFlags::ACCMODE {
            OFlags::RDONLY => Interest::READABLE,
            OFlags::WRONLY => Interest::WRITABLE,
            _ => Interest::READABLE | Interest::WRITABLE,
        };
        let fd = register(fd, interest)?;
        let (read_again, write_again) = (TokioTimer::new(handle.clone()), TokioTimer::new(handle));
        Ok(FdStream { fd: Some(fd), interest, read_again, write_again })
    }
}

/// Tries `operation` when the descriptor is ready for it, until it gives anything but "would block".
///
/// tokio keeps a hang-up for good, but a PTY that every process had left can be
/// opened anew. Such a descriptor counts as ready while it would block, so
/// waiting for readiness would spin: it is looked at now and then instead.
fn poll_io<R>(
    fd: &AsyncFd<OwnedFd>,
    again: &mut TokioTimer,
    direction: Interest,
    cx: &mut Context<'_>,
    mut operation: impl FnMut(&OwnedFd) -> Result<R, Errno>,
) -> Poll<io::Result<R>> {
    loop {
        let mut guard = ready!(if direction.is_readable() { fd.poll_read_ready(cx) } else { fd.poll_write_ready(cx) })?;
        match operation(fd.get_ref()) {
            Ok(done) => return Poll::Ready(Ok(done)),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                let ready = guard.ready();
                guard.clear_ready();
                if ready.is_read_closed() || ready.is_write_closed() {
                    again.set(Some(clock::now() + HUNG_UP_POLL));
                    ready!(again.poll_expired(cx));
                }
            }
            Err(error) => return Poll::Ready(Err(error.into())),
        }
    }
}

fn wrong_direction(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("the descriptor is not open for {what}"))
}

impl futures_io::AsyncRead for FdStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some(fd) = &this.fd else { return Poll::Ready(Ok(0)) };
        if !this.interest.is_readable() {
            return Poll::Ready(Err(wrong_direction("reading")));
        }
        poll_io(fd, &mut this.read_again, Interest::READABLE, cx, |fd| match rustix::io::read(fd, &mut *buf) {
            // How Linux says that no process holds the other side of a PTY any more.
            Err(Errno::IO) => Ok(0),
            read => read,
        })
    }
}

impl futures_io::AsyncWrite for FdStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some(fd) = &this.fd else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        if !this.interest.is_writable() {
            return Poll::Ready(Err(wrong_direction("writing")));
        }
        poll_io(fd, &mut this.write_again, Interest::WRITABLE, cx, |fd| rustix::io::write(fd, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.fd = None;
        Poll::Ready(Ok(()))
    }
}

/// A descriptor that becomes readable once.
#[derive(Debug)]
pub(crate) struct FdReadiness {
    fd: AsyncFd<OwnedFd>,
    ready: bool,
}

impl FdReadiness {
    /// Must be called in the runtime's context.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(FdReadiness { fd: register(fd, Interest::READABLE)?, ready: false })
    }
}

impl Readiness for FdReadiness {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.ready {
            ready!(self.fd.poll_read_ready(cx))?.retain_ready();
            self.ready = true;
        }
        Poll::Ready(Ok(()))
    }
}
