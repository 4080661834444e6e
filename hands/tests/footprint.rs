//! Memory that does not grow with a file or a tree. A program of its own: what is measured is the whole process's.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test panics on purpose

#[path = "files/support.rs"]
#[allow(dead_code)] // each test program uses a part
mod support;

use std::fs::{self, File};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use support::{Place, text};

/// One case at a time, for the same reason.
static ALONE: Mutex<()> = Mutex::new(());

const FOLDERS: usize = 40;
const FILES: usize = 2_500;

/// The most memory that this process had, in KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Fills folders of the workspace with files whose names are long, all but one of them empty.
fn fill(place: &Place, top: &str, folders: usize, files: usize) {
    for folder in 0..folders {
        let path = place.ws(&format!("{top}/{folder:03}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..files {
            File::create(path.join(format!("{} {file:06}.txt", "a name of some length".repeat(5)))).unwrap();
        }
    }
    place.file(&format!("{top}/999/needle.txt"), "needle");
}

fn search(place: &Place, top: &str) {
    assert!(place.glob_in(top, "**/*.txt").unwrap().partial);
    assert_eq!(text(place.glob_in(top, "**/needle.txt")), format!("{top}/999/needle.txt"));
    assert_eq!(text(place.grep_in("needle", Some(top), None)), format!("{top}/999/needle.txt:1:needle"));
    assert!(place.list(Some(&format!("{top}/000"))).unwrap().partial);
}

#[test]
fn a_hundred_thousand_files_cost_no_more_memory_than_a_few_thousand() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::in_memory();
    fill(&place, "few", 4, 1_000);
    fill(&place, "many", FOLDERS, FILES);
    fill(&place, "flat", 1, FOLDERS * FILES / 4);
    search(&place, "few");
    let before = peak_memory();
    search(&place, "many");
    search(&place, "flat");
    let grown = peak_memory() - before;
    // Their paths alone are 12 MB and 3 MB.
    assert!(grown < 3 << 10, "{grown} KiB more");
}

#[test]
fn f43_a_line_of_a_2_gb_file_costs_neither_time_nor_memory() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = Place::new();
    let sparse = File::create(place.ws("sparse")).unwrap();
    sparse.set_len(2 << 30).unwrap();
    let file = File::create(place.ws("head")).unwrap();
    std::io::Write::write_all(&mut &file, b"first\nsecond\n").unwrap();
    file.set_len(2 << 30).unwrap();
    let before = peak_memory();
    let begun = Instant::now();
    assert_eq!(text(place.read_lines("head", Some(1), Some(1))), "first\n");
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}");
    let begun = Instant::now();
    let answer = place.read_lines("sparse", Some(1), Some(1)).unwrap();
    assert!(answer.partial && answer.text.contains("line 1 is cut"));
    // One second is the report's bound; a debug build on a busy machine gets some more.
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let grown = peak_memory() - before;
    assert!(grown < 64 << 10, "{grown} KiB more");
}
