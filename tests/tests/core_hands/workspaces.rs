//! Where sessions work.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use bma_hands_posix::Posix;
use bma_hands_posix::hands::{Core, CoreOptions};
use bma_runtime::Runtime;
use bma_runtime::proto::contract::BashInput;

use crate::support::{Setup, bad, good, input, write};

fn core(runtime: Arc<dyn Runtime>, options: CoreOptions) -> Result<Core, String> {
    Core::new(runtime, Arc::new(Posix::direct()), options).map_err(|error| error.to_string())
}

#[test]
fn each_session_has_a_folder_below_its_brain_that_stays() {
    Setup::direct().run(async |hands| {
        let session = hands.session("session-1").await;
        let place = hands.base.join("work/cloud/session-1");
        assert_eq!(good(session.tools().bash(input("pwd; pwd -P; echo \"$PWD\"")).await), {
            let place = place.display();
            format!("{place}\n{place}\n{place}\nexit_code: 0")
        });
        assert_eq!(hands.core.session("cloud", &"session-1".into()).unwrap().workspace(), place);
        good(session.tools().write(write("kept.txt", "x")).await);
        session.stop("enough").await.unwrap();
        assert!(place.join("kept.txt").exists());
        // The same id again finds what it left.
        let again = hands.session("session-1").await;
        assert_eq!(good(again.tools().bash(input("cat kept.txt")).await), "x\nexit_code: 0");
    });
}

#[test]
fn a_host_chooses_another_folder() {
    let setup = Setup::direct().core(|options, base| {
        let project = base.join("project");
        options.workspace = Some(Arc::new(move |brain, _| project.join(brain)));
    });
    setup.run(async |hands| {
        // Sessions may share one.
        let (one, two) = (hands.session("one").await, hands.session("two").await);
        good(one.tools().write(write("shared.txt", "of both")).await);
        assert_eq!(good(two.tools().bash(input("cat shared.txt")).await), "of both\nexit_code: 0");
        assert!(hands.base.join("project/cloud/shared.txt").exists());
        assert!(!hands.base.join("work/cloud").exists());
    });
}

#[test]
fn an_odd_id_is_one_folder_of_its_own() {
    Setup::direct().core(|options, _| options.max_sessions = 64).run(async |hands| {
        let long = "x".repeat(400);
        let ids = ["..", ".", "../../up", "a/b", "a/c", "/etc", "S1", "s1", ".hidden", "line\nend", "ß", "~", &long];
        for id in ids {
            let session = hands.session(id).await;
            good(session.tools().write(write("own.txt", id)).await);
            assert_eq!(
                good(session.tools().bash(input("cat own.txt")).await),
                format!("{}\nexit_code: 0", id.trim_end())
            );
        }
        let entries = || std::fs::read_dir(hands.base.join("work/cloud")).unwrap().map(|entry| entry.unwrap());
        let folded: BTreeSet<_> = entries().map(|entry| entry.file_name().to_str().unwrap().to_lowercase()).collect();
        assert_eq!(folded.len(), ids.len(), "{folded:?}");
        assert!(entries().all(|entry| entry.path().join("own.txt").exists()));
        let mut above: Vec<_> =
            std::fs::read_dir(&hands.base).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        above.sort();
        assert_eq!(above, ["home", "work"], "nothing was made elsewhere");
    });
}

#[test]
fn the_work_root_as_a_directory_means_the_workspace() {
    let setup = Setup::direct().core(|options, base| {
        std::fs::create_dir(base.join("real")).unwrap();
        symlink("real", base.join("by-link")).unwrap();
        options.work_root = base.join("by-link");
    });
    setup.run(async |hands| {
        let session = hands.session("s").await;
        let place = hands.base.join("real/cloud/s");
        good(session.tools().write(write("below/x", "x")).await);
        let at = |cwd: &str| session.tools().bash(BashInput { cwd: Some(cwd.to_owned()), ..input("pwd") });
        for root in ["by-link", "real", "by-link/"] {
            let root = hands.base.join(root);
            assert_eq!(good(at(root.to_str().unwrap()).await), format!("{}\nexit_code: 0", place.display()));
        }
        assert_eq!(good(at("below").await), format!("{}/below\nexit_code: 0", place.display()));
        let absolute = place.join("below");
        assert_eq!(good(at(absolute.to_str().unwrap()).await), format!("{}\nexit_code: 0", absolute.display()));
        for outside in ["/", "..", hands.base.join("real/cloud").to_str().unwrap()] {
            let text = bad(at(outside).await);
            assert!(text.starts_with(&format!("cwd: `{outside}` is outside the workspace")), "{text}");
        }
        assert_eq!(bad(at("missing").await), "cwd does not exist: missing");
    });
}

#[test]
fn a_work_root_that_cannot_be_used_is_named() {
    bma_runtime_tokio::run(|runtime| async move {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a-file");
        std::fs::write(&file, "").unwrap();
        let refused = |path: &std::path::Path| core(Arc::clone(&runtime), CoreOptions::new(path)).unwrap_err();
        for path in [file.clone(), file.join("below")] {
            let error = refused(&path);
            assert!(error.starts_with(&format!("work root {}: ", path.display())), "{error}");
            assert!(error.ends_with("; choose a directory that this user can write"), "{error}");
        }
        // A place that nobody can write, not even root.
        #[cfg(target_os = "linux")]
        assert!(refused("/proc/self".as_ref()).starts_with("work root /proc/self: "));

        // One that is missing is made, and nothing else in it.
        let missing = folder.path().join("made/on/the/way");
        core(Arc::clone(&runtime), CoreOptions::new(&missing)).unwrap();
        assert_eq!(std::fs::read_dir(&missing).unwrap().count(), 0);

        let mut options = CoreOptions::new(&missing);
        options.max_sessions = 0;
        let error = core(Arc::clone(&runtime), options).unwrap_err();
        assert_eq!(error, "max_sessions: it is 0, so no session could be taken");
        let mut options = CoreOptions::new(&missing);
        options.session_files_root = Some("relative".into());
        let error = core(runtime, options).unwrap_err();
        assert_eq!(error, "session_files_root: it must be an absolute path");
    })
    .unwrap();
}
