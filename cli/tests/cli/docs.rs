//! What the guides show, done as it stands there.

use std::process::Command;

use crate::support::{Place, Running};

const BRAIN: &str = include_str!("../../../docs/BRAIN.md");

/// The only block of this language in a guide.
fn block<'a>(guide: &'a str, language: &str) -> &'a str {
    let (_, rest) = guide.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0
}

/// Needs Python 3, and is skipped where it is missing.
#[test]
fn the_program_of_the_brain_guide_works() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("skipped: there is no python3");
        return;
    }
    let place = Place::new();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let program = block(BRAIN, "python");
    assert!(program.contains("127.0.0.1:8700"));
    let mut command = place.command("python3", &["-c", &program.replace("127.0.0.1:8700", &free)]);
    command.current_dir(place.path(""));
    let script = Running::start(command);
    script.stderr.wait_for_text("LISTEN ");
    let hand = place.hand(&format!("ws://{free}/"));
    let ended = script.end();
    ended.expect_code(0);
    assert!(ended.stdout.ends_with("\nexit_code: 0\n"), "{}", ended.said());
    drop(hand);
    place.assert_nothing_runs();
}
