//! `bma brain`, driven by a script.

use std::process::Stdio;
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::scripted::{Came, Scripted};
use crate::support::{Ended, Place, Running, is_listening};

/// A brain, and what a script does with it.
struct Script {
    brain: Running,
    url: String,
}

impl Script {
    fn start(place: &Place) -> Self {
        let token = place.text("token");
        let mut command = place.bma(&["brain", "--listen", "127.0.0.1:0", "--token-file", &token]);
        command.stdin(Stdio::piped());
        let script = Self { brain: Running::start(command), url: String::new() };
        let listening = script.event("listening", |_| true);
        let url = listening["url"].as_str().unwrap().to_owned();
        assert_eq!(script.brain.listening(), url);
        Self { url, ..script }
    }

    /// With hands that are registered.
    fn with_hand(place: &Place) -> (Self, Running) {
        let script = Self::start(place);
        let hand = place.hand(&script.url);
        script.event("executor.registered", |event| event["name"] == "testhand");
        (script, hand)
    }

    fn wait(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        // Every line is one JSON object, whatever it says.
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        parse(&self.brain.stdout.wait_for(|line| wanted(&parse(line))))
    }

    fn event(&self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait(|line| line["event"] == name && wanted(line))
    }

    fn send(&mut self, request: &Value) {
        self.brain.tell(&request.to_string());
    }

    fn answer(&self, id: impl Into<Value>) -> Value {
        let id = id.into();
        self.wait(|line| line.get("event").is_none() && line["id"] == id)
    }

    /// Sends a request and gives its answer.
    fn ask(&mut self, request: Value) -> Value {
        self.send(&request);
        self.answer(request["id"].clone())
    }

    /// Sends a request that must fail, and gives its error.
    fn fail(&mut self, request: Value) -> Value {
        let answer = self.ask(request);
        assert_eq!(answer["ok"], false, "{answer}");
        answer["error"].clone()
    }

    /// Ends the input, and waits for the orderly end.
    fn finish(mut self) -> Ended {
        self.brain.end_input();
        let ended = self.brain.end();
        ended.expect_code(0);
        assert!(!is_listening(&self.url));
        ended
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn two_sessions_are_driven_at_once_with_progress_and_a_cancel() {
    let place = Place::new();
    let (mut script, hand) = Script::with_hand(&place);
    for (id, session) in [(1, "one"), (2, "two")] {
        let assigned = script.ask(json!({"id": id, "op": "assign", "session_id": session}));
        assert_eq!((&assigned["ok"], &assigned["session_id"]), (&json!(true), &json!(session)), "{assigned}");
        script.event("session.ready", |event| event["session_id"] == session);
    }
    let listed = script.ask(json!({"id": "who", "op": "executors"}));
    assert_eq!(listed["executors"][0]["sessions"], json!(["one", "two"]));
    assert_eq!(listed["executors"][0]["connected"], true);

    // The first waits for a file that the second call, of the same session, writes; the other session sees neither.
    let waiting = "echo waiting; until [ -e go ]; do sleep 0.02; done; echo over";
    script.send(&json!({"id": 3, "op": "call", "session_id": "one", "tool": "bash", "tool_call_id": "w",
        "input": {"command": waiting}}));
    let progress = script.event("tool.progress", |event| event["tool_call_id"] == "w");
    assert_eq!((&progress["session_id"], &progress["message"]), (&json!("one"), &json!("waiting")), "{progress}");
    let other =
        script.ask(json!({"id": 4, "op": "call", "session_id": "two", "tool": "bash", "input": {"command": "ls"}}));
    assert_eq!(text(&other), "exit_code: 0");
    let go = script.ask(json!({"id": 5, "op": "call", "session_id": "one", "tool": "write",
        "input": {"path": "go", "content": ""}}));
    assert_eq!(go["result"]["outcome"], "succeeded", "{go}");
    assert_eq!(text(&script.answer(3)), "waiting\nover\nexit_code: 0");

    script.send(&json!({"id": 6, "op": "call", "session_id": "two", "tool": "bash", "tool_call_id": "s",
        "input": {"command": "echo asleep; sleep 600 & sleep 601"}}));
    script.event("tool.progress", |event| event["tool_call_id"] == "s");
    let cancel = json!({"id": 7, "op": "cancel", "session_id": "two", "tool_call_id": "s", "reason": "enough"});
    assert_eq!(script.ask(cancel)["canceled"], true);
    let canceled = script.answer(6);
    assert_eq!((&canceled["ok"], &canceled["result"]["outcome"]), (&json!(true), &json!("canceled")), "{canceled}");
    assert!(!place.processes().iter().any(|process| process.starts_with("sleep")));
    // Once more is no error, and does nothing.
    let again = json!({"id": 8, "op": "cancel", "session_id": "two", "tool_call_id": "s"});
    assert_eq!(script.ask(again)["canceled"], false);
    // A repeated call is the same call.
    let repeated = script.ask(json!({"id": 9, "op": "call", "session_id": "one", "tool": "bash", "tool_call_id": "w",
        "input": {"command": waiting}}));
    assert_eq!(repeated["result"], script.answer(3)["result"]);

    assert_eq!(script.ask(json!({"id": 10, "op": "stop", "session_id": "one", "reason": "done"}))["ok"], true);
    script.event("session.ended", |event| event["session_id"] == "one" && event["reason"] == "done");
    assert_eq!(script.fail(json!({"id": 11, "op": "stop", "session_id": "one"}))["reason"], "session_not_active");

    // At the end the other session is stopped too; the hands go on without it.
    let ended = script.finish();
    assert!(
        ended.stdout.contains(r#""event":"session.ended""#) && ended.stdout.contains("the brain ends"),
        "{}",
        ended.stdout
    );
    hand.signal("TERM");
    let hand = hand.end();
    hand.expect_code(0);
    assert!(hand.stderr.contains("stopping, 0 open sessions"), "{}", hand.stderr);
    place.assert_nothing_runs();
}

#[test]
fn a_line_that_is_wrong_is_answered_and_nothing_else_happens() {
    let place = Place::new();
    let (mut script, hand) = Script::with_hand(&place);
    script.brain.tell("");
    script.brain.tell("nonsense");
    script.wait(|line| line["id"].is_null() && line["error"]["code"] == -32700);
    script.brain.tell("[1]");
    script.wait(|line| line["id"].is_null() && line["error"]["code"] == -32600);
    script.brain.tell(&format!("{{\"id\":1,\"op\":\"executors\",\"x\":\"{}\"}}", "x".repeat(1 << 20)));
    script.wait(|line| line["id"].is_null() && line["error"]["reason"] == "payload_too_large");

    let touch = |id: i32, more: Value| {
        let mut request = json!({"id": id, "op": "call", "session_id": "s", "tool": "bash",
            "input": {"command": "touch ran"}});
        request.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        request
    };
    let assigned = script.ask(json!({"id": "a", "op": "assign", "session_id": "s"}));
    assert_eq!(assigned["ok"], true, "{assigned}");
    for (request, code, said) in [
        (touch(2, json!({"op": "shout"})), -32600, "`op`"),
        (touch(3, json!({"session_id": 5})), -32602, "`session_id` must be a string, not a whole number"),
        (touch(4, json!({"deadline": 5})), -32602, "`deadline` is not known here: there are `id`, `op`, "),
        (touch(5, json!({"session_id": "t"})), -32007, "assign it first"),
        (touch(6, json!({"executor": "exec_none"})), -32002, "exec_none"),
        (json!({"id": 7, "op": "request", "method": "process.fly"}), -32601, "process.fly"),
        (json!({"id": 8, "op": "request", "method": "tool.result"}), -32601, "sent by executors"),
        (json!({"id": 9, "op": "request", "method": "tool.call"}), -32600, "\"op\":\"call\""),
        (
            json!({"id": 10, "op": "request", "method": "fs.unmount", "params": {}}),
            -32602,
            "`params.session_id` is missing",
        ),
        // Of the catalogue, and not served by these hands.
        (
            json!({"id": 11, "op": "request", "method": "fs.unmount", "params": {"session_id": "s"}}),
            -32012,
            "fs.unmount",
        ),
        (json!({"id": 12, "op": "assign", "session_id": "s"}), -32013, "bound already"),
        (json!({"id": 15, "op": "assign", "resources": 5}), -32602, "`resources` must be an array, not a whole number"),
        (
            json!({"id": 16, "op": "assign", "mcp_servers": [{"server_key": 7}]}),
            -32602,
            "`mcp_servers[0].server_key` must be a string, not a whole number",
        ),
        (json!({"id": 17, "op": "request", "method": "fs.unmount", "params": 5}), -32602, "`params` must be an object"),
        (
            json!({"id": 18, "op": "request", "method": "turn.start", "params": {
                "session_id": "s", "turn_id": "t", "input_id": "i", "input": [{"type": "text"}, {}]}}),
            -32602,
            "`params.input[1].type` is missing",
        ),
    ] {
        let error = script.fail(request.clone());
        assert_eq!(error["code"], code, "{request}: {error}");
        assert!(error["message"].as_str().unwrap().contains(said), "{request}: {error}");
        assert!(error["reason"].is_string() && error["retryable"] == false, "{request}: {error}");
    }
    assert_eq!(
        script.fail(json!({"id": 13, "op": "request", "method": "fs.unmount",
        "params": {"session_id": "s"}}))["capability"],
        "fs.fuse"
    );
    // The brain lives, and none of them has run.
    let ls = script.ask(json!({"id": 14, "op": "call", "session_id": "s", "tool": "bash", "input": {"command": "ls"}}));
    assert_eq!(text(&ls), "exit_code: 0");
    let ended = script.finish();
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    drop(hand);
    place.assert_nothing_runs();
}

#[test]
fn the_end_of_the_input_waits_for_what_is_in_flight() {
    let place = Place::new();
    let (mut script, hand) = Script::with_hand(&place);
    script.ask(json!({"id": 1, "op": "assign", "session_id": "s"}));
    script.send(&json!({"id": 2, "op": "call", "session_id": "s", "tool": "bash", "tool_call_id": "w",
        "input": {"command": "echo begun; until [ -e go ]; do sleep 0.02; done"}}));
    script.event("tool.progress", |_| true);
    script.send(
        &json!({"id": 3, "op": "call", "session_id": "s", "tool": "write", "input": {"path": "go", "content": ""}}),
    );
    let ended = script.finish();
    let last =
        ended.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).find(|line| line["id"] == 2);
    assert_eq!(text(&last.unwrap()), "begun\nexit_code: 0");
    drop(hand);
    place.assert_nothing_runs();
}

#[test]
fn executors_come_and_go_and_can_be_told_to() {
    let place = Place::new();
    let mut script = Script::start(&place);
    let none = script.fail(json!({"id": 1, "op": "assign"}));
    assert_eq!((&none["reason"], &none["retryable"]), (&json!("no_executor"), &json!(true)));

    let hand = place.hand(&script.url);
    let came = script.event("executor.registered", |_| true);
    let executor = came["executor"].as_str().unwrap();
    assert_eq!((&came["resumed"], &came["os"]), (&json!(false), &json!(std::env::consts::OS)), "{came}");
    let assigned = script.ask(json!({"id": 2, "op": "assign", "executor": executor}));
    assert!(assigned["session_id"].as_str().unwrap().starts_with("ses_"), "{assigned}");

    // Drained, it takes no more sessions, and leaves when the last one has ended.
    assert_eq!(script.ask(json!({"id": 3, "op": "drain", "reason": "update"}))["executors"], json!([executor]));
    hand.stderr.wait_for_text("the harness drains this machine, no new sessions come: update");
    let busy = script.fail(json!({"id": 4, "op": "assign"}));
    assert_eq!((&busy["reason"], &busy["retryable"]), (&json!("executor_busy"), &json!(true)), "{busy}");
    script.ask(json!({"id": 5, "op": "stop", "session_id": assigned["session_id"]}));
    script.event("executor.gone", |event| event["executor"] == executor);
    hand.end().expect_code(0);

    let hand = place.hand(&script.url);
    let next = script.event("executor.registered", |event| event["executor"] != executor);
    assert_eq!(script.ask(json!({"id": 6, "op": "close", "reason": "bye"}))["executors"], json!([next["executor"]]));
    let hand = hand.end();
    hand.expect_code(0);
    assert!(hand.stderr.ends_with("bma hand: the harness closed the executor: bye\n"), "{}", hand.stderr);
    script.finish();
    place.assert_nothing_runs();
}

#[test]
fn a_signal_stops_the_sessions_and_ends_in_order() {
    for signal in ["INT", "TERM"] {
        let place = Place::new();
        let (mut script, hand) = Script::with_hand(&place);
        script.ask(json!({"id": 1, "op": "assign", "session_id": "s"}));
        script.send(&json!({"id": 2, "op": "call", "session_id": "s", "tool": "bash",
            "input": {"command": "echo asleep; sleep 600 & sleep 601"}}));
        script.event("tool.progress", |_| true);
        script.brain.signal(signal);
        let ended = script.brain.end();
        ended.expect_code(0);
        // The call has its answer, and its session its end.
        assert!(ended.stdout.contains(r#""id":2"#) && ended.stdout.contains("session.ended"), "{}", ended.said());
        assert!(!place.processes().iter().any(|process| process.starts_with("sleep")));
        drop(hand);
        place.assert_nothing_runs();
    }
}

#[test]
fn a_signal_does_not_wait_for_a_machine_that_is_away() {
    let place = Place::new();
    let call = |id: u32| json!({"id": id, "op": "call", "session_id": "s", "tool": "bash", "input": {"command": "echo asleep; sleep 600"}});
    for killed_before in [true, false] {
        let (mut script, hand) = Script::with_hand(&place);
        script.ask(json!({"id": 1, "op": "assign", "session_id": "s"}));
        script.send(&call(2));
        script.event("tool.progress", |_| true);
        if killed_before {
            hand.signal("KILL");
            script.event("executor.disconnected", |_| true);
            script.brain.signal("TERM");
        } else {
            // It answers nothing any more, and is killed once the brain waits for it.
            hand.signal("STOP");
            script.brain.signal("TERM");
            script.brain.stderr.wait_for(|line| line.contains("stopping"));
            hand.signal("KILL");
        }
        let signaled = std::time::Instant::now();
        let ended = script.brain.end();
        ended.expect_code(0);
        assert!(signaled.elapsed() < std::time::Duration::from_secs(20), "{:?}", signaled.elapsed());
        // What became of the call is not known, and its answer says so.
        let answer =
            ended.stdout.lines().find(|line| line.contains(r#""id":2"#)).unwrap_or_else(|| panic!("{}", ended.said()));
        assert!(answer.contains("outcome_unknown"), "{answer}");
        hand.end();
        place.assert_nothing_runs();
    }
}

#[test]
fn a_closed_stdout_ends_it() {
    let place = Place::new();
    let token = place.text("token");
    let mut command = place.bma(&["brain", "--listen", "127.0.0.1:0", "--token-file", &token]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdin(Stdio::piped()).stdout(writer).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    drop(command);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.lines().last().unwrap().starts_with("bma brain: stdout: "), "{said}");
}

#[test]
fn a_signal_ends_a_brain_whose_lines_nobody_reads() {
    use std::io::Write as _;
    let place = Place::new();
    let token = place.text("token");
    let mut command = place.bma(&["brain", "--listen", "127.0.0.1:0", "--token-file", &token]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut brain = command.spawn().unwrap();
    let mut stdin = brain.stdin.take().unwrap();
    let flags = rustix::fs::fcntl_getfl(&stdin).unwrap();
    rustix::fs::fcntl_setfl(&stdin, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    // It takes no more when it has no room for the answers: that is when its input stays full.
    let (line, mut since) = ("{\"id\":1,\"op\":\"executors\"}\n".repeat(100), std::time::Instant::now());
    let mut at = 0;
    while since.elapsed() < std::time::Duration::from_secs(2) {
        match stdin.write(&line.as_bytes()[at..]) {
            Ok(count) => {
                at = (at + count) % line.len();
                since = std::time::Instant::now();
            }
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
    }
    let id = rustix::process::Pid::from_child(&brain);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let signaled = std::time::Instant::now();
    let status = loop {
        if let Some(status) = brain.try_wait().unwrap() {
            break status;
        }
        if signaled.elapsed() > std::time::Duration::from_secs(30) {
            brain.kill().unwrap();
            panic!("it does not look at the signal");
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(2), "the last lines were not read");
    let said = std::io::read_to_string(brain.stderr.take().unwrap()).unwrap();
    assert!(said.contains("SIGTERM: stopping") && said.contains("the last lines were not read"), "{said}");
}

#[test]
fn it_leaves_with_a_close_frame_however_it_ends() {
    let place = Place::new();
    for round in 0..12 {
        let mut script = Script::start(&place);
        let mut executor = Scripted::registered(&script.url, "scripted");
        script.event("executor.registered", |_| true);
        match round % 2 {
            0 => script.brain.end_input(),
            _ => script.brain.signal("INT"),
        }
        assert_eq!(executor.serve(), Came::Close(1001), "round {round}");
        executor.close(1001);
        script.finish();
    }
}

/// Serves until its connection ends, in a thread of its own.
fn scripted(script: &Script, name: &str) -> (String, JoinHandle<Came>) {
    let mut executor = Scripted::registered(&script.url, name);
    let came = script.event("executor.registered", |event| event["name"] == name);
    (came["executor"].as_str().unwrap().to_owned(), std::thread::spawn(move || executor.serve()))
}

#[test]
fn a_machine_that_was_killed_and_started_again_is_found_by_its_session() {
    let place = Place::new();
    let (mut script, hand) = Script::with_hand(&place);
    let first = script.ask(json!({"id": 1, "op": "assign", "session_id": "s"}))["executor"].clone();
    hand.signal("KILL");
    hand.end();
    script.event("executor.disconnected", |event| event["executor"] == first);
    let cancel = |id: u32| json!({"id": id, "op": "cancel", "session_id": "s", "tool_call_id": "none"});
    // Nobody else has the session: the one that is away is meant.
    let away = script.fail(cancel(2));
    assert_eq!((&away["reason"], &away["retryable"]), (&json!("disconnected"), &json!(true)), "{away}");

    let hand = place.hand(&script.url);
    script.event("executor.registered", |event| event["executor"] != first);
    let second = script.ask(json!({"id": 3, "op": "assign", "session_id": "s"}));
    assert_eq!(second["ok"], true, "{second}");
    assert_ne!(second["executor"], first);
    let echo = json!({"id": 4, "op": "call", "session_id": "s", "tool": "bash", "input": {"command": "echo here"}});
    assert_eq!(text(&script.ask(echo)), "here\nexit_code: 0");
    assert_eq!(script.ask(cancel(5))["canceled"], false);
    // The one that is away is still there for whoever names it.
    let mut named = cancel(6);
    named["executor"] = first;
    assert_eq!(script.fail(named)["reason"], "disconnected");
    assert_eq!(script.ask(json!({"id": 7, "op": "stop", "session_id": "s"}))["ok"], true);
    script.finish();
    drop(hand);
    place.assert_nothing_runs();
}

#[test]
fn a_session_that_several_connected_executors_have_must_be_named_with_its_executor() {
    let place = Place::new();
    let mut script = Script::start(&place);
    let executors = [scripted(&script, "one"), scripted(&script, "two")];
    for (id, _) in &executors {
        let assigned = script.ask(json!({"id": id, "op": "assign", "session_id": "s", "executor": id}));
        assert_eq!(assigned["ok"], true, "{assigned}");
    }
    for request in [
        json!({"id": 1, "op": "call", "session_id": "s", "tool": "bash", "input": {"command": "x"}}),
        json!({"id": 2, "op": "cancel", "session_id": "s", "tool_call_id": "c"}),
        json!({"id": 3, "op": "stop", "session_id": "s"}),
        json!({"id": 4, "op": "request", "method": "fs.unmount", "params": {"session_id": "s"}}),
    ] {
        let error = script.fail(request);
        assert_eq!((&error["code"], &error["reason"]), (&json!(-32013), &json!("conflict")), "{error}");
        assert!(error["message"].as_str().unwrap().contains("`executor`"), "{error}");
    }
    for (id, _) in &executors {
        let call = json!({"id": format!("c{id}"), "op": "call", "session_id": "s", "executor": id, "tool": "bash",
            "input": {"command": "named"}});
        assert_eq!(text(&script.ask(call)), "named");
    }
    script.finish();
    for (_, executor) in executors {
        assert_eq!(executor.join().unwrap(), Came::Close(1001));
    }
}

#[test]
fn an_executor_that_is_there_at_once_is_told_of() {
    let place = Place::new();
    for _ in 0..200 {
        let token = place.text("token");
        let mut command = place.bma(&["brain", "--listen", "127.0.0.1:0", "--token-file", &token]);
        command.stdin(Stdio::piped());
        let brain = Running::start(command);
        let url = brain.listening();
        let executor = Scripted::registered(&url, "early");
        let mut script = Script { brain, url };
        script.event("executor.registered", |event| event["name"] == "early");
        let listed = script.ask(json!({"id": 1, "op": "executors"}));
        assert_eq!(listed["executors"][0]["name"], "early", "{listed}");
        drop(executor);
        script.finish();
    }
}
