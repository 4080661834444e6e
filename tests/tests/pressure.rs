//! Much in both directions at once, through pipes that hold little.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::proto::contract::{BashInput, Secret, SessionAssignParams};
use bma_runtime_tokio::{
    Authenticator, Client, ClientOptions, Endpoint, Harness, HarnessOptions, Runtime, ToolContext, ToolError,
};

/// Just under what a frame of the contract holds.
const LARGE: usize = 60_000;

/// Both sides have far more to write than the socket between them holds. If each
/// stopped reading until the other had read, nobody would ever read again.
#[test]
fn large_calls_and_large_results_at_once_all_arrive() {
    bma_runtime_tokio::run(|runtime| async move { exchange(runtime).await }).unwrap();
}

async fn exchange(runtime: Arc<dyn Runtime>) {
    let place = tempfile::tempdir().unwrap();
    let socket = place.path().join("brain.sock");
    let harness = Harness::new(Arc::clone(&runtime), HarnessOptions::new(Authenticator::anybody()));
    let listening = harness.listen(&Endpoint::Unix(socket)).await.unwrap();
    let mut options = ClientOptions::direct("hand", &listening.url(), Secret::default()).unwrap();
    options.request_timeout = Duration::from_secs(20);
    let client = Client::new(Arc::clone(&runtime), options).unwrap();
    client.tools().bash(|input: BashInput, context: ToolContext| async move {
        // Spawned, so that results do not come in the order of the calls.
        let large = "r".repeat(LARGE);
        context.progress("half way");
        Ok::<_, ToolError>(format!("{}{}", &large[input.command.len() % 7..], input.command.len()))
    });
    client.start().await.unwrap();
    let executor = harness.wait_executor().await;
    let session = executor.assign(SessionAssignParams { session_id: "s".into(), ..Default::default() }).await.unwrap();
    session.ready().await.unwrap();

    let calls: Vec<_> = (0..64)
        .map(|number| {
            let session = session.clone();
            tokio::spawn(async move {
                let command = "c".repeat(LARGE - number);
                session.tools().bash(BashInput { command, ..Default::default() }).await
            })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        let result = call.await.unwrap().unwrap_or_else(|error| panic!("call {number}: {error}"));
        let text = result.content[0].text.as_deref().unwrap_or_default();
        assert!(text.ends_with(&(LARGE - number).to_string()), "call {number} got another one's result");
    }
    client.stop("done").await;
    listening.stop();
}
