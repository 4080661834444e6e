//! The file tools: `read`, `write`, `edit`, `glob`, `grep` and `list_files`.
//!
//! Blocking functions for a thread that may block; each takes a [`FileContext`] and the contract's input,
//! looks at the context's cancel flag often, and answers with a [`ToolText`] under 48 KiB. Paths are
//! explained in [`workspace`](crate::workspace).
//!
//! # What a search sees
//!
//! One rule for `glob`, `grep` and `list_files`:
//!
//! - **Hidden** names begin with a dot. **Ignored** names are excluded by a `.gitignore` between the workspace's top
//!   (or the mount's) and the name; ignore files outside are not looked at, and no repository is needed. A search
//!   passes both by. So many rules count in one place and no more, which is told.
//! - **What is named is seen.** The folder given as `path`, and the leading folders of a pattern that hold no
//!   special character, are where a search begins, hidden or ignored or not. If that folder is itself ignored
//!   (or everything in it is), the ignore files above it no longer count below it. Further down, a hidden
//!   name is seen when a part of the pattern that begins with a dot matches it, and an ignored one when a
//!   part of the pattern is its very name.
//! - **Links** are not followed and not searched (a `path` may lead through them); `list_files` shows them. **Pipes,
//!   sockets and devices** are never opened; `list_files` shows them.
//! - **Binary** files, which hold a NUL byte, are passed by and counted by `grep`, and are files like any
//!   other to the other two. UTF-16 with a byte order mark is text.
//! - **Unreadable** files and folders are counted, and the first of them named: the answer says that it is partial.
//! - **Huge lines** are shown in part, marked as cut; a file with a line over 8 MiB is searched up to that line.
//! - **Text that is not UTF-8** is searched as bytes and shown with U+FFFD. A **name** that is not UTF-8,
//!   holds control characters or begins with `"` is shown in double quotes with `\n`, `\"`, `\\` and `\377`
//!   as C writes them.
//! - **Order** is that of the paths' bytes, and what does not fit is counted.

mod budget;
mod edit;
mod error;
mod glob;
mod grep;
mod list;
mod locks;
mod names;
mod open;
mod pattern;
mod platform;
mod read;
mod save;
mod search;
mod smallest;
mod visible;
mod walk;
mod write;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use bma_proto_core::contract::{SessionId, ToolCallId, ToolName};

pub use edit::{MAX_EDIT_BYTES, edit};
pub use error::FileToolError;
pub use glob::glob;
pub use grep::{MAX_LINE_BYTES, grep};
pub use list::list_files;
pub use read::read;
pub use write::write;

use crate::access::{FileAccess, FileAccessRequest, FileOperation};
use crate::workspace::resolve::{Found, resolve};
use crate::workspace::{Root, Workspace};

/// What all notices of one answer may take, in bytes.
const MAX_NOTICE_BYTES: usize = 2000;

/// What a file tool runs in: one call of one session.
#[derive(Clone, Copy)]
pub struct FileContext<'a> {
    workspace: &'a Workspace,
    session_id: &'a SessionId,
    tool_call_id: &'a ToolCallId,
    cancel: &'a AtomicBool,
    agent_session_id: Option<&'a str>,
    access: Option<&'a dyn FileAccess>,
    threads: Option<NonZeroUsize>,
}

impl std::fmt::Debug for FileContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileContext")
            .field("session_id", &self.session_id)
            .field("tool_call_id", &self.tool_call_id)
            .finish_non_exhaustive()
    }
}

impl<'a> FileContext<'a> {
    /// A call without a hook. Setting `cancel` ends the call with [`FileToolError::Canceled`] soon after.
    pub fn new(
        workspace: &'a Workspace,
        session_id: &'a SessionId,
        tool_call_id: &'a ToolCallId,
        cancel: &'a AtomicBool,
    ) -> Self {
        Self { workspace, session_id, tool_call_id, cancel, agent_session_id: None, access: None, threads: None }
    }

    /// Asks `access` before every operation.
    #[must_use]
    pub fn with_access(mut self, access: &'a dyn FileAccess) -> Self {
        self.access = Some(access);
        self
    }

    /// Names the agent session, which the hook is told.
    #[must_use]
    pub fn with_agent_session(mut self, agent_session_id: &'a str) -> Self {
        self.agent_session_id = Some(agent_session_id);
        self
    }

    /// How many threads a search uses; as many as there are processors, at most 8, when not said.
    #[must_use]
    pub fn with_threads(mut self, threads: NonZeroUsize) -> Self {
        self.threads = Some(threads);
        self
    }

    fn threads(&self) -> usize {
        match self.threads {
            Some(threads) => threads.get(),
            None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(8),
        }
    }

    fn check_canceled(&self) -> Result<(), FileToolError> {
        if self.cancel.load(Ordering::Relaxed) { Err(FileToolError::Canceled) } else { Ok(()) }
    }

    /// Walks to `path`: everything that a tool does with a path begins here. Asks nobody yet.
    fn find(&self, path: &str) -> Result<(&'a Root, Found), FileToolError> {
        let (root, names) = self.workspace.locate(path)?;
        let found = resolve(root, names, self.access.is_some()).map_err(|error| error.named(path))?;
        Ok((root, found))
    }

    /// Asks the hook, when there is one.
    fn ask(
        &self,
        tool: ToolName,
        operation: FileOperation,
        root: &Root,
        found: &Found,
        path: &str,
    ) -> Result<(), FileToolError> {
        let Some(access) = self.access else { return Ok(()) };
        let request = FileAccessRequest {
            session_id: self.session_id,
            agent_session_id: self.agent_session_id,
            tool,
            tool_call_id: self.tool_call_id,
            operation,
            mount: root.mount.as_deref(),
            path: &found.path_text(),
        };
        access.check(&request).map_err(|refused| FileToolError::Refused { path: path.to_owned(), refused })
    }
}

/// A found path as answers spell it: relative in the workspace, absolute in a mount; every tool takes it back.
fn shown_path(root: &Root, found: &Found) -> String {
    names::show(&answer_bytes(root, found)).into_owned()
}

fn answer_bytes(root: &Root, found: &Found) -> Vec<u8> {
    let mut path =
        root.answer_prefix().map(|prefix| platform::name_bytes(prefix.as_os_str()).into_owned()).unwrap_or_default();
    for name in found.names() {
        if !path.is_empty() && path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(&platform::name_bytes(name));
    }
    path
}

/// A file tool's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolText {
    /// The text, under 48 KiB, and under 60 KiB as a JSON string.
    pub text: String,
    /// Whether something was left out, cut or skipped; the text's last lines, in square brackets, say what.
    pub partial: bool,
}

impl ToolText {
    fn whole(text: String) -> Self {
        Self { text, partial: false }
    }

    /// Puts the notices after the answer, each in square brackets on a line of its own. Names in them are
    /// somebody else's and can be long: together they take what the answer proper leaves free at least.
    fn assemble(mut text: String, notices: Vec<String>, partial: bool) -> Self {
        let mut room = MAX_NOTICE_BYTES;
        for notice in notices {
            if !text.is_empty() && !text.ends_with('\n') {
                text.push('\n');
            }
            let length = (0..=room.min(notice.len())).rev().find(|at| notice.is_char_boundary(*at)).unwrap_or(0);
            room -= length;
            text.push('[');
            text.push_str(&notice[..length]);
            text.push_str(if length < notice.len() { "...]" } else { "]" });
        }
        Self { text, partial }
    }
}
