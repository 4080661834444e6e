//! Two machines and the weather between them: an [`Executor`] and an
//! [`ExecutorPeer`] behind a [`Registry`], joined by a simulated wire on a
//! virtual clock. The wire is cut in the middle of a batch, noticed late or
//! never; tokens fail; either side is started anew with nothing. Everything that
//! happens follows from the seed.
//!
//! What must hold in any weather:
//! - a handler runs at most once for a tool call id;
//! - a result is recorded once, and equals what was reported;
//! - an unknown outcome is told only when the executor was really lost;
//! - everything that was asked for ends once;
//! - a tick at a deadline moves it on, and an idle poll stays idle;
//! - connections that are cut, and known to be, lose nothing;
//! - when the weather clears, everything drains and the two work together again.
//!
//! [`Executor`]: bma_proto_core::executor::Executor
//! [`ExecutorPeer`]: bma_proto_core::harness::ExecutorPeer
//! [`Registry`]: bma_proto_core::harness::Registry
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

mod brain;
mod hands;
mod wire;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::{Tally, World};

/// Seeds of an ordinary run; `BMA_SIM_SEEDS` sets another number.
const SEEDS: u64 = 100;

/// Runs one seed to its end. Gives every frame that was written, with its time.
fn run(seed: u64, shown: bool) -> (Vec<String>, Tally) {
    let mut world = World::new(seed, shown);
    world.stormy();
    world.gusty();
    world.calm();
    world.exam();
    world.farewell();
    world.end()
}

#[allow(clippy::disallowed_methods, reason = "which seeds to run is the one thing that comes from outside")]
fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn any_weather_is_weathered() {
    if let Some(seed) = number("BMA_SIM_SEED") {
        println!("{:?}", run(seed, true).1);
        return;
    }
    let mut all = Tally::default();
    for seed in 0..number("BMA_SIM_SEEDS").unwrap_or(SEEDS) {
        match catch_unwind(AssertUnwindSafe(|| run(seed, false))) {
            Ok((_, tally)) => all = all.plus(tally),
            Err(panic) => {
                eprintln!("seed {seed} failed; this replays it with every frame that was written:");
                eprintln!("BMA_SIM_SEED={seed} cargo test -p bma-proto-core --test pair any_weather -- --nocapture");
                resume_unwind(panic);
            }
        }
    }
    // The weather is worth the name, and does not keep everybody at home.
    println!("{all:?}");
    assert!(all.frames > 100_000 && all.connections > 1_500 && all.results > 20_000, "{all:?}");
    assert!(all.unknown > 500 && all.leases > 15, "{all:?}");
}

#[test]
fn a_seed_gives_the_same_frames_byte_by_byte() {
    for seed in [1, 2, 3, 1_000_003] {
        assert!(run(seed, false).0 == run(seed, false).0, "seed {seed}");
    }
    assert!(run(1, false).0 != run(2, false).0, "seeds make a difference");
}
