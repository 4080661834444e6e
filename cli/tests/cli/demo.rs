//! `bma demo`.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::{Place, Running, is_listening};

#[test]
fn the_demo_passes_in_time_and_leaves_nothing_behind() {
    let place = Place::new();
    let began = Instant::now();
    let ended = Running::start(place.bma(&["demo"])).end();
    ended.expect_code(0);
    assert!(began.elapsed() < Duration::from_secs(10), "{}", ended.stdout);
    assert_eq!(ended.stderr, "");
    let steps: Vec<&str> = ended.stdout.lines().collect();
    for (step, name) in steps.iter().zip([
        "harness",
        "hands",
        "assign",
        "write",
        "bash",
        "read",
        "edit",
        "glob",
        "grep",
        "list_files",
        "progress",
        "cancel",
        "stop",
        "end",
        "left",
        "demo",
    ]) {
        let words: Vec<&str> = step.split_whitespace().collect();
        assert!(matches!(words[0], "ok" | "done") && words[2] == "ms" && words[3] == name, "{step}");
        words[1].parse::<u32>().unwrap();
    }
    assert_eq!(steps.len(), 16);
    assert!(steps[11].contains("(sleep)"), "{}", steps[11]);

    let url = steps[0].split_whitespace().last().unwrap();
    assert!(!is_listening(url));
    place.assert_nothing_runs();
    for folder in ["tmp", "home"] {
        assert_eq!(std::fs::read_dir(place.path(folder)).unwrap().count(), 0, "{folder}");
    }
}

#[test]
fn a_step_that_fails_says_what_was_expected_and_what_came() {
    let place = Place::new();
    // No file may hold a byte: the write fails. Otherwise everything is as it always is.
    let demo = place.bma(&["demo"]);
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" demo"]).arg(demo.get_program());
    for (name, value) in demo.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let ended = Running::start(limited).end();
    ended.expect_code(1);
    let failed: Vec<&str> = ended.stdout.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert_eq!(failed.len(), 1, "{}", ended.stdout);
    assert!(failed[0].contains(" write ") && failed[0].contains("expected a success, got "), "{}", failed[0]);
    // It cleans up all the same.
    assert!(ended.stdout.lines().last().unwrap().contains("left behind: no process"), "{}", ended.stdout);
    place.assert_nothing_runs();
    assert_eq!(std::fs::read_dir(place.path("tmp")).unwrap().count(), 0);
}
