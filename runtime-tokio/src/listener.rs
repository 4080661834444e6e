//! Listening sockets.

use std::io;
use std::task::{Context, Poll, ready};

use bma_runtime::{Endpoint, Listener, Stream};
use tokio::net::TcpListener;
use tokio::runtime::Handle;

use crate::stream::Compat;

#[derive(Debug)]
pub(crate) struct Tcp {
    listener: TcpListener,
    local: Endpoint,
    handle: Handle,
}

impl Tcp {
    pub(crate) fn new(listener: TcpListener, handle: Handle) -> io::Result<Self> {
        let local = listener.local_addr()?;
        let local = Endpoint::Tcp { host: local.ip().to_string(), port: local.port() };
        Ok(Tcp { listener, local, handle })
    }
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
