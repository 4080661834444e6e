use std::os::unix::fs::symlink;
use std::sync::Mutex;

use bma_hands::access::{AccessRefused, FileAccessRequest, FileOperation};
use bma_hands::files;
use bma_hands::workspace::Workspace;
use bma_proto_core::contract::{ErrorReason, GlobInput, GrepInput, ListFilesInput, ReadInput, WriteInput};

use crate::support::{Place, edit_input, failure, reason, text};

fn read_input(path: &str) -> ReadInput {
    ReadInput { path: path.into(), offset: None, limit: None }
}

fn write_input(path: &str) -> WriteInput {
    WriteInput { path: path.into(), content: "new".into() }
}

/// A hook that allows everything and remembers what it was asked.
struct Questions(Mutex<Vec<String>>);

impl Questions {
    fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn note(&self, request: &FileAccessRequest<'_>) -> Result<(), AccessRefused> {
        assert_eq!((request.session_id.as_str(), request.tool_call_id.as_str()), ("session-1", "call-1"));
        assert_eq!(request.agent_session_id, Some("agent-1"));
        let mount = request.mount.map(|mount| format!("{mount}:")).unwrap_or_default();
        self.0.lock().unwrap().push(format!("{} {} {mount}{}", request.tool, request.operation, request.path));
        Ok(())
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[test]
fn every_operation_is_asked_about_by_its_real_cleaned_path() {
    let place = Place::new();
    place.file("src/lib.rs", "old");
    symlink("src", place.ws("link")).unwrap();
    let questions = Questions::new();
    let hook = |request: &FileAccessRequest<'_>| questions.note(request);
    let context = place.asking(&hook).with_agent_session("agent-1");
    files::read(&context, &read_input("./src/../src//lib.rs")).unwrap();
    files::read(&context, &read_input("link/lib.rs")).unwrap();
    files::edit(&context, &edit_input("src/lib.rs", "old", "new")).unwrap();
    files::write(&context, &write_input("src/new/file")).unwrap();
    assert_eq!(
        questions.taken(),
        [
            "read read src/lib.rs",
            "read read src/lib.rs",
            "edit read src/lib.rs",
            "edit write src/lib.rs",
            "write write src/new/file"
        ]
    );
    files::glob(&context, &GlobInput { pattern: "**/*".into(), path: None }).unwrap();
    files::glob(&context, &GlobInput { pattern: "src/*.rs".into(), path: None }).unwrap();
    files::grep(&context, &GrepInput { pattern: "new".into(), path: Some("src/".into()), glob: None }).unwrap();
    files::list_files(&context, &ListFilesInput { path: None }).unwrap();
    assert_eq!(
        questions.taken(),
        ["glob read .", "glob read .", "glob read src", "grep read src", "list_files read ."]
    );
    // What is not there is asked about too; what is outside is not.
    assert_eq!(reason(files::read(&context, &read_input("missing"))), "not_found");
    assert_eq!(questions.taken(), ["read read missing"]);
    symlink("/etc", place.ws("out")).unwrap();
    for path in ["../x", "/etc/passwd", "out/passwd", "src/../../x"] {
        assert_eq!(reason(files::read(&context, &read_input(path))), "workspace_boundary");
        assert_eq!(reason(files::write(&context, &write_input(path))), "workspace_boundary");
        assert_eq!(reason(files::edit(&context, &edit_input(path, "a", "b"))), "workspace_boundary");
    }
    assert!(questions.taken().is_empty());
}

#[test]
fn a_refusal_has_its_reason_and_nothing_is_read_or_written() {
    let place = Place::new();
    place.file("guarded/f", "secret");
    let own = |request: &FileAccessRequest<'_>| match request.path.starts_with("guarded") {
        true => Err(AccessRefused::with_reason(ErrorReason::from("grant_revoked"), "the grant was taken back")),
        false => Ok(()),
    };
    let context = place.asking(&own);
    let answers = [
        files::read(&context, &read_input("guarded/f")),
        files::write(&context, &write_input("guarded/f")),
        files::write(&context, &write_input("guarded/sub/new")),
        files::edit(&context, &edit_input("guarded/f", "secret", "x")),
        files::glob(&context, &GlobInput { pattern: "guarded/*".into(), path: None }),
        files::grep(&context, &GrepInput { pattern: "secret".into(), path: Some("guarded".into()), glob: None }),
        files::grep(&context, &GrepInput { pattern: "secret".into(), path: Some("guarded/f".into()), glob: None }),
        files::list_files(&context, &ListFilesInput { path: Some("guarded".into()) }),
    ];
    for answer in answers {
        let (reason, told) = failure(answer);
        assert_eq!(reason, "grant_revoked");
        assert!(told.contains("the grant was taken back") && !told.contains("secret"), "{told}");
    }
    assert_eq!(place.content("guarded/f"), b"secret");
    assert!(!place.ws("guarded/sub").exists());
    place.assert_no_leftovers();
    // Any other error is permission_denied, and edit can be allowed to read only.
    let no_writes = |request: &FileAccessRequest<'_>| match request.operation {
        FileOperation::Read => Ok(()),
        FileOperation::Write => Err("no writes now".into()),
    };
    let context = place.asking(&no_writes);
    assert_eq!(text(files::read(&context, &read_input("guarded/f"))), "secret");
    assert_eq!(reason(files::edit(&context, &edit_input("guarded/f", "secret", "x"))), "permission_denied");
    assert_eq!(place.content("guarded/f"), b"secret");
}

/// A protected name is protected however it is reached.
#[test]
fn f56_a_link_to_a_protected_name_meets_its_decision() {
    let place = Place::new();
    place.file(".git/config", "old");
    symlink(".git", place.ws("g")).unwrap();
    symlink(".git/config", place.ws("c")).unwrap();
    symlink(place.ws(".git/config"), place.ws("absolute")).unwrap();
    let guard = |request: &FileAccessRequest<'_>| match request.path.starts_with(".git/") {
        true => Err("protected".into()),
        false => Ok(()),
    };
    for path in [".git/config", "./x/../.git/config", "g/config", "c", "absolute"] {
        assert_eq!(reason(files::write(&place.asking(&guard), &write_input(path))), "permission_denied", "{path}");
    }
    assert_eq!(place.content(".git/config"), b"old");
    // On a disk that ignores case the other spelling is the same file, elsewhere another one.
    let other_case = files::write(&place.asking(&guard), &write_input(".GIT/Config"));
    if place.content(".git/config") == b"new" {
        panic!("another case went past the guard");
    }
    eprintln!("case is ignored here: {}", other_case.is_err());
}

#[test]
fn mounts_are_reached_by_their_absolute_paths_and_keep_their_rules() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["ws", "s1/uploads", "s1/skills", "s1/outputs", "s1/other", "s2/uploads"] {
        std::fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    let at = |path: &str| dir.path().join(path).to_str().unwrap().to_owned();
    std::fs::write(at("s1/uploads/data.csv"), "a,b\n").unwrap();
    std::fs::write(at("s2/uploads/secret"), "x").unwrap();
    std::fs::write(at("s1/other/secret"), "x").unwrap();
    symlink(at("s2/uploads/secret"), at("s1/uploads/leak")).unwrap();
    symlink("../outputs", at("s1/uploads/sideways")).unwrap();
    symlink(at("s1/uploads"), at("ws/uploads")).unwrap();
    let workspace = Workspace::open(at("ws"))
        .unwrap()
        .with_mount("uploads", at("s1/uploads"), false)
        .unwrap()
        .with_mount("skills", at("s1/skills"), false)
        .unwrap()
        .with_mount("outputs", at("s1/outputs"), true)
        .unwrap();
    let place = Place::with(dir, workspace);
    let at = |path: &str| place.dir.path().join(path).to_str().unwrap().to_owned();
    let uploads = at("s1/uploads");
    assert_eq!(text(place.read(&format!("{uploads}/data.csv"))), "a,b\n");
    assert_eq!(text(place.glob_in(&uploads, "*")), format!("{uploads}/data.csv"));
    assert_eq!(text(place.glob(&format!("{uploads}/*.csv"))), format!("{uploads}/data.csv"));
    assert_eq!(text(place.grep_in("b", Some(&uploads), None)), format!("{uploads}/data.csv:1:a,b"));
    for path in ["data.csv", "new", "a/b/new"] {
        assert_eq!(reason(place.write(&format!("{uploads}/{path}"), "x")), "workspace_read_only");
    }
    assert_eq!(reason(place.edit(&format!("{uploads}/data.csv"), "a", "b")), "workspace_read_only");
    let output = at("s1/outputs/deep/result.txt");
    assert_eq!(text(place.write(&output, "x")), format!("created {output} (1 byte)"));
    for path in ["s1/other/secret", "s2/uploads/secret", "s1", "s1/uploads/leak", "s1/uploads/sideways/deep/result.txt"]
    {
        assert_eq!(reason(place.read(&at(path))), "workspace_boundary", "{path}");
    }
    assert_eq!(reason(place.read("uploads/data.csv")), "workspace_boundary");
    let questions = Questions::new();
    let hook = |request: &FileAccessRequest<'_>| questions.note(request);
    let context = place.asking(&hook).with_agent_session("agent-1");
    files::read(&context, &read_input(&format!("{uploads}/./data.csv"))).unwrap();
    files::list_files(&context, &ListFilesInput { path: Some(uploads) }).unwrap();
    assert_eq!(questions.taken(), ["read read uploads:data.csv", "list_files read uploads:."]);
    let twice = Workspace::open(place.ws("")).unwrap().with_mount("a", place.ws(""), true).unwrap();
    assert!(twice.with_mount("a", place.ws(""), true).is_err());
}
