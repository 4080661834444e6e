//! The executor listens on a Unix socket, and the harness dials.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bma_runtime::proto::contract::{ConnectionState, ExecutorId, Secret};
use bma_runtime::proto::executor::End;
use bma_runtime::{
    Authenticator, Client, ClientOptions, DialExecutorError, ExecutorListener, Harness, HarnessOptions, Runtime,
    ToolError,
};

use super::{Rig, command, eventually, session_names, start, text};

/// A client that listens at a path, not started.
async fn listening(rig: &Rig, path: &Path) -> Client {
    let listener = ExecutorListener::bind(&rig.runtime, path, rig.token.clone()).await.unwrap();
    let client = rig.client_of(ClientOptions::listening("machine", listener));
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    client
}

/// Another harness. It lets nobody in by itself.
fn another_harness(rig: &Rig) -> Harness {
    Harness::new(Arc::clone(&rig.runtime), HarnessOptions::new(Authenticator::bearer(Secret::new("nobody's"))))
}

fn private_folder() -> tempfile::TempDir {
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().unwrap()
}

fn mode(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// One whole round, with nothing but the dial the other way round.
pub async fn a_harness_dials_an_executor_that_listens(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let folder = private_folder();
    let path = folder.path().join("made/for it/hand.sock");
    let client = listening(&rig, &path).await;
    assert_eq!((mode(path.parent().unwrap()), mode(&path)), (0o700, 0o600));
    let registered = start(&rig.runtime, {
        let client = client.clone();
        async move { client.start().await }
    });
    let executor = rig.harness.dial_executor(&path, rig.token.clone()).await.unwrap();
    assert_eq!(*executor.id(), registered.await.unwrap().executor_id);
    assert!(executor.is_connected());
    let session = rig.session(&executor, "s").await;
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    session.stop("").await.unwrap();
    assert_eq!(client.stop("").await, End::Stopped);
    executor.gone().await;
    assert!(!path.exists(), "an end of the client is one of its listener");
    let nobody = rig.harness.dial_executor(&path, rig.token.clone()).await.unwrap_err();
    assert!(matches!(nobody, DialExecutorError::Unreachable { .. }), "{nobody}");
    assert!(nobody.to_string().contains(path.to_str().unwrap()), "{nobody}");
    rig.finish().await;
}

/// No time is too long for an executor that waits, and a stop ends the wait.
pub async fn a_client_that_waits_for_a_harness_stops(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let folder = private_folder();
    let path = folder.path().join("hand.sock");
    let client = listening(&rig, &path).await;
    let started = start(&rig.runtime, {
        let client = client.clone();
        async move { client.start().await }
    });
    eventually(&rig.runtime, "it waits", || client.state() == ConnectionState::Connecting).await;
    assert_eq!(client.stop("").await, End::Stopped);
    assert_eq!(started.await.unwrap_err(), End::Stopped);
    assert!(!path.exists());
    // Nor does one that was never started keep its socket.
    let client = listening(&rig, &path).await;
    assert_eq!(client.stop("").await, End::Stopped);
    assert!(!path.exists());
    rig.finish().await;
}

/// One brain at a time; the next one has its turn when that goes.
pub async fn the_next_harness_becomes_the_brain(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let folder = private_folder();
    let path = folder.path().join("hand.sock");
    let client = listening(&rig, &path).await;
    drop(start(&rig.runtime, {
        let client = client.clone();
        async move { client.start().await }
    }));
    let first = rig.harness.dial_executor(&path, rig.token.clone()).await.unwrap();
    rig.session(&first, "first").await;

    let late = another_harness(&rig);
    let refused = late.dial_executor(&path, rig.token.clone()).await.unwrap_err();
    assert!(refused.to_string().contains("503 instead of 101: another harness drives this executor"), "{refused}");

    // One that does not wait for its turn takes it from nobody.
    let impatient = late.dial_executor(&path, rig.token.clone());
    assert!(super::within(&rig.runtime, Duration::from_millis(50), impatient).await.is_none());
    let next = start(&rig.runtime, {
        let (harness, path, token) = (another_harness(&rig), path.clone(), rig.token.clone());
        async move { harness.dial_executor(&path, token).await.map(|executor| (harness, executor)) }
    });
    rig.harness.release("another one's turn").await;
    let (harness, executor) = next.await.unwrap();
    let session = executor.assign(super::assignment("next")).await.unwrap();
    session.ready().await.unwrap();
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "ran");
    assert_eq!(session_names(&client.active_sessions()), ["next"], "what the first one had is over");
    harness.close("done").await;
    assert!(matches!(client.done().await, End::ClosedByHarness(_)));
    rig.finish().await;
}

/// A harness that dials again within the lease goes on where it was.
pub async fn a_harness_that_dials_again_finds_its_sessions(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let folder = private_folder();
    let path = folder.path().join("hand.sock");
    let client = listening(&rig, &path).await;
    let between = Between::new(folder.path().join("between.sock"), path);
    drop(start(&rig.runtime, {
        let client = client.clone();
        async move { client.start().await }
    }));
    let executor = rig.harness.dial_executor(&between.path, rig.token.clone()).await.unwrap();
    let session = rig.session(&executor, "s").await;
    for _ in 0..3 {
        between.cut();
        eventually(&rig.runtime, "the cut is noticed", || !executor.is_connected()).await;
        let call = start(&rig.runtime, {
            let session = session.clone();
            async move { session.tools().bash(command("x")).await }
        });
        let again = rig.harness.dial_executor(&between.path, rig.token.clone()).await.unwrap();
        assert_eq!(again.id(), executor.id());
        assert_eq!(text(&call.await.unwrap()), "ran");
    }
    assert_eq!(rig.harness.executors().iter().map(|known| known.id().clone()).collect::<Vec<ExecutorId>>().len(), 1);
    rig.finish().await;
}

/// Who does not know the token is told so, and is no brain.
pub async fn a_wrong_token_makes_nobody_the_brain(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let folder = private_folder();
    let path = folder.path().join("hand.sock");
    let client = listening(&rig, &path).await;
    drop(start(&rig.runtime, {
        let client = client.clone();
        async move { client.start().await }
    }));
    for wrong in ["", "wrong", &rig.token.expose()[1..]] {
        let refused = rig.harness.dial_executor(&path, Secret::new(wrong)).await.unwrap_err();
        assert!(matches!(refused, DialExecutorError::Unauthorized { .. }), "{refused}");
        assert!(refused.to_string().contains("401") && !refused.to_string().contains(rig.token.expose()), "{refused}");
    }
    assert_eq!(client.state(), ConnectionState::Connecting, "it still waits");
    // More than may wait at a time, and none of them says anything: they cannot keep it from the right one for long.
    let silent: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(&path).unwrap()).collect();
    drop(silent);
    let mut dialled = rig.harness.dial_executor(&path, rig.token.clone()).await;
    for _ in 0..100 {
        if dialled.is_ok() {
            break;
        }
        dialled = rig.harness.dial_executor(&path, rig.token.clone()).await;
    }
    dialled.unwrap();
    rig.finish().await;
}

/// The socket is for its owner alone, and takes nobody's place who is alive.
pub async fn a_place_that_others_reach_is_refused(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let folder = private_folder();
    let bind = |path: PathBuf| {
        let (runtime, token) = (Arc::clone(&rig.runtime), rig.token.clone());
        async move { ExecutorListener::bind(&runtime, &path, token).await.map_err(|error| error.to_string()) }
    };
    let open = folder.path().join("open");
    std::fs::create_dir(&open).unwrap();
    for others in [0o755, 0o710, 0o701, 0o770, 0o1777] {
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(others)).unwrap();
        let refused = bind(open.join("hand.sock")).await.unwrap_err();
        let fix = format!("(mode {others:04o}): chmod 700 {}", open.display());
        assert!(refused.contains(&fix), "{refused}");
        assert!(!open.join("hand.sock").exists());
    }
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o700)).unwrap();
    let path = open.join("hand.sock");
    let alive = bind(path.clone()).await.unwrap();
    let refused = bind(path.clone()).await.unwrap_err();
    assert!(refused.contains("another program listens there"), "{refused}");
    assert!(path.exists(), "the living one keeps its socket");
    drop(alive);
    assert!(!path.exists());
    // Left by a program that was killed.
    drop(UnixListener::bind(&path).unwrap());
    drop(bind(path.clone()).await.unwrap());
    std::fs::write(&path, "a file").unwrap();
    let refused = bind(path.clone()).await.unwrap_err();
    assert!(refused.contains("is no socket"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"a file");
    let refused = bind(path.join("hand.sock")).await.unwrap_err();
    assert!(refused.contains("its folder"), "{refused}");
    let listener = ExecutorListener::bind(&rig.runtime, &open.join("b.sock"), Secret::default()).await;
    assert!(listener.unwrap_err().to_string().contains("the token is empty"));
    rig.finish().await;
}

/// Stands between the two, and can cut what goes through it.
struct Between {
    path: PathBuf,
    open: Arc<Mutex<Vec<UnixStream>>>,
}

impl Between {
    fn new(path: PathBuf, to: PathBuf) -> Self {
        let listener = UnixListener::bind(&path).unwrap();
        let open = Arc::<Mutex<Vec<UnixStream>>>::default();
        let known = Arc::clone(&open);
        // Ends with the process: nothing of it is anybody else's.
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), UnixStream::connect(&to).unwrap());
                let ends = |stream: &UnixStream| stream.try_clone().unwrap();
                known.lock().unwrap().extend([ends(&near), ends(&far)]);
                for (mut from, mut to) in [(ends(&near), ends(&far)), (far, near)] {
                    std::thread::spawn(move || {
                        let mut bytes = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Self { path, open }
    }

    fn cut(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
