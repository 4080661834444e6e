//! A session's mounted files: uploads, skills, outputs.

use std::path::Path;
use std::sync::{Arc, Mutex};

use bma_hands_posix::hands::access::{AccessRefused, FileAccessRequest};
use bma_runtime::Executor;
use bma_runtime::proto::contract::{EditInput, GlobInput, GrepInput, ListFilesInput, SessionAssignParams};
use bma_tests::exchange_suite::assignment;

use crate::support::{Setup, bad, good, open, read, write};

/// Three mounts of an owner, each with a file that says whose it is.
fn mount(root: &Path, owner: &str) {
    for name in ["uploads", "skills", "outputs"] {
        let folder = root.join(owner).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file.txt"), format!("{name} of {owner}")).unwrap();
    }
    std::fs::write(root.join(owner).join("private.txt"), "none of the three").unwrap();
}

fn setup() -> Setup {
    Setup::direct().core(|options, base| {
        let root = base.join("files");
        ["agent-1", "agent-2", "plain"].iter().for_each(|owner| mount(&root, owner));
        options.session_files_root = Some(root);
    })
}

async fn of_agent(executor: &Executor, id: &str, agent: &str) -> bma_runtime::Session {
    let mut params: SessionAssignParams = assignment(id);
    params.metadata.insert("agent_session_id".to_owned(), agent.to_owned());
    open(executor, params).await.unwrap()
}

#[test]
fn uploads_and_skills_are_read_and_outputs_are_written() {
    setup().run(async |hands| {
        let session = of_agent(&hands.executor, "s", "agent-1").await;
        let at = |path: &str| hands.base.join("files/agent-1").join(path).to_str().unwrap().to_owned();
        for name in ["uploads", "skills", "outputs"] {
            let path = at(&format!("{name}/file.txt"));
            assert_eq!(good(session.tools().read(read(&path)).await), format!("{name} of agent-1"));
            let glob = GlobInput { pattern: "*.txt".into(), path: Some(at(name)) };
            assert_eq!(good(session.tools().glob(glob).await), path);
            let grep = GrepInput { pattern: "agent".into(), path: Some(at(name)), glob: None };
            assert_eq!(good(session.tools().grep(grep).await), format!("{path}:1:{name} of agent-1"));
            let listed = good(session.tools().list_files(ListFilesInput { path: Some(at(name)) }).await);
            assert_eq!(listed, path);
        }
        for name in ["uploads", "skills"] {
            let edit =
                EditInput { path: at(&format!("{name}/file.txt")), old_string: "of".into(), new_string: "x".into() };
            for refused in
                [session.tools().write(write(&at(&format!("{name}/new")), "x")).await, session.tools().edit(edit).await]
            {
                let text = bad(refused);
                assert!(text.contains("is in a folder that may only be read"), "{text}");
            }
            let folder = hands.base.join("files/agent-1").join(name);
            assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
            assert_eq!(std::fs::read_to_string(folder.join("file.txt")).unwrap(), format!("{name} of agent-1"));
        }
        let new = at("outputs/report/final.txt");
        assert_eq!(good(session.tools().write(write(&new, "done")).await), format!("created {new} (4 bytes)"));
        let edit = EditInput { path: new.clone(), old_string: "done".into(), new_string: "all done".into() };
        assert_eq!(good(session.tools().edit(edit).await), format!("edited {new}: 1 place, at line 1"));
        assert_eq!(std::fs::read_to_string(&new).unwrap(), "all done");
    });
}

#[test]
fn nothing_else_below_the_root_is_reached() {
    setup().run(async |hands| {
        let session = of_agent(&hands.executor, "s", "agent-1").await;
        let files = hands.base.join("files");
        std::os::unix::fs::symlink(files.join("agent-2/outputs"), files.join("agent-1/outputs/link")).unwrap();
        let outside = [
            "agent-2/outputs/file.txt",
            "agent-2/uploads/file.txt",
            "agent-1/private.txt",
            "agent-1/outputs/../private.txt",
            "agent-1/outputs/../../agent-2/outputs/file.txt",
            "agent-1/outputs/link/file.txt",
            "agent-1",
            "",
        ];
        for path in outside {
            let path = files.join(path).to_str().unwrap().to_owned();
            for refused in [
                session.tools().read(read(&path)).await,
                session.tools().write(write(&path, "x")).await,
                session.tools().list_files(ListFilesInput { path: Some(path.clone()) }).await,
            ] {
                let text = bad(refused);
                assert!(text.contains("is outside the workspace"), "{path}: {text}");
            }
        }
        for name in ["outputs", "uploads"] {
            let content = std::fs::read_to_string(files.join("agent-2").join(name).join("file.txt")).unwrap();
            assert_eq!(content, format!("{name} of agent-2"));
        }
    });
}

#[test]
fn only_an_id_that_is_a_plain_name_has_mounts() {
    setup().run(async |hands| {
        let files = hands.base.join("files");
        let of = |owner: &str| read(files.join(owner).join("outputs/file.txt").to_str().unwrap());
        for (number, agent) in
            ["../files/agent-1", "agent-1/", "./agent-1", ".", "..", "agent-1/outputs/.."].iter().enumerate()
        {
            let session = of_agent(&hands.executor, &format!("s{number}"), agent).await;
            let text = bad(session.tools().read(of("agent-1")).await);
            assert!(text.contains("is outside the workspace"), "{agent}: {text}");
        }
        // Without an agent session, the session's own id counts.
        let session = hands.session("plain").await;
        assert_eq!(good(session.tools().read(of("plain")).await), "outputs of plain");
        // What is not there is no mount, and no error.
        let session = of_agent(&hands.executor, "none", "agent-3").await;
        assert_eq!(good(session.tools().write(write("x", "x")).await), "created x (1 byte)");
        assert!(!files.join("agent-3").exists());
    });
}

#[test]
fn the_host_is_told_the_mount_and_the_agent_session() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let hook = {
        let asked = Arc::clone(&asked);
        move |request: &FileAccessRequest<'_>| {
            let agent = request.agent_session_id.unwrap_or("-");
            let mount = request.mount.unwrap_or("-");
            let line = format!("{} {agent} {} {mount} {}", request.session_id, request.operation, request.path);
            asked.lock().unwrap().push(line);
            Ok::<_, AccessRefused>(())
        }
    };
    setup()
        .core(move |options, base| {
            let root = base.join("files");
            mount(&root, "agent-1");
            options.session_files_root = Some(root);
            options.file_access = Some(Arc::new(hook));
        })
        .run(async |hands| {
            let session = of_agent(&hands.executor, "s", "agent-1").await;
            let path = hands.base.join("files/agent-1/outputs/sub/x").to_str().unwrap().to_owned();
            good(session.tools().write(write(&path, "x")).await);
            good(session.tools().write(write("x", "x")).await);
            let other = hands.session("other").await;
            good(other.tools().write(write("x", "x")).await);
            assert_eq!(
                *asked.lock().unwrap(),
                ["s agent-1 write outputs sub/x", "s agent-1 write - x", "other - write - x"]
            );
        });
}
