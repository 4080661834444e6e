//! One session of one brain.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bma_proto_core::contract::{SessionAssignParams, SessionId};

use super::CoreOptions;
use super::options::make_private_directory;
use super::turns::Turns;
use crate::bash::SessionProcesses;
use crate::os::Os;
use crate::workspace::Workspace;

/// The metadata member of an assignment that names the agent session.
const AGENT_SESSION_ID: &str = "agent_session_id";

/// As many file tools of a session are at work at a time; the others wait for their turn.
const MAX_FILE_CALLS: usize = 8;

/// The longest directory name that is taken as it is.
const MAX_NAME_BYTES: usize = 100;

/// A session that is open here.
#[derive(Debug)]
pub struct CoreSession {
    brain: Arc<str>,
    assignment: SessionAssignParams,
    pub(super) workspace: Arc<Workspace>,
    pub(super) processes: SessionProcesses,
    /// Of file tools: each takes a thread, and a search some more.
    pub(super) turns: Arc<Turns>,
    pub(super) ends_after_tool_call: bool,
}

impl CoreSession {
    /// The brain that assigned it.
    pub fn brain(&self) -> &str {
        &self.brain
    }

    /// Its id.
    pub fn id(&self) -> &SessionId {
        &self.assignment.session_id
    }

    /// The assignment that made it.
    pub fn assignment(&self) -> &SessionAssignParams {
        &self.assignment
    }

    /// Its workspace's directory.
    pub fn workspace(&self) -> &Path {
        self.workspace.path()
    }

    /// The agent session that it was assigned for, when the assignment names one.
    pub fn agent_session_id(&self) -> Option<&str> {
        self.assignment.metadata.get(AGENT_SESSION_ID).map(String::as_str).filter(|id| !id.is_empty())
    }
}

/// Makes and opens a session's workspace and mounts. May block.
pub(super) fn open(
    options: &CoreOptions,
    os: &dyn Os,
    brain: Arc<str>,
    assignment: SessionAssignParams,
) -> io::Result<CoreSession> {
    let path = match &options.workspace {
        Some(choose) => choose(&brain, &assignment.session_id),
        None => {
            let of_brain = options.work_root.join(directory_name(&brain));
            of_brain.join(directory_name(assignment.session_id.as_str()))
        }
    };
    make_private_directory(&path)?;
    let workspace = Workspace::open(&path).map_err(io::Error::other)?;
    let mut session = CoreSession {
        brain,
        ends_after_tool_call: options.end_after_tool_call.as_ref().is_some_and(|ends| ends(&assignment)),
        assignment,
        workspace: Arc::new(workspace),
        processes: SessionProcesses::new(os),
        turns: Turns::new(MAX_FILE_CALLS),
    };
    if let Some(root) = &options.session_files_root {
        let owner = session.agent_session_id().unwrap_or(session.id().as_str());
        let mounts = mounts(root, owner);
        let mut workspace = Workspace::open(&path).map_err(io::Error::other)?;
        for (name, path, writable) in mounts {
            workspace = workspace.with_mount(name, path, writable).map_err(io::Error::other)?;
        }
        session.workspace = Arc::new(workspace);
    }
    Ok(session)
}

/// The mounts of a session that are there. Only an id that is one plain name has any.
fn mounts(root: &Path, owner: &str) -> Vec<(&'static str, PathBuf, bool)> {
    if !is_plain(owner) {
        return Vec::new();
    }
    let all = [("uploads", false), ("skills", false), ("outputs", true)];
    let of_owner = root.join(owner);
    let there = all.into_iter().map(|(name, writable)| (name, of_owner.join(name), writable));
    there.filter(|(_, path, _)| path.is_dir()).collect()
}

fn is_plain(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with('.')
        && name.bytes().all(|byte| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
}

/// A directory name for an id that may hold anything. Different ids have
/// different names, also where case does not count.
fn directory_name(id: &str) -> String {
    if is_plain(id) && !id.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return id.to_owned();
    }
    let kept = id.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')).take(40);
    let mut name: String = kept.collect::<String>().to_ascii_lowercase();
    // The same for the same id in every run: `DefaultHasher::new` has fixed keys.
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    let first = hasher.finish();
    (id, first).hash(&mut hasher);
    // Writing to a String cannot fail.
    let _ = write!(name, "~{first:016x}{:016x}", hasher.finish());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_ids_are_their_own_names() {
        for id in ["s1", "session-2.a_b"] {
            assert_eq!(directory_name(id), id);
        }
    }

    #[test]
    fn no_id_names_another_place_or_another_ones_directory() {
        let ids = ["..", ".", "", "../x", "a/b", "a/c", "/etc", "S1", "s1", "ß", "\0", ".hidden", &"x".repeat(5000)];
        let names: std::collections::BTreeSet<_> = ids.iter().map(|id| directory_name(id).to_lowercase()).collect();
        assert_eq!(names.len(), ids.len());
        for name in names {
            assert!(!name.contains(['/', '\\', '\0']) && !name.starts_with('.') && name.len() < 120, "{name:?}");
        }
    }
}
