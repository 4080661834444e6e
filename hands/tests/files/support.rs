//! A fresh workspace, and calls into it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use bma_hands::access::FileAccess;
use bma_hands::files::{self, FileContext, FileToolError, ToolText};
use bma_hands::workspace::Workspace;
use bma_proto_core::contract::{
    EditInput, GlobInput, GrepInput, ListFilesInput, ReadInput, SessionId, ToolCallId, WriteInput,
};

/// A directory of its own with `ws` (the workspace) and `outside` in it; gone when dropped.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) workspace: Workspace,
    session: SessionId,
    call: ToolCallId,
    pub(crate) cancel: AtomicBool,
    threads: Option<std::num::NonZeroUsize>,
}

pub(crate) type Answer = Result<ToolText, FileToolError>;

impl Place {
    pub(crate) fn new() -> Self {
        Self::below(tempfile::tempdir().unwrap())
    }

    /// In memory where the system has such a place: for tests that write many files.
    pub(crate) fn in_memory() -> Self {
        Self::below(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn below(dir: tempfile::TempDir) -> Self {
        fs::create_dir(dir.path().join("ws")).unwrap();
        fs::create_dir(dir.path().join("outside")).unwrap();
        let workspace = Workspace::open(dir.path().join("ws")).unwrap();
        Self::with(dir, workspace)
    }

    pub(crate) fn with(dir: tempfile::TempDir, workspace: Workspace) -> Self {
        Self {
            dir,
            workspace,
            session: "session-1".into(),
            call: "call-1".into(),
            cancel: AtomicBool::new(false),
            threads: None,
        }
    }

    pub(crate) fn threads(mut self, threads: usize) -> Self {
        self.threads = std::num::NonZeroUsize::new(threads);
        self
    }

    pub(crate) fn context(&self) -> FileContext<'_> {
        let context = FileContext::new(&self.workspace, &self.session, &self.call, &self.cancel);
        match self.threads {
            Some(threads) => context.with_threads(threads),
            None => context,
        }
    }

    pub(crate) fn asking<'a>(&'a self, access: &'a dyn FileAccess) -> FileContext<'a> {
        self.context().with_access(access)
    }

    pub(crate) fn ws(&self, path: &str) -> PathBuf {
        self.dir.path().join("ws").join(path)
    }

    pub(crate) fn outside(&self, path: &str) -> PathBuf {
        self.dir.path().join("outside").join(path)
    }

    /// Makes a file and its folders.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.ws(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        fs::read(self.ws(path)).unwrap()
    }

    pub(crate) fn read(&self, path: &str) -> Answer {
        self.read_lines(path, None, None)
    }

    pub(crate) fn read_lines(&self, path: &str, offset: Option<i64>, limit: Option<i64>) -> Answer {
        files::read(&self.context(), &ReadInput { path: path.into(), offset, limit })
    }

    pub(crate) fn write(&self, path: &str, content: &str) -> Answer {
        files::write(&self.context(), &WriteInput { path: path.into(), content: content.into() })
    }

    pub(crate) fn edit(&self, path: &str, old: &str, new: &str) -> Answer {
        files::edit(&self.context(), &edit_input(path, old, new))
    }

    pub(crate) fn glob(&self, pattern: &str) -> Answer {
        files::glob(&self.context(), &GlobInput { pattern: pattern.into(), path: None })
    }

    pub(crate) fn glob_in(&self, path: &str, pattern: &str) -> Answer {
        files::glob(&self.context(), &GlobInput { pattern: pattern.into(), path: Some(path.into()) })
    }

    pub(crate) fn grep(&self, pattern: &str) -> Answer {
        self.grep_in(pattern, None, None)
    }

    pub(crate) fn grep_in(&self, pattern: &str, path: Option<&str>, glob: Option<&str>) -> Answer {
        let (path, glob) = (path.map(Into::into), glob.map(Into::into));
        files::grep(&self.context(), &GrepInput { pattern: pattern.into(), path, glob })
    }

    pub(crate) fn list(&self, path: Option<&str>) -> Answer {
        files::list_files(&self.context(), &ListFilesInput { path: path.map(Into::into) })
    }

    /// No file of the tools' own is left anywhere.
    pub(crate) fn assert_no_leftovers(&self) {
        let mut folders = vec![self.dir.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let name = entry.file_name();
                assert!(!name.to_string_lossy().ends_with(".tmp"), "{} is left over", entry.path().display());
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                }
            }
        }
    }
}

pub(crate) fn edit_input(path: &str, old: &str, new: &str) -> EditInput {
    EditInput { path: path.into(), old_string: old.into(), new_string: new.into() }
}

/// The answer's text.
pub(crate) fn text(answer: Answer) -> String {
    answer.unwrap().text
}

/// The reason and the text of a failure.
pub(crate) fn failure(answer: Answer) -> (String, String) {
    let error = answer.unwrap_err();
    (error.reason().as_str().to_owned(), error.to_string())
}

pub(crate) fn reason(answer: Answer) -> String {
    failure(answer).0
}

pub(crate) fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Runs `body` on a thread that file modes bind, also when the tests run as root.
#[cfg(target_os = "linux")]
pub(crate) fn bound_by_modes<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Capabilities belong to a thread; those that it starts inherit them.
            let mut sets = capabilities(None).unwrap();
            let override_modes = CapabilitySet::DAC_OVERRIDE
                | CapabilitySet::DAC_READ_SEARCH
                | CapabilitySet::FOWNER
                | CapabilitySet::CHOWN;
            sets.effective.remove(override_modes);
            sets.permitted.remove(override_modes);
            sets.inheritable.remove(override_modes);
            set_capabilities(None, sets).unwrap();
            body()
        });
        match thread.join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Elsewhere only root is not bound by modes, and nobody tests as root there.
#[cfg(not(target_os = "linux"))]
pub(crate) fn bound_by_modes<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    body()
}
