//! The names of a core's brains.
#![allow(clippy::unwrap_used)] // a test panics on purpose

use std::sync::Arc;

use bma_hands_posix::Posix;
use bma_hands_posix::hands::{Core, CoreError, CoreOptions};
use bma_runtime::proto::contract::Secret;
use bma_runtime::{Client, ClientOptions};

#[test]
fn a_brains_name_is_free_again_when_its_client_has_ended_or_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    bma_runtime_tokio::run(|runtime| async move {
        let client = || {
            // Nobody listens there, and nobody needs to.
            let options = ClientOptions::direct("machine", "unix:///nonexistent/brain.sock", Secret::default());
            Client::new(Arc::clone(&runtime), options.unwrap()).unwrap()
        };
        let core = Core::new(Arc::clone(&runtime), Arc::new(Posix::direct()), CoreOptions::new(folder.path())).unwrap();
        let taken = |client: &Client| matches!(core.attach("cloud", client), Err(CoreError::DuplicateBrain(_)));

        let first = client();
        core.attach("cloud", &first).unwrap();
        assert!(taken(&client()));
        core.attach("local", &client()).unwrap();

        let mut reconnecting = first.events();
        let starting = first.clone();
        runtime.spawn(Box::pin(async move { drop(starting.start().await) }));
        reconnecting.next().await.unwrap();
        assert!(taken(&client()), "also while there is no connection");
        first.stop("enough").await;
        let second = client();
        core.attach("cloud", &second).unwrap();
        assert!(taken(&first));

        drop((first, second));
        // A client with a handler of its own is not taken, nor is the name.
        let decided = client();
        decided.on_session_assign(|_| std::future::ready(Ok(true))).unwrap();
        assert!(matches!(core.attach("cloud", &decided), Err(CoreError::Handler(_))));
        core.attach("cloud", &client()).unwrap();
    })
    .unwrap();
}
