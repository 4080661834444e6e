use std::fs::File;
use std::io::Write;

use bma_hands::files::{self, MAX_EDIT_BYTES};

use crate::support::{Place, edit_input, failure, reason, text};

#[test]
fn f33_line_ends_stay() {
    let place = Place::new();
    let lines: Vec<String> = (1..=100).map(|i| format!("line {i}\r\n")).collect();
    place.file("crlf.txt", lines.concat());
    assert_eq!(text(place.edit("crlf.txt", "line 50\r", "changed\r")), "edited crlf.txt: 1 place, at line 50");
    let mut expected = lines;
    expected[49] = "changed\r\n".to_owned();
    assert!(place.content("crlf.txt") == expected.concat().as_bytes());
    let (code, told) = failure(place.edit("crlf.txt", "line 1\nline 2\n", "x"));
    assert_eq!(code, "no_occurrence");
    assert!(told.contains("CRLF"), "{told}");
    place.file("bom.txt", "\u{feff}key=1\nold\n");
    place.edit("bom.txt", "key=1", "key=2").unwrap();
    assert_eq!(place.content("bom.txt"), "\u{feff}key=2\nold\n".as_bytes());
}

#[test]
fn f34_bytes_that_are_not_utf8_stay() {
    let place = Place::new();
    place.file("latin1", b"caf\xe9\nkey=1\n\xff\x00\xfe");
    place.edit("latin1", "key=1", "key=2").unwrap();
    assert_eq!(place.content("latin1"), b"caf\xe9\nkey=2\n\xff\x00\xfe");
}

#[test]
fn f35_the_replacement_is_literal() {
    let place = Place::new();
    place.file("f", "<A>");
    let new = "$& $$ $1 \\1 ${x} $` $' \\n %s";
    place.edit("f", "A", new).unwrap();
    assert_eq!(place.content("f"), format!("<{new}>").as_bytes());
    // And what is looked for is no pattern.
    place.file("g", "a.c abc");
    place.edit("g", "a.c", "$0").unwrap();
    assert_eq!(place.content("g"), b"$0 abc");
}

#[test]
fn f36_overlapping_places_are_ambiguous() {
    let place = Place::new();
    place.file("f", "a\na\na\n");
    let (code, told) = failure(place.edit("f", "a\na\n", "b\n"));
    assert_eq!(code, "ambiguous");
    assert!(told.contains("occurs 2 times") && told.contains("(lines 1, 2)"), "{told}");
    assert_eq!(place.content("f"), b"a\na\na\n");
    place.file("many", "x".repeat(1 << 20));
    let (_, told) = failure(place.edit("many", "xx", "y"));
    assert!(told.contains("at least 1000 times"), "{told}");
}

#[test]
fn what_cannot_be_an_edit_is_refused_with_a_hint() {
    let place = Place::new();
    place.file("f", "fn main() {\n    let Value = 1;\n}\n");
    assert_eq!(reason(place.edit("f", "", "x")), "invalid_input");
    assert_eq!(reason(place.edit("new", "", "x")), "invalid_input");
    assert_eq!(reason(place.edit("f", "let", "let")), "invalid_input");
    assert_eq!(reason(place.edit("nowhere", "a", "b")), "not_found");
    let (code, told) = failure(place.edit("f", "\tlet Value = 1;\n", "x"));
    assert_eq!(code, "no_occurrence");
    assert!(told.contains("line 2 holds its first line"), "{told}");
    let (_, told) = failure(place.edit("f", "let value = 1;", "x"));
    assert!(told.contains("line 2 holds its first line in another case"), "{told}");
    let large = File::create(place.ws("large")).unwrap();
    large.set_len(MAX_EDIT_BYTES + 1).unwrap();
    let (code, told) = failure(place.edit("large", "a", "b"));
    assert_eq!(code, "too_large");
    assert!(told.contains(&(MAX_EDIT_BYTES + 1).to_string()), "{told}");
    place.assert_no_leftovers();
}

#[test]
fn f37_parallel_edits_of_one_file_all_stand() {
    let place = Place::in_memory();
    std::os::unix::fs::symlink("f", place.ws("alias")).unwrap();
    for _ in 0..200 {
        let lines: Vec<String> = (1..=100).map(|i| format!("<{i}>\n")).collect();
        place.file("f", lines.concat());
        std::thread::scope(|scope| {
            let first = scope.spawn(|| place.edit("f", "<1>", "<one>"));
            let last = scope.spawn(|| place.edit("alias", "<100>", "<hundred>"));
            let middle = scope.spawn(|| place.edit("./f", "<50>", "<fifty>"));
            for edit in [first, last, middle] {
                edit.join().unwrap().unwrap();
            }
        });
        let mut expected = lines;
        expected[0] = "<one>\n".into();
        expected[49] = "<fifty>\n".into();
        expected[99] = "<hundred>\n".into();
        assert!(place.content("f") == expected.concat().as_bytes());
    }
    place.assert_no_leftovers();
}

/// A write and an edit of one file take turns, also when they come from two sessions: the one that comes last finds
/// what the other one did.
#[test]
fn f37_a_write_and_an_edit_take_turns_also_in_two_sessions() {
    let place = Place::in_memory();
    let other = bma_hands::workspace::Workspace::open(place.ws("")).unwrap();
    let (session, call, cancel) = ("session-2".into(), "call-2".into(), std::sync::atomic::AtomicBool::new(false));
    let other = files::FileContext::new(&other, &session, &call, &cancel);
    let (mut edited_last, mut written_last) = (0, 0);
    for round in 0..400 {
        place.file("f", "<old> key=1\n");
        let written = format!("<written {round}> key=1\n");
        std::thread::scope(|scope| {
            let edit = scope.spawn(|| files::edit(&other, &edit_input("f", "key=1", "key=2")));
            let write = scope.spawn(|| place.write("f", &written));
            edit.join().unwrap().unwrap();
            write.join().unwrap().unwrap();
        });
        let content = String::from_utf8(place.content("f")).unwrap();
        match content == written {
            true => written_last += 1,
            false => {
                assert_eq!(content, written.replace("key=1", "key=2"), "a write was lost");
                edited_last += 1;
            }
        }
    }
    eprintln!("{edited_last} edited last, {written_last} written last");
    place.assert_no_leftovers();
}

/// A line that somebody appends before the edit reads is in its result. One that comes later, before the file is
/// replaced, makes the edit start anew: a unit test beside the code that replaces has that moment in hand.
#[test]
fn f38_a_line_appended_while_an_edit_runs_survives() {
    let place = Place::new();
    place.file("f", "key=1\n");
    let append = |request: &bma_hands::access::FileAccessRequest<'_>| {
        if request.operation == bma_hands::access::FileOperation::Write {
            File::options().append(true).open(place.ws("f")).unwrap().write_all(b"appended\n").unwrap();
        }
        Ok(())
    };
    files::edit(&place.asking(&append), &edit_input("f", "key=1", "key=2")).unwrap();
    assert_eq!(place.content("f"), b"key=2\nappended\n");
}
