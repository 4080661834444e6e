//! Memory that does not grow with a file or a tree. What is measured is the whole process's peak, so each case has a
//! process of its own.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test panics on purpose

#[path = "files/support.rs"]
#[allow(dead_code)] // each test program uses a part
mod support;

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use support::{Place, text};

/// Whether this is the process of this case. In the test program as it was started, the case is run in one.
fn alone(case: &str) -> bool {
    const CASE_VARIABLE: &str = "BMA_TEST_FOOTPRINT_CASE";
    if std::env::var(CASE_VARIABLE).is_ok_and(|running| running == case) {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let output =
        Command::new(program).args(["--exact", case, "--nocapture"]).env(CASE_VARIABLE, case).output().unwrap();
    let (told, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.contains("1 passed"), "{told}{said}");
    eprint!("{said}");
    false
}

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
    if !alone("memory_does_not_grow_with_the_number_of_files") {
        return;
    }
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

/// A megabyte of the dearest rules, in a folder that has them from above as well, and again beside it.
#[test]
fn ignore_files_of_any_size_cost_a_bounded_memory_and_time() {
    if !alone("ignore_files_of_any_size_cost_a_bounded_memory_and_time") {
        return;
    }
    let place = Place::in_memory().threads(2);
    let rules: String = (0..30_000).map(|number| format!("**/{number}/**/x*/**/*{number}a*b?[xyz]*c\n")).collect();
    let mut folder = String::new();
    for level in 0..20 {
        place.file(&format!("{folder}.gitignore"), &rules);
        place.file(&format!("{folder}beside/.gitignore"), &rules);
        place.file(&format!("{folder}beside/f"), "");
        folder.push_str(&format!("{level}/"));
    }
    let before = peak_memory();
    let begun = Instant::now();
    let answer = text(place.glob("**/*"));
    let grown = peak_memory() - before;
    eprintln!("{grown} KiB more, {:?}", begun.elapsed());
    assert!(answer.contains("40 ignore files count only in part"), "{answer}");
    assert!(grown < 96 << 10, "{grown} KiB more");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn f43_a_line_of_a_2_gb_file_costs_neither_time_nor_memory() {
    if !alone("f43_a_line_of_a_2_gb_file_costs_neither_time_nor_memory") {
        return;
    }
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
