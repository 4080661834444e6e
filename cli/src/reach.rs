//! How a harness and its executors come together: it listens, or it dials one that listens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bma_runtime_tokio::proto::contract::Secret;
use bma_runtime_tokio::sync::{Event, Events};
use bma_runtime_tokio::url::parse_listen;
use bma_runtime_tokio::{DialExecutorError, Endpoint, Executor, Harness, HarnessEvent, HarnessUrl, Listening};
use tokio::task::JoinHandle;

use crate::common::{Failure, tell};
use crate::token::Token;

/// The wait after a dial that came to nothing; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest wait between two dials. They stay on this machine.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The options of a command that is a harness.
#[derive(Debug, clap::Args)]
pub(crate) struct Reach {
    /// Where executors dial: HOST:PORT (port 0 takes a free one) or unix:///PATH
    #[arg(long, value_name = "ADDRESS", required_unless_present = "dial")]
    listen: Option<String>,
    /// Instead: dial the executor of `bma hand --listen unix:///PATH` on this machine
    #[arg(long, value_name = "URL", conflicts_with = "listen")]
    dial: Option<String>,
}

/// What they say.
#[derive(Debug)]
pub(crate) enum Way {
    Listen(Endpoint),
    /// The executor's socket.
    Dial(PathBuf),
}

impl Reach {
    pub(crate) fn way(self) -> Result<Way, Failure> {
        match (self.listen, self.dial) {
            (_, Some(url)) => dialled_socket(&url).map(Way::Dial),
            (Some(address), None) => listen_address(&address).map(Way::Listen),
            // The parser wants one of them.
            (None, None) => Err(Failure::usage("--listen", "it is missing: say where executors dial")),
        }
    }
}

/// Takes apart what `--listen` of a harness says.
fn listen_address(text: &str) -> Result<Endpoint, Failure> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let problem = format!("this is a port alone: write HOST:PORT, such as 127.0.0.1:{text}");
        return Err(Failure::usage("--listen", problem));
    }
    parse_listen(text).map_err(|error| Failure::usage("--listen", error))
}

/// Where a hand listens: its socket.
pub(crate) fn hands_socket(text: &str) -> Result<PathBuf, Failure> {
    let on = parse_listen(text).map_err(|error| Failure::usage("--listen", error))?;
    path_of("--listen", &on)
}

/// Where a hand that listens is dialled.
fn dialled_socket(text: &str) -> Result<PathBuf, Failure> {
    let url = HarnessUrl::parse(text).map_err(|error| Failure::usage("--dial", error))?;
    if url.target() != "/" {
        return Err(Failure::usage("--dial", "there is a query, which nobody reads: leave it out"));
    }
    path_of("--dial", url.endpoint())
}

fn path_of(field: &str, endpoint: &Endpoint) -> Result<PathBuf, Failure> {
    match endpoint {
        Endpoint::Unix(path) => Ok(path.clone()),
        _ => Err(Failure::usage(field, "a hand listens on this machine alone: write unix:///PATH")),
    }
}

/// A harness that executors can come to, until this is dropped.
pub(crate) enum Reached {
    /// They dial.
    Listening(Listening),
    /// One is dialled, again and again.
    Dialling { url: String, task: JoinHandle<()> },
}

impl Reached {
    /// The first line of a brain.
    pub(crate) fn event(&self) -> &'static str {
        match self {
            Reached::Listening(_) => "listening",
            Reached::Dialling { .. } => "dialling",
        }
    }

    /// What is listened on, or dialled.
    pub(crate) fn url(&self) -> String {
        match self {
            Reached::Listening(listening) => listening.url(),
            Reached::Dialling { url, .. } => url.clone(),
        }
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        match self {
            Reached::Listening(_) => {}
            Reached::Dialling { task, .. } => task.abort(),
        }
    }
}

/// Opens the way. Executors can be there before this comes back.
pub(crate) async fn open(
    command: &'static str,
    harness: &Harness,
    way: &Way,
    token: &Token,
) -> Result<Reached, Failure> {
    match way {
        Way::Listen(on) => listen(harness, on).await,
        Way::Dial(path) => Ok(dial(command, harness, path, token.secret())),
    }
}

/// Lets executors dial a harness, and says where on stderr.
async fn listen(harness: &Harness, on: &Endpoint) -> Result<Reached, Failure> {
    let listening = harness.listen(on).await.map_err(|error| Failure::usage("--listen", error))?;
    tell(&format!("LISTEN {}", listening.url()));
    Ok(Reached::Listening(listening))
}

/// Dials the executor that listens at `path`, for as long as what is returned lives: also when nobody listens there
/// yet, and again when its connection is lost.
fn dial(command: &'static str, harness: &Harness, path: &Path, token: Secret) -> Reached {
    let (harness, path) = (harness.clone(), path.to_owned());
    let url = HarnessUrl::of_listener(&Endpoint::Unix(path.clone())).to_string();
    let task = tokio::spawn(async move {
        let (mut wait, mut told) = (FIRST_WAIT, None);
        loop {
            let mut comings = harness.events();
            match harness.dial_executor(&path, token.clone()).await {
                Ok(executor) => {
                    (wait, told) = (FIRST_WAIT, None);
                    left(&executor, &mut comings).await;
                }
                Err(error) => {
                    // Said once, not at each of many dials.
                    let line = advised(&error);
                    if told.as_ref() != Some(&line) {
                        tell(&format!("{command}: {line}; it is dialled again"));
                        told = Some(line);
                    }
                    tokio::time::sleep(wait).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    });
    Reached::Dialling { url, task }
}

/// What went wrong, and what to do.
fn advised(error: &DialExecutorError) -> String {
    match error {
        DialExecutorError::Unreachable { endpoint, .. } => {
            format!("{error}; is there a bma hand --listen {endpoint}?")
        }
        error => error.to_string(),
    }
}

/// Waits until an executor's connection is lost.
async fn left(executor: &Executor, comings: &mut Events<HarnessEvent>) {
    while executor.is_connected() {
        match comings.next().await {
            Some(Event::Item(HarnessEvent::Disconnected(left) | HarnessEvent::Gone { executor: left, .. }))
                if left.id() == executor.id() =>
            {
                return;
            }
            Some(_) => {}
            None => return,
        }
    }
}
