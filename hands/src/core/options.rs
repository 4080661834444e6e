//! What a core is made with.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bma_proto_core::contract::{SessionAssignParams, SessionId, defaults};

use super::CoreError;
use crate::access::FileAccess;
use crate::env::EnvPolicy;
use crate::launch::Launch;

/// Chooses a session's directory, by its brain and its id.
pub type WorkspaceFor = Arc<dyn Fn(&str, &SessionId) -> PathBuf + Send + Sync>;

/// Marks sessions that carry exactly one tool call.
pub type EndAfterToolCall = Arc<dyn Fn(&SessionAssignParams) -> bool + Send + Sync>;

/// What a [`Core`](super::Core) is made with. Start from [`CoreOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct CoreOptions {
    /// Holds the workspaces: `<work_root>/<brain>/<session>`. They stay when a session ends. Directories that
    /// are missing are made for this user alone.
    pub work_root: PathBuf,
    /// Overrides the directory of a session, such as one project folder for a brain.
    pub workspace: Option<WorkspaceFor>,
    /// Sessions that may be open at a time. At the bound an assignment is answered
    /// `executor_busy`, to be tried again. Default 16.
    pub max_sessions: usize,
    /// The same for each brain; none means the whole.
    pub max_sessions_per_brain: Option<usize>,
    /// Applies when a `bash` call has neither a time-out nor a deadline. Default 10 minutes.
    pub bash_timeout: Duration,
    /// The most bytes kept of each output stream of a command. Default 1 MiB.
    pub max_output_bytes: usize,
    /// The most bytes of a command's output in a result. Default 48 KiB.
    pub inline_result_bytes: usize,
    /// How the environment of children is made: what is inherited, what is
    /// denied, what no request overrides.
    pub env: EnvPolicy,
    /// Asked before each command starts.
    pub launch: Option<Arc<dyn Launch>>,
    /// Asked before each operation of a file tool.
    pub file_access: Option<Arc<dyn FileAccess>>,
    /// Sessions for which this says yes end by themselves after their first tool call.
    pub end_after_tool_call: Option<EndAfterToolCall>,
    /// When set, the file tools of a session also reach
    /// `<root>/<agent session>/uploads` and `skills` (read-only) and `outputs`,
    /// as far as they are there. Absolute.
    pub session_files_root: Option<PathBuf>,
    /// The work root as it was given: a brain that was told of it knows it by this spelling.
    given_work_root: PathBuf,
}

impl CoreOptions {
    /// The contract's defaults; children inherit this program's environment without its credentials.
    pub fn new(work_root: impl Into<PathBuf>) -> Self {
        let work_root = work_root.into();
        Self {
            given_work_root: work_root.clone(),
            work_root,
            workspace: None,
            max_sessions: defaults::CORE_MAX_SESSIONS,
            max_sessions_per_brain: None,
            bash_timeout: Duration::from_millis(defaults::CORE_BASH_TIMEOUT_MS),
            max_output_bytes: defaults::CORE_MAX_OUTPUT_BYTES,
            inline_result_bytes: defaults::CORE_INLINE_RESULT_BYTES,
            env: EnvPolicy::inherit(),
            launch: None,
            file_access: None,
            end_after_tool_call: None,
            session_files_root: None,
        }
    }

    pub(super) fn checked(mut self) -> Result<Self, CoreError> {
        if self.max_sessions == 0 {
            return Err(CoreError::Option { field: "max_sessions", problem: "it is 0, so no session could be taken" });
        }
        if self.session_files_root.as_ref().is_some_and(|root| !root.is_absolute()) {
            return Err(CoreError::Option { field: "session_files_root", problem: "it must be an absolute path" });
        }
        self.given_work_root = self.work_root.clone();
        let usable = make_work_root(&self.work_root);
        self.work_root = usable.map_err(|source| CoreError::WorkRoot { path: self.work_root.clone(), source })?;
        Ok(self)
    }

    /// Whether a path is the work root, in either of its spellings.
    pub(super) fn is_work_root(&self, path: &Path) -> bool {
        path == self.work_root || (path.is_absolute() && path == self.given_work_root)
    }
}

/// Makes the directory where it is missing, proves that sessions can be made in it, and returns its real path.
fn make_work_root(path: &Path) -> io::Result<PathBuf> {
    make_private_directory(path)?;
    let path = path.canonicalize()?;
    // Permissions alone do not tell: the file system may be read-only. No session's directory begins with a dot.
    let probe = path.join(format!(".bma-probe-{}", std::process::id()));
    match std::fs::create_dir(&probe) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        // Another core of this program may be at the same, and have removed it.
        Ok(()) | Err(_) => drop(std::fs::remove_dir(&probe)),
    }
    Ok(path)
}

/// Makes a directory and those above it where they are missing. Nobody but this user gets into those that it makes:
/// what the tools leave in them may be readable to all, as their umask has it.
pub(super) fn make_private_directory(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

impl fmt::Debug for CoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoreOptions")
            .field("work_root", &self.work_root)
            .field("max_sessions", &self.max_sessions)
            .field("max_sessions_per_brain", &self.max_sessions_per_brain)
            .field("bash_timeout", &self.bash_timeout)
            .field("max_output_bytes", &self.max_output_bytes)
            .field("inline_result_bytes", &self.inline_result_bytes)
            .field("env", &self.env)
            .field("session_files_root", &self.session_files_root)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)] // a test panics on purpose

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn directories_are_made_for_this_user_alone_and_others_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let shared = folder.path().join("shared");
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o755)).unwrap();
        let root = make_work_root(&shared.join("state/work")).unwrap();
        make_private_directory(&root.join("brain/session")).unwrap();
        make_private_directory(&root.join("brain/session")).unwrap();
        assert_eq!(mode(&shared), 0o755);
        for made in ["state", "state/work", "state/work/brain", "state/work/brain/session"] {
            assert_eq!(mode(&shared.join(made)), 0o700, "{made}");
        }
    }
}
