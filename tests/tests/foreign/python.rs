//! Peers in another language: Python's standard library and nothing else. Left
//! out, with a word about it, where there is no `python3`.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use bma_runtime_tokio::proto::executor::End;
use bma_runtime_tokio::proto::harness::Gone;
use bma_runtime_tokio::{Client, ToolError};
use bma_tests::exchange_suite::{Rig, assignment, command, on_a_thread, options, text};
use bma_tests::support::logs;

use super::peer::runtime;

/// A script that runs; it is ended with the test.
struct Script {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Script {
    /// Starts a script, or says that there is no Python.
    fn start(name: &str, arguments: &[&str], token: &str) -> Option<Self> {
        if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
            eprintln!("left out: there is no python3 here");
            return None;
        }
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        let mut child = Command::new("python3")
            .arg("-B")
            .arg(scripts.join(name))
            .args(arguments)
            .env("TOKEN", token)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Some(BufReader::new(child.stdout.take().unwrap()));
        Some(Script { child, lines })
    }

    /// The next line that it prints.
    async fn line(&mut self) -> String {
        let mut lines = self.lines.take().unwrap();
        let (lines, line) = on_a_thread(move || {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            (lines, line)
        })
        .await;
        self.lines = Some(lines);
        line.trim_end().to_owned()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_executor_in_python_serves_our_harness() {
    let rig = Rig::new(runtime()).await;
    if let Some(mut script) = Script::start("executor.py", &[&rig.url()], rig.token.expose()) {
        let executor = rig.harness.wait_executor().await;
        assert_eq!(executor.info().name, "snake");
        assert_eq!(script.line().await, format!("registered {}", executor.id()));
        let session = rig.session(&executor, "s").await;
        for number in 1..50 {
            let asked = "\u{2028}\u{20ac}\u{1f600}\"\\".repeat(number);
            let result = session.tools().bash(command(&asked)).await.unwrap();
            assert_eq!(text(&result), asked);
        }
        assert!(!session.cancel_tool(&"nothing".into(), "").await.unwrap());
        session.stop("enough").await.unwrap();
        assert!(executor.assign(assignment("t")).await.unwrap().ready().await.is_ok());
        assert_eq!(executor.close("good bye").await, Gone::Closed("good bye".to_owned()));
        assert_eq!(script.line().await, "closed 1000 good bye");
    }
    rig.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_in_python_drives_our_client() {
    let token = "a-token-for-python";
    if let Some(mut script) = Script::start("harness.py", &[], token) {
        let url = script.line().await;
        let client = Client::new(runtime(), options("hand", &url, &token.into())).unwrap();
        client.tools().bash(|input, _| std::future::ready(Ok::<_, ToolError>(input.command)));
        client.start().await.unwrap();
        assert_eq!(client.done().await, End::Drained);
        assert_eq!(script.line().await, "done 20");
    }
    logs::assert_no_unexpected_error();
}
