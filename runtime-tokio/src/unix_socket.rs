//! A listening Unix socket for its owner alone, and the life of its file.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// Listens on `path`. The listener is non-blocking.
///
/// A socket file that nobody listens on any more, left by a program that was
/// killed, is replaced. Two programs that find the same one at the same moment
/// may both believe to have replaced it; the later one then has the name.
pub(crate) fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket()?;
    match rustix::net::bind(&socket, &address) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => {
            // A link is not followed, and what is no socket is none of ours to remove.
            if !fs::symlink_metadata(path)?.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "something of this name is there, and is no socket",
                ));
            }
            if rustix::net::connect(self::socket()?, &address) != Err(Errno::CONNREFUSED) {
                return Err(Errno::ADDRINUSE.into());
            }
            fs::remove_file(path)?;
            rustix::net::bind(&socket, &address)?;
        }
        Err(error) => return Err(error.into()),
    }
    // From here on a failure removes the file again.
    let file = SocketFile::at(path)?;
    // Between bind and listen nobody can connect yet, so the mode leaves no gap.
    rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
    rustix::net::listen(&socket, crate::listener::BACKLOG.cast_signed())?;
    Ok((UnixListener::from(socket), file))
}

fn socket() -> io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Removes the socket's file on drop, unless another socket has taken its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(SocketFile { path: std::path::absolute(path)?, identity: identity(path)? })
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // What cannot be removed is abandoned, and replaced by the next listener.
            let _ = fs::remove_file(&self.path);
        }
    }
}
