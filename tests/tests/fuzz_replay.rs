//! The fuzz targets over their seed corpora, and over small changes of each seed:
//! what a fuzzer found once stays found, and a little of what it does happens on every run.
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use bma_fuzz_targets::{TARGETS, Target};

/// Changed copies of each seed; `BMA_FUZZ_CHANGES` sets another number.
const CHANGES: u64 = 40;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// The seeds of a target by their names.
fn seeds(target: &str) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(corpus().join(target)).unwrap().map(|entry| entry.unwrap());
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}

fn replay(name: &str, target: Target, seed: &str, data: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(data))) {
        eprintln!("{name} does not hold for this input, made of the seed {seed:?}:");
        eprintln!("{:?}", String::from_utf8_lossy(data));
        resume_unwind(panic);
    }
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let mut folders: Vec<_> =
        fs::read_dir(corpus()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    folders.sort();
    let names: Vec<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(folders, names);
    for name in &names {
        assert!(seeds(name).len() >= 5, "{name} has hardly any seeds");
        let binary = corpus().join(format!("../fuzz_targets/{name}.rs"));
        assert!(fs::read_to_string(binary).unwrap().contains(&format!("bma_fuzz_targets::{name}(data)")));
    }
}

#[test]
fn every_seed_holds() {
    for (name, target) in TARGETS {
        for (seed, data) in seeds(name) {
            replay(name, *target, &seed, &data);
        }
    }
}

#[test]
fn small_changes_of_every_seed_hold() {
    let changes = std::env::var("BMA_FUZZ_CHANGES").ok().and_then(|number| number.parse().ok()).unwrap_or(CHANGES);
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        let all: Vec<_> = seeds.values().collect();
        for (number, (seed, data)) in (0..).zip(&seeds) {
            for change in 0..changes {
                let mut dice = Dice(number << 32 | change);
                let other = all[dice.below(all.len())];
                replay(name, *target, seed, &changed(data, other, &mut dice));
            }
        }
    }
}

/// SplitMix64: the same changes on every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % (n as u64).max(1)).unwrap()
    }
}

/// A few changes at random places: of bytes, of lines, and with pieces of another seed.
fn changed(data: &[u8], other: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut data = data.to_vec();
    for _ in 0..=dice.below(3) {
        let at = dice.below(data.len() + 1);
        let mut lines: Vec<_> = data.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let line = dice.below(lines.len());
        match dice.below(8) {
            0 => data.truncate(at),
            1 => data.insert(at, [0, b'"', b'{', b'\n', 0x7f, 0xff][dice.below(6)]),
            2 if at < data.len() => data[at] ^= 1 << dice.below(8),
            3 if at < data.len() => drop(data.remove(at)),
            4 => {
                lines.insert(line, lines[dice.below(lines.len())].clone());
                data = lines.join(&b'\n');
            }
            5 => {
                lines.remove(line);
                data = lines.join(&b'\n');
            }
            6 => {
                let with = dice.below(lines.len());
                lines.swap(line, with);
                data = lines.join(&b'\n');
            }
            _ => {
                let from = dice.below(other.len() + 1);
                let piece = &other[from..(from + dice.below(80)).min(other.len())];
                data.splice(at..at, piece.iter().copied());
            }
        }
    }
    data
}
