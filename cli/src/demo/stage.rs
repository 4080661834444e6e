//! The two ends, their beginning and their end.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bma_hands::env::EnvPolicy;
use bma_hands::{Core, CoreOptions};
use bma_runtime_tokio::proto::contract::{Secret, SessionAssignParams};
use bma_runtime_tokio::proto::executor::End;
use bma_runtime_tokio::{
    Authenticator, Client, ClientOptions, Endpoint, Executor, Harness, HarnessOptions, Listening, Runtime, Session,
};

use super::steps::{Failed, Steps, Surprise, surprise};
use super::{LOOK_AGAIN, RUN_VARIABLE, processes, random_text};
use crate::host;
use crate::scratch::Scratch;

const HELPER_ENDS_WITHIN: Duration = Duration::from_secs(5);

/// A harness, and hands that are registered with it.
pub(super) struct Stage {
    listening: Listening,
    core: Core,
    client: Client,
    executor: Executor,
    workspace: PathBuf,
}

impl Stage {
    /// Starts both ends.
    pub(super) async fn open(
        runtime: Arc<dyn Runtime>,
        scratch: &Scratch,
        run: &str,
        steps: &mut Steps,
    ) -> Result<Self, Failed> {
        let workspace = scratch.path().join("workspace");
        let token = random_text().map_or_else(|_| Secret::default(), Secret::new);
        let (harness, listening) = steps.step("harness", start_harness(&runtime, token.clone())).await?;
        let hands = start_hands(runtime, scratch, run, &workspace, &listening, token, &harness);
        let (core, client, executor) = steps.step("hands", hands).await?;
        Ok(Self { listening, core, client, executor, workspace })
    }

    /// The session's directory.
    pub(super) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// Gives a session to the hands.
    pub(super) async fn assign(&self, steps: &mut Steps) -> Result<Session, Failed> {
        let work = async {
            let params = SessionAssignParams { session_id: "demo".into(), ..SessionAssignParams::default() };
            let expected = |error| surprise("a session that is ready", format!("{error}"));
            let session = self.executor.assign(params).await.map_err(expected)?;
            session.ready().await.map_err(expected)?;
            Ok((session, format!("session demo is ready in {}", self.workspace.display())))
        };
        steps.step("assign", work).await
    }

    /// Ends the session.
    pub(super) async fn stop_session(&self, session: &Session, steps: &mut Steps) -> Result<(), Failed> {
        let work = async {
            session.stop("the demo is over").await.map_err(|error| surprise("an orderly end", error.to_string()))?;
            match self.core.session_count() {
                0 => Ok(((), "the session has ended in order".to_owned())),
                open => Err(surprise("no open session", open.to_string())),
            }
        };
        steps.step("stop", work).await
    }

    /// Ends both ends, and looks whether anything is left of them.
    pub(super) async fn close(self, scratch: &Scratch, run: &str, steps: &mut Steps) -> Result<(), Failed> {
        let endpoint = self.listening.endpoint().clone();
        let (client, core, listening) = (self.client, self.core, self.listening);
        // They are dropped at its end: the hands' helper process goes with them.
        let ending = async move {
            let end = client.stop("the demo is over").await;
            let all_gone = core.close().await;
            listening.stop();
            match (end, all_gone) {
                (End::Stopped, true) => Ok(((), "hands and harness have stopped".to_owned())),
                (End::Stopped, false) => Err(surprise("an end of all processes", "some that could not be ended")),
                (end, _) => Err(surprise("hands that have stopped", end.to_string())),
            }
        };
        let ended = steps.step("end", ending).await;
        let looked = steps.step("left", nothing_left(&endpoint, scratch, run)).await;
        ended.and(looked)
    }
}

async fn start_harness(runtime: &Arc<dyn Runtime>, token: Secret) -> Result<((Harness, Listening), String), Surprise> {
    let harness = Harness::new(Arc::clone(runtime), HarnessOptions::new(Authenticator::bearer(token)));
    let endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port: 0 };
    let listening = harness.listen(&endpoint).await.map_err(|error| surprise("a free port", error.to_string()))?;
    let said = format!("listens on {}", listening.url());
    Ok(((harness, listening), said))
}

async fn start_hands(
    runtime: Arc<dyn Runtime>,
    scratch: &Scratch,
    run: &str,
    workspace: &Path,
    listening: &Listening,
    token: Secret,
    harness: &Harness,
) -> Result<((Core, Client, Executor), String), Surprise> {
    let unset = |problem: String| surprise("hands that start", problem);
    let home = scratch.path().join("home");
    std::fs::create_dir(&home).map_err(|error| unset(format!("{}: {error}", home.display())))?;
    let mut options = CoreOptions::new(scratch.path().join("work"));
    let place = workspace.to_owned();
    options.workspace = Some(Arc::new(move |_, _| place.clone()));
    // An account's profile can be slow; an empty home has none.
    let fixed = [("HOME", home.to_string_lossy().into_owned()), (RUN_VARIABLE, run.to_owned())];
    let fixed = fixed.map(|(name, value)| (name.to_owned(), value));
    options.env = EnvPolicy::inherit().fixed(fixed).map_err(|error| unset(error.to_string()))?;

    let client_options = ClientOptions::direct(host::name(), &listening.url(), token);
    let client_options = client_options.map_err(|error| unset(error.to_string()))?;
    let client = Client::new(Arc::clone(&runtime), client_options).map_err(|error| unset(error.to_string()))?;
    let core = Core::new(runtime, host::os(), options).map_err(|error| unset(error.to_string()))?;
    core.attach("demo", &client).map_err(|error| unset(error.to_string()))?;
    client.start().await.map_err(|end| surprise("a registration", end.to_string()))?;
    let executor = harness.wait_executor().await;
    let info = executor.info();
    let said = format!("registered as {} ({}, {}/{})", executor.id(), info.name, info.os, info.arch);
    Ok(((core, client, executor), said))
}

/// No process, no port, no file.
async fn nothing_left(endpoint: &Endpoint, scratch: &Scratch, run: &str) -> Result<((), String), Surprise> {
    let processes = match processes::of_run(run).await {
        Ok(left) if left.is_empty() => "no process",
        Ok(left) => return Err(surprise("no process", left.join(", "))),
        Err(_) => "(processes cannot be looked for on this system)",
    };
    // The helper that started them ends when the hands are gone, a moment later.
    let limit = Instant::now() + HELPER_ENDS_WITHIN;
    loop {
        let children = processes::children().await.unwrap_or_default();
        if children.is_empty() {
            break;
        }
        if Instant::now() > limit {
            return Err(surprise("no child of this process", children.join(", ")));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    if let Endpoint::Tcp { host, port } = endpoint
        && TcpStream::connect((host.as_str(), *port)).is_ok()
    {
        return Err(surprise(format!("nobody at {endpoint}"), "somebody who listens"));
    }
    scratch.remove().map_err(|error| surprise("a folder that can be removed", error.to_string()))?;
    if scratch.path().exists() {
        return Err(surprise("no folder", scratch.path().display().to_string()));
    }
    Ok(((), format!("left behind: {processes}, no port ({endpoint}), no file ({})", scratch.path().display())))
}
