//! Listening sockets.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

use bma_runtime::{Endpoint, Listener, Stream};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Handle;

use crate::stream::Compat;

/// How many connections may wait to be accepted: executors come back all at once
/// after a harness was restarted, and one that finds no room is held up for a second.
pub(crate) const BACKLOG: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Tcp {
    listener: TcpListener,
    local: Endpoint,
    handle: Handle,
}

impl Tcp {
    /// On the first address of `host` that can be bound. Must be polled in the runtime's context.
    pub(crate) async fn bind(host: String, port: u16, handle: Handle) -> io::Result<Self> {
        let mut refused = io::Error::new(io::ErrorKind::AddrNotAvailable, "the host has no address");
        // The system has no kind of its own for a name that is none.
        let unknown = |error| io::Error::new(io::ErrorKind::NotFound, error);
        for address in tokio::net::lookup_host((host, port)).await.map_err(unknown)? {
            match bind(address) {
                Ok(listener) => {
                    let local = listener.local_addr()?;
                    let local = Endpoint::Tcp { host: local.ip().to_string(), port: local.port() };
                    return Ok(Tcp { listener, local, handle });
                }
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // On Windows this would let a second program take the port over.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

impl Listener for Tcp {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Box<dyn Stream>, String)>> {
        let _context = self.handle.enter();
        let (tcp, peer) = ready!(self.listener.poll_accept(cx))?;
        // Fails only on a connection that is gone already, which its first read tells.
        let _ = tcp.set_nodelay(true);
        Poll::Ready(Ok((Box::new(Compat(tcp)), peer.to_string())))
    }

    fn local_endpoint(&self) -> &Endpoint {
        &self.local
    }
}

#[cfg(unix)]
pub(crate) use unix::Unix;

#[cfg(unix)]
mod unix {
    use std::path::PathBuf;

    use tokio::net::UnixListener;

    use super::{Compat, Context, Endpoint, Handle, Listener, Poll, Stream, io, ready};
    use crate::unix_socket::{self, SocketFile};

    #[derive(Debug)]
    pub(crate) struct Unix {
        listener: UnixListener,
        local: Endpoint,
        handle: Handle,
        /// Removes the socket's file when the listener goes.
        _file: SocketFile,
    }

    impl Unix {
        /// Must be called in the runtime's context.
        pub(crate) fn bind(path: PathBuf, handle: Handle) -> io::Result<Self> {
            let (listener, file) = unix_socket::bind(&path)?;
            let listener = UnixListener::from_std(listener)?;
            Ok(Unix { listener, local: Endpoint::Unix(path), handle, _file: file })
        }
    }

    impl Listener for Unix {
        fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Box<dyn Stream>, String)>> {
            let _context = self.handle.enter();
            let (unix, _) = ready!(self.listener.poll_accept(cx))?;
            let peer = match unix.peer_cred().map(|peer| (peer.uid(), peer.pid())) {
                Ok((uid, Some(pid))) => format!("unix peer, uid {uid}, pid {pid}"),
                Ok((uid, None)) => format!("unix peer, uid {uid}"),
                Err(_) => "unix peer".to_owned(),
            };
            Poll::Ready(Ok((Box::new(Compat(unix)), peer)))
        }

        fn local_endpoint(&self) -> &Endpoint {
            &self.local
        }
    }
}
