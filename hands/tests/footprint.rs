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

/// The variable that makes the large tree another size than [`MANY`].
const SIZE_VARIABLE: &str = "BMA_TEST_TREE_FILES";
const FEW: usize = 20_000;
const MANY: usize = 200_000;

/// The most memory that this process had, in KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Fills the workspace's folder `top` with files whose names are long: a fifth of them in one folder, the others in
/// forty. All but one are empty.
fn fill(place: &Place, top: &str, files: usize) {
    let folder = |name: &str, files: usize| {
        let path = place.ws(&format!("{top}/{name}"));
        fs::create_dir_all(&path).unwrap();
        let name = |file: usize| path.join(format!("{} {file:06}.txt", "a name of some length".repeat(5)));
        for file in 0..files {
            // One file by many names costs the system less than many files; and no system allows any number of them.
            match file % 10_000 {
                0 => drop(File::create(name(file)).unwrap()),
                nth => fs::hard_link(name(file - nth), name(file)).unwrap(),
            }
        }
    };
    folder("flat", files / 5);
    (0..40).for_each(|number| folder(&format!("{number:02}"), files / 50));
    place.file(&format!("{top}/last/needle.txt"), "needle");
}

/// Every search over the whole tree, and a list of the folder with the most files.
fn search(place: &Place, top: &str, files: usize) {
    let all = place.glob_in(top, "**/*.txt").unwrap();
    let shown = all.text.lines().filter(|line| !line.starts_with('[')).count();
    let left = (files + 1 - shown).to_string();
    let told: String = all.text.lines().last().unwrap().split(' ').next().unwrap().replace([',', '['], "");
    assert!(all.partial && told == left, "{told} but {left} are left");
    assert_eq!(text(place.glob_in(top, "**/needle.txt")), format!("{top}/last/needle.txt"));
    assert_eq!(text(place.grep_in("needle", Some(top), None)), format!("{top}/last/needle.txt:1:needle"));
    assert!(place.grep_in("^", Some(top), Some("*.txt")).unwrap().text.contains("needle.txt:1:needle"));
    assert!(place.list(Some(&format!("{top}/flat"))).unwrap().partial);
}

/// Searches of a tree with ten times the files, and of any other size, need no more memory.
#[test]
fn memory_does_not_grow_with_the_number_of_files() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let many = std::env::var(SIZE_VARIABLE).map_or(MANY, |files| files.parse().unwrap());
    let place = Place::in_memory();
    fill(&place, "few", FEW);
    fill(&place, "many", many);
    search(&place, "few", FEW);
    let before = peak_memory();
    let begun = Instant::now();
    search(&place, "many", many);
    let grown = peak_memory() - before;
    eprintln!("{FEW} files: {before} KiB at the peak; {many} files: {grown} KiB more, {:?}", begun.elapsed());
    // The names alone are 23 MB.
    assert!(grown < 2 << 10, "{grown} KiB more");
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
