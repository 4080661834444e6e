//! Runs the BMA Executor Protocol SDK on [tokio](https://tokio.rs): sockets, timers, tasks, pipes.
//!
//! A program depends on this crate alone and finds the rest of the SDK here,
//! re-exported from [`bma_runtime`]. It brings a tokio runtime of its own:
//!
//! ```
//! use bma_runtime_tokio::{Runtime, TokioRuntime};
//!
//! # #[allow(clippy::disallowed_methods)]
//! let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
//! let runtime = TokioRuntime::new(tokio.handle().clone());
//! println!("up for {}", runtime.now());
//! # std::io::Result::Ok(())
//! ```
//!
//! or has [`run`] make one:
//!
//! ```
//! use bma_runtime_tokio::Endpoint;
//!
//! let listening = bma_runtime_tokio::run(|runtime| async move {
//!     let listener = runtime.listen(&Endpoint::Tcp { host: "127.0.0.1".into(), port: 0 }).await?;
//!     std::io::Result::Ok(listener.local_endpoint().to_string())
//! })??;
//! println!("listened on {listening}");
//! # std::io::Result::Ok(())
//! ```

mod clock;
#[cfg(unix)]
mod fd;
mod listener;
mod stream;
#[cfg(unix)]
mod unix_socket;

use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bma_runtime::proto::Time;
pub use bma_runtime::*;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// How long [`run`] waits at the end for blocking work that is still running.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// A [`Runtime`] on tokio. Cheap to clone.
///
/// The tokio runtime needs its I/O and time drivers (`enable_all`); tokio panics
/// where a missing one is first used. `run_blocking` uses tokio's blocking
/// threads, whose number the tokio runtime's builder bounds
/// (`max_blocking_threads`). All instances share one clock, so their times compare.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    handle: Handle,
}

impl TokioRuntime {
    /// On the tokio runtime that `handle` belongs to.
    pub fn new(handle: Handle) -> Self {
        TokioRuntime { handle }
    }

    /// On the tokio runtime that this code runs in.
    ///
    /// # Panics
    /// Outside of a tokio runtime. [`new`](Self::new) works anywhere.
    #[track_caller]
    pub fn current() -> Self {
        TokioRuntime::new(Handle::current())
    }

    /// Sockets and timers register with the runtime whose context they are made
    /// in: this gives `future` that context, whoever polls it.
    fn in_context<T>(&self, future: impl Future<Output = T> + Send + 'static) -> BoxFuture<T> {
        let handle = self.handle.clone();
        let mut future = Box::pin(future);
        Box::pin(poll_fn(move |cx| {
            let _context = handle.enter();
            future.as_mut().poll(cx)
        }))
    }
}

/// Runs `main` on a new tokio runtime with a worker thread per core, and then shuts that runtime down.
///
/// Tasks that are left are dropped where they stand. Blocking work that is left
/// gets five seconds to end; after that its thread is left to itself.
///
/// # Errors
/// When the system refuses what a runtime needs (threads, an epoll instance).
///
/// # Panics
/// When `main` panics, or inside of another tokio runtime.
pub fn run<F: Future>(main: impl FnOnce(Arc<dyn Runtime>) -> F) -> io::Result<F::Output> {
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("bma-tokio").build()?;
    let runtime = Arc::new(TokioRuntime::new(tokio.handle().clone()));
    let output = tokio.block_on(main(runtime));
    tokio.shutdown_timeout(SHUTDOWN_GRACE);
    Ok(output)
}

impl Runtime for TokioRuntime {
    fn now(&self) -> Time {
        clock::now()
    }

    fn unix_time(&self) -> Duration {
        // A clock that stands before 1970 is wrong in any case.
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn seed(&self) -> u64 {
        // std keys each `RandomState` anew, from entropy of the system.
        RandomState::new().hash_one(clock::now())
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(clock::TokioTimer::new(self.handle.clone()))
    }

    fn spawn(&self, task: BoxFuture<()>) {
        // Dropping the join handle detaches the task; tokio catches its panic.
        drop(self.handle.spawn(task));
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(self.handle.spawn_blocking(work));
    }

    fn dial(&self, to: &Endpoint) -> BoxFuture<io::Result<Box<dyn Stream>>> {
        let to = to.clone();
        self.in_context(async move { dial(to).await })
    }

    fn listen(&self, on: &Endpoint) -> BoxFuture<io::Result<Box<dyn Listener>>> {
        let on = on.clone();
        let handle = self.handle.clone();
        self.in_context(async move { listen(on, handle).await })
    }

    #[cfg(unix)]
    fn pipe(&self, fd: std::os::fd::OwnedFd) -> io::Result<Box<dyn Stream>> {
        let _context = self.handle.enter();
        Ok(Box::new(fd::FdStream::new(fd, self.handle.clone())?))
    }

    #[cfg(unix)]
    fn readiness(&self, fd: std::os::fd::OwnedFd) -> io::Result<Box<dyn Readiness>> {
        let _context = self.handle.enter();
        Ok(Box::new(fd::FdReadiness::new(fd)?))
    }
}

async fn dial(to: Endpoint) -> io::Result<Box<dyn Stream>> {
    match to {
        Endpoint::Tcp { host, port } => {
            let tcp = TcpStream::connect((host, port)).await?;
            // Frames are written whole: waiting to fill a segment only delays them.
            tcp.set_nodelay(true)?;
            Ok(Box::new(stream::Compat(tcp)))
        }
        #[cfg(unix)]
        Endpoint::Unix(path) => Ok(Box::new(stream::Compat(tokio::net::UnixStream::connect(path).await?))),
        other => Err(unsupported(&other)),
    }
}

async fn listen(on: Endpoint, handle: Handle) -> io::Result<Box<dyn Listener>> {
    match on {
        Endpoint::Tcp { host, port } => Ok(Box::new(listener::Tcp::bind(host, port, handle).await?)),
        #[cfg(unix)]
        Endpoint::Unix(path) => Ok(Box::new(listener::Unix::bind(path, handle)?)),
        other => Err(unsupported(&other)),
    }
}

fn unsupported(endpoint: &Endpoint) -> io::Error {
    let what = match endpoint {
        Endpoint::NamedPipe(_) if cfg!(windows) => "named pipes are not built into this adapter yet: use a TCP port",
        Endpoint::NamedPipe(_) => "named pipes exist on Windows only: use a Unix socket (unix:///PATH)",
        Endpoint::Unix(_) => "Unix sockets are not supported on this system: use a TCP port",
        _ => "this kind of endpoint is not supported by the tokio adapter",
    };
    io::Error::new(io::ErrorKind::Unsupported, what)
}
