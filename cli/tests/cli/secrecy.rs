//! The token is seen by nobody who should not see it.

use std::process::Stdio;

use crate::support::{Place, Running, TOKEN, processes};

/// Prints whatever a tool's child can find out about its surroundings.
const LOOK: &str = r#"{"command":"env; for p in $PPID $(ps -o ppid= -p $PPID 2>/dev/null); do tr '\\0' '\\n' </proc/$p/environ; tr '\\0' ' ' </proc/$p/cmdline; ls -l /proc/$p/fd; done 2>&1; echo looked around; until [ -e go ]; do sleep 0.02; done"}"#;

/// Runs hands with their most talkative logs, looks around from inside and outside, and gives all that was said.
fn look(place: &Place, hand: impl FnOnce(&str) -> Running) -> String {
    let token = place.text("token");
    let mut command = place.bma(&["call", "--listen", "127.0.0.1:0", "--token-file", &token, "bash", LOOK]);
    command.env("BMA_LOG", "trace");
    let call = Running::start(command);
    let hand = hand(&call.listening());
    call.stderr.wait_for_text("looked around");
    for process in processes() {
        assert!(!process.environment.contains(TOKEN), "in the environment of {}", process.command_line);
        assert!(!process.command_line.contains(TOKEN), "in an argument");
    }
    let work = crate::support::only_entry(&place.path("home/.local/state/bma/work"));
    std::fs::write(crate::support::only_entry(&work).join("go"), "").unwrap();
    let called = call.end();
    called.expect_code(0);
    hand.signal("TERM");
    let hand = hand.end();
    hand.expect_code(0);
    place.assert_nothing_runs();
    format!("{}{}", called.said(), hand.said())
}

#[test]
fn f118_a_token_from_a_file_is_in_no_output_argument_or_environment() {
    let place = Place::new();
    let said = look(&place, |url| {
        let mut command = place.bma(&["hand", "--url", url, "--token-file", &place.text("token")]);
        command.env("BMA_LOG", "trace");
        Running::start(command)
    });
    assert!(!said.contains(TOKEN), "{said}");
}

#[test]
fn f118_a_token_from_the_environment_does_not_stay_there() {
    let place = Place::new();
    let said = look(&place, |url| {
        let mut command = place.bma(&["hand", "--url", url]);
        command.env("BMA_LOG", "trace").env("BMA_TOKEN", TOKEN);
        Running::start(command)
    });
    assert!(!said.contains(TOKEN) && !said.contains("BMA_TOKEN="), "{said}");
}

#[test]
fn a_token_can_come_from_stdin() {
    let place = Place::new();
    let said = look(&place, |url| {
        let mut command = place.bma(&["hand", "--url", url, "--token-file", "-"]);
        command.env("BMA_LOG", "trace").stdin(Stdio::piped());
        let mut hand = Running::start(command);
        hand.tell(TOKEN);
        hand.end_input();
        hand
    });
    assert!(!said.contains(TOKEN), "{said}");
}

#[test]
fn a_renewed_file_must_be_as_private_as_the_first() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    // The first dial finds nobody; by then the file has become public.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hand = place.hand(&format!("ws://{free}/"));
    hand.stderr.wait_for_text("reconnecting in");
    std::fs::set_permissions(place.path("token"), PermissionsExt::from_mode(0o644)).unwrap();
    let line = hand.stderr.wait_for_text("chmod 600");
    assert!(!line.contains(TOKEN), "{line}");
    hand.signal("TERM");
    hand.end().expect_code(0);
}
