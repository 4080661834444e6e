//! A stream in memory, with two ends.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_io::{AsyncRead, AsyncWrite};

/// Bytes that wait to be read, at most: past it a writer waits.
const CAPACITY: usize = 16 * 1024;

/// Two ends of one stream. Dropping or closing one ends the other.
pub fn duplex() -> (End, End) {
    let (there, back) = (Arc::<Mutex<Way>>::default(), Arc::<Mutex<Way>>::default());
    (End { read: Arc::clone(&back), write: Arc::clone(&there) }, End { read: there, write: back })
}

#[derive(Debug, Default)]
struct Way {
    bytes: VecDeque<u8>,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

/// One end.
#[derive(Debug)]
pub struct End {
    read: Arc<Mutex<Way>>,
    write: Arc<Mutex<Way>>,
}

fn lock(way: &Mutex<Way>) -> MutexGuard<'_, Way> {
    way.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl AsyncRead for End {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut way = lock(&self.read);
        if way.bytes.is_empty() {
            if way.closed {
                return Poll::Ready(Ok(0));
            }
            way.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let taken = way.bytes.len().min(into.len());
        for (place, byte) in into.iter_mut().zip(way.bytes.drain(..taken)) {
            *place = byte;
        }
        let writer = way.writer.take();
        drop(way);
        wake(writer);
        Poll::Ready(Ok(taken))
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut way = lock(&self.write);
        if way.closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = CAPACITY - way.bytes.len();
        if room == 0 {
            way.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let taken = room.min(bytes.len());
        way.bytes.extend(&bytes[..taken]);
        let reader = way.reader.take();
        drop(way);
        wake(reader);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        close(&self.write);
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        close(&self.write);
        close(&self.read);
    }
}

fn close(way: &Mutex<Way>) {
    let mut way = lock(way);
    way.closed = true;
    let wakers = (way.reader.take(), way.writer.take());
    drop(way);
    wake(wakers.0);
    wake(wakers.1);
}
