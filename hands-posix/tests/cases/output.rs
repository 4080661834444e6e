//! What a command prints, from its pipes to the answer, with real shells. Tests named `fN_` prove the row N of the
//! field reports.
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bma_hands_posix::hands::bash::BashEnd;
use bma_hands_posix::hands::os::Exit;

use crate::support::*;

#[test]
fn output_and_exit_code_stand_in_their_order() {
    session(async |session| {
        let report = session.run("echo out; echo err >&2; printf more; exit 3").await;
        assert_eq!(text(&report), "out\nmore\nerr\nexit_code: 3");
        assert!(!report.output().is_error);
        assert_eq!(report.end, BashEnd::Exited);
        assert_eq!(report.begun, Some(true));

        let report = session.run("pwd; shopt -q login_shell && echo login").await;
        assert_eq!(stdout(&report), format!("{}\nlogin\n", session.root.canonicalize().unwrap().display()));

        let mut input = input("pwd; echo $A");
        input.cwd = Some("sub/folder".into());
        input.env = [("A", "b c")].into();
        std::fs::create_dir_all(session.root.join("sub/folder")).unwrap();
        let report = session.run_input(input).await.unwrap();
        assert!(stdout(&report).ends_with("sub/folder\nb c\n"), "{}", stdout(&report));
    });
}

#[test]
fn f11_every_line_is_there_before_the_exit_code() {
    session(async |session| {
        let report = session.run("seq 1 20000; exit 5").await;
        let lines: String = (1..=20_000).map(|line| format!("{line}\n")).collect();
        assert!(stdout(&report) == lines && report.exit == Some(Exit::Code(5)));
        // What is printed by the very last act of what the shell does not wait for is there, too.
        let report = session.run("(sleep 0.2; seq 1 20000) & echo first; exit 5").await;
        assert!(stdout(&report) == format!("first\n{lines}") && report.exit == Some(Exit::Code(5)));
    });
}

#[test]
fn f18_two_streams_that_grow_side_by_side_lose_and_repeat_nothing() {
    session(async |session| {
        let report = session.run("for i in $(seq 1 300); do echo o$i; echo e$i >&2; done").await;
        let lines = |letter: &str| (1..=300).map(|i| format!("{letter}{i}\n")).collect::<String>();
        assert_eq!((stdout(&report), stderr(&report)), (lines("o"), lines("e")));
    });
}

#[test]
fn f19_what_fell_out_between_beginning_and_end_is_counted() {
    session_on(
        crate::os(),
        |options| options.max_output_bytes = 30_000,
        async |session| {
            let report = session.run("seq 1 20000").await;
            let whole: String = (1..=20_000).map(|line| format!("{line}\n")).collect();
            let shown = text(&report);
            let (beginning, rest) = shown.split_once("[... ").unwrap();
            let (left_out, rest) = rest.split_once(" bytes left out ...]\n").unwrap();
            let (end, told) = rest.split_once("exit_code: ").unwrap();
            assert!(beginning.len() > 10_000 && end.len() > 10_000);
            // Up to the newline that parts the beginning from the notice.
            let beginning = beginning.strip_suffix('\n').unwrap();
            assert!(whole.starts_with(beginning) && whole.ends_with(end));
            let left_out: usize = left_out.parse().unwrap();
            let newline = usize::from(whole[beginning.len()..].starts_with('\n'));
            assert!(
                [0, newline].map(|one| beginning.len() + one + left_out + end.len()).contains(&whole.len()),
                "{left_out}"
            );
            assert_eq!(told, format!("0 (output truncated to fit the result; {} bytes total)", whole.len()));
        },
    );
}

#[test]
fn f22_a_character_that_comes_in_pieces_stays_one() {
    session(async |session| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = told.clone();
        let pieces = "printf '\\xe2'; sleep 0.7; printf '\\x82'; sleep 0.7; printf '\\xac'; printf '\\xe2\\x82' >&2";
        let mut call = session.call(input(pieces));
        call.progress = Some(Arc::new(move |text: &str| kept.lock().unwrap().push(text.to_owned())));
        let report = session.bash.run(call).await.unwrap();
        assert_eq!(stdout(&report), "€");
        // What never became a character is shown as one that is none.
        assert_eq!(text(&report), "€\n\u{fffd}\nexit_code: 0");
        assert!(told.lock().unwrap().iter().all(|text| !text.contains('\u{fffd}')), "{told:?}");
    });
}

#[test]
fn f30_f114_endless_output_neither_grows_nor_delays_anything() {
    session(async |session| {
        let mut flood = input("yes \"$(printf %0200d 0)\"");
        flood.timeout_ms = Some(2_000);
        let flood = session.start(session.call(flood));
        let mut slowest = Duration::ZERO;
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(1_500) {
            let asked = Instant::now();
            session.pause(Duration::from_millis(5)).await;
            slowest = slowest.max(asked.elapsed());
        }
        let report = flood.await.unwrap();
        assert!(matches!(report.end, BashEnd::TimedOut { .. }));
        assert!(report.duration < Duration::from_secs(3), "{:?}", report.duration);
        assert!(slowest < Duration::from_millis(150), "{slowest:?}");
        assert!(report.stdout.kept().len() <= 1024 * 1024);
        assert!(report.stdout.total_bytes() > 8 * 1024 * 1024, "{}", report.stdout.total_bytes());
        let shown = text(&report);
        let total = report.stdout.total_bytes() + report.stderr.total_bytes();
        assert!(shown.len() <= 48 * 1024);
        assert!(
            shown.ends_with(&format!("(output truncated to fit the result; {total} bytes total)")),
            "{}",
            &shown[shown.len() - 200..]
        );
    });
}

#[test]
fn totals_are_exact() {
    session(async |session| {
        let report = session.run("head -c 20000000 /dev/zero; head -c 3000001 /dev/zero >&2; exit 1").await;
        assert_eq!((report.stdout.total_bytes(), report.stderr.total_bytes()), (20_000_000, 3_000_001));
        let shown = text(&report);
        assert!(shown.ends_with("exit_code: 1 (output truncated to fit the result; 23000001 bytes total)"));
    });
}

#[test]
fn progress_tells_the_newest_output() {
    session(async |session| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let kept = told.clone();
        let mut call = session.call(input("echo first; sleep 0.8; echo second; sleep 0.8"));
        call.progress = Some(Arc::new(move |text: &str| kept.lock().unwrap().push(text.to_owned())));
        session.bash.run(call).await.unwrap();
        assert_eq!(*told.lock().unwrap(), ["first", "second"]);
    });
}
