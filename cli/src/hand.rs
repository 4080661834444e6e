//! `bma hand`: serves this machine to a harness.

use std::env::VarError;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bma_hands::{Core, CoreError, CoreOptions};
use bma_runtime_tokio::client::OptionsError;
use bma_runtime_tokio::proto::executor::End;
use bma_runtime_tokio::sync::Event;
use bma_runtime_tokio::{Client, ClientEvent, ClientOptions, ExecutorListener, HarnessUrl, Runtime};

use crate::common::{Failure, SUCCESS, on_runtime, tell};
use crate::host;
use crate::reach;
use crate::signals::Signals;
use crate::token::{self, Token};

/// Where the URL may stand when it is no argument.
const URL_VARIABLE: &str = "BMA_URL";

/// Serve this machine to a harness until stopped.
///
/// Dials the harness, registers, and runs tools for the sessions that it assigns.
/// A lost connection is dialled again. With --listen it waits for a harness of this
/// machine to dial, one at a time. `bash` runs as you, and is no sandbox.
///
/// SIGINT and SIGTERM end it in order: open sessions are stopped with everything
/// they started; a second signal ends it at once. Exit code 0 after an orderly
/// end, 1 when the harness ended it or something was left, 130 or 143 after a
/// second signal, 2 on wrong usage.
///
/// Example:
///
/// bma hand --token-file token --url ws://127.0.0.1:8700/
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The harness, required: ws://HOST:PORT/PATH or unix:///PATH [or: BMA_URL]
    #[arg(long)]
    url: Option<String>,
    /// Instead: wait here, at unix:///PATH, for a harness of this machine (bma call, bma brain: --dial)
    #[arg(long, value_name = "URL", conflicts_with = "url")]
    listen: Option<String>,
    /// Holds the token, required; readable by you alone; - reads standard input [or: BMA_TOKEN]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Holds the sessions' workspaces [default: bma/work in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    work_root: Option<PathBuf>,
    /// The machine's name, as the harness shows it [default: the host name]
    #[arg(long)]
    name: Option<String>,
    /// To choose among machines: 1 to 64 of a-z 0-9 . _ -; up to 32 times [default: none]
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<u8, Failure> {
    token::take_out_of_environment(args.token_file.as_deref())?;
    let at = match &args.listen {
        Some(listen) => At::Socket(reach::hands_socket(listen)?),
        None => At::Url(harness_url(args.url)?),
    };
    let token = Token::read_or_stdin(args.token_file.as_deref())?;
    let name = args.name.unwrap_or_else(host::name);
    let work_root = args.work_root.map_or_else(host::default_work_root, Ok)?;
    on_runtime(move |runtime| async move {
        let listens = matches!(at, At::Socket(_));
        let (url, mut options) = match at {
            At::Url(url) => (url.clone(), ClientOptions::new(name, token.source(url.to_string()))),
            At::Socket(path) => listening(&runtime, name, &path, token).await?,
        };
        options.labels = args.labels;
        serve(runtime, url, listens, options, work_root).await
    })
}

/// Where harness and hands meet.
enum At {
    /// The harness is dialled.
    Url(HarnessUrl),
    /// The harness dials.
    Socket(PathBuf),
}

async fn listening(
    runtime: &Arc<dyn Runtime>,
    name: String,
    path: &Path,
    token: Token,
) -> Result<(HarnessUrl, ClientOptions), Failure> {
    let listener = ExecutorListener::bind(runtime, path, token.secret()).await;
    let listener = listener.map_err(|error| Failure::usage("--listen", error))?;
    tell(&format!("LISTEN {}", listener.url()));
    Ok((HarnessUrl::of_listener(listener.endpoint()), ClientOptions::listening(name, listener)))
}

fn harness_url(url: Option<String>) -> Result<HarnessUrl, Failure> {
    let (field, url) = match (url, std::env::var(URL_VARIABLE)) {
        (Some(url), _) => ("--url", url),
        (None, Ok(url)) => (URL_VARIABLE, url),
        (None, Err(VarError::NotUnicode(_))) => {
            return Err(Failure::usage(URL_VARIABLE, "it is not UTF-8 text: write it as ws://HOST:PORT/"));
        }
        (None, Err(VarError::NotPresent)) => {
            let problem = format!("say which harness to serve, --url ws://HOST:PORT/, or set {URL_VARIABLE}");
            return Err(Failure::usage("--url", problem));
        }
    };
    HarnessUrl::parse(&url).map_err(|error| Failure::usage(field, error))
}

async fn serve(
    runtime: Arc<dyn Runtime>,
    url: HarnessUrl,
    listens: bool,
    options: ClientOptions,
    work_root: PathBuf,
) -> Result<u8, Failure> {
    let mut signals = Signals::catch()?;
    let client = Client::new(Arc::clone(&runtime), options).map_err(wrong_option)?;
    let core = Core::new(runtime, host::os(), CoreOptions::new(work_root)).map_err(wrong_core)?;
    core.attach(&brain_name(&url), &client).map_err(wrong_core)?;

    let mut events = client.events();
    let starting = {
        let client = client.clone();
        // How it ends is told by `done` below.
        async move { drop(client.start().await) }
    };
    tokio::spawn(starting);
    let does = if listens { "waiting for a harness at" } else { "connecting to" };
    tell(&format!("bma hand: {does} {url}"));
    let mut registered = false;
    let end = loop {
        tokio::select! {
            biased;
            caught = signals.caught() => {
                let sessions = client.active_sessions().len();
                tell(&format!("bma hand: {caught}: stopping, {sessions} open sessions (once more ends at once)"));
                break client.stop("stopped on its machine").await;
            }
            Some(event) = events.next() => {
                if let Event::Item(event) = event
                    && let Some(line) = describe(&event, &url, listens, &mut registered)
                {
                    tell(&format!("bma hand: {line}"));
                }
            }
            end = client.done() => break end,
        }
    };
    let all_gone = core.close().await;
    tell(&format!("bma hand: {}", conclude(&end, all_gone)?));
    Ok(SUCCESS)
}

fn describe(event: &ClientEvent, url: &HarnessUrl, listens: bool, registered: &mut bool) -> Option<String> {
    match event {
        ClientEvent::Registered(now) => {
            let again = if std::mem::replace(registered, true) { " again" } else { "" };
            Some(format!("registered{again} as {} at {url}", now.executor_id))
        }
        ClientEvent::Reconnecting { cause, .. } if listens => Some(format!("{cause}; waiting for the next harness")),
        ClientEvent::Reconnecting { attempt, cause, wait } => {
            Some(format!("{cause}; reconnecting in {:.1} s (attempt {attempt})", wait.as_secs_f64()))
        }
        ClientEvent::Drain(drain) => {
            let why = if drain.reason.is_empty() { String::new() } else { format!(": {}", drain.reason) };
            Some(format!("the harness drains this machine, no new sessions come{why}"))
        }
        ClientEvent::TokenNotRenewed { cause } => {
            Some(format!("{cause}; the connection goes on until the harness closes it"))
        }
        // States are between the lines above.
        _ => None,
    }
}

/// The last line of an orderly end.
fn conclude(end: &End, all_gone: bool) -> Result<String, Failure> {
    if !end.is_orderly() {
        let fix = match end {
            End::CredentialRejected(_) => "; give a token that this harness knows",
            End::UnsupportedProtocol(_) => "; use versions of bma and the harness that fit",
            End::RegistrationRefused { .. } => {
                "; ask the harness's operator, or change what this machine says of itself"
            }
            // What to do is said already.
            _ => "",
        };
        return Err(Failure::failed(format!("ended: {end}{fix}")));
    }
    if !all_gone {
        let line = "stopped, but not everything that the sessions had started could be ended; the log names it";
        return Err(Failure::failed(line));
    }
    Ok(end.to_string())
}

/// Part of the workspaces' paths: two harnesses never share one, also not two behind one host. What a plain
/// directory name cannot hold is written as `_` and two digits, so that different URLs have different names.
fn brain_name(url: &HarnessUrl) -> String {
    let url = url.to_string();
    // Without what nearly all URLs have in common. A host cannot look like another scheme.
    let short = url.strip_prefix("ws://").unwrap_or(&url);
    let short = short.strip_suffix('/').filter(|host| !host.contains('/')).unwrap_or(short);
    let mut name = String::with_capacity(short.len());
    for byte in short.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-') {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("_{byte:02x}"));
        }
    }
    name
}

fn wrong_option(error: OptionsError) -> Failure {
    let text = error.to_string();
    let problem = text.split_once(": ").map_or(text.as_str(), |(_, problem)| problem);
    match error {
        OptionsError::Name | OptionsError::NameTooLong(_) => Failure::usage("--name", problem),
        _ => Failure::usage("--label", problem),
    }
}

fn wrong_core(error: CoreError) -> Failure {
    match error {
        CoreError::WorkRoot { .. } => Failure::usage("--work-root", error),
        error => Failure::not_done(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    #[test]
    fn each_harness_has_a_folder_of_its_own() {
        let name = |url: &str| brain_name(&HarnessUrl::parse(url).unwrap());
        assert_eq!(name("ws://Brain.Example"), "brain.example");
        assert_eq!(name("ws://127.0.0.1:7000/"), "127.0.0.1_3a7000");
        let urls = [
            "ws://host/",
            "ws://host/a",
            "ws://host/a/",
            "ws://host/A",
            "ws://host/a_b",
            "ws://host/a/b",
            "ws://host/a%2fb",
            "ws://host/a_2fb",
            "ws://host//",
            "ws://host/?a",
            "ws://host/?a/",
            "ws://host/a?b",
            "ws://host:81/",
            "ws://host81/",
            "ws://unix/a",
            "unix:///a",
            "unix:///a/b",
            "unix:///a_b",
            "unix:///a?b",
        ];
        let names: std::collections::BTreeSet<_> = urls.iter().map(|url| name(url)).collect();
        assert_eq!(names.len(), urls.len(), "{names:?}");
        assert_eq!(name("ws://HOST:80/a"), name("ws://host/a"), "however it is written");
    }

    #[test]
    fn an_end_by_the_harness_says_what_to_do() {
        let rejected = conclude(&End::CredentialRejected("the harness refused the token".into()), true).unwrap_err();
        assert_eq!(rejected.code(), 1);
        assert!(rejected.to_string().ends_with("give a token that this harness knows"), "{rejected}");
        assert_eq!(conclude(&End::Replaced, true).unwrap_err().code(), 1);
        for orderly in [End::Stopped, End::Drained, End::ClosedByHarness("bye".into())] {
            assert_eq!(conclude(&orderly, true).unwrap(), orderly.to_string());
        }
        assert_eq!(conclude(&End::Stopped, false).unwrap_err().code(), 1);
    }
}
