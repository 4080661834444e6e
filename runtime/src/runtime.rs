//! The seam to an async runtime: one small object-safe trait.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bma_proto_core::Time;
use futures_io::{AsyncRead, AsyncWrite};

/// A boxed future, as the object-safe methods below return.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What the SDK needs of an async runtime.
///
/// Held as `Arc<dyn Runtime>`, so that no handle carries a type parameter. An
/// adapter is a few hundred lines; timers and streams are boxed once, when
/// they are made.
///
/// Every method may be called from any thread, inside or outside of a task.
/// What it returns works as long as the runtime behind it runs. I/O errors are
/// the system's own: the caller knows what it asked for and names it.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The monotonic clock, since an origin of the runtime's choice.
    fn now(&self) -> Time;

    /// The wall clock, as the time since the Unix epoch. For stamps only, never for waiting.
    fn unix_time(&self) -> Duration;

    /// A fresh seed for the randomness of one machine (back-off jitter, generated ids).
    fn seed(&self) -> u64;

    /// A timer that is not set yet.
    fn timer(&self) -> Box<dyn Timer>;

    /// Runs a task until it ends, or until the runtime does. A task that panics ends alone.
    fn spawn(&self, task: BoxFuture<()>);

    /// Runs work that may block, off the threads that drive tasks.
    ///
    /// The adapter bounds the threads; work beyond them waits its turn, so how
    /// much may wait is for the caller to bound. Work that panics ends alone.
    /// A runtime that shuts down may drop work which has not begun.
    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>);

    /// Connects to `to`. Dropping the future abandons the attempt, and there is
    /// no other deadline than the system's.
    ///
    /// # Errors
    /// The system's; of several addresses of one host name, that of the last.
    /// [`io::ErrorKind::Unsupported`] for an endpoint that this system lacks.
    fn dial(&self, to: &Endpoint) -> BoxFuture<io::Result<Box<dyn Stream>>>;

    /// Listens on `on`; a TCP port of 0 picks a free one. A Unix socket is made
    /// for its owner alone (mode 0600), takes the place of one that nobody
    /// listens on any more, and is removed when the listener is dropped.
    ///
    /// # Errors
    /// The system's: [`io::ErrorKind::AddrInUse`] when somebody else listens
    /// there, [`io::ErrorKind::AlreadyExists`] when a file that is no socket
    /// has the socket's path, [`io::ErrorKind::NotFound`] when the folder of
    /// that is missing, or the host has no address.
    /// [`io::ErrorKind::Unsupported`] as with [`dial`](Runtime::dial).
    fn listen(&self, on: &Endpoint) -> BoxFuture<io::Result<Box<dyn Listener>>>;

    /// Wraps one end of a pipe, or a PTY master (which is read and written).
    ///
    /// The descriptor is set non-blocking, and closed on drop or by
    /// `poll_close`, which ends both directions. A PTY whose other side has
    /// been closed reads as the end of the stream.
    ///
    /// # Errors
    /// When the descriptor cannot be polled (a regular file, for instance).
    #[cfg(unix)]
    fn pipe(&self, fd: std::os::fd::OwnedFd) -> io::Result<Box<dyn Stream>>;

    /// Wraps a descriptor that becomes readable once, such as a pidfd at exit.
    /// Nothing is read from it, nor are its flags changed.
    ///
    /// # Errors
    /// When the descriptor cannot be polled.
    #[cfg(unix)]
    fn readiness(&self, fd: std::os::fd::OwnedFd) -> io::Result<Box<dyn Readiness>>;
}

/// A byte stream in both directions. Dropping it closes it.
pub trait Stream: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static {}

impl<T: AsyncRead + AsyncWrite + fmt::Debug + Send + Unpin + 'static> Stream for T {}

/// A timer that can be set again and again.
pub trait Timer: fmt::Debug + Send {
    /// Sets the time at which the timer is ready; `None` means never. Setting the same time again is free.
    ///
    /// Wakes nobody: poll afterwards, so that the new time is the one waited for.
    fn set(&mut self, at: Option<Time>);

    /// Ready once the time that was set has come, and until it is set anew. Never early.
    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// Accepts streams. Dropping it stops listening; accepted streams live on.
pub trait Listener: fmt::Debug + Send {
    /// The next stream and the peer's address, for logs.
    ///
    /// An error concerns one connection (aborted before it was accepted) or a
    /// shortage (of descriptors): wait a moment, then poll again.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Box<dyn Stream>, String)>>;

    /// Where it listens, with the port that was picked.
    fn local_endpoint(&self) -> &Endpoint;
}

/// Something that becomes ready once.
pub trait Readiness: fmt::Debug + Send {
    /// Ready once, and from then on.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// Where to dial or listen.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP port. The host may be a name when dialling.
    Tcp {
        /// Host name or address, an IPv6 address without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// A Unix domain socket.
    Unix(PathBuf),
    /// A Windows named pipe (`\\.\pipe\<name>`), by its name.
    NamedPipe(String),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => write!(f, "unix://{}", path.display()),
            Endpoint::NamedPipe(name) => write!(f, r"\\.\pipe\{name}"),
        }
    }
}
