//! Where a session's files are: open directory handles, and the one way from a path to a file below them.
//!
//! The workspace and each mount is an open directory ([`cap_std::fs::Dir`]), and every access
//! goes through that handle, one name at a time. Comparing strings only decides which
//! handle a path belongs to; that nothing leaves the handle is decided by what is opened.
//!
//! # Paths
//!
//! - A relative path starts at the workspace. An absolute one is accepted when it begins, name by name, with a
//!   spelling of the workspace or of a mount: as the directory was given, or as it is really called. Any
//!   other is outside. Answers spell a path in the workspace relative to it, and one in a mount absolutely.
//! - The path itself is cleaned first: `.` goes, and `..` takes back the name before it, whatever that is.
//!   What would climb above the workspace is outside.
//! - Links are followed inside the directory they lie in, as the system does it (`..` in a link's target is the real
//!   parent). A link that leaves is refused, also one to another mount. An absolute target counts as
//!   inside when it begins with a spelling of the same directory.

pub(crate) mod resolve;

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;

use resolve::{Found, ResolveError};

/// Why a directory cannot be a workspace or a mount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkspaceError {
    /// It cannot be opened.
    #[error(
        "cannot open {} as a workspace directory: {source}; create it, or allow this user to enter it",
        path.display()
    )]
    Open {
        /// The directory as given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Two mounts share a name.
    #[error("a mount named {name} is there already; give each mount a name of its own")]
    DuplicateMount {
        /// The name.
        name: String,
    },
}

/// Why a path leads nowhere. Each variant holds the path as the caller spelt it, and none
/// tells anything about the machine outside the workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path, or a link on its way, leaves the workspace and its mounts.
    #[error("`{path}` is outside the workspace: {why}; name a path inside it, relative to the workspace")]
    Outside {
        /// The path as given.
        path: String,
        /// What leaves.
        why: String,
    },
    /// Nothing has this name.
    #[error("`{path}` does not exist{hint}; check the spelling, or list the folder")]
    NotFound {
        /// The path as given.
        path: String,
        /// The part that is missing, when it is not the last.
        hint: String,
    },
    /// A name on the way is no folder.
    #[error("`{path}` cannot be reached: `{part}` is not a folder")]
    NotAFolder {
        /// The path as given.
        path: String,
        /// The name that is no folder.
        part: String,
    },
    /// The system forbids it.
    #[error("`{path}` cannot be reached: no permission to enter a folder on its way")]
    Denied {
        /// The path as given.
        path: String,
    },
    /// Links that lead to each other, or that somebody keeps changing.
    #[error("`{path}` cannot be reached: too many links, or they keep changing; name the file itself")]
    TooManyLinks {
        /// The path as given.
        path: String,
    },
    /// Not a path at all.
    #[error("`{path}` is no path: {why}")]
    Invalid {
        /// The path as given.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Anything else that the system said.
    #[error("`{path}` cannot be reached: {source}")]
    Io {
        /// The path as given.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl PathError {
    /// The machine-readable cause.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Outside { .. } => "workspace_boundary",
            Self::NotFound { .. } => "not_found",
            Self::NotAFolder { .. } => "not_a_folder",
            Self::Denied { .. } => "permission_denied",
            Self::TooManyLinks { .. } => "too_many_links",
            Self::Invalid { .. } => "invalid_path",
            Self::Io { .. } => "io_error",
        }
    }
}

/// A directory that a session may reach, and the spellings by which absolute paths name it.
#[derive(Debug)]
pub(crate) struct Root {
    /// The mount's name; none for the workspace.
    pub(crate) mount: Option<String>,
    pub(crate) dir: Dir,
    pub(crate) writable: bool,
    /// As given (made absolute and cleaned), then as it is really called. Never empty.
    spellings: Vec<PathBuf>,
}

impl Root {
    fn open(mount: Option<String>, path: &Path, writable: bool) -> Result<Self, WorkspaceError> {
        let attempt = || -> io::Result<Self> {
            let given = clean_absolute(&std::path::absolute(path)?);
            // The real name is only a spelling: if the path leads elsewhere by now, it matches nothing that
            // is reached through it.
            let real = std::fs::canonicalize(path)?;
            let dir = Dir::open_ambient_dir(path, ambient_authority())?;
            let mut spellings = vec![given];
            if spellings[0] != real {
                spellings.push(real);
            }
            Ok(Self { mount, dir, writable, spellings })
        };
        attempt().map_err(|source| WorkspaceError::Open { path: path.to_owned(), source })
    }

    /// The names after this root's spelling, when the cleaned absolute `path` begins with one.
    pub(crate) fn strip<'p>(&self, path: &'p Path) -> Option<(&'p Path, usize)> {
        self.spellings
            .iter()
            .filter_map(|spelling| Some((path.strip_prefix(spelling).ok()?, spelling.components().count())))
            .max_by_key(|(_, length)| *length)
    }

    /// The directory as it is really called.
    pub(crate) fn real_path(&self) -> &Path {
        // Two spellings at most, the real one last.
        self.spellings.last().map_or(Path::new("."), PathBuf::as_path)
    }

    /// Each spelling, for taking one off a pattern's front.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = &Path> {
        self.spellings.iter().map(PathBuf::as_path)
    }

    /// What stands before a relative path in an answer: nothing for the workspace, the directory as given for
    /// a mount.
    pub(crate) fn answer_prefix(&self) -> Option<&Path> {
        self.mount.as_ref().map(|_| self.spellings[0].as_path())
    }
}

/// A session's workspace and its mounts.
///
/// Opened once; from then on it is this very directory, whatever its path leads to later.
#[derive(Debug)]
pub struct Workspace {
    main: Root,
    mounts: Vec<Root>,
}

/// A folder below the workspace or a mount, found and open.
#[derive(Debug)]
pub struct Folder {
    /// The open directory: enter it by this handle, and not by a path.
    pub dir: Dir,
    /// Its path relative to the workspace (or its mount), `.` for the workspace itself.
    pub path: String,
    /// What the path was when it was found, for showing and for `PWD`; nothing may be opened by it.
    pub host_path: PathBuf,
    /// The mount it lies in, or none for the workspace.
    pub mount: Option<String>,
}

impl Workspace {
    /// Opens the directory `path` as a workspace.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, WorkspaceError> {
        Ok(Self { main: Root::open(None, path.as_ref(), true)?, mounts: Vec::new() })
    }

    /// Adds a directory that the session's file tools reach by absolute paths, beside the workspace.
    /// The contract's mounts are `uploads` and `skills`, which are read-only, and `outputs`.
    ///
    /// # Errors
    /// When it cannot be opened, or when a mount of this name is there already.
    pub fn with_mount(
        mut self,
        name: impl Into<String>,
        path: impl AsRef<Path>,
        writable: bool,
    ) -> Result<Self, WorkspaceError> {
        let name = name.into();
        if self.mounts.iter().any(|root| root.mount.as_deref() == Some(&name)) {
            return Err(WorkspaceError::DuplicateMount { name });
        }
        self.mounts.push(Root::open(Some(name), path.as_ref(), writable)?);
        Ok(self)
    }

    /// Makes the workspace itself read-only for the file tools; mounts keep what they are.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.main.writable = false;
        self
    }

    /// The workspace's directory as it was really called when it was opened: for showing, not for opening files.
    pub fn path(&self) -> &Path {
        self.main.real_path()
    }

    /// The open directory.
    pub fn dir(&self) -> &Dir {
        &self.main.dir
    }

    /// Finds the folder that `path` names (empty or `.` is the workspace itself), for example to start a
    /// command in it.
    ///
    /// # Errors
    /// When the path is outside, is not there or is no folder.
    pub fn folder(&self, path: &str) -> Result<Folder, PathError> {
        let (root, names) = if path.is_empty() { (&self.main, Vec::new()) } else { self.locate(path)? };
        let found = resolve::resolve(root, names, false).map_err(|error| error.named(path))?;
        let Found { kind, .. } = &found;
        match kind {
            None => Err(PathError::NotFound { path: path.to_owned(), hint: String::new() }),
            Some(kind) if !kind.is_dir() => Err(PathError::NotAFolder { path: path.to_owned(), part: path.to_owned() }),
            Some(_) => {
                let dir = found.open_dir().map_err(|source| ResolveError::from_io(source).named(path))?;
                let relative = found.path_text();
                let host_path = found.names().fold(root.real_path().to_owned(), |path, name| path.join(name));
                Ok(Folder { dir, path: relative, host_path, mount: root.mount.clone() })
            }
        }
    }

    /// The workspace and its mounts.
    pub(crate) fn roots(&self) -> impl Iterator<Item = &Root> {
        std::iter::once(&self.main).chain(&self.mounts)
    }

    /// Decides which root a path belongs to, and cleans it to plain names below that root.
    pub(crate) fn locate(&self, path: &str) -> Result<(&Root, Vec<OsString>), PathError> {
        let invalid = |why| PathError::Invalid { path: path.to_owned(), why };
        if path.is_empty() {
            return Err(invalid("it is empty"));
        }
        if path.contains('\0') {
            return Err(invalid("it holds a NUL character"));
        }
        let outside = |why: &str| PathError::Outside { path: path.to_owned(), why: why.to_owned() };
        let given = Path::new(path);
        if given.is_absolute() {
            let cleaned = clean_absolute(given);
            let best = self
                .roots()
                .filter_map(|root| root.strip(&cleaned).map(|(rest, length)| (length, root, rest)))
                .max_by_key(|(length, ..)| *length);
            let (_, root, rest) =
                best.ok_or_else(|| outside("it is absolute and does not begin with the workspace's own path"))?;
            return Ok((root, rest.iter().map(ToOwned::to_owned).collect()));
        }
        let mut names = Vec::new();
        for component in given.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => names.push(name.to_owned()),
                Component::ParentDir => {
                    if names.pop().is_none() {
                        return Err(outside("`..` climbs above it"));
                    }
                }
                // Windows: `C:name` and `\name` are relative to something that is not the workspace.
                Component::Prefix(_) | Component::RootDir => return Err(outside("it names a drive")),
            }
        }
        Ok((&self.main, names))
    }
}

/// Takes `.` and `..` out of an absolute path by its text alone.
fn clean_absolute(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                cleaned.pop();
            }
            other => cleaned.push(other),
        }
    }
    cleaned
}
