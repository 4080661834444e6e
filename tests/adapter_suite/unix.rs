//! Unix sockets, pipes, PTYs and pidfds.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;

use bma_runtime::{Endpoint, Listener, Runtime, Stream};
use futures_lite::future::zip;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use rustix::fs::{Mode, OFlags};
use rustix::pty::OpenptFlags;

use super::{accept, net, waits};

async fn listen(runtime: &Arc<dyn Runtime>, path: &Path) -> std::io::Result<Box<dyn Listener>> {
    runtime.listen(&Endpoint::Unix(path.to_owned())).await
}

async fn check_served(runtime: &Arc<dyn Runtime>, listener: &mut Box<dyn Listener>, path: &Path) {
    let to = Endpoint::Unix(path.to_owned());
    let (dialled, (accepted, peer)) = zip(runtime.dial(&to), accept(listener)).await;
    assert!(peer.contains(&format!("uid {}", rustix::process::getuid().as_raw())), "{peer}");
    net::check_echo(runtime, dialled.unwrap(), accepted).await;
}

/// And its file goes with the listener.
pub async fn a_socket_carries_bytes_and_is_for_its_owner_alone(runtime: Arc<dyn Runtime>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("brain.sock");
    let mut listener = listen(&runtime, &path).await.unwrap();
    assert_eq!(listener.local_endpoint(), &Endpoint::Unix(path.clone()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    check_served(&runtime, &mut listener, &path).await;
    drop(listener);
    assert!(!path.exists());
    let error = runtime.dial(&Endpoint::Unix(path)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Also while its listener is not accepting.
pub async fn a_socket_that_somebody_listens_on_is_kept(runtime: Arc<dyn Runtime>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("brain.sock");
    let mut first = listen(&runtime, &path).await.unwrap();
    let error = listen(&runtime, &path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    // The second one looked whether somebody is there, which is a connection that ended.
    let (mut looked, _) = accept(&mut first).await;
    assert_eq!(looked.read(&mut [0]).await.unwrap(), 0);
    check_served(&runtime, &mut first, &path).await;
}

/// As a program that was killed leaves it.
pub async fn a_socket_that_was_left_behind_is_replaced(runtime: Arc<dyn Runtime>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("brain.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    let mut listener = listen(&runtime, &path).await.unwrap();
    check_served(&runtime, &mut listener, &path).await;
}

/// Whatever it is.
pub async fn a_file_that_is_no_socket_is_kept(runtime: Arc<dyn Runtime>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    fs::write(&path, "precious").unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for at in [&path, &link] {
        let error = listen(&runtime, at).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    }
    assert_eq!(fs::read_to_string(&link).unwrap(), "precious");
}

/// When another listener has taken the name meanwhile.
pub async fn a_successors_socket_is_not_removed(runtime: Arc<dyn Runtime>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("brain.sock");
    let first = listen(&runtime, &path).await.unwrap();
    let theirs = fs::metadata(&path).unwrap().ino();
    fs::rename(&path, folder.path().join("moved")).unwrap();
    let mut second = listen(&runtime, &path).await.unwrap();
    assert_ne!(fs::metadata(&path).unwrap().ino(), theirs);
    drop(first);
    check_served(&runtime, &mut second, &path).await;
}

/// And not taken for something else.
pub async fn a_named_pipe_is_refused_with_a_reason(runtime: Arc<dyn Runtime>) {
    let endpoint = Endpoint::NamedPipe("brain".to_owned());
    let dialled = runtime.dial(&endpoint).await.unwrap_err();
    let listened = runtime.listen(&endpoint).await.unwrap_err();
    for error in [dialled, listened] {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("Windows"), "{error}");
    }
}

fn pipe() -> (OwnedFd, File) {
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    (reader, File::from(writer))
}

/// What is in it first, then the end.
pub async fn a_pipe_is_read_to_its_end(runtime: Arc<dyn Runtime>) {
    let (reader, mut writer) = pipe();
    let mut stream = runtime.pipe(reader).unwrap();
    let mut buffer = [0; 16];
    assert!(waits(stream.read(&mut buffer)).await);
    writer.write_all(b"first").unwrap();
    assert_eq!(stream.read(&mut buffer).await.unwrap(), 5);
    writer.write_all(b"second").unwrap();
    drop(writer);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "second");
    assert_eq!(stream.read(&mut buffer).await.unwrap(), 0);
}

/// The reader sees the end while the stream still exists.
pub async fn a_pipe_is_written_until_it_is_closed(runtime: Arc<dyn Runtime>) {
    let (reader, writer) = pipe();
    let mut stream = runtime.pipe(writer.into()).unwrap();
    stream.write_all(b"all of it").await.unwrap();
    stream.flush().await.unwrap();
    stream.close().await.unwrap();
    let mut received = String::new();
    File::from(reader).read_to_string(&mut received).unwrap();
    assert_eq!(received, "all of it");
    assert_eq!(stream.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// An error, and no signal.
pub async fn a_pipe_whose_reader_is_gone_breaks(runtime: Arc<dyn Runtime>) {
    let (reader, writer) = pipe();
    let mut stream = runtime.pipe(writer.into()).unwrap();
    drop(reader);
    assert_eq!(stream.write(b"to nobody").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// The other way is an error, and no wait without end.
pub async fn a_pipe_goes_one_way(runtime: Arc<dyn Runtime>) {
    let (reader, writer) = pipe();
    let (mut reader, mut writer) = (runtime.pipe(reader).unwrap(), runtime.pipe(writer.into()).unwrap());
    assert_eq!(reader.write(b"x").await.unwrap_err().kind(), ErrorKind::Unsupported);
    assert_eq!(writer.read(&mut [0]).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

/// And goes on when there is room.
pub async fn a_full_pipe_makes_its_writer_wait(runtime: Arc<dyn Runtime>) {
    let (reader, writer) = pipe();
    let mut reader = runtime.pipe(reader).unwrap();
    let mut writer = runtime.pipe(writer.into()).unwrap();
    let sent = vec![9; 1 << 20];
    let mut received = Vec::new();
    {
        let mut write = pin!(async {
            writer.write_all(&sent).await.unwrap();
            writer.close().await.unwrap();
        });
        assert!(waits(write.as_mut()).await);
        zip(write, async { reader.read_to_end(&mut received).await.unwrap() }).await;
    }
    assert!(sent == received);

    let (_unread, writer) = pipe();
    net::check_back_pressure(&runtime, runtime.pipe(writer.into()).unwrap()).await;
}

/// The writer finds nobody.
pub async fn a_pipe_that_is_dropped_is_closed(runtime: Arc<dyn Runtime>) {
    let (reader, mut writer) = pipe();
    drop(runtime.pipe(reader).unwrap());
    assert_eq!(writer.write(b"to nobody").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// An error at once.
pub async fn a_regular_file_cannot_be_waited_for(runtime: Arc<dyn Runtime>) {
    let file = || OwnedFd::from(tempfile::tempfile().unwrap());
    // Systems without epoll can wait for files, and give what is in them.
    if cfg!(target_os = "linux") {
        assert!(runtime.pipe(file()).is_err());
        assert!(runtime.readiness(file()).is_err());
    }
}

/// A master, and the path of its other side.
fn open_pty() -> (OwnedFd, std::path::PathBuf) {
    let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    rustix::pty::grantpt(&master).unwrap();
    rustix::pty::unlockpt(&master).unwrap();
    let name = rustix::pty::ptsname(&master, Vec::new()).unwrap();
    (master, name.into_string().unwrap().into())
}

fn open_terminal(path: &Path) -> File {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).unwrap().into()
}

async fn expect(stream: &mut Box<dyn Stream>, expected: &str) {
    let mut received = vec![0; expected.len()];
    stream.read_exact(&mut received).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&received), expected);
}

/// The end comes after what was written last.
pub async fn a_pty_goes_both_ways_and_ends(runtime: Arc<dyn Runtime>) {
    let (master, path) = open_pty();
    let mut terminal = open_terminal(&path);
    let mut master = runtime.pipe(master).unwrap();
    master.write_all(b"typed\n").await.unwrap();
    // What is typed is shown, as the terminal's settings have it at first.
    expect(&mut master, "typed\r\n").await;
    let mut line = [0; 6];
    terminal.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"typed\n");
    terminal.write_all(b"shown").unwrap();
    drop(terminal);
    expect(&mut master, "shown").await;
    assert_eq!(master.read(&mut [0]).await.unwrap(), 0);
}

/// A program may close its terminal and open it anew. Waiting must not burn the processor until then.
pub async fn a_pty_that_is_opened_again_goes_on(runtime: Arc<dyn Runtime>) {
    let (master, path) = open_pty();
    let mut master = runtime.pipe(master).unwrap();
    drop(open_terminal(&path));
    assert_eq!(master.read(&mut [0]).await.unwrap(), 0);
    let mut terminal = open_terminal(&path);
    assert!(waits(master.read(&mut [0])).await);
    terminal.write_all(b"again").unwrap();
    expect(&mut master, "again").await;
    let chunk = [b'x'; 4096];
    // Nobody reads what is typed: the writer must wait, and give the thread back.
    assert!(waits(async { while master.write(&chunk).await.is_ok() {} }).await);
}

/// Once and for good, before it is reaped.
pub async fn a_child_that_exits_makes_its_pidfd_ready(runtime: Arc<dyn Runtime>) {
    #[cfg(target_os = "linux")]
    {
        use std::future::poll_fn;
        use std::process::{Command, Stdio};

        let mut child = Command::new("sh").args(["-c", "read line; exit 7"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let mut exited = runtime.readiness(pidfd).unwrap();
        assert!(waits(poll_fn(|cx| exited.poll_ready(cx))).await);
        drop(child.stdin.take());
        poll_fn(|cx| exited.poll_ready(cx)).await.unwrap();
        poll_fn(|cx| exited.poll_ready(cx)).await.unwrap();
        assert_eq!(child.try_wait().unwrap().and_then(|status| status.code()), Some(7));

        let mut child = Command::new("true").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
        let mut exited = runtime.readiness(pidfd).unwrap();
        poll_fn(|cx| exited.poll_ready(cx)).await.unwrap();
        assert!(child.try_wait().unwrap().unwrap().success());
    }
    #[cfg(not(target_os = "linux"))]
    drop(runtime);
}
