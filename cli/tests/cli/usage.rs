//! Wrong usage: one line on stderr that names the field and the fix, exit code 2, at once.

use std::os::unix::fs::PermissionsExt;

use crate::support::{Place, Running};

/// Runs `bma`, which must refuse at once, and gives its line.
fn refused(place: &Place, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let mut command = place.bma(arguments);
    command.envs(variables.iter().copied());
    let ended = Running::start(command).end();
    assert_eq!(ended.code(), Some(2), "{arguments:?} {variables:?}: {}", ended.said());
    assert_eq!(ended.stdout, "", "{arguments:?}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.starts_with("LISTEN ")).collect();
    assert_eq!(lines.len(), 1, "{arguments:?}: {}", ended.stderr);
    assert!(lines[0].starts_with("bma"), "{}", lines[0]);
    lines[0].to_owned()
}

#[test]
fn f120_wrong_configuration_is_refused_at_once_with_the_name_of_the_field() {
    let place = Place::new();
    let token = place.text("token");
    let hand = |more: &[&str]| -> Vec<String> {
        let common = ["hand", "--url", "ws://127.0.0.1:9/", "--token-file", &token];
        [&common, more].concat().into_iter().map(str::to_owned).collect()
    };
    let call = |more: &[&str]| -> Vec<String> {
        [&["call", "--token-file", &token], more].concat().into_iter().map(str::to_owned).collect()
    };
    let of = |arguments: &[&str]| -> Vec<String> { arguments.iter().map(|&argument| argument.to_owned()).collect() };
    place.write_private("file", "");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let _listened = std::os::unix::net::UnixListener::bind(place.path("listened")).unwrap();
    let socket = |name: &str| format!("unix://{}", place.text(name));

    for (arguments, field, fix) in [
        // Keys that nobody knows.
        (of(&[]), "COMMAND: ", "--help"),
        (of(&["hnd"]), "'hnd'", "'hand'"),
        (hand(&["--labels", "a"]), "'--labels'", "'--label'"),
        (hand(&["stray"]), "'stray'", "--help"),
        // The URL.
        (of(&["hand", "--token-file", &token]), "--url: ", "BMA_URL"),
        (of(&["hand", "--token-file", &token, "--url", "http://h/"]), "--url: ", "ws://"),
        (of(&["hand", "--token-file", &token, "--url", "ftp://h/"]), "--url: ", "use ws://"),
        (of(&["hand", "--token-file", &token, "--url", "h:7000"]), "--url: ", "ws://HOST:PORT/"),
        (of(&["hand", "--token-file", &token, "--url", "ws://h:port/"]), "--url: ", "port"),
        // What the machine says of itself, and its folder.
        (hand(&["--label", "Blue"]), "--label: ", "a-z"),
        (hand(&["--label", ""]), "--label: ", "1 to 64"),
        (hand(&["--name", " "]), "--name: ", "give the executor a name"),
        (hand(&["--name", &"n".repeat(100_000)]), "--name: ", "at most 1024"),
        (hand(&["--work-root", &format!("{}/x", place.text("file"))]), "--work-root: ", "choose a directory"),
        // Where to listen.
        (call(&["bash", "{}"]), "--listen: it is missing", "such as --listen 127.0.0.1:8700"),
        (call(&["--listen", "7000", "bash", "{}"]), "--listen: ", "HOST:PORT"),
        (call(&["--listen", "http://h:1", "bash", "{}"]), "--listen: ", "ws://"),
        (call(&["--listen", &taken, "bash", "{}"]), "--listen: ", "choose another port"),
        (of(&["brain", "--token-file", &token, "--listen", &taken]), "--listen: ", "choose another port"),
        (
            call(&["--listen", "nowhere.invalid:0", "bash", "{}"]),
            "--listen: cannot listen on nowhere.invalid:0: ",
            "127.0.0.1",
        ),
        (
            call(&["--listen", "192.0.2.1:0", "bash", "{}"]),
            "--listen: cannot listen on 192.0.2.1:0: ",
            "of this machine",
        ),
        // A socket: what is in the way, and not a word of ports.
        (
            call(&["--listen", &socket("listened"), "bash", "{}"]),
            &format!("--listen: cannot listen on {}: ", socket("listened")),
            "another program listens there: stop it",
        ),
        (call(&["--listen", &socket("file"), "bash", "{}"]), &socket("file"), "no socket; remove that"),
        (call(&["--listen", &socket("home"), "bash", "{}"]), &socket("home"), "no socket; remove that"),
        (
            call(&["--listen", &socket("none/socket"), "bash", "{}"]),
            &socket("none/socket"),
            "its folder is missing: make it",
        ),
        (call(&["--listen", &socket("file/socket"), "bash", "{}"]), &socket("file/socket"), "is no folder"),
        (
            call(&["--listen", &socket(&"x".repeat(120)), "bash", "{}"]),
            &socket(&"x".repeat(120)),
            "choose a shorter one",
        ),
        (call(&["--listen", "unix:/run/x", "bash", "{}"]), "--listen: ", "unix:///PATH"),
        (call(&["--listen", "/run/x", "bash", "{}"]), "--listen: ", "unix:///PATH"),
        (call(&["--listen", "unix://x", "bash", "{}"]), "--listen: ", "unix:///PATH"),
        // The call.
        (call(&["--listen", "127.0.0.1:0", "bash"]), "JSON: it is missing", "such as '{"),
        (call(&["--listen", "127.0.0.1:0", "bash", "{\"command\":", "\"date\"}"]), "date", "in single quotes"),
        (call(&["--listen", "127.0.0.1:0", "bash", "-1"]), "JSON: ", "{\"member\": value, ...}"),
        (call(&["--listen", "127.0.0.1:0", "bash", "{"]), "JSON: ", "not JSON"),
        (call(&["--listen", "127.0.0.1:0", "bash", "[]"]), "JSON: ", "{\"member\": value, ...}"),
        (call(&["--listen", "127.0.0.1:0", "", "{}"]), "TOOL: ", "such as bash"),
        (call(&["--listen", "127.0.0.1:0", "--session", "", "bash", "{}"]), "--session: ", "give an id"),
        (
            call(&["--listen", "127.0.0.1:0", "--deadline-ms", "0", "bash", "{}"]),
            "--deadline-ms: ",
            "above 0, such as 5000",
        ),
        (call(&["--listen", "127.0.0.1:0", "--deadline-ms", "-5", "bash", "{}"]), "--deadline-ms: ", "above 0"),
        (call(&["--listen", "127.0.0.1:0", "--timeout", "soon", "bash", "{}"]), "--timeout", "number of seconds"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let line = refused(&place, &arguments, &[]);
        assert!(line.contains(field) && line.contains(fix), "{arguments:?}: {line}");
    }
    let too_many: Vec<&str> = ["hand", "--url", "ws://127.0.0.1:9/", "--token-file", &token]
        .into_iter()
        .chain((0..33).flat_map(|_| ["--label", "a"]))
        .collect();
    assert!(refused(&place, &too_many, &[]).contains("--label: there are 33"));
}

#[test]
fn f120_wrong_variables_are_named_as_variables() {
    let place = Place::new();
    let token = place.text("token");
    for (variable, value, fix) in [
        ("BMA_URL", "ftp://h/", "use ws://"),
        ("BMA_TOKEN", "", "empty"),
        ("BMA_TOKEN", "two words", "only the token"),
        ("BMA_LOG", "a=b=c", "for example info"),
    ] {
        let arguments = match variable {
            "BMA_TOKEN" => vec!["hand", "--url", "ws://127.0.0.1:9/"],
            "BMA_URL" => vec!["hand", "--token-file", &token],
            _ => vec!["demo"],
        };
        let line = refused(&place, &arguments, &[(variable, value)]);
        assert!(line.contains(&format!("{variable}: ")) && line.contains(fix), "{line}");
    }
}

#[test]
fn f120_a_token_comes_from_a_private_file_or_is_refused() {
    let place = Place::new();
    place.write_private("empty", "\n");
    place.write_private("long", &"x".repeat(8 * 1024 + 1));
    place.write_private("words", "not a token");
    for (name, mode) in [("group", 0o640), ("world", 0o604), ("writable", 0o602)] {
        place.write_private(name, "t0ken");
        std::fs::set_permissions(place.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    let made = std::process::Command::new("mkfifo").args(["-m", "600", &place.text("pipe")]).status().unwrap();
    assert!(made.success());
    for command in [
        &["hand", "--url", "ws://127.0.0.1:9/"][..],
        &["call", "--listen", "127.0.0.1:0", "bash", "{}"],
        &["brain", "--listen", "127.0.0.1:0"],
    ] {
        let none = refused(&place, command, &[]);
        assert!(none.contains("--token-file: ") && none.contains("BMA_TOKEN"), "{none}");
        for (name, fix) in [
            ("nowhere", "No such file"),
            ("home", "no regular file"),
            ("pipe", "no regular file"),
            ("empty", "the token is empty"),
            ("long", "more than 8192 bytes"),
            ("words", "only the token"),
            ("group", "chmod 600"),
            ("world", "chmod 600"),
            ("writable", "chmod 600"),
        ] {
            let line = refused(&place, &[command, &["--token-file", &place.text(name)]].concat(), &[]);
            assert!(line.contains("--token-file: ") && line.contains(fix), "{name}: {line}");
        }
    }
}

#[test]
fn credentials_in_the_wrong_place_are_refused_and_not_repeated() {
    let place = Place::new();
    let token = place.text("token");
    for arguments in [
        &["hand", "--url", "ws://127.0.0.1:9/", "--token", "hunter2"][..],
        &["hand", "--url", "ws://127.0.0.1:9/", "--token=hunter2"],
        &["hand", "--url", "ws://user:hunter2@127.0.0.1:9/", "--token-file", &token],
        &["hand", "--url", "ws://127.0.0.1:9/?token=hunter2", "--token-file", &token],
        &["call", "--listen", "hunter2@127.0.0.1:0", "--token-file", &token, "bash", "{}"],
    ] {
        let line = refused(&place, arguments, &[]);
        assert!(!line.contains("hunter2"), "{line}");
        assert!(line.contains("token"), "{line}");
    }
}

#[test]
fn help_teaches_and_goes_to_stdout() {
    let place = Place::new();
    for (arguments, taught) in [
        (&["--help"][..], &["hand", "call", "brain", "demo", "BMA_LOG"][..]),
        (&["hand", "--help"], &["--url", "BMA_URL", "--token-file", "BMA_TOKEN", "--work-root", "--label", "SIGTERM"]),
        (&["call", "--help"], &["LISTEN", "--deadline-ms", "--timeout", "Exit code 0 on success", "Example"]),
        (&["brain", "--help"], &["\"op\":\"assign\"", "\"op\":\"call\""]),
        (&["demo", "--help"], &["leaves nothing"]),
        (&["--version"], &["bma 0."]),
    ] {
        let ended = Running::start(place.bma(arguments)).end();
        ended.expect_code(0);
        for text in taught {
            assert!(ended.stdout.contains(text), "{arguments:?} does not say {text}:\n{}", ended.stdout);
        }
        assert_eq!(ended.stderr, "");
    }
}
