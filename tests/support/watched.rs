//! A runtime that counts what it has given out, so that a test can see that
//! everything came to its end, and that no task panicked.

use std::future::Future;
use std::io::{self, IoSlice};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bma_runtime::proto::Time;
use bma_runtime::{BoxFuture, Endpoint, Listener, Runtime, Stream, Timer};
use futures_io::{AsyncRead, AsyncWrite};

use crate::adapter_suite::sleep;

/// How long everything may take to end once a test is over.
const END_WITHIN: Duration = Duration::from_secs(10);

/// What is open: tasks, streams, listeners.
#[derive(Debug, Default)]
struct Counts {
    tasks: AtomicUsize,
    streams: AtomicUsize,
    listeners: AtomicUsize,
    panics: Mutex<Vec<String>>,
}

/// Counts one thing for as long as it lives.
#[derive(Debug)]
struct Counted {
    counts: Arc<Counts>,
    which: fn(&Counts) -> &AtomicUsize,
}

impl Counted {
    fn new(counts: &Arc<Counts>, which: fn(&Counts) -> &AtomicUsize) -> Self {
        which(counts).fetch_add(1, Ordering::SeqCst);
        Counted { counts: Arc::clone(counts), which }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.which)(&self.counts).fetch_sub(1, Ordering::SeqCst);
    }
}

/// Opens a connection in the place of the runtime's own way.
pub type Dialer = Box<dyn Fn(&Endpoint) -> io::Result<Box<dyn Stream>> + Send + Sync>;

/// A runtime around another one.
pub struct Watched {
    inner: Arc<dyn Runtime>,
    counts: Arc<Counts>,
    dialer: Option<Dialer>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("inner", &self.inner).field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Watched {
    /// Watches what is done on `inner`.
    pub fn new(inner: Arc<dyn Runtime>) -> Arc<Self> {
        Arc::new(Watched { inner, counts: Arc::default(), dialer: None })
    }

    /// The same, where dialling is done by `dialer`.
    pub fn with_dialer(inner: Arc<dyn Runtime>, dialer: Dialer) -> Arc<Self> {
        Arc::new(Watched { inner, counts: Arc::default(), dialer: Some(dialer) })
    }

    /// Waits until no task, stream or listener is left, and fails when that
    /// takes long, or when a task has panicked.
    pub async fn assert_all_over(&self) {
        let deadline = self.inner.now() + END_WITHIN;
        while self.anything_left() && self.inner.now() < deadline {
            sleep(&self.inner, Duration::from_millis(1)).await;
        }
        assert!(!self.anything_left(), "left behind: {:?}", self.counts);
        let panics = self.counts.panics.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(panics.is_empty(), "tasks panicked: {panics:?}");
    }

    /// How many tasks have not ended.
    pub fn tasks(&self) -> usize {
        self.counts.tasks.load(Ordering::SeqCst)
    }

    /// How many streams have not been dropped.
    pub fn streams(&self) -> usize {
        self.counts.streams.load(Ordering::SeqCst)
    }

    fn anything_left(&self) -> bool {
        let Counts { tasks, streams, listeners, .. } = &*self.counts;
        [tasks, streams, listeners].iter().any(|count| count.load(Ordering::SeqCst) > 0)
    }

    fn watch(&self, stream: Box<dyn Stream>) -> Box<dyn Stream> {
        Box::new(WatchedStream { stream, _counted: Counted::new(&self.counts, |counts| &counts.streams) })
    }
}

impl Runtime for Watched {
    fn now(&self) -> Time {
        self.inner.now()
    }

    fn unix_time(&self) -> Duration {
        self.inner.unix_time()
    }

    fn seed(&self) -> u64 {
        self.inner.seed()
    }

    fn timer(&self) -> Box<dyn Timer> {
        self.inner.timer()
    }

    fn spawn(&self, task: BoxFuture<()>) {
        let counted = Counted::new(&self.counts, |counts| &counts.tasks);
        self.inner.spawn(Box::pin(WatchedTask { task: Some(task), counted }));
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        self.inner.run_blocking(work);
    }

    fn dial(&self, to: &Endpoint) -> BoxFuture<io::Result<Box<dyn Stream>>> {
        let dialled = match &self.dialer {
            Some(dialer) => Box::pin(std::future::ready(dialer(to))),
            None => self.inner.dial(to),
        };
        let counts = Arc::clone(&self.counts);
        Box::pin(async move {
            let stream = dialled.await?;
            let counted = Counted::new(&counts, |counts| &counts.streams);
            Ok(Box::new(WatchedStream { stream, _counted: counted }) as Box<dyn Stream>)
        })
    }

    fn listen(&self, on: &Endpoint) -> BoxFuture<io::Result<Box<dyn Listener>>> {
        let (counts, listening) = (Arc::clone(&self.counts), self.inner.listen(on));
        Box::pin(async move {
            let listener = listening.await?;
            let counted = Counted::new(&counts, |counts| &counts.listeners);
            Ok(Box::new(WatchedListener { listener, counted }) as Box<dyn Listener>)
        })
    }

    #[cfg(unix)]
    fn pipe(&self, fd: std::os::fd::OwnedFd) -> io::Result<Box<dyn Stream>> {
        self.inner.pipe(fd).map(|stream| self.watch(stream))
    }

    #[cfg(unix)]
    fn readiness(&self, fd: std::os::fd::OwnedFd) -> io::Result<Box<dyn bma_runtime::Readiness>> {
        self.inner.readiness(fd)
    }
}

/// Notes the panic of a task, which the runtime under it would swallow.
struct WatchedTask {
    task: Option<BoxFuture<()>>,
    counted: Counted,
}

impl Future for WatchedTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.task else { return Poll::Ready(()) };
        match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => {}
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
                let mut panics = self.counted.counts.panics.lock().unwrap_or_else(PoisonError::into_inner);
                panics.push(text.unwrap_or_else(|| "a panic".to_owned()));
            }
        }
        self.task = None;
        Poll::Ready(())
    }
}

#[derive(Debug)]
struct WatchedStream {
    stream: Box<dyn Stream>,
    _counted: Counted,
}

impl AsyncRead for WatchedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for WatchedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

#[derive(Debug)]
struct WatchedListener {
    listener: Box<dyn Listener>,
    counted: Counted,
}

impl Listener for WatchedListener {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Box<dyn Stream>, String)>> {
        self.listener.poll_accept(cx).map_ok(|(stream, peer)| {
            let counted = Counted::new(&self.counted.counts, |counts| &counts.streams);
            (Box::new(WatchedStream { stream, _counted: counted }) as Box<dyn Stream>, peer)
        })
    }

    fn local_endpoint(&self) -> &Endpoint {
        self.listener.local_endpoint()
    }
}
