//! The file tools through the wire.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bma_hands_posix::hands::access::{AccessRefused, FileAccessRequest};
use bma_runtime::proto::contract::{EditInput, GlobInput, GrepInput, ListFilesInput, ReadInput, ToolOutcome};
use bma_runtime_tokio::TokioRuntime;
use bma_tests::exchange_suite::{Count, start};
use serde_json::json;

use crate::script::{Script, scripted};
use crate::support::{Setup, bad, call, call_within, canceled, good, input, long_grep, read, seen, text, write};

#[test]
fn the_seven_tools_as_a_brain_sees_them() {
    Setup::direct().run(async |hands| {
        let capabilities = hands.executor.capabilities();
        assert!(capabilities.has("shell") && capabilities.has("files"), "{capabilities:?}");
        let session = hands.session("s").await;
        let tools = || session.tools();

        let poem = "roses are red\nviolets are blue\n";
        assert_eq!(good(tools().write(write("notes/poem.txt", poem)).await), "created notes/poem.txt (31 bytes)");
        assert_eq!(good(tools().write(write("b.txt", "x")).await), "created b.txt (1 byte)");
        assert_eq!(good(tools().write(write("b.txt", "")).await), "replaced b.txt (0 bytes)");
        assert_eq!(std::fs::read_to_string(hands.workspace("s").join("notes/poem.txt")).unwrap(), poem);

        assert_eq!(good(tools().read(read("notes/poem.txt")).await), poem);
        let second = ReadInput { path: "notes/poem.txt".into(), offset: Some(2), limit: Some(1) };
        assert_eq!(good(tools().read(second).await), "violets are blue\n");

        let edit = EditInput { path: "notes/poem.txt".into(), old_string: "blue".into(), new_string: "$1".into() };
        assert_eq!(good(tools().edit(edit).await), "edited notes/poem.txt: 1 place, at line 2");
        assert_eq!(good(tools().read(read("notes/poem.txt")).await), "roses are red\nviolets are $1\n");

        let glob = GlobInput { pattern: "**/*.txt".into(), path: None };
        assert_eq!(good(tools().glob(glob).await), "b.txt\nnotes/poem.txt");
        let grep = GrepInput { pattern: "are (red|\\$)".into(), path: None, glob: None };
        assert_eq!(good(tools().grep(grep).await), "notes/poem.txt:1:roses are red\nnotes/poem.txt:2:violets are $1");
        assert_eq!(good(tools().list_files(ListFilesInput { path: None }).await), "b.txt\nnotes/");

        let command = "cat notes/poem.txt | wc -l | tr -d ' '; echo oh >&2; printf end; exit 3";
        assert_eq!(good(tools().bash(input(command)).await), "2\nend\noh\nexit_code: 3");
        assert_eq!(good(tools().bash(input("true")).await), "exit_code: 0");
    });
}

#[test]
fn bad_news_is_for_the_model_and_names_the_path() {
    Setup::direct().run(async |hands| {
        let session = hands.session("s").await;
        let missing = bad(session.tools().read(read("missing.txt")).await);
        assert!(missing.starts_with("`missing.txt` does not exist"), "{missing}");
        let outside = bad(session.tools().write(write("../x", "x")).await);
        assert!(outside.starts_with("`../x` is outside the workspace"), "{outside}");
        assert!(!outside.contains(hands.base.to_str().unwrap()), "{outside}");
        let (outcome, is_error, text) = seen(session.tools().grep(GrepInput::default()).await);
        assert_eq!((outcome, is_error), (ToolOutcome::Failed, true));
        assert!(text.contains("pattern"), "{text}");
    });
}

/// No file and no command can hold what JSON writes as half of a pair: nothing is done, and the member is named.
#[test]
fn half_a_character_in_an_input_is_told_with_its_member() {
    Setup::direct().run(async |hands| {
        scripted(hands, |listener| {
            let mut script = Script::register(listener);
            script.assign("s");
            let inputs = [
                ("write", "path", r#"{"path":"a\ud83d","content":"x"}"#),
                ("write", "content", r#"{"path":"a","content":"\ude00"}"#),
                ("edit", "new_string", r#"{"path":"a","old_string":"a","new_string":"\ud83d\u0041"}"#),
                ("grep", "pattern", r#"{"pattern":"\ud83d"}"#),
                ("bash", "command", r#"{"command":"touch a; echo \ud83d"}"#),
                ("bash", "env.A", r#"{"command":"touch a","env":{"A":"\ud83d"}}"#),
            ];
            for (number, (tool, member, input)) in inputs.into_iter().enumerate() {
                let params =
                    format!(r#"{{"session_id":"s","tool_call_id":"{number}","tool":"{tool}","input":{input}}}"#);
                script.send_text(&format!(
                    r#"{{"jsonrpc":"2.0","id":"{number}","method":"tool.call","params":{params}}}"#
                ));
                assert_eq!(script.next()["result"]["accepted"], true);
                let result = script.next_accepted();
                assert_eq!(result["params"]["outcome"], "failed", "{result}");
                let text = result["params"]["content"][0]["text"].as_str().unwrap();
                assert!(text.contains(&format!("`{member}` must not hold half of a surrogate pair")), "{text}");
            }
            script.call("s", "whole", "write", json!({ "path": "whole", "content": "\u{1f600}" }));
            assert_eq!(script.next_accepted()["params"]["outcome"], "succeeded");
            script.close();
        })
        .await;
        let mut left =
            std::fs::read_dir(hands.base.join("work/script/s")).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!((left.next(), left.next()), (Some("whole".into()), None));
    });
}

#[test]
fn a_long_search_ends_at_its_deadline_and_by_a_cancel() {
    let asked = Count::default();
    let hook = {
        let asked = asked.clone();
        move |_: &FileAccessRequest<'_>| {
            asked.add();
            Ok::<_, AccessRefused>(())
        }
    };
    Setup::direct().core(|options, _| options.file_access = Some(Arc::new(hook))).run(async |hands| {
        let session = hands.session("s").await;
        let grep = long_grep(&hands.workspace("s"));

        let begun = hands.runtime.now();
        let text = bad(session.tools().with(call_within(200)).grep(grep.clone()).await);
        assert_eq!(text, "timed out: the deadline of the call has passed");
        let took = hands.runtime.now().saturating_since(begun);
        assert!((Duration::from_millis(200)..Duration::from_secs(5)).contains(&took), "{took:?}");

        let running = {
            let session = session.clone();
            hands.start(async move { session.tools().with(call("long")).grep(grep).await })
        };
        asked.reaches(2).await;
        assert!(session.cancel_tool(&"long".into(), "enough").await.unwrap());
        assert_eq!(canceled(running.await), "canceled");
        // Nobody else waited for it, and the session goes on.
        assert_eq!(good(session.tools().bash(input("echo on")).await), "on\nexit_code: 0");
    });
}

/// An expression that would take an engine which tries every way longer than there are seconds, over as much text as
/// takes this one some: meanwhile other calls of the same connection get their answers, and the lease is kept.
#[test]
fn f115_a_search_with_a_pathological_expression_delays_no_other_call() {
    let setup = Setup::direct().harness(|options| {
        options.config.heartbeat_interval = Duration::from_millis(100);
        options.config.lease_ttl = Duration::from_secs(2);
    });
    setup.run(async |hands| {
        let session = hands.session("s").await;
        let place = hands.workspace("s");
        let mut grep = long_grep(&place);
        grep.pattern = "(a+)+$|(a|b|ab)*c".into();
        std::fs::write(place.join("long/evil.txt"), format!("{}b\n", "a".repeat(50 * 1024)).repeat(200)).unwrap();
        let mut searches = Vec::new();
        for number in 0..4 {
            let (session, grep, id) = (session.clone(), grep.clone(), format!("search-{number}"));
            searches.push(hands.start(async move { session.tools().with(call(&id)).grep(grep).await }));
        }
        let mut slowest = Duration::ZERO;
        for _ in 0..20 {
            let asked = hands.runtime.now();
            assert_eq!(good(session.tools().write(write("x", "x")).await).split(' ').nth(1), Some("x"));
            slowest = slowest.max(hands.runtime.now().saturating_since(asked));
        }
        eprintln!("slowest of 20 calls: {slowest:?}");
        assert!(slowest < Duration::from_secs(1), "{slowest:?}");
        for number in 0..4 {
            assert!(session.cancel_tool(&format!("search-{number}").as_str().into(), "enough").await.unwrap());
        }
        for search in searches {
            assert_eq!(canceled(search.await), "canceled");
        }
        assert_eq!(good(session.tools().bash(input("echo on")).await), "on\nexit_code: 0");
    });
}

/// A hook that holds its callers until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
    held: AtomicUsize,
}

impl Gate {
    fn wait(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        // A case that fails opens nothing any more: its threads must end all the same.
        drop(self.opened.wait_timeout_while(open, Duration::from_secs(20), |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

#[test]
fn a_call_that_waits_for_a_thread_is_canceled_at_once_and_does_nothing() {
    let gate = Arc::new(Gate::default());
    let hook = {
        let gate = Arc::clone(&gate);
        move |request: &FileAccessRequest<'_>| {
            if request.path.starts_with("held") {
                gate.wait();
            }
            Ok::<_, AccessRefused>(())
        }
    };
    let mut tokio = tokio::runtime::Builder::new_multi_thread();
    let tokio = tokio.worker_threads(2).max_blocking_threads(2).enable_all().build().unwrap();
    tokio.block_on(async {
        let setup = Setup::direct().core(|options, _| options.file_access = Some(Arc::new(hook)));
        let case = async |hands: &crate::support::Hands| {
            let session = hands.session("s").await;
            let writing = |path: &str| {
                let (session, path) = (session.clone(), path.to_owned());
                start(&hands.runtime, async move { session.tools().with(call(&path)).write(write(&path, "x")).await })
            };
            let held = [writing("held-1"), writing("held-2")];
            hands.until("both threads are taken", || gate.held.load(Ordering::SeqCst) == 2).await;
            let queued = writing("queued");
            let queued_id = "queued".into();
            // Not before the executor has it: a cancel of an unknown call is none.
            while !session.cancel_tool(&queued_id, "no").await.unwrap() {}
            assert_eq!(canceled(queued.await), "canceled");
            gate.open();
            for held in held {
                assert!(good(held.await).starts_with("created held-"));
            }
            // What was queued has had its turn by now, since another call has had one after it.
            assert_eq!(good(session.tools().write(write("after", "x")).await), "created after (1 byte)");
            assert!(!hands.workspace("s").join("queued").exists());
        };
        setup.run_on(Arc::new(TokioRuntime::current()), case).await;
    });
}

/// However many calls a session has under way, it takes eight threads at most: another session's come at once.
#[test]
fn a_session_has_so_many_file_tools_at_work_and_no_more() {
    let gate = Arc::new(Gate::default());
    let hook = {
        let gate = Arc::clone(&gate);
        move |request: &FileAccessRequest<'_>| {
            if request.session_id.as_str() == "greedy" {
                gate.wait();
            }
            Ok::<_, AccessRefused>(())
        }
    };
    Setup::direct().core(|options, _| options.file_access = Some(Arc::new(hook))).run(async |hands| {
        let (greedy, other) = (hands.session("greedy").await, hands.session("other").await);
        let writing = |number: usize| {
            let session = greedy.clone();
            hands.start(async move {
                let (id, path) = (format!("call-{number}"), format!("file-{number}"));
                session.tools().with(call(&id)).write(write(&path, "x")).await
            })
        };
        let calls: Vec<_> = (0..40).map(writing).collect();
        hands.until("eight are at work", || gate.held.load(Ordering::SeqCst) == 8).await;
        assert_eq!(good(other.tools().write(write("x", "x")).await), "created x (1 byte)");
        let text = bad(greedy.tools().with(call_within(100)).write(write("late", "x")).await);
        assert_eq!(text, "timed out: the deadline of the call has passed");
        for number in 20..30 {
            while !greedy.cancel_tool(&format!("call-{number}").as_str().into(), "no").await.unwrap() {}
        }
        assert_eq!(gate.held.load(Ordering::SeqCst), 8);
        gate.open();
        for (number, called) in calls.into_iter().enumerate() {
            match seen(called.await) {
                (ToolOutcome::Succeeded, false, text) => assert_eq!(text, format!("created file-{number} (1 byte)")),
                (outcome, _, text) => {
                    assert_eq!((outcome, text.as_str()), (ToolOutcome::Canceled, "canceled"));
                    assert!(
                        (20..30).contains(&number)
                            && !hands.workspace("greedy").join(format!("file-{number}")).exists()
                    );
                }
            }
        }
        assert!(!hands.workspace("greedy").join("late").exists());
    });
}

#[test]
fn two_hundred_calls_at_once_in_eight_sessions_get_each_its_own_answer() {
    Setup::direct().run(async |hands| {
        let mut running = Vec::new();
        for number in 0..8 {
            let session = hands.session(&format!("s{number}")).await;
            good(session.tools().write(write("own.txt", &format!("text of {number}\n"))).await);
            for round in 0..25 {
                let session = session.clone();
                running.push(start(&hands.runtime, async move {
                    let result = match round % 5 {
                        0 => session.tools().bash(input(&format!("cat own.txt; echo {round}"))).await,
                        1 => session.tools().read(read("own.txt")).await,
                        2 => session.tools().write(write(&format!("file-{round}"), "x")).await,
                        3 => {
                            let grep = GrepInput { pattern: "^text".into(), ..GrepInput::default() };
                            session.tools().grep(grep).await
                        }
                        _ => session.tools().glob(GlobInput { pattern: "own.*".into(), path: None }).await,
                    };
                    let text = text(&result.unwrap());
                    let expected = match round % 5 {
                        0 => format!("text of {number}\n{round}\nexit_code: 0"),
                        1 => format!("text of {number}\n"),
                        2 => format!("created file-{round} (1 byte)"),
                        3 => format!("own.txt:1:text of {number}"),
                        _ => "own.txt".to_owned(),
                    };
                    assert_eq!(text, expected);
                }));
            }
        }
        for one in running {
            one.await;
        }
    });
}
