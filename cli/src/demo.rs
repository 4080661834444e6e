//! `bma demo`: both ends of the protocol on this machine, with real tools.

mod processes;
mod stage;
mod steps;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use bma_runtime_tokio::Runtime;

use crate::common::{FAILED, Failure, SUCCESS, on_runtime, tell};
use crate::scratch::Scratch;
use crate::signals::Signals;
use stage::Stage;
use steps::{Failed, Steps};

/// Show a harness and this machine's hands at work.
///
/// One process starts both, joined by a real WebSocket over loopback, runs every
/// tool in a fresh workspace, cancels a running command, and leaves nothing
/// behind: no process, no file, no port. One line a step.
///
/// Exit code 0 when every step did what it should, 1 when one did not.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {}

/// The variable by which this run's processes are found.
const RUN_VARIABLE: &str = "BMA_DEMO_RUN";

/// How often a condition that nothing announces is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

pub(crate) fn run(_: Args) -> Result<u8, Failure> {
    on_runtime(demo)
}

async fn demo(runtime: Arc<dyn Runtime>) -> Result<u8, Failure> {
    let mut signals = Signals::catch()?;
    let run = random_text().map_err(|error| Failure::not_done(format!("/dev/urandom: {error}")))?;
    let scratch = Scratch::new(&run).map_err(|error| {
        Failure::not_done(format!("no folder can be made in {}: {error}", std::env::temp_dir().display()))
    })?;
    let mut steps = Steps::new(Arc::clone(&runtime));

    let Ok(stage) = Stage::open(runtime, &scratch, &run, &mut steps).await else { return Ok(FAILED) };
    let shown = tokio::select! {
        shown = show(&stage, &run, &mut steps) => Some(shown),
        caught = signals.caught() => {
            tell(&format!("bma demo: {caught}: stopping"));
            None
        }
    };
    let closed = stage.close(&scratch, &run, &mut steps).await;
    match (shown, closed) {
        (Some(Ok(())), Ok(())) => {
            steps.conclude();
            Ok(SUCCESS)
        }
        _ => Ok(FAILED),
    }
}

/// Every step between the beginning and the end. The first that fails is the last.
async fn show(stage: &Stage, run: &str, steps: &mut Steps) -> Result<(), Failed> {
    let session = stage.assign(steps).await?;
    tools::files(stage, &session, steps).await?;
    tools::progress(&session, steps).await?;
    tools::cancel(&session, run, steps).await?;
    stage.stop_session(&session, steps).await
}

/// 128 random bits.
fn random_text() -> std::io::Result<String> {
    use std::io::Read as _;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
