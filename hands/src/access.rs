//! The host's say over file tools: a hook that is asked before anything is read or written.
//!
//! Confinement does not depend on it: the tools stay within the [workspace](crate::workspace)
//! with or without a hook. A host uses it for read-only sessions, protected paths,
//! revoked grants and stopped turns.

use std::fmt;

use bma_proto_core::contract::{ErrorReason, SessionId, ToolCallId, ToolErrorCode, ToolName};

/// What a file tool is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileOperation {
    /// Look at a file, or search or list a folder.
    Read,
    /// Create, replace or change a file.
    Write,
}

impl FileOperation {
    /// `read` or `write`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for FileOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a [`FileAccess`] hook is asked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileAccessRequest<'a> {
    /// The session whose tool runs.
    pub session_id: &'a SessionId,
    /// The agent session, when the session was assigned for one.
    pub agent_session_id: Option<&'a str>,
    /// `read`, `write`, `edit`, `glob`, `grep` or `list_files`.
    pub tool: ToolName,
    /// The call.
    pub tool_call_id: &'a ToolCallId,
    /// `edit` asks twice, for reading first. Searches ask about the folder in which they begin, not about
    /// each file below.
    pub operation: FileOperation,
    /// The session's mount that `path` lies in (`uploads`, `skills`, `outputs`), or none for the workspace.
    /// A hook that guards the workspace alone should say so for a request that has a mount.
    pub mount: Option<&'a str>,
    /// Where the file really is, relative to the workspace or the mount, parted by slashes; `.` is the
    /// workspace itself. Links are resolved and names are spelt as they stand on disk, so that a link or
    /// another case of a protected name meets the same decision as the name itself. Bytes that are no UTF-8
    /// are shown as U+FFFD.
    pub path: &'a str,
}

/// A hook's no: nothing is read or written, and the call fails with this reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AccessRefused {
    reason: ErrorReason,
    message: String,
}

impl AccessRefused {
    /// A refusal with a reason of its own, such as `workspace_read_only`.
    pub fn with_reason(reason: impl Into<ErrorReason>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }

    /// A refusal that has no reason of its own: `permission_denied`.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::with_reason(ToolErrorCode::PermissionDenied.as_str(), message)
    }

    /// The machine-readable cause.
    pub fn reason(&self) -> &ErrorReason {
        &self.reason
    }

    /// What the model is told.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<&str> for AccessRefused {
    fn from(message: &str) -> Self {
        Self::denied(message)
    }
}

impl From<String> for AccessRefused {
    fn from(message: String) -> Self {
        Self::denied(message)
    }
}

impl From<Box<dyn std::error::Error + Send + Sync>> for AccessRefused {
    /// An [`AccessRefused`] inside keeps its reason; any other error is `permission_denied`.
    fn from(error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        match error.downcast::<Self>() {
            Ok(refused) => *refused,
            Err(other) => Self::denied(other.to_string()),
        }
    }
}

/// A hook asked before every operation of a file tool.
///
/// It runs on a thread that may block, and the call waits for it. A closure
/// `Fn(&FileAccessRequest<'_>) -> Result<(), AccessRefused>` is one. A call whose path
/// lies outside the workspace and its mounts fails without asking it.
pub trait FileAccess: Send + Sync {
    /// Allows the operation, or says why not.
    ///
    /// # Errors
    /// The refusal: then nothing is read or written.
    fn check(&self, request: &FileAccessRequest<'_>) -> Result<(), AccessRefused>;
}

impl<F> FileAccess for F
where
    F: Fn(&FileAccessRequest<'_>) -> Result<(), AccessRefused> + Send + Sync,
{
    fn check(&self, request: &FileAccessRequest<'_>) -> Result<(), AccessRefused> {
        self(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_its_own_reason_keeps_it_and_any_other_is_permission_denied() {
        let own: Box<dyn std::error::Error + Send + Sync> =
            Box::new(AccessRefused::with_reason(ErrorReason::WorkspaceReadOnly, "read only today"));
        assert_eq!(AccessRefused::from(own).reason().as_str(), "workspace_read_only");
        let other: Box<dyn std::error::Error + Send + Sync> = "no".into();
        assert_eq!(AccessRefused::from(other).reason().as_str(), "permission_denied");
    }
}
