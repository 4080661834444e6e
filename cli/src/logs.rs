//! Logs: on stderr, for those who ask for them.

use tracing_subscriber::EnvFilter;

use crate::common::Failure;

/// Chooses what is logged, in the notation of tracing's `EnvFilter`.
const VARIABLE: &str = "BMA_LOG";

/// Unless something else is asked for. `bma hand` tells of lost connections itself, in a line of its own.
const DEFAULT: &str = "warn,bma_runtime::client::dispatch=error";

/// The WebSocket library logs whole messages, and with them tool inputs. It does so through the
/// `log` crate, which nothing here listens to; this is for the day when something does.
const NEVER: &str = "tungstenite=off";

/// Starts logging. What an operator should look at is at WARN, what went wrong
/// in this program at ERROR; INFO tells of connections and sessions.
pub(crate) fn start() -> Result<(), Failure> {
    let asked = match std::env::var_os(VARIABLE) {
        Some(asked) if !asked.is_empty() => asked,
        _ => DEFAULT.into(),
    };
    let wrong =
        |problem: String| Failure::usage(VARIABLE, format!("{problem}; write for example info or bma_runtime=debug"));
    let asked = asked.into_string().map_err(|_| wrong("it is not UTF-8".to_owned()))?;
    let filter: EnvFilter = asked.parse().map_err(|error| wrong(format!("{asked:?} is no log filter ({error})")))?;
    let filter = filter.add_directive(NEVER.parse().map_err(|_| wrong(format!("{NEVER:?} is refused")))?);
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    Ok(())
}
