//! How commands and what they started are ended, with real shells. Tests named `fN_` prove the row N of the field
//! reports.
use std::time::{Duration, Instant};

use bma_hands_posix::hands::bash::{BashCall, BashEnd, BashError, SessionProcesses, TERMINATE_GRACE};
use bma_hands_posix::hands::os::Exit;
use bma_proto_core::contract::ToolOutcome;
use bma_runtime::{CancelReason, Canceler};

use crate::support::*;

#[test]
fn f2_timeout_ends_the_whole_pipeline() {
    session(async |session| {
        let seconds = unique_seconds();
        let command = format!("(while :; do echo x; sleep 1; done) & sleep {seconds} | cat");
        let report = session.run_for(&command, Duration::from_millis(1_500)).await;
        assert!(matches!(report.end, BashEnd::TimedOut { deadline: false, .. }), "{:?}", report.end);
        assert!(report.duration < Duration::from_secs(5), "{:?}", report.duration);
        assert!(stdout(&report).starts_with("x\nx\n"), "{}", stdout(&report));
        let output = report.output();
        assert!(output.is_error);
        assert_eq!(output.outcome, ToolOutcome::Succeeded);
        assert!(running(&seconds).is_empty());
        assert_eq!(session.processes.count(), 0);
    });
}

#[test]
fn f3_a_job_without_output_is_listed_and_ended_with_the_session() {
    session(async |session| {
        let report = session.run("yes >/dev/null 2>&1 & echo ok").await;
        assert!(report.duration < Duration::from_millis(900), "nothing holds the output: {:?}", report.duration);
        assert_eq!(report.survivors.len(), 1, "{:?}", report.survivors);
        let id = report.survivors[0].id;
        assert!(text(&report).contains(&format!("still running: process {id} (")), "{}", text(&report));
        assert!(state(id).is_some_and(|state| state != 'Z'));
        let ended = session.processes.end_all(&session.runtime, Duration::from_secs(10)).await;
        assert!(ended.is_empty(), "{ended:?}");
        assert!(state(id).is_none_or(|state| state == 'Z'));
    });
}

#[test]
fn f4_a_descendant_with_a_session_of_its_own_is_ended_by_a_cancel() {
    session(async |session| {
        let (marked, bare) = (unique_seconds(), unique_seconds());
        let command = format!("setsid sleep {marked} & env -i setsid sleep {bare} & touch ready; wait");
        let report = session.run_and_cancel(&command).await;
        assert!(matches!(&report.end, BashEnd::Canceled { ended, .. } if ended.is_empty()), "{:?}", report.end);
        assert_eq!(report.output().outcome, ToolOutcome::Canceled);
        assert!(running(&marked).is_empty() && running(&bare).is_empty());
    });
}

#[test]
fn f4_a_descendant_that_escaped_silently_is_ended_with_the_session() {
    session(async |session| {
        let seconds = unique_seconds();
        let report = session.run(&format!("setsid -f sleep {seconds} >/dev/null 2>&1 </dev/null; echo ok")).await;
        assert_eq!(report.exit, Some(Exit::Code(0)));
        session.processes.end_all(&session.runtime, Duration::from_secs(10)).await;
        // Told or not: it must not be claimed to be gone while it lives.
        assert!(running(&seconds).is_empty());
    });
}

/// A process that starts the next one in a session of its own and ends, without end: no two looks meet the same one.
#[test]
fn f9_a_chain_of_short_lives_is_never_claimed_to_be_ended_while_it_goes_on() {
    session(async |session| {
        for _ in 0..6 {
            let chain = unique_seconds();
            let command = format!(
                "hop() {{ [ -e go ] && setsid -f bash -c hop {chain}; }}; export -f hop; touch go; hop; touch ready; sleep 60"
            );
            let report = session.run_and_cancel(&command).await;
            let mut seen = 0;
            for _ in 0..50 {
                seen += running(&chain).len();
                session.pause(Duration::from_millis(2)).await;
            }
            // It is ended, by chance soon or late; as long as it is not, the answer must not say so.
            let outcome = report.output().outcome;
            assert!(seen == 0 || outcome == ToolOutcome::Failed, "{seen} links were seen after: {}", text(&report));
            assert!(report.duration < Duration::from_secs(15), "{:?}", report.duration);
            std::fs::remove_file(session.root.join("go")).unwrap();
            session.until("the chain is at its end", || running(&chain).is_empty()).await;
            std::fs::remove_file(session.root.join("ready")).unwrap();
        }
    });
}

/// Others that come and go all the time hold nobody up.
#[test]
fn a_cancel_beside_a_flood_of_short_processes_is_quick() {
    session(async |session| {
        let flood = session
            .start(session.call(input("touch floods; while [ ! -e dry ]; do /bin/true; env -i /bin/true; done")));
        session.until("it floods", || session.root.join("floods").exists()).await;
        for _ in 0..5 {
            let report = session.run_and_cancel("touch ready; sleep 60").await;
            assert_eq!(report.output().outcome, ToolOutcome::Canceled, "{}", text(&report));
            assert!(report.duration < Duration::from_secs(5), "{:?}", report.duration);
            std::fs::remove_file(session.root.join("ready")).unwrap();
        }
        std::fs::write(session.root.join("dry"), "").unwrap();
        assert_eq!(flood.await.unwrap().exit, Some(Exit::Code(0)));
    });
}

#[test]
fn f9_a_fork_loop_is_ended_completely() {
    session(async |session| {
        let seconds = unique_seconds();
        let command = format!("touch ready; while :; do sleep {seconds} & sleep 0.01; done");
        let started = Instant::now();
        let report = session.run_and_cancel(&command).await;
        assert_eq!(report.output().outcome, ToolOutcome::Canceled);
        assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
        assert!(running(&seconds).is_empty());
    });
}

#[test]
fn f9_a_fork_loop_that_ignores_term_is_ended_completely() {
    session(async |session| {
        let seconds = unique_seconds();
        let command = format!("trap '' TERM; touch ready; while :; do sleep {seconds} & sleep 0.01; done");
        let report = session.run_and_cancel(&command).await;
        assert_eq!(report.output().outcome, ToolOutcome::Canceled);
        assert!(matches!(&report.exit, Some(Exit::Signal { name, .. }) if name == "SIGKILL"), "{:?}", report.exit);
        assert!(running(&seconds).is_empty());
    });
}

#[test]
fn f78_a_handler_of_term_has_its_grace_and_its_output_is_kept() {
    session(async |session| {
        let command = "trap 'sleep 1; echo bye; exit 0' TERM; touch ready; sleep 60 & wait";
        let report = session.run_and_cancel(command).await;
        assert_eq!(stdout(&report), "bye\n");
        assert_eq!(report.exit, Some(Exit::Code(0)));
        assert_eq!(report.output().outcome, ToolOutcome::Canceled);

        // Who does not end by itself is killed only when the grace is over.
        let command = "trap '' TERM; touch ready; while :; do sleep 0.05; done";
        std::fs::remove_file(session.root.join("ready")).unwrap();
        let report = session.run_and_cancel(command).await;
        assert!(matches!(&report.exit, Some(Exit::Signal { name, .. }) if name == "SIGKILL"), "{:?}", report.exit);
        assert!(report.duration >= TERMINATE_GRACE, "{:?}", report.duration);
    });
}

/// In the command's own group, in a group of its own, and in a session of its own; while the command runs, and when
/// only its leftovers do.
#[test]
fn each_process_is_asked_to_end_once() {
    const COUNTS: &str =
        "count() { trap \"echo asked >> $1\" TERM; touch $1; while :; do sleep 0.01; done; }; export -f count;";
    let start =
        "for n in 1 2 3 4 5 6; do count own-$n & done; set -m; count group & set +m; setsid bash -c 'count session' &";
    let names = ["own-1", "own-2", "own-3", "own-4", "own-5", "own-6", "group", "session"];
    session(async |session| {
        let asked = || names.map(|name| std::fs::read_to_string(session.root.join(name)).unwrap_or_default());
        let all_count = || names.iter().all(|name| session.root.join(name).exists());
        let (canceler, cancellation) = Canceler::new();
        let mut call = session.call(input(&format!("{COUNTS} {start} wait")));
        call.cancellation = cancellation;
        let report = session.start(call);
        session.until("all count", all_count).await;
        canceler.cancel(CancelReason::Canceled);
        assert_eq!(report.await.unwrap().output().outcome, ToolOutcome::Canceled);
        assert_eq!(asked(), names.map(|_| "asked\n"), "while the command runs");

        names.iter().for_each(|name| std::fs::remove_file(session.root.join(name)).unwrap());
        session.run(&format!("exec >/dev/null 2>&1; {COUNTS} {start} true")).await;
        session.until("all count again", all_count).await;
        assert!(session.processes.end_all(&session.runtime, Duration::from_secs(10)).await.is_empty());
        assert_eq!(asked(), names.map(|_| "asked\n"), "what the command has left");
    });
}

#[test]
fn a_dropped_session_kills_what_its_calls_left_behind() {
    session(async |session| {
        let seconds = unique_seconds();
        let processes = SessionProcesses::new(session.os.as_ref());
        let command = input(&format!("sleep {seconds} >/dev/null 2>&1 & echo ok"));
        let report =
            session.bash.run(BashCall::new(command, session.workspace.clone(), processes.clone())).await.unwrap();
        assert_eq!(report.survivors.len(), 1);
        drop(processes);
        session.until("it is gone", || running(&seconds).is_empty()).await;
    });
}

#[test]
fn a_stopping_session_cancels_its_calls_and_takes_no_more() {
    session(async |session| {
        let seconds = unique_seconds();
        let call = session.start(session.call(input(&format!("touch ready; sleep {seconds}"))));
        session.until("the command is under way", || session.root.join("ready").exists()).await;
        let ended = session.processes.end_all(&session.runtime, Duration::from_secs(10)).await;
        assert!(ended.is_empty() && running(&seconds).is_empty(), "{ended:?}");
        let report = call.await.unwrap();
        assert!(matches!(report.end, BashEnd::Canceled { reason: CancelReason::SessionStopped, .. }));
        let refused = session.run_input(input("echo no")).await;
        assert!(matches!(refused, Err(BashError::Canceled(CancelReason::SessionStopped))), "{refused:?}");
    });
}
