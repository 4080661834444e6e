//! Executors, a harness, and the weather between them: some [`Executor`]s and the
//! [`ExecutorPeer`]s behind a [`Registry`], joined by simulated wires on a
//! virtual clock. Wires are cut in the middle of a batch, in one direction or both, noticed late or
//! never; tokens fail and run out; machines sleep; either side is started anew with nothing.
//! Everything that happens follows from the seed.
//!
//! What must hold in any weather, looked at after every step:
//! - a handler runs at most once for a tool call id;
//! - a result is recorded once, and equals what was reported;
//! - an unknown outcome is told only when the executor was really lost;
//! - everything that was asked for ends once;
//! - a tick at a deadline moves it on, and an idle poll stays idle;
//! - connections that are cut, and known to be, lose nothing;
//! - when the weather clears, everything drains and all work together again.
//!
//! A frame arrives whole or not at all: what a cut inside of it does is the business of the WebSocket
//! channel, whose tests cut at every byte.
//!
//! [`Executor`]: bma_runtime::proto::executor::Executor
//! [`ExecutorPeer`]: bma_runtime::proto::harness::ExecutorPeer
//! [`Registry`]: bma_runtime::proto::harness::Registry

mod brain;
mod hands;
mod programs;
pub mod storm;
mod weather;
mod wire;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use weather::Faults;
pub use world::Tally;

/// Runs one seed to its end, and panics where something does not hold. Gives a hash of every frame that was
/// written with its time, and what happened. `shown` prints the frames.
pub fn run(seed: u64, shown: bool) -> (u64, Tally) {
    let mut world = world::World::new(seed, shown);
    world.stormy();
    world.gusty();
    world.calm();
    world.exam();
    world.farewell();
    world.end()
}

/// Runs one seed; `None` when something did not hold, which the panic's message has said on stderr.
pub fn holds(seed: u64) -> Option<Tally> {
    catch_unwind(AssertUnwindSafe(|| run(seed, false))).ok().map(|(_, tally)| tally)
}

/// The command that replays a seed with every frame that was written.
pub fn replay(seed: u64) -> String {
    format!("cargo run --release -p bma-tests --bin simulate -- --seed {seed}")
}
