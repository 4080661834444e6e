use std::fs;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::support::{Place, bound_by_modes, chmod, reason, text};

/// The notice that counts, and the answer's start is that of the whole list.
#[test]
fn what_does_not_fit_is_counted_and_the_first_in_order_are_shown() {
    let place = Place::in_memory();
    for folder in 0..40 {
        for file in 0..100 {
            place.file(&format!("folder{folder:02}/a rather long name of a file {file:02}.txt"), "x\nx\n");
        }
    }
    let found = place.glob("**/*.txt").unwrap();
    assert!(found.partial && found.text.len() < 48 * 1024);
    let shown: Vec<&str> = found.text.lines().filter(|line| !line.starts_with('[')).collect();
    for (place_in_list, path) in shown.iter().enumerate() {
        let expected =
            format!("folder{:02}/a rather long name of a file {:02}.txt", place_in_list / 100, place_in_list % 100);
        assert_eq!(*path, expected);
    }
    let left = 4000 - shown.len();
    assert!(
        found.text.contains(&format!("{},{:03} more files not shown", left / 1000, left % 1000)),
        "{}",
        found.text.lines().last().unwrap()
    );

    let found = place.grep("x").unwrap();
    assert!(found.partial && found.text.len() < 48 * 1024);
    let shown: Vec<&str> = found.text.lines().filter(|line| !line.starts_with('[')).collect();
    assert!(shown[0].ends_with("00.txt:1:x") && shown[1].ends_with("00.txt:2:x"));
    let left = 8000 - shown.len();
    let files = 4000 - shown.len().div_ceil(2);
    let notice = format!(
        "{},{:03} more matching lines not shown (nothing is shown of {},{:03} files)",
        left / 1000,
        left % 1000,
        files / 1000,
        files % 1000
    );
    assert!(found.text.contains(&notice), "{}\n{notice}", found.text.lines().last().unwrap());

    for file in 0..3000 {
        place.file(&format!("flat/a rather long name of a file {file:04}.txt"), "");
    }
    let found = place.list(Some("flat")).unwrap();
    let shown = found.text.lines().filter(|line| !line.starts_with('[')).count();
    assert!(found.partial && found.text.len() < 48 * 1024);
    let left = 3000 - shown;
    assert!(
        found.text.contains(&format!("{},{:03} more entries not shown", left / 1000, left % 1000)),
        "{}",
        found.text.lines().last().unwrap()
    );
}

/// More folders side by side than may wait: some are walked where they are found, and none is lost.
#[test]
fn a_wide_tree_is_walked_whole() {
    let place = Place::in_memory().threads(2);
    for i in 0..12_000 {
        fs::create_dir(place.ws(&format!("d{i}"))).unwrap();
    }
    for i in [0, 5_000, 11_999] {
        place.file(&format!("d{i}/deep/er/needle"), "needle");
    }
    let expected = "d0/deep/er/needle\nd11999/deep/er/needle\nd5000/deep/er/needle";
    assert_eq!(text(place.glob("**/needle")), expected);
    assert_eq!(text(place.grep("needle")).replace(":1:needle", ""), expected);
}

/// However many threads search, the answer is the same.
#[test]
fn the_number_of_threads_does_not_show() {
    let place = Place::in_memory();
    for i in 0..3000 {
        place.file(&format!("{}/{}/f{i}", i % 7, i % 31), format!("needle {i}\n"));
    }
    let one = place.threads(1);
    let (files, hits) = (one.glob("**/*").unwrap(), one.grep("needle").unwrap());
    let many = one.threads(5);
    for _ in 0..5 {
        assert_eq!(many.glob("**/*").unwrap(), files);
        assert_eq!(many.grep("needle").unwrap(), hits);
    }
}

/// So many rules count in one place, the first ones, whichever files they stand in.
#[test]
fn rules_past_the_bound_are_not_looked_at_and_that_is_told() {
    let place = Place::new();
    let rules = |range: std::ops::Range<usize>| range.map(|i| format!("# number\n\nignored-{i}\n")).collect::<String>();
    place.file(".gitignore", rules(0..1_500));
    place.file("sub/.gitignore", rules(1_500..3_000));
    place.file("sub/deeper/.gitignore", "seen\n");
    for number in [0, 1_499, 1_500, 2_047, 2_048, 2_999] {
        place.file(&format!("sub/ignored-{number}"), "needle");
    }
    place.file("sub/deeper/seen", "needle");
    place.file("other/ignored-1600", "needle");
    let seen = "sub/deeper/seen\nsub/ignored-2048\nsub/ignored-2999";
    let told = |files: &str| format!("[{files} only in part: no more than 2,048 rules are looked at in one place]");
    let two = told("2 ignore files count");
    assert_eq!(text(place.glob("**/*")), format!("other/ignored-1600\n{seen}\n{two}"));
    let found = text(place.grep("needle")).replace(":1:needle", "");
    assert_eq!(found, format!("other/ignored-1600\n{seen}\n{two}"));
    assert_eq!(text(place.glob("other/*")), "other/ignored-1600");
    let one = told("1 ignore file counts");
    assert_eq!(text(place.glob_in("sub", "seen")).lines().nth(1), Some(&*two));
    let listed = text(place.list(Some("sub")));
    assert!(
        listed.starts_with("sub/deeper/\nsub/ignored-2048\nsub/ignored-2999\n") && listed.contains(&one),
        "{listed}"
    );

    // The same for their bytes; a rule that would be cut is none.
    let place = Place::new();
    place.file(".gitignore", format!("early\n#{}\nlate\n", "x".repeat(300 * 1024)));
    place.file("early", "");
    place.file("late", "");
    assert_eq!(text(place.glob("*")), format!("late\n{one}"));
}

#[test]
fn f115_a_pathological_expression_takes_linear_time() {
    let place = Place::new();
    place.file("evil", format!("{}b", "a".repeat(50 * 1024)));
    let begun = Instant::now();
    assert!(text(place.grep("(a+)+$")).starts_with("[no line matches"));
    assert!(text(place.grep("(a|a)*$")).starts_with("evil:1:"));
    assert!(text(place.grep("^(a?){50}a{50}$")).starts_with("[no line matches"));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[test]
fn a_search_ends_soon_after_it_is_canceled() {
    let place = Place::in_memory();
    for i in 0..200 {
        place.file(&format!("{}/f{i}", i % 10), "needle\n".repeat(20_000));
    }
    // Until it is canceled it has seconds of work; how long the rest takes is what counts.
    for _ in 0..3 {
        std::thread::scope(|scope| {
            place.cancel.store(false, Ordering::Relaxed);
            let search = scope.spawn(|| place.grep("(\\w+\\s*)+(needle|\\pL{3,20})"));
            std::thread::sleep(Duration::from_millis(20));
            let canceled = Instant::now();
            place.cancel.store(true, Ordering::Relaxed);
            if let Err(error) = search.join().unwrap() {
                assert_eq!(error.reason().as_str(), "canceled");
            }
            assert!(canceled.elapsed() < Duration::from_secs(2), "{:?}", canceled.elapsed());
        });
    }
    for answer in [place.glob("**"), place.grep("x"), place.list(None), place.read("0/f0")] {
        assert_eq!(reason(answer), "canceled");
    }
}

/// A tree may be deeper than a path may be long, and a descriptor is not held for each level.
#[test]
fn a_tree_deeper_than_a_path_is_told_and_does_no_harm() {
    let place = Place::new();
    let name = "n".repeat(200);
    let mut folder = place.workspace.dir().try_clone().unwrap();
    for _ in 0..40 {
        folder.create_dir(&name).unwrap();
        folder = folder.open_dir(&name).unwrap();
    }
    folder.write("needle.txt", "needle").unwrap();
    let found = place.glob("**/*.txt").unwrap();
    assert!(found.partial && found.text.contains("1 folder") && found.text.contains("path too long"), "{}", found.text);
    let deep = vec![name.as_str(); 40].join("/") + "/needle.txt";
    assert_eq!(text(place.read(&deep)), "needle");
    place.write(&deep, "new").unwrap();
    assert_eq!(text(place.read(&deep)), "new");
    // The standard library removes what is this deep; the check is that it can.
    fs::remove_dir_all(place.ws(&name)).unwrap();
}

/// Long hostile names in the notices do not push an answer over its bounds.
#[test]
fn notices_have_a_bound_too() {
    let place = Place::new();
    let deep = ["\u{1F600}".repeat(60), "\u{1}\"\\".repeat(80)].join("/");
    for i in 0..3 {
        place.file(&format!("{deep}/{i} binary"), b"needle\0");
        place.file(&format!("{deep}/{i} long"), "x".repeat(9 << 20));
        fs::create_dir_all(place.ws(&format!("{deep}/{i} closed"))).unwrap();
        chmod(&place.ws(&format!("{deep}/{i} closed")), 0o000);
    }
    place.file("many", "needle\n".repeat(20_000));
    let answer = bound_by_modes(|| place.grep("needle")).unwrap();
    assert!(
        answer.text.contains("not shown") && answer.text.contains("could not look into 3 folders"),
        "{}",
        answer.text
    );
    assert!(answer.text.len() < 48 * 1024, "{}", answer.text.len());
    assert!(serde_json::to_string(&answer.text).unwrap().len() < 60 * 1024);
    for i in 0..3 {
        chmod(&place.ws(&format!("{deep}/{i} closed")), 0o700);
    }
}
