//! What can go wrong in a file tool, told so that the caller knows what to do next.

use std::io;

use bma_proto_core::contract::ErrorReason;

use crate::access::AccessRefused;
use crate::workspace::PathError;

/// Why a file tool did not do what it was asked. Unless a variant says otherwise, nothing was changed.
///
/// The text is for the model: it names the path as the caller spelt it and says what to
/// do; it never holds file contents or a path outside the workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileToolError {
    /// The path leads nowhere, or out of the workspace.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The host's hook said no.
    #[error("`{path}` may not be accessed: {refused}")]
    Refused {
        /// The path as given.
        path: String,
        /// The hook's answer.
        refused: AccessRefused,
    },
    /// A write below a root that only allows reads.
    #[error("`{path}` is in a folder that may only be read; write to another place in the workspace")]
    ReadOnly {
        /// The path as given.
        path: String,
    },
    /// A folder, pipe, socket or device where a regular file is needed.
    #[error("`{path}` is {kind}, not a regular file; {advice}")]
    NotAFile {
        /// The path as given.
        path: String,
        /// What it is.
        kind: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A file where a folder is needed.
    #[error("`{path}` is a file, not a folder; name the folder, or use read")]
    NotAFolder {
        /// The path as given.
        path: String,
    },
    /// The system forbids it.
    #[error("`{path}`: no permission to {action}; {advice}")]
    Denied {
        /// The path as given.
        path: String,
        /// What was tried.
        action: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// A member of the input has a value that cannot be.
    #[error("{member}: {problem}")]
    InvalidInput {
        /// The member.
        member: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// `offset` lies past the last line.
    #[error("`{path}` has {lines} lines; offset {offset} is past its end, use a smaller one")]
    PastEnd {
        /// The path as given.
        path: String,
        /// How many lines there are.
        lines: u64,
        /// The offset asked for.
        offset: u64,
    },
    /// The file is too large to be edited.
    #[error("`{path}` has {size} bytes; edit takes files of up to {limit} bytes, use bash (sed, for example)")]
    TooLarge {
        /// The path as given.
        path: String,
        /// Its size in bytes.
        size: u64,
        /// The most that edit takes, in bytes.
        limit: u64,
    },
    /// `old_string` is not in the file.
    #[error("old_string does not occur in `{path}`{hint}; read the file and copy the text exactly")]
    NoOccurrence {
        /// The path as given.
        path: String,
        /// What comes near, if anything does.
        hint: String,
    },
    /// `old_string` is in the file more than once.
    #[error(
        "old_string occurs {at_least}{count} times in `{path}` (lines {lines}), overlaps included; \
         make it longer, so that it occurs once"
    )]
    Ambiguous {
        /// The path as given.
        path: String,
        /// `at least ` when counting stopped early, else empty.
        at_least: &'static str,
        /// The number of places.
        count: usize,
        /// The first places' line numbers.
        lines: String,
    },
    /// The file changed while the tool was at work, each time it tried.
    #[error("`{path}` was changed by somebody else meanwhile; {outcome}")]
    Conflict {
        /// The path as given.
        path: String,
        /// What became of the call, and what to do.
        outcome: &'static str,
    },
    /// A replacement could not be given the file's group or attributes.
    #[error(
        "`{path}` cannot be replaced without losing {what} ({source}); nothing was changed, \
         use bash to change it in place"
    )]
    AttributesLost {
        /// The path as given.
        path: String,
        /// What would be lost.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else that the system said.
    #[error("`{path}`: could not {action}: {source}; {advice}")]
    Io {
        /// The path as given.
        path: String,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
        /// What became of the file, and what to do.
        advice: &'static str,
    },
    /// The call was canceled. What a write had begun is undone.
    #[error("canceled")]
    Canceled,
}

impl FileToolError {
    /// The machine-readable cause: for a refusal the hook's own, else the contract's where it has one.
    pub fn reason(&self) -> ErrorReason {
        match self {
            Self::Path(error) => error.reason().into(),
            Self::Refused { refused, .. } => refused.reason().clone(),
            Self::ReadOnly { .. } => ErrorReason::WorkspaceReadOnly,
            Self::NotAFile { .. } => "not_a_file".into(),
            Self::NotAFolder { .. } => "not_a_folder".into(),
            Self::Denied { .. } => "permission_denied".into(),
            Self::InvalidInput { .. } => "invalid_input".into(),
            Self::PastEnd { .. } => "past_end".into(),
            Self::TooLarge { .. } => "too_large".into(),
            Self::NoOccurrence { .. } => "no_occurrence".into(),
            Self::Ambiguous { .. } => "ambiguous".into(),
            Self::Conflict { .. } => "conflict".into(),
            Self::AttributesLost { .. } => "attributes_lost".into(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => "storage_full".into(),
            Self::Io { .. } => "io_error".into(),
            Self::Canceled => "canceled".into(),
        }
    }

    /// Turns what the system said about `path` into the error that fits.
    pub(super) fn io(path: &str, action: &'static str, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::PermissionDenied => {
                Self::Denied { path, action, advice: "its mode or its folder's does not allow it to this user" }
            }
            io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly { path },
            io::ErrorKind::NotFound => Self::Path(PathError::NotFound { path, hint: String::new() }),
            io::ErrorKind::InvalidFilename => {
                Self::Path(PathError::Invalid { path, why: "a name in it is too long for the file system" })
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::Io { path, action, source, advice: "nothing was changed; free some space and try again" }
            }
            _ => Self::Io { path, action, source, advice: "nothing was changed" },
        }
    }
}
