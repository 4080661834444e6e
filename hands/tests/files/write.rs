use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

use crate::support::{Place, bound_by_modes, chmod, failure, mode, reason, text};

#[test]
fn files_are_created_with_their_folders_and_replaced() {
    let place = Place::new();
    assert_eq!(text(place.write("a/b/c.txt", "one\n")), "created a/b/c.txt (4 bytes)");
    assert_eq!(place.content("a/b/c.txt"), b"one\n");
    assert_eq!(text(place.write("./a//b/../b/c.txt", "x")), "replaced a/b/c.txt (1 byte)");
    assert_eq!(place.content("a/b/c.txt"), b"x");
    assert_eq!(text(place.write("empty", "")), "created empty (0 bytes)");
    assert_eq!(reason(place.write("folder/", "x")), "not_a_file");
    assert_eq!(reason(place.write("a/b/c.txt/d", "x")), "not_a_folder");
    place.assert_no_leftovers();
}

/// Whoever reads meanwhile sees the one content or the other, whole; and there is always a file.
#[test]
fn a_reader_sees_the_old_content_or_the_new_one() {
    let place = Place::in_memory();
    let contents = ["a".repeat(300_000), "b".repeat(200_000)];
    place.file("f", &contents[0]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = [0, 0];
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let content = place.content("f");
                let which = contents.iter().position(|whole| content == whole.as_bytes());
                seen[which.unwrap_or_else(|| panic!("{} bytes of neither", content.len()))] += 1;
            }
            seen
        });
        for round in 1..=200 {
            match round % 4 {
                3 => place.edit("f", &contents[(round + 1) % 2], &contents[round % 2]).unwrap(),
                _ => place.write("f", &contents[round % 2]).unwrap(),
            };
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let seen = reader.join().unwrap();
        assert!(seen.iter().all(|times| *times > 5), "{seen:?}");
    });
    place.assert_no_leftovers();
}

#[test]
fn hostile_names_are_names() {
    let place = Place::new();
    for name in ["-rf", "new\nline", "quo\"te", "$(touch x)", "*", "[a]", "ünï", " ", "~", "a\\b"] {
        place.write(name, name).unwrap();
        assert_eq!(place.content(name), name.as_bytes());
        assert_eq!(text(place.read(name)), name);
        place.edit(name, name, "new").unwrap();
        assert_eq!(place.content(name), b"new");
    }
    place.assert_no_leftovers();
}

/// A real short write and a real refusal: the system takes 64 KiB of a file and no more.
#[test]
fn f39_f116_a_short_write_keeps_the_old_content() {
    const CHILD: &str = "BMA_TEST_FILE_LIMIT_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let place = Place::new();
        place.file("f", "old");
        let (code, told) = failure(place.write("f", &"x".repeat(1 << 20)));
        assert_eq!(code, "io_error");
        assert!(told.contains("could not write its new content") && told.contains("nothing was changed"), "{told}");
        assert_eq!(place.content("f"), b"old");
        assert_eq!(reason(place.write("made/for/it", &"x".repeat(1 << 20))), "io_error");
        assert!(!place.ws("made").exists());
        assert_eq!(reason(place.edit("f", "old", &"y".repeat(1 << 20))), "io_error");
        assert_eq!(place.content("f"), b"old");
        place.assert_no_leftovers();
        // There is room again for what fits.
        place.write("f", "new").unwrap();
        assert_eq!(place.content("f"), b"new");
        return;
    }
    // The limit belongs to a process, so another one gets it; the signal must not end it.
    let output = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 128; exec \"$0\" --exact write::f39_f116_a_short_write_keeps_the_old_content",
        ])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&output.stderr));
}

/// A disk that is really full: a small one of a namespace's own.
#[test]
#[cfg(target_os = "linux")]
fn f39_f116_a_full_disk_keeps_the_old_content_and_is_used_again_when_it_has_room() {
    const CHILD: &str = "BMA_TEST_SMALL_DISK_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let place = Place::new();
        let old = "old\n".repeat(10_000);
        place.file("f", &old);
        // More than the disk holds; and what would fit if the old content were not to stay until the new one is there.
        for (round, size) in [1 << 20, 100_000].into_iter().cycle().take(20).enumerate() {
            let content = "x".repeat(size);
            let answers = [
                place.write("f", &content),
                place.write(&format!("made/for/{round}"), &"x".repeat(1 << 20)),
                place.edit("f", &old[..], &content),
            ];
            for answer in answers {
                let (code, told) = failure(answer);
                assert_eq!(code, "storage_full", "{told}");
                assert!(told.contains("nothing was changed; free some space and try again"), "{told}");
            }
            assert!(place.content("f") == old.as_bytes() && !place.ws("made").exists());
            place.assert_no_leftovers();
        }
        // Reading needs no room, and what fits is written at once.
        assert_eq!(text(place.grep_in("old", Some("f"), Some("g*"))), "[no line matches old]");
        place.write("small", "x").unwrap();
        fs::remove_file(place.ws("f")).unwrap();
        place.write("f", &"x".repeat(100_000)).unwrap();
        assert_eq!(place.content("f").len(), 100_000);
        return;
    }
    let mut unshare = vec!["unshare", "--mount"];
    if !rustix::process::getuid().is_root() {
        unshare.push("--map-root-user");
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |script: &str, arguments: &[&std::ffi::OsStr]| {
        let mut command = Command::new("env");
        command.args(&unshare).args(["sh", "-c", &format!("mount -t tmpfs -o size=128k none \"$TMPDIR\" && {script}")]);
        command.args(arguments).env(CHILD, "1").env("TMPDIR", folder.path()).output().unwrap()
    };
    let tried = run("true", &[]);
    if !tried.status.success() {
        eprintln!("not shown, since it needs a namespace: {}", String::from_utf8_lossy(&tried.stderr));
        return;
    }
    let program = std::env::current_exe().unwrap();
    let name = "write::f39_f116_a_full_disk_keeps_the_old_content_and_is_used_again_when_it_has_room";
    let output = run("exec \"$0\" --exact \"$1\"", &[program.as_os_str(), name.as_ref()]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn f40_mode_group_and_attributes_stay() {
    let place = Place::new();
    let script = place.file("run.sh", "#!/bin/sh\necho old\n");
    chmod(&script, 0o755);
    let private = place.file("private", "old");
    chmod(&private, 0o640);
    let marked = place.file("marked", "old");
    let attributes = set_attribute(&marked, "user.note", b"kept\0as it is");
    let as_root = rustix::process::geteuid().is_root();
    if as_root {
        std::os::unix::fs::chown(&private, Some(12), Some(34)).unwrap();
        chmod(&private, 0o4640);
    }
    fs::create_dir(place.ws("shared")).unwrap();
    if as_root {
        std::os::unix::fs::chown(place.ws("shared"), None, Some(34)).unwrap();
    }
    chmod(&place.ws("shared"), 0o2775);
    for path in ["run.sh", "private", "marked"] {
        place.edit(path, "old", "new").unwrap();
    }
    assert_eq!(mode(&script), 0o755);
    assert_eq!(mode(&private), if as_root { 0o4640 } else { 0o640 });
    if as_root {
        let now = fs::metadata(&private).unwrap();
        assert_eq!((now.uid(), now.gid()), (12, 34));
    } else {
        eprintln!("not root: owner and group of somebody else are not tried");
    }
    if attributes {
        assert_eq!(attribute(&marked, "user.note").as_deref(), Some(&b"kept\0as it is"[..]));
    } else {
        eprintln!("no attributes on this file system: not tried");
    }
    place.write("private", "whole").unwrap();
    assert_eq!(mode(&private), if as_root { 0o4640 } else { 0o640 });
    // A new file follows the umask and a setgid folder's group, as one made by any other program does.
    place.write("shared/new", "x").unwrap();
    fs::write(place.ws("shared/reference"), "x").unwrap();
    let (new, reference) =
        (fs::metadata(place.ws("shared/new")).unwrap(), fs::metadata(place.ws("shared/reference")).unwrap());
    assert_eq!((new.mode(), new.gid()), (reference.mode(), reference.gid()));
    place.edit("shared/new", "x", "y").unwrap();
    let edited = fs::metadata(place.ws("shared/new")).unwrap();
    assert_eq!((edited.mode(), edited.gid()), (reference.mode(), reference.gid()));
}

/// An access list is an attribute, and the mode's middle bits are its mask.
#[test]
fn f40_an_access_list_stays() {
    const LIST: &str = "system.posix_acl_access";
    let place = Place::new();
    let path = place.file("f", "old");
    let entry =
        |tag: u16, right: u16, id: u32| [&tag.to_le_bytes()[..], &right.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    // The owner reads and writes, so does user 12, the group reads, the others do nothing.
    let entries = [entry(1, 6, none), entry(2, 6, 12), entry(4, 4, none), entry(16, 6, none), entry(32, 0, none)];
    let list = [&2_u32.to_le_bytes()[..], &entries.concat()].concat();
    if !set_attribute(&path, LIST, &list) {
        eprintln!("no access lists on this file system: not tried");
        return;
    }
    assert_eq!(mode(&path), 0o660);
    place.edit("f", "old", "new").unwrap();
    assert_eq!(attribute(&path, LIST).as_deref(), Some(&list[..]));
    assert_eq!(mode(&path), 0o660);

    // A folder can have a list for each new file: one that was there before has another, or none.
    let plain = place.file("folder/plain", "old");
    let listed = place.file("folder/listed", "old");
    chmod(&plain, 0o640);
    assert!(set_attribute(&listed, LIST, &list));
    assert!(set_attribute(&place.ws("folder"), "system.posix_acl_default", &list));
    for path in ["folder/plain", "folder/listed", "folder/new"] {
        place.write(path, "new").unwrap();
    }
    assert_eq!((attribute(&plain, LIST), mode(&plain)), (None, 0o640));
    assert_eq!((attribute(&listed, LIST), mode(&listed)), (Some(list), 0o660));
    assert!(attribute(&place.ws("folder/new"), LIST).is_some(), "a new file is as any other program makes it");
}

/// Somebody else's file that anybody may write: its group cannot be given away, its owner is told of.
#[test]
fn f40_what_cannot_be_kept_is_told() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: a file of somebody else cannot be made, not tried");
        return;
    }
    let place = Place::new();
    let (foreign, ours) = (place.file("foreign", "old"), place.file("our group", "old"));
    std::os::unix::fs::chown(&foreign, Some(12), Some(34)).unwrap();
    std::os::unix::fs::chown(&ours, Some(12), None).unwrap();
    chmod(&foreign, 0o666);
    chmod(&ours, 0o4666);
    bound_by_modes(|| {
        let (code, told) = failure(place.edit("foreign", "old", "new"));
        assert_eq!(code, "attributes_lost");
        assert!(told.contains("its group") && told.contains("nothing was changed"), "{told}");
        let told = text(place.edit("our group", "old", "new"));
        assert!(told.contains("its owner is now the user that wrote it"), "{told}");
    });
    assert_eq!((place.content("foreign"), mode(&foreign)), (b"old".to_vec(), 0o666));
    // Running as its owner went with the owner.
    assert_eq!((place.content("our group"), mode(&ours)), (b"new".to_vec(), 0o666));
    place.assert_no_leftovers();
}

fn set_attribute(path: &std::path::Path, name: &str, value: &[u8]) -> bool {
    rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).is_ok()
}

fn attribute(path: &std::path::Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

#[test]
fn f41_a_write_through_links_changes_the_real_file_and_keeps_the_links() {
    let place = Place::new();
    place.file("real/f", "old\n");
    fs::create_dir(place.ws("real/h")).unwrap();
    symlink("../f", place.ws("real/h/f")).unwrap();
    symlink("real/h", place.ws("s")).unwrap();
    symlink("s", place.ws("d")).unwrap();
    assert_eq!(text(place.edit("d/f", "old", "new")), "edited real/f: 1 place, at line 1");
    assert_eq!(place.content("real/f"), b"new\n");
    assert_eq!(text(place.write("d/f", "whole")), "replaced real/f (5 bytes)");
    assert_eq!(place.content("real/f"), b"whole");
    for link in ["real/h/f", "s", "d"] {
        assert!(fs::symlink_metadata(place.ws(link)).unwrap().is_symlink());
    }
    // A link that dangles inside is a way to a new file.
    symlink("real/later", place.ws("dangling")).unwrap();
    assert_eq!(text(place.write("dangling", "x")), "created real/later (1 byte)");
    assert!(fs::symlink_metadata(place.ws("dangling")).unwrap().is_symlink());
    symlink("loop b", place.ws("loop a")).unwrap();
    symlink("loop a", place.ws("loop b")).unwrap();
    assert_eq!(reason(place.write("loop a", "x")), "too_many_links");
    assert_eq!(reason(place.read("loop b")), "too_many_links");
}

/// Our choice: the file that is named is replaced, its other names keep the old content, and the answer says so.
#[test]
fn f42_splitting_a_hard_link_is_told() {
    let place = Place::new();
    place.file("f", "old");
    fs::hard_link(place.ws("f"), place.ws("g")).unwrap();
    let answer = text(place.edit("f", "old", "new"));
    assert!(answer.contains("it had 1 other name (hard links), which keep the old content"), "{answer}");
    assert_eq!((place.content("f"), place.content("g")), (b"new".to_vec(), b"old".to_vec()));
    assert!(!text(place.edit("f", "new", "newer")).contains("hard links"));
}

#[test]
fn no_permission_changes_nothing() {
    let place = Place::new();
    place.file("read only", "old");
    chmod(&place.ws("read only"), 0o444);
    place.file("closed/f", "old");
    chmod(&place.ws("closed"), 0o555);
    bound_by_modes(|| {
        for (path, told_of) in [
            ("read only", "write to it"),
            ("closed/f", "make a file beside it"),
            ("closed/new", "make a file beside it"),
        ] {
            let (code, told) = failure(place.write(path, "new"));
            assert_eq!(code, "permission_denied", "{told}");
            assert!(told.contains(told_of) && told.contains(&format!("`{path}`")), "{told}");
        }
        assert_eq!(reason(place.edit("read only", "old", "new")), "permission_denied");
        assert_eq!(reason(place.write("closed/made/new", "x")), "permission_denied");
    });
    assert_eq!((place.content("read only"), place.content("closed/f")), (b"old".to_vec(), b"old".to_vec()));
    place.assert_no_leftovers();
    chmod(&place.ws("closed"), 0o755);
}

#[test]
fn a_running_program_can_be_replaced() {
    let place = Place::new();
    fs::copy("/bin/sleep", place.ws("program")).unwrap();
    let mut running = Command::new(place.ws("program")).arg("600").spawn().unwrap();
    // Until the new program is in place, the file is not busy.
    while fs::OpenOptions::new().write(true).open(place.ws("program")).is_ok() {
        std::thread::yield_now();
    }
    let answer = place.write("program", "#!/bin/sh\n");
    running.kill().unwrap();
    running.wait().unwrap();
    answer.unwrap();
    assert_eq!(place.content("program"), b"#!/bin/sh\n");
    assert_eq!(mode(&place.ws("program")), mode(std::path::Path::new("/bin/sleep")));
}

#[test]
fn a_canceled_write_changes_nothing() {
    let place = Place::new();
    place.file("f", "old");
    place.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(reason(place.write("f", "new")), "canceled");
    assert_eq!(reason(place.edit("f", "old", "new")), "canceled");
    assert_eq!(place.content("f"), b"old");
    place.assert_no_leftovers();
}
