use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use bma_hands::workspace::Workspace;

use crate::support::{Place, bound_by_modes, chmod, failure, reason, text};

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn glob_lists_files_in_order_relative_to_the_workspace() {
    let place = Place::new();
    for path in ["src/main.rs", "src/deep/er/mod.rs", "src/lib.rs", "README.md", "a-b/x.rs", "a/x.rs", "Z.rs"] {
        place.file(path, "x");
    }
    symlink("src/lib.rs", place.ws("link.rs")).unwrap();
    assert_eq!(
        lines(&text(place.glob("**/*.rs"))),
        ["Z.rs", "a-b/x.rs", "a/x.rs", "src/deep/er/mod.rs", "src/lib.rs", "src/main.rs"]
    );
    assert_eq!(lines(&text(place.glob("*.rs"))), ["Z.rs"]);
    assert_eq!(lines(&text(place.glob("src/*.rs"))), ["src/lib.rs", "src/main.rs"]);
    assert_eq!(lines(&text(place.glob_in("src", "*.rs"))), ["src/lib.rs", "src/main.rs"]);
    assert_eq!(lines(&text(place.glob_in("src", "**/*.rs"))), ["src/deep/er/mod.rs", "src/lib.rs", "src/main.rs"]);
    assert_eq!(lines(&text(place.glob("./src/{lib,main}.[r]s"))), ["src/lib.rs", "src/main.rs"]);
    assert_eq!(lines(&text(place.glob("?/x.rs"))), ["a/x.rs"]);
    assert_eq!(lines(&text(place.glob("README.md"))), ["README.md"]);
    assert_eq!(lines(&text(place.glob("src/deep/"))), ["src/deep/er/mod.rs"]);
    assert_eq!(text(place.glob("nothing/**/*.zz")), "[no file matches nothing/**/*.zz]");
    assert_eq!(text(place.glob("**/*.zz")), "[no file matches **/*.zz]");
    assert_eq!(reason(place.glob("")), "invalid_input");
    assert_eq!(reason(place.glob("a[")), "invalid_input");
    assert_eq!(reason(place.glob_in("nowhere", "*")), "not_found");
    assert_eq!(reason(place.glob_in("README.md", "*")), "not_a_folder");
}

#[test]
fn grep_shows_path_line_and_text() {
    let place = Place::new();
    place.file("b.txt", "needle one\r\nhay\r\nend needle\r\n");
    place.file("a/c.txt", "hay\nneedle in c");
    place.file("d.md", "a needle");
    assert_eq!(
        lines(&text(place.grep("needle"))),
        ["a/c.txt:2:needle in c", "b.txt:1:needle one", "b.txt:3:end needle", "d.md:1:a needle"]
    );
    assert_eq!(lines(&text(place.grep("needle$"))), ["b.txt:3:end needle", "d.md:1:a needle"]);
    assert_eq!(lines(&text(place.grep_in("needle", Some("a"), None))), ["a/c.txt:2:needle in c"]);
    assert_eq!(lines(&text(place.grep_in("needle", Some("d.md"), None))), ["d.md:1:a needle"]);
    assert_eq!(lines(&text(place.grep_in("needle", None, Some("*.md")))), ["d.md:1:a needle"]);
    assert_eq!(lines(&text(place.grep_in("needle", None, Some("a/*.txt")))), ["a/c.txt:2:needle in c"]);
    assert_eq!(lines(&text(place.grep_in("needle", None, Some("!*.txt")))), ["d.md:1:a needle"]);
    assert_eq!(text(place.grep("absent")), "[no line matches absent]");
    for bad in ["(", "", "a\\nb", "[b-a]", "(?<=x)y"] {
        let (code, told) = failure(place.grep(bad));
        assert_eq!(code, "invalid_input", "{bad}");
        assert!(told.starts_with("pattern: "), "{told}");
    }
    assert_eq!(reason(place.grep(&"(\\w{100}){50}".repeat(40))), "invalid_input");
    assert_eq!(reason(place.grep_in("x", Some("nowhere"), None)), "not_found");
}

#[test]
fn list_shows_one_folder_and_what_its_entries_are() {
    let place = Place::new();
    place.file("sub/inner", "x");
    place.file("file", "x");
    place.file(".hidden", "x");
    symlink("/etc", place.ws("link")).unwrap();
    fs::create_dir(place.ws("empty")).unwrap();
    let all = text(place.list(None));
    assert_eq!(lines(&all)[..4], ["empty/", "file", "link (link)", "sub/"]);
    assert_eq!(lines(&all)[4], "[1 hidden name passed by; to see one, name it in path or pattern]");
    assert_eq!(text(place.list(Some("sub"))), "sub/inner");
    assert_eq!(text(place.list(Some("empty"))), "[the folder shows nothing]");
    assert_eq!(reason(place.list(Some("file"))), "not_a_folder");
    assert_eq!(reason(place.list(Some("none"))), "not_found");
}

#[test]
fn anchors_mean_the_ends_of_every_line() {
    let place = Place::new();
    // Plain and CRLF line ends, empty lines, and a last line without an end.
    place.file("lines", "roses are red\nred roses\r\n\nviolets are red\r\nred");
    let found = |pattern: &str| {
        let answer = text(place.grep(pattern));
        lines(&answer).iter().filter_map(|line| line.strip_prefix("lines:")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found("red$"), ["1:roses are red", "4:violets are red", "5:red"]);
    assert_eq!(found("^red"), ["2:red roses", "5:red"]);
    assert_eq!(found("^red$"), ["5:red"]);
    assert_eq!(found("^$"), ["3:"]);
    assert_eq!(found(r"\Aroses"), ["1:roses are red"]);
    assert_eq!(found("^(violets|red).*s$"), ["2:red roses"]);
}

#[test]
fn f44_a_line_longer_than_any_buffer_is_found_and_cut() {
    let place = Place::new();
    let line = format!("{}needle{}", "a".repeat(1_500_000), "b".repeat(1_500_000));
    place.file("long", &line);
    let answer = place.grep("needle").unwrap();
    assert!(answer.partial && answer.text.len() < 2000);
    let first = lines(&answer.text)[0];
    assert!(
        first.starts_with("long:1:[1,499,800 bytes cut] aaa") && first.ends_with("bbb [1,499,206 bytes cut]"),
        "{first}"
    );
    assert!(first.contains("aneedleb"));
    assert!(lines(&answer.text)[1].starts_with("[lines of more than 1000 bytes are cut"), "{}", answer.text);
    // The cut falls between characters.
    place.file("wide", format!("{}needle{}", "€".repeat(1000), "ß".repeat(1000)));
    let wide = text(place.grep_in("needle", Some("wide"), None));
    assert!(!wide.contains('\u{fffd}'), "{wide}");
    // A line that no buffer of ours holds ends the search of that file, and the answer says so.
    place.file("huge", ["needle\n".to_owned(), "x".repeat(9 << 20), "\nneedle\n".to_owned()].concat());
    let answer = place.grep_in("needle", Some("huge"), None).unwrap();
    assert!(answer.partial);
    assert_eq!(lines(&answer.text)[0], "huge:1:needle");
    assert!(answer.text.contains("1 file (huge) only up to a line of more than 8 MiB"), "{}", answer.text);
    let nothing = place.grep("is nowhere in it").unwrap().text;
    assert!(nothing.starts_with("[no line matches is nowhere in it, as far as was searched]"), "{nothing}");
}

#[test]
fn f45_one_binary_file_does_not_spoil_a_search() {
    let place = Place::new();
    for i in 0..10 {
        place.file(&format!("text{i}"), format!("needle {i}\n"));
    }
    let mut state = 1_u32;
    let random: Vec<u8> = (0..4096)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        })
        .collect();
    place.file("random", [b"needle\n", &random[..]].concat());
    let answer = place.grep("needle").unwrap();
    assert_eq!(answer.text.matches("needle ").count(), 10);
    assert!(answer.partial && answer.text.ends_with("[skipped 1 binary file (random)]"), "{}", answer.text);
    // Named outright it is searched, and other encodings are text.
    assert!(text(place.grep_in("needle", Some("random"), None)).starts_with("random:1:needle"));
    place.file("latin1", b"caf\xe9 needle\n");
    let utf16: Vec<u8> = "\u{feff}wide needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    place.file("utf16", utf16);
    let answer = text(place.grep_in("needle", None, Some("[lu]*")));
    assert_eq!(lines(&answer), ["latin1:1:caf\u{fffd} needle", "utf16:1:wide needle"]);
}

#[test]
fn f46_what_may_not_be_read_is_told() {
    let place = Place::new();
    place.file("sub/needle.txt", "needle");
    place.file("file", "needle");
    place.file("closed", "needle");
    chmod(&place.ws("sub"), 0o000);
    chmod(&place.ws("closed"), 0o000);
    bound_by_modes(|| {
        let found = place.glob("**/needle.txt").unwrap();
        assert!(found.partial);
        assert_eq!(lines(&found.text)[1], "[partial: could not look into 1 folder (sub: no permission)]");
        let found = place.grep("needle").unwrap();
        assert!(found.partial);
        assert_eq!(
            lines(&found.text),
            [
                "file:1:needle",
                "[partial: could not look into 1 folder (sub: no permission)]",
                "[partial: could not read 1 file (closed: no permission)]"
            ]
        );
        assert_eq!(reason(place.glob_in("sub", "*")), "permission_denied");
        assert_eq!(reason(place.glob("sub/*")), "permission_denied");
        assert_eq!(reason(place.list(Some("sub"))), "permission_denied");
        assert_eq!(reason(place.grep_in("x", Some("sub"), None)), "permission_denied");
        assert_eq!(reason(place.grep_in("x", Some("closed"), None)), "permission_denied");
    });
    chmod(&place.ws("sub"), 0o700);
}

#[test]
fn f47_one_rule_for_hidden_and_ignored_names() {
    let place = Place::new();
    for path in [
        ".github/ci.yml",
        ".github/.deep/x.yml",
        ".env",
        "dist/x.js",
        "dist/sub/y.js",
        "src/a.js",
        "src/dist/z.js",
        "src/debug.log",
        ".git/config",
        "out/o.js",
        "out/keep/k.js",
        "vendor/v/.gitignore",
        "vendor/v/t.tmp.js",
        "vendor/v/ok.js",
    ] {
        place.file(path, "needle\n");
    }
    place.file(".gitignore", "dist/\n*.log\nout/*\n# comment\n\n!important.log\n");
    place.file("vendor/v/.gitignore", "*.tmp.js\n");
    place.file("important.log", "needle\n");
    let seen = |text: String| -> Vec<String> {
        text.lines()
            .filter(|line| !line.starts_with('['))
            .map(|line| line.split(':').next().unwrap().to_owned())
            .collect()
    };
    let plain = ["important.log", "src/a.js", "vendor/v/ok.js"];
    assert_eq!(seen(text(place.glob("**/*"))), plain);
    assert_eq!(seen(text(place.grep("needle"))), plain);
    assert_eq!(seen(text(place.list(None))), ["important.log", "out/", "src/", "vendor/"]);
    // A pattern, a filter or a path into a hidden or an ignored folder works, the same in each tool.
    for (folder, expected) in [
        (".github", &[".github/ci.yml"][..]),
        ("dist", &["dist/sub/y.js", "dist/x.js"]),
        ("out", &["out/keep/k.js", "out/o.js"]),
        ("out/keep", &["out/keep/k.js"]),
        ("src", &["src/a.js"]),
        ("src/dist", &["src/dist/z.js"]),
        (".git", &[".git/config"]),
    ] {
        assert_eq!(seen(text(place.glob(&format!("{folder}/**")))), expected, "{folder}");
        assert_eq!(seen(text(place.glob_in(folder, "**/*"))), expected, "{folder}");
        assert_eq!(seen(text(place.grep_in("needle", Some(folder), None))), expected, "{folder}");
        assert_eq!(seen(text(place.grep_in("needle", None, Some(&format!("{folder}/**"))))), expected, "{folder}");
        let listed = seen(text(place.list(Some(folder))));
        let first: Vec<&str> = expected
            .iter()
            .map(|path| path.strip_prefix(folder).unwrap().trim_start_matches('/'))
            .map(|path| path.split('/').next().unwrap())
            .collect();
        let listed: Vec<&str> =
            listed.iter().map(|path| path.strip_prefix(folder).unwrap().trim_matches('/')).collect();
        assert!(first.iter().all(|name| listed.contains(name)) && listed.len() == first.len(), "{folder}: {listed:?}");
    }
    // Names that the pattern says outright, anywhere in it.
    assert_eq!(seen(text(place.glob(".env"))), [".env"]);
    assert_eq!(seen(text(place.glob("**/.env"))), [".env"]);
    assert_eq!(seen(text(place.glob("**/dist/*.js"))), ["dist/x.js", "src/dist/z.js"]);
    assert_eq!(seen(text(place.glob("**/debug.log"))), ["src/debug.log"]);
    assert_eq!(seen(text(place.glob("**/.git*/*.yml"))), [".github/ci.yml"]);
    assert_eq!(seen(text(place.grep_in("needle", None, Some("debug.log")))), ["src/debug.log"]);
    assert_eq!(seen(text(place.grep_in("needle", None, Some(".e*")))), [".env"]);
    // Reading needs no search.
    assert_eq!(text(place.read("dist/x.js")), "needle\n");
    // When nothing was seen, the answer says what was passed by.
    let none = text(place.glob("**/*.yml"));
    assert!(none.starts_with("[no file matches **/*.yml]") && none.contains("hidden name"), "{none}");
}

#[test]
fn f48_special_characters_of_the_root_are_no_pattern() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("a[1](b) {c}*?");
    fs::create_dir_all(root.join("sub [x]")).unwrap();
    fs::write(root.join("sub [x]/f.txt"), "needle").unwrap();
    let workspace = Workspace::open(&root).unwrap();
    let place = Place::with(dir, workspace);
    assert_eq!(text(place.glob("**/*.txt")), "sub [x]/f.txt");
    assert_eq!(text(place.glob(&format!("{}/**/*.txt", root.display()))), "sub [x]/f.txt");
    assert_eq!(text(place.glob_in("sub [x]", "*.txt")), "sub [x]/f.txt");
    assert_eq!(text(place.grep_in("needle", Some(root.to_str().unwrap()), Some("*.txt"))), "sub [x]/f.txt:1:needle");
}

#[test]
fn f49_exclusions_work_with_any_spelling_of_the_root() {
    let place = Place::new();
    for path in ["node_modules/a/x.js", "src/x.js", "src/node_modules/y.js"] {
        place.file(path, "needle");
    }
    let root = place.ws("").to_str().unwrap().trim_end_matches('/').to_owned();
    let expected = "src/node_modules/y.js:1:needle\nsrc/x.js:1:needle";
    for path in [None, Some("."), Some("./"), Some(root.as_str())] {
        assert_eq!(text(place.grep_in("needle", path, Some("!node_modules/**"))), expected);
        assert_eq!(text(place.grep_in("needle", path, Some("!./node_modules/"))), expected);
        assert_eq!(text(place.grep_in("needle", path, Some("!node_modules"))), "src/x.js:1:needle");
        assert_eq!(text(place.grep_in("needle", path, Some("!**/node_modules/**"))), "src/x.js:1:needle");
    }
    assert_eq!(text(place.grep_in("needle", None, Some(&format!("!{root}/node_modules/**")))), expected);
    assert_eq!(reason(place.grep_in("needle", None, Some("!../x/**"))), "workspace_boundary");
}

#[test]
fn hostile_names_take_one_line_each() {
    let place = Place::new();
    let names: [&[u8]; 5] = [b"-rf", b"line\nbreak", b"latin\xe9", b"\"quoted\"", b"tab\there"];
    for name in names {
        fs::write(place.ws("").join(OsStr::from_bytes(name)), "needle").unwrap();
    }
    let expected = [r#""\"quoted\"""#, "-rf", r#""latin\351""#, r#""line\nbreak""#, r#""tab\there""#];
    assert_eq!(lines(&text(place.glob("*"))), expected);
    assert_eq!(lines(&text(place.list(None))), expected);
    let found = text(place.grep("needle"));
    assert_eq!(lines(&found), expected.map(|name| format!("{name}:1:needle")));
}
