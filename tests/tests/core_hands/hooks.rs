//! What the machine's owner has a say in: file access, the environment, how commands start.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bma_hands_posix::hands::access::{AccessRefused, FileAccessRequest, FileOperation};
use bma_hands_posix::hands::env::EnvPolicy;
use bma_hands_posix::hands::launch::{LaunchRefusal, LaunchRequest, LaunchSpec};
use bma_runtime::proto::contract::{
    BashInput, EditInput, ErrorReason, GlobInput, GrepInput, ListFilesInput, TextMap, ToolOutcome,
};
use bma_tests::exchange_suite::{Count, assignment};
use bma_tests::support::logs;

use crate::support::{Hands, Setup, bad, call, canceled, good, input, read, write};

/// What a hook was asked, one line each.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<String>>>);

impl Asked {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn edit(path: &str) -> EditInput {
    EditInput { path: path.into(), old_string: "old".into(), new_string: "new".into() }
}

/// Every file tool once.
async fn each_file_tool(hands: &Hands, path: &str) -> Vec<crate::support::Called> {
    let session = hands.executor.session(&"s".into()).unwrap();
    let grep = GrepInput { pattern: "o".into(), path: Some(path.into()), glob: None };
    vec![
        session.tools().with(call("")).read(read(path)).await,
        session.tools().write(write(path, "old")).await,
        session.tools().edit(edit(path)).await,
        session.tools().glob(GlobInput { pattern: "*".into(), path: Some("dir".into()) }).await,
        session.tools().grep(grep).await,
        session.tools().list_files(ListFilesInput { path: Some("dir".into()) }).await,
    ]
}

#[test]
fn the_host_is_asked_before_each_operation() {
    let asked = Asked::default();
    let hook = {
        let asked = asked.clone();
        move |request: &FileAccessRequest<'_>| {
            assert_eq!(request.session_id.as_str(), "s");
            assert!(!request.tool_call_id.as_str().is_empty());
            asked.note(format!("{} {} {}", request.tool, request.operation, request.path));
            Ok::<_, AccessRefused>(())
        }
    };
    Setup::direct().core(|options, _| options.file_access = Some(Arc::new(hook))).run(async |hands| {
        hands.session("s").await;
        std::fs::create_dir(hands.workspace("s").join("dir")).unwrap();
        std::fs::write(hands.workspace("s").join("dir/f"), "old").unwrap();
        for result in each_file_tool(hands, "dir/f").await {
            good(result);
        }
        assert_eq!(
            asked.taken(),
            [
                "read read dir/f",
                "write write dir/f",
                "edit read dir/f",
                "edit write dir/f",
                "glob read dir",
                "grep read dir/f",
                "list_files read dir"
            ]
        );
        let outside = bad(hands.executor.session(&"s".into()).unwrap().tools().read(read("../x")).await);
        assert!(outside.contains("outside the workspace"), "{outside}");
        assert!(asked.taken().is_empty());
    });
}

#[test]
fn a_refusal_has_its_reason_and_nothing_is_read_or_written() {
    let hook = |request: &FileAccessRequest<'_>| match request.operation {
        FileOperation::Write => Err(AccessRefused::with_reason(ErrorReason::WorkspaceReadOnly, "look, do not touch")),
        FileOperation::Read if request.path.starts_with("secret") => {
            Err(AccessRefused::denied("this one is nobody's business"))
        }
        FileOperation::Read => Ok(()),
    };
    Setup::direct().core(move |options, _| options.file_access = Some(Arc::new(hook))).run(async |hands| {
        let session = hands.session("s").await;
        let place = hands.workspace("s");
        std::fs::write(place.join("secret.txt"), "old secret").unwrap();
        std::fs::write(place.join("open.txt"), "old news").unwrap();
        std::fs::create_dir(place.join("secrets")).unwrap();
        std::fs::write(place.join("secrets/f"), "old secret").unwrap();

        let denied = "permission_denied: this one is nobody's business";
        assert_eq!(bad(session.tools().read(read("secret.txt")).await), denied);
        assert_eq!(bad(session.tools().edit(edit("secret.txt")).await), denied);
        let grep = GrepInput { pattern: "old".into(), path: Some("secrets".into()), glob: None };
        assert_eq!(bad(session.tools().grep(grep).await), denied);
        let glob = GlobInput { pattern: "secrets/*".into(), path: None };
        assert_eq!(bad(session.tools().glob(glob).await), denied);
        assert_eq!(bad(session.tools().list_files(ListFilesInput { path: Some("secrets".into()) }).await), denied);

        let read_only = "workspace_read_only: look, do not touch";
        assert_eq!(bad(session.tools().write(write("folder/new.txt", "x")).await), read_only);
        assert_eq!(bad(session.tools().write(write("open.txt", "x")).await), read_only);
        assert_eq!(bad(session.tools().edit(edit("open.txt")).await), read_only);
        assert_eq!(good(session.tools().read(read("open.txt")).await), "old news");
        assert_eq!(std::fs::read_to_string(place.join("secret.txt")).unwrap(), "old secret");
        let mut left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["open.txt", "secret.txt", "secrets"]);
    });
}

#[test]
fn a_hook_that_panics_fails_its_call_and_nothing_else() {
    let access = move |request: &FileAccessRequest<'_>| -> Result<(), AccessRefused> {
        if request.path == "bad" { panic!("on purpose") } else { Ok(()) }
    };
    let launch = move |request: LaunchRequest| async move {
        match request.tool_call_id.as_ref().unwrap().as_str() {
            "bad" => panic!("on purpose"),
            _ => Ok::<_, LaunchRefusal>(LaunchSpec::unchanged()),
        }
    };
    let setup = Setup::direct().core(move |options, base| {
        options.file_access = Some(Arc::new(access));
        options.launch = Some(Arc::new(launch));
        options.env =
            options.env.clone().deny(move |name| if name == "BAD" { panic!("on purpose") } else { false }).unwrap();
        let base = base.to_owned();
        options.workspace =
            Some(Arc::new(move |_, id| if id.as_str() == "bad" { panic!("on purpose") } else { base.join("s") }));
    });
    setup.run(async |hands| {
        logs::expect("a hook panicked");
        assert!(hands.executor.assign(assignment("bad")).await.is_err());
        let session = hands.session("s").await;
        let bad_env = BashInput { env: vars(&[("BAD", "x")]).into_iter().collect(), ..input("echo > ran") };
        for failed in [
            session.tools().write(write("bad", "x")).await,
            session.tools().with(call("bad")).bash(input("echo > ran")).await,
            session.tools().bash(bad_env).await,
        ] {
            let (outcome, is_error, text) = crate::support::seen(failed);
            assert_eq!((outcome, is_error), (ToolOutcome::Failed, true), "{text}");
            assert!(text.ends_with("or a hook panicked"), "{text}");
        }
        assert_eq!(std::fs::read_dir(hands.base.join("s")).unwrap().count(), 0);
        assert_eq!(good(session.tools().write(write("good", "x")).await), "created good (1 byte)");
        assert_eq!(good(session.tools().bash(input("cat good")).await), "x\nexit_code: 0");
        assert_eq!(hands.core.session_count(), 1);
    });
}

fn vars(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn the_environment_is_the_owners_to_decide() {
    let setup = Setup::direct().core(|options, base| {
        let path = std::env::var_os("PATH").unwrap();
        let inherited = [
            ("PATH".into(), path),
            ("BMA_TOKEN".into(), "secret".into()),
            ("CLOUD_KEY".into(), "secret".into()),
            ("HARMLESS".into(), "inherited".into()),
        ];
        let home = base.join("home").to_str().unwrap().to_owned();
        options.env = EnvPolicy::from_vars(inherited)
            .fixed(vars(&[("HOME", &home), ("FIXED", "of the owner")]))
            .unwrap()
            .deny(|name| name.starts_with("CLOUD_"))
            .unwrap();
    });
    setup.run(async |hands| {
        let session = hands.session("s").await;
        let with = |env: &[(&str, &str)], command: &str| {
            let env = vars(env).into_iter().collect::<TextMap>();
            session.tools().bash(BashInput { env, ..input(command) })
        };
        let show = "echo \"$FIXED|$HARMLESS|$ASKED|${CLOUD_KEY-none}|${BMA_TOKEN-none}\"";
        assert_eq!(good(with(&[], show).await), "of the owner|inherited||none|none\nexit_code: 0");
        let asked = [("FIXED", "of the request"), ("HARMLESS", "asked"), ("ASKED", "yes")];
        assert_eq!(good(with(&asked, show).await), "of the owner|asked|yes|none|none\nexit_code: 0");
        for name in ["CLOUD_KEY", "CLOUD_OTHER", "BMA_TOKEN", "LD_PRELOAD", "BASH_ENV"] {
            let text = bad(with(&[(name, "x")], "echo > ran").await);
            assert_eq!(text, format!("env {name} may not be set by a request"));
        }
        assert!(!hands.workspace("s").join("ran").exists());
    });
}

#[test]
fn a_launch_hook_sees_what_would_start_and_changes_it() {
    let asked = Asked::default();
    let hook = {
        let asked = asked.clone();
        move |request: LaunchRequest| {
            assert_eq!((request.session_id.as_str(), request.tool.as_deref()), ("s", Some("bash")));
            let call = request.tool_call_id.as_ref().unwrap().as_str().to_owned();
            asked.note(format!("{call} {:?} in {:?}", request.argv.last().unwrap(), request.cwd));
            let set = |name: &str| request.env.iter().any(|(other, _)| other == name);
            assert!(set("HOME") && set("PATH"));
            let spec = match call.as_str() {
                "dir" => {
                    LaunchSpec { dir: Some(request.default_cwd.parent().unwrap().to_owned()), ..LaunchSpec::default() }
                }
                "argv" => {
                    let wrapper = ["env", "WRAPPED=yes"].map(OsString::from);
                    LaunchSpec {
                        argv: Some(wrapper.into_iter().chain(request.argv).collect()),
                        ..LaunchSpec::default()
                    }
                }
                "env" => {
                    let mut env = request.env;
                    env.push(("ADDED".into(), "yes".into()));
                    LaunchSpec { env: Some(env), ..LaunchSpec::default() }
                }
                _ => LaunchSpec::unchanged(),
            };
            std::future::ready(Ok::<_, LaunchRefusal>(spec))
        }
    };
    Setup::direct().core(|options, _| options.launch = Some(Arc::new(hook))).run(async |hands| {
        let session = hands.session("s").await;
        good(session.tools().write(write("below/x", "x")).await);
        let run = |id: &str, cwd: Option<&str>, command: &str| {
            session.tools().with(call(id)).bash(BashInput { cwd: cwd.map(str::to_owned), ..input(command) })
        };
        let place = hands.workspace("s");
        let ended = |folder: PathBuf| format!("{}\nexit_code: 0", folder.display());
        assert_eq!(good(run("plain", Some("below"), "pwd").await), ended(place.join("below")));
        assert_eq!(good(run("dir", Some("not/looked/at"), "pwd").await), ended(place.parent().unwrap().to_owned()));
        assert_eq!(good(run("argv", None, "echo $WRAPPED; exit 4").await), "yes\nexit_code: 4");
        assert_eq!(good(run("env", None, "echo $ADDED").await), "yes\nexit_code: 0");
        assert_eq!(
            asked.taken(),
            [
                "plain \"pwd\" in Some(\"below\")",
                "dir \"pwd\" in Some(\"not/looked/at\")",
                "argv \"echo $WRAPPED; exit 4\" in None",
                "env \"echo $ADDED\" in None"
            ]
        );
    });
}

#[test]
fn a_launch_that_is_refused_starts_nothing() {
    let hook = |request: LaunchRequest| async move {
        match request.tool_call_id.as_ref().unwrap().as_str() {
            "reason" => Err(LaunchRefusal::new("local_confirmation_denied", "the owner said no")),
            "failed" => Err(LaunchRefusal::failed("no sandbox here")),
            "nowhere" => Ok(LaunchSpec { dir: Some("/does/not/exist".into()), ..LaunchSpec::default() }),
            "relative" => Ok(LaunchSpec { dir: Some("work".into()), ..LaunchSpec::default() }),
            "empty" => Ok(LaunchSpec { argv: Some(Vec::new()), ..LaunchSpec::default() }),
            _ => Ok(LaunchSpec { argv: Some(vec!["/does/not/exist".into()]), ..LaunchSpec::default() }),
        }
    };
    Setup::direct().core(move |options, _| options.launch = Some(Arc::new(hook))).run(async |hands| {
        let session = hands.session("s").await;
        let run = |id: &str| session.tools().with(call(id)).bash(input("echo > ran"));
        assert_eq!(bad(run("reason").await), "local_confirmation_denied: the owner said no");
        assert_eq!(bad(run("failed").await), "spawn_failed: no sandbox here");
        let text = bad(run("nowhere").await);
        assert!(text.contains("/does/not/exist"), "{text}");
        let text = bad(run("relative").await);
        assert_eq!(text, "spawn_failed: the machine's launch hook chose the directory `work`, which is not absolute");
        assert_eq!(bad(run("empty").await), "the command line is empty");
        let text = bad(run("no program").await);
        assert!(text.contains("/does/not/exist"), "{text}");
        assert!(!hands.workspace("s").join("ran").exists());
        // The file tools do not ask it.
        assert_eq!(good(session.tools().write(write("x", "x")).await), "created x (1 byte)");
    });
}

#[test]
fn a_launch_hook_that_waits_for_ever_is_given_up() {
    let asked = Count::default();
    let hook = {
        let asked = asked.clone();
        move |_: LaunchRequest| {
            asked.add();
            std::future::pending::<Result<LaunchSpec, LaunchRefusal>>()
        }
    };
    Setup::direct().core(|options, _| options.launch = Some(Arc::new(hook))).run(async |hands| {
        let session = hands.session("s").await;
        let running = {
            let session = session.clone();
            hands.start(async move { session.tools().with(call("waits")).bash(input("echo > ran")).await })
        };
        asked.reaches(1).await;
        assert!(session.cancel_tool(&"waits".into(), "enough").await.unwrap());
        assert_eq!(canceled(running.await), "canceled before the command started");
        let limited = BashInput { timeout_ms: Some(50), ..input("echo > ran") };
        let text = bad(session.tools().bash(limited).await);
        assert!(text.starts_with("timed out after ") && text.ends_with("before the command started"), "{text}");
        assert!(!hands.workspace("s").join("ran").exists());
    });
}
