//! The whole stack: a `Client` whose handler answers at once, and a `Harness`, each with its default options.

use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::proto::contract::{Json, Secret, SessionAssignParams, SessionId, ToolCallParams, ToolName};
use bma_runtime_tokio::{
    Authenticator, Client, ClientOptions, Endpoint, Executor, Harness, HarnessOptions, Listening, Session,
    TokioRuntime, ToolOutput,
};

use super::{Caller, Contestant, at_once, in_turn};
use crate::support::{INPUT, TEXT};

pub(crate) struct Ours {
    caller: Calls,
    executor: Executor,
    sessions: u64,
    client: Client,
    _harness: Harness,
    _listening: Listening,
}

#[derive(Clone)]
struct Calls {
    session: Session,
    input: Json,
}

impl Caller for Calls {
    async fn call(&self) {
        let params = ToolCallParams { tool: ToolName::Bash, input: self.input.clone(), ..ToolCallParams::default() };
        let result = self.session.call_tool(params).await.unwrap();
        assert_eq!(result.content[0].text.as_deref(), Some(TEXT));
    }
}

impl Ours {
    pub(crate) async fn connect() -> Self {
        let runtime = Arc::new(TokioRuntime::current());
        let token = Secret::new("a-token-of-the-bench".to_owned());
        let harness = Harness::new(runtime.clone(), HarnessOptions::new(Authenticator::bearer(token.clone())));
        let listening = harness.listen(&Endpoint::Tcp { host: "127.0.0.1".into(), port: 0 }).await.unwrap();
        let options = ClientOptions::direct("bench", &listening.url(), token).unwrap();
        let client = Client::new(runtime, options).unwrap();
        client.tools().raw(ToolName::Bash, |_, _| async { Ok(ToolOutput::text(TEXT)) });
        client.start().await.unwrap();
        let executor = harness.wait_executor().await;
        let session = new_session(&executor, 1).await;
        let caller = Calls { session, input: Json::from_text(INPUT.to_owned()).unwrap() };
        Self { caller, executor, sessions: 1, client, _harness: harness, _listening: listening }
    }

    pub(crate) async fn end(self) {
        self.client.stop("done").await;
    }
}

async fn new_session(executor: &Executor, number: u64) -> Session {
    let session_id = SessionId::from(format!("sess_01J9ZQ4T7R8X2M5N{number:06}"));
    let params = SessionAssignParams { session_id, ..SessionAssignParams::default() };
    let session = executor.assign(params).await.unwrap();
    session.ready().await.unwrap();
    session
}

impl Contestant for Ours {
    /// A new session: results are recorded until theirs ends.
    async fn renew(&mut self) {
        self.caller.session.stop("next").await.unwrap();
        self.sessions += 1;
        self.caller.session = new_session(&self.executor, self.sessions).await;
    }

    async fn one_at_a_time(&self, calls: usize) -> Vec<Duration> {
        in_turn(&self.caller, calls).await
    }

    async fn many(&self, calls: usize, in_flight: usize) {
        at_once(&self.caller, calls, in_flight).await;
    }
}
