use std::fs;

use crate::support::{Place, bound_by_modes, chmod, failure, reason, text};

#[test]
fn lines_come_as_they_stand() {
    let place = Place::new();
    place.file("notes.txt", "one\r\ntwo\nthree");
    assert_eq!(text(place.read("notes.txt")), "one\r\ntwo\nthree");
    assert_eq!(text(place.read_lines("notes.txt", Some(2), None)), "two\nthree");
    assert_eq!(text(place.read_lines("notes.txt", Some(2), Some(1))), "two\n");
    assert_eq!(text(place.read_lines("notes.txt", None, Some(2))), "one\r\ntwo\n");
    assert_eq!(text(place.read_lines("notes.txt", Some(0), Some(0))), "one\r\ntwo\nthree");
    assert!(!place.read_lines("notes.txt", Some(1), Some(1)).unwrap().partial);
    place.file("empty", "");
    assert_eq!(text(place.read("empty")), "");
    place.file("bom", "\u{feff}x\n");
    assert_eq!(text(place.read("bom")), "\u{feff}x\n");
}

#[test]
fn an_offset_past_the_end_says_how_many_lines_there_are() {
    let place = Place::new();
    place.file("two", "a\nb\n");
    place.file("open end", "a\nb");
    place.file("empty", "");
    for path in ["two", "open end"] {
        assert_eq!(text(place.read_lines(path, Some(2), None)).trim_end(), "b");
        let (reason, told) = failure(place.read_lines(path, Some(3), None));
        assert_eq!(reason, "past_end");
        assert!(told.contains("has 2 lines"), "{told}");
    }
    assert_eq!(reason(place.read_lines("empty", Some(2), None)), "past_end");
    let (code, told) = failure(place.read_lines("two", Some(-1), None));
    assert_eq!(code, "invalid_input");
    assert!(told.starts_with("offset"), "{told}");
    assert_eq!(reason(place.read_lines("two", None, Some(-5))), "invalid_input");
}

#[test]
fn what_does_not_fit_is_counted_and_read_on_exactly() {
    let place = Place::new();
    let content: String = (1..=20_000).map(|i| format!("line number {i}\n")).collect();
    place.file("long.txt", &content);
    let mut all = String::new();
    let mut offset = 1;
    loop {
        let answer = place.read_lines("long.txt", Some(offset), None).unwrap();
        assert!(answer.text.len() < 48 * 1024);
        let shown: String =
            answer.text.lines().filter(|line| !line.starts_with('[')).map(|l| format!("{l}\n")).collect();
        let lines = i64::try_from(shown.lines().count()).unwrap();
        all.push_str(&shown);
        offset += lines;
        if !answer.partial {
            break;
        }
        let notice = answer.text.lines().last().unwrap();
        let left = 20_000 - (offset - 1);
        let grouped = format!("{},{:03} more lines", left / 1000, left % 1000);
        assert!(left < 1000 || notice.contains(&grouped), "{notice} but {left} are left");
        assert!(notice.contains(&format!("offset {offset}]")), "{notice}");
    }
    assert!(all == content);
    let limited = text(place.read_lines("long.txt", Some(1), Some(5_000)));
    let shown = limited.lines().filter(|line| !line.starts_with('[')).count();
    let left = 5_000 - shown;
    assert!(
        limited.contains(&format!("{},{:03} more lines of those asked for", left / 1000, left % 1000)),
        "{limited}"
    );
}

#[test]
fn a_line_that_does_not_fit_is_cut_inside_and_measured() {
    let place = Place::new();
    place.file("min.js", ["x".repeat(100_000), "tail".to_owned()].join("\n"));
    let answer = text(place.read("min.js"));
    let shown = answer.find('\n').unwrap();
    let notice = format!("line 1 is cut: {},{:03} bytes shown", shown / 1000, shown % 1000);
    assert!(answer.contains(&notice), "{}", &answer[shown..]);
    let rest = 100_000 - shown;
    assert!(answer.contains(&format!("{},{:03} bytes more in it", rest / 1000, rest % 1000)), "{}", &answer[shown..]);
    assert!(answer.ends_with("read on with offset 2]"), "{}", &answer[shown..]);
    assert_eq!(text(place.read_lines("min.js", Some(2), None)), "tail");
}

#[test]
fn bytes_that_are_not_utf8_are_shown_and_counted() {
    let place = Place::new();
    place.file("latin1", b"caf\xe9\nkey=1\n\xff\xfe\n");
    let answer = place.read("latin1").unwrap();
    assert!(answer.text.starts_with("caf\u{fffd}\nkey=1\n"), "{}", answer.text);
    assert!(answer.text.contains("[3 byte sequences that are not UTF-8"), "{}", answer.text);
    assert!(!answer.partial);
}

/// However badly the text escapes, an answer fits a frame.
#[test]
fn control_characters_leave_room_in_the_frame() {
    let place = Place::new();
    place.file("controls", "\u{1}\u{2}\n".repeat(30_000));
    place.file("one line", vec![0_u8; 200_000]);
    for path in ["controls", "one line"] {
        let answer = place.read(path).unwrap();
        assert!(answer.partial);
        assert!(serde_json::to_string(&answer.text).unwrap().len() < 60 * 1024);
    }
}

#[test]
fn special_files_and_folders_are_refused_at_once() {
    let place = Place::new();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.ws("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.ws("socket")).unwrap();
    fs::create_dir(place.ws("folder")).unwrap();
    std::os::unix::fs::symlink("pipe", place.ws("to pipe")).unwrap();
    for (path, kind) in [
        ("pipe", "a named pipe"),
        ("to pipe", "a named pipe"),
        ("socket", "a socket"),
        ("folder", "a folder"),
        (".", "a folder"),
    ] {
        for answer in [place.read(path), place.write(path, "x"), place.edit(path, "a", "b")] {
            let (reason, told) = failure(answer);
            assert_eq!(reason, "not_a_file", "{told}");
            assert!(told.contains(kind) && told.contains(&format!("`{path}`")), "{told}");
        }
    }
    // grep names the file outright, and passes the pipe by in the folder.
    assert_eq!(reason(place.grep_in("x", Some("pipe"), None)), "not_a_file");
    assert!(text(place.grep("x")).starts_with("[no line matches"));
}

#[test]
fn what_is_missing_or_forbidden_is_named_as_it_was_spelt() {
    let place = Place::new();
    place.file("secret", "x");
    place.file("closed/file", "x");
    chmod(&place.ws("secret"), 0o000);
    let (code, told) = failure(place.read("./no/such/file"));
    assert_eq!(code, "not_found");
    assert!(told.contains("`./no/such/file`") && told.contains("there is no `no`"), "{told}");
    assert_eq!(reason(place.read("secret/below")), "not_a_folder");
    chmod(&place.ws("closed"), 0o000);
    bound_by_modes(|| {
        let (code, told) = failure(place.read("secret"));
        assert_eq!(code, "permission_denied");
        assert!(told.contains("`secret`"), "{told}");
        assert_eq!(reason(place.read("closed/file")), "permission_denied");
    });
    chmod(&place.ws("closed"), 0o700);
    assert_eq!(reason(place.read("")), "invalid_path");
    assert_eq!(reason(place.read("a\0b")), "invalid_path");
    assert_eq!(reason(place.read(&"n".repeat(300))), "invalid_path");
}
