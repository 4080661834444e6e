//! Some worlds of the simulation, in every run of the tests. `simulate` runs as many as it is told.

use bma_tests::simulation::{self, Tally};

/// Seeds of an ordinary run.
const SEEDS: u64 = 40;

#[test]
fn any_weather_is_weathered() {
    let mut all = Tally::default();
    for seed in 0..SEEDS {
        let tally = simulation::holds(seed);
        all = all.plus(tally.unwrap_or_else(|| panic!("seed {seed}: {}", simulation::replay(seed))));
    }
    // The weather is worth the name, and does not keep everybody at home.
    println!("{all:?}");
    assert!(all.frames > 100_000 && all.connections > 1_500 && all.results > 20_000, "{all:?}");
    assert!(all.unknown > 500 && all.leases > 15, "{all:?}");
    let faults = all.faults;
    let kinds =
        [faults.cuts, faults.half_open, faults.tokens_expired, faults.outages, faults.executors_killed, faults.sleeps];
    assert!(kinds.into_iter().all(|kind| kind > 20) && faults.harnesses_killed > 20, "{faults:?}");
}

#[test]
fn a_seed_gives_the_same_frames_byte_by_byte() {
    for seed in [1, 2, 3, 1_000_003] {
        assert_eq!(simulation::run(seed, false).0, simulation::run(seed, false).0, "seed {seed}");
    }
    assert_ne!(simulation::run(1, false).0, simulation::run(2, false).0, "seeds make a difference");
}
