//! From names to an open parent directory and a last name, one step at a time.
//!
//! Each step opens one name below a directory that is open already, without following
//! links; a link is read and its target takes the name's place in the queue. So what
//! somebody swaps meanwhile is met as what it is then, and `..` in a link goes back to the directory
//! before, by walking there anew: at no step is there a path that could lead out. Two directories are
//! open at a time, however deep the way goes.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use cap_fs_ext::{DirExt, FileTypeExt, MetadataExt};
use cap_std::fs::{Dir, FileType, Metadata};

use super::{PathError, Root, clean_absolute};

/// As many links as Linux follows; swaps met on the way count as well.
const MAX_LINKS: usize = 40;

/// As many names are walked in all, those of links and of ways back included.
const MAX_STEPS: usize = 64 * 1024;

/// Where a path leads.
#[derive(Debug)]
pub(crate) struct Found {
    /// Folders walked through, outermost first; the last one is open in `parent`.
    folders: Vec<OsString>,
    /// The directory that holds (or would hold) the last name; for the root itself the root.
    pub(crate) parent: Dir,
    /// The last name below `parent` that was looked at, as it stands on disk; none for the root itself.
    pub(crate) name: Option<OsString>,
    /// What `name` is; never a link. None: there is no such name.
    pub(crate) kind: Option<Kind>,
    /// Names after a missing `name`, to be made by whoever writes.
    pub(crate) missing: Vec<OsString>,
}

/// What a directory entry is, as far as the tools care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Folder,
    File,
    Link,
    Pipe,
    Socket,
    Device,
    Other,
}

impl Kind {
    pub(crate) fn of(kind: FileType) -> Self {
        if kind.is_dir() {
            Self::Folder
        } else if kind.is_file() {
            Self::File
        } else if kind.is_symlink() {
            Self::Link
        } else if kind.is_fifo() {
            Self::Pipe
        } else if kind.is_socket() {
            Self::Socket
        } else if kind.is_block_device() || kind.is_char_device() {
            Self::Device
        } else {
            Self::Other
        }
    }

    pub(crate) fn is_dir(self) -> bool {
        self == Self::Folder
    }

    /// For people: "a named pipe".
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::Folder => "a folder",
            Self::File => "a file",
            Self::Link => "a link",
            Self::Pipe => "a named pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Other => "no regular file",
        }
    }
}

impl Found {
    /// Every name from the root on, missing ones included.
    pub(crate) fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.folders.iter().chain(&self.name).chain(&self.missing).map(OsString::as_os_str)
    }

    /// The path below the root, parted by slashes, `.` for the root itself; bytes that are no UTF-8 become U+FFFD.
    pub(crate) fn path_text(&self) -> String {
        let names: Vec<_> = self.names().map(OsStr::to_string_lossy).collect();
        if names.is_empty() { ".".to_owned() } else { names.join("/") }
    }

    /// The open parent once more.
    pub(crate) fn parent_copy(&self) -> io::Result<Dir> {
        self.parent.try_clone()
    }

    /// Opens the folder that was found.
    pub(crate) fn open_dir(&self) -> io::Result<Dir> {
        match &self.name {
            None => self.parent.try_clone(),
            Some(name) => self.parent.open_dir_nofollow(name),
        }
    }
}

/// Why there is no way; who asked adds the path as it was spelt.
#[derive(Debug)]
pub(crate) enum ResolveError {
    Leaves { link: String },
    NotFound { part: String },
    NotAFolder { part: String },
    TooManyLinks,
    Io(io::Error),
}

impl ResolveError {
    pub(crate) fn from_io(error: io::Error) -> Self {
        Self::Io(error)
    }

    pub(crate) fn named(self, path: &str) -> PathError {
        let path = path.to_owned();
        match self {
            Self::Leaves { link } => PathError::Outside { path, why: format!("the link `{link}` leads out of it") },
            Self::NotFound { part } => PathError::NotFound { path, hint: format!(" (there is no `{part}`)") },
            Self::NotAFolder { part } => PathError::NotAFolder { path, part },
            Self::TooManyLinks => PathError::TooManyLinks { path },
            Self::Io(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => PathError::Denied { path },
                io::ErrorKind::NotFound => PathError::NotFound { path, hint: String::new() },
                io::ErrorKind::NotADirectory => PathError::NotAFolder { part: path.clone(), path },
                io::ErrorKind::InvalidFilename => PathError::Invalid { path, why: "a name in it is too long" },
                _ => PathError::Io { path, source: error },
            },
        }
    }
}

/// Walks `names` below `root`.
///
/// With `true_names`, each name is looked up as it stands on disk where a folder ignores
/// case: a decision by name needs it, and it costs one more look at each step.
pub(crate) fn resolve(root: &Root, names: Vec<OsString>, true_names: bool) -> Result<Found, ResolveError> {
    let mut walk = Walk::new(root);
    let mut queue: VecDeque<OsString> = names.into();
    loop {
        walk.count_step()?;
        let Some(name) = queue.pop_front() else {
            // The last name was a folder that has been entered, or the root.
            let name = if walk.folders.is_empty() { None } else { Some(walk.leave()?) };
            return walk.found(name, Some(Kind::Folder));
        };
        if name == "." {
            continue;
        }
        if name == ".." {
            walk.leave()?;
            continue;
        }
        let here = walk.here()?;
        let metadata = match here.symlink_metadata(&name) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if queue.iter().any(|name| name == "..") {
                    return Err(ResolveError::NotFound { part: name.to_string_lossy().into_owned() });
                }
                let mut found = walk.found(Some(name), None)?;
                found.missing = queue.into_iter().filter(|name| name != ".").collect();
                return Ok(found);
            }
            Err(error) => return Err(ResolveError::Io(error)),
        };
        let kind = Kind::of(metadata.file_type());
        let name = if true_names { name_on_disk(here, name, &metadata) } else { name };
        match kind {
            Kind::Link => walk.follow(&name, &mut queue)?,
            // The last folder is not entered: whoever only writes it down needs no right to.
            Kind::Folder if queue.is_empty() => return walk.found(Some(name), Some(kind)),
            Kind::Folder => match here.open_dir_nofollow(&name) {
                Ok(dir) => walk.enter(dir, name),
                // It was a folder a moment ago; look again at what it is now.
                Err(error) if swapped(&error) => {
                    walk.count_link()?;
                    queue.push_front(name);
                }
                Err(error) => return Err(ResolveError::Io(error)),
            },
            _ if queue.iter().all(|name| name == ".") => return walk.found(Some(name), Some(kind)),
            _ => return Err(ResolveError::NotAFolder { part: name.to_string_lossy().into_owned() }),
        }
    }
}

/// Whether opening a name failed because it is another thing than it was when it was looked at.
pub(crate) fn swapped(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    matches!(error.kind(), NotADirectory | NotFound | IsADirectory) || is_link(error)
}

/// Whether the system would not open a name because it is a link.
pub(crate) fn is_link(error: &io::Error) -> bool {
    #[cfg(unix)]
    let link = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    #[cfg(not(unix))]
    let link = {
        let _ = error;
        false
    };
    link
}

/// The directory that a walk has come to.
enum Here {
    Root,
    Open(Dir),
    /// Somewhere above the one that was open: it is opened when it is needed.
    Above,
}

struct Walk<'r> {
    root: &'r Root,
    /// The names from the root to here.
    folders: Vec<OsString>,
    here: Here,
    steps: usize,
    links: usize,
    /// The link followed last: only a link's target can climb too far.
    last_link: OsString,
}

impl<'r> Walk<'r> {
    fn new(root: &'r Root) -> Self {
        Self { root, folders: Vec::new(), here: Here::Root, steps: 0, links: 0, last_link: OsString::new() }
    }

    fn here(&mut self) -> Result<&Dir, ResolveError> {
        if matches!(self.here, Here::Above) {
            self.here = Here::Root;
            for at in 0..self.folders.len() {
                self.count_step()?;
                let next = self.opened().open_dir_nofollow(&self.folders[at]).map_err(|error| match swapped(&error) {
                    true => ResolveError::TooManyLinks,
                    false => ResolveError::Io(error),
                });
                self.here = Here::Open(next?);
            }
        }
        Ok(self.opened())
    }

    fn opened(&self) -> &Dir {
        if let Here::Open(dir) = &self.here { dir } else { &self.root.dir }
    }

    fn enter(&mut self, dir: Dir, name: OsString) {
        self.here = Here::Open(dir);
        self.folders.push(name);
    }

    /// Goes back to the directory above, and answers with the name that was left.
    fn leave(&mut self) -> Result<OsString, ResolveError> {
        let Some(left) = self.folders.pop() else { return Err(self.leaves()) };
        self.here = Here::Above;
        Ok(left)
    }

    /// A queue grows by a link's target only, so every walk ends; this bounds how late.
    fn count_step(&mut self) -> Result<(), ResolveError> {
        self.steps += 1;
        if self.steps > MAX_STEPS { Err(ResolveError::TooManyLinks) } else { Ok(()) }
    }

    fn leaves(&self) -> ResolveError {
        ResolveError::Leaves { link: self.last_link.to_string_lossy().into_owned() }
    }

    fn count_link(&mut self) -> Result<(), ResolveError> {
        self.links += 1;
        if self.links > MAX_LINKS { Err(ResolveError::TooManyLinks) } else { Ok(()) }
    }

    /// Puts a link's target in front of what is left to walk.
    fn follow(&mut self, name: &OsStr, queue: &mut VecDeque<OsString>) -> Result<(), ResolveError> {
        self.count_link()?;
        let target = match self.here()?.read_link_contents(name) {
            Ok(target) => target,
            // No link any more.
            Err(error) if swapped(&error) || error.kind() == io::ErrorKind::InvalidInput => {
                queue.push_front(name.to_owned());
                return Ok(());
            }
            Err(error) => return Err(ResolveError::Io(error)),
        };
        self.last_link = name.to_owned();
        let target: PathBuf = if target.is_absolute() {
            let cleaned = clean_absolute(&target);
            let Some((rest, _)) = self.root.strip(&cleaned) else { return Err(self.leaves()) };
            (self.here, self.folders) = (Here::Root, Vec::new());
            rest.to_owned()
        } else {
            target
        };
        for component in target.components().rev() {
            queue.push_front(component.as_os_str().to_owned());
        }
        Ok(())
    }

    fn found(mut self, name: Option<OsString>, kind: Option<Kind>) -> Result<Found, ResolveError> {
        self.here()?;
        let parent = match self.here {
            Here::Open(dir) => dir,
            Here::Root | Here::Above => self.root.dir.try_clone().map_err(ResolveError::Io)?,
        };
        Ok(Found { folders: self.folders, parent, name, kind, missing: Vec::new() })
    }
}

/// The name as the folder itself spells it.
///
/// Only where a folder ignores case can it differ, and that shows in the name being found
/// in the other case as well, as the same file.
fn name_on_disk(folder: &Dir, name: OsString, metadata: &Metadata) -> OsString {
    let same = |other: &Metadata| other.dev() == metadata.dev() && other.ino() == metadata.ino();
    let Some(text) = name.to_str() else { return name };
    let swapped: String = text
        .chars()
        .flat_map(|c| if c.is_uppercase() { c.to_lowercase().collect::<Vec<_>>() } else { c.to_uppercase().collect() })
        .collect();
    if swapped == text || !folder.symlink_metadata(&swapped).is_ok_and(|other| same(&other)) {
        return name;
    }
    let Ok(entries) = folder.entries() else { return name };
    let entries = entries.flatten().map(|entry| entry.file_name());
    let spelling = spelling_of(text, entries, |entry| folder.symlink_metadata(entry).is_ok_and(|other| same(&other)));
    spelling.unwrap_or(name)
}

/// The entry that `wanted` means where case is ignored: the very name if there is one, else one that differs
/// in case and is the same file.
fn spelling_of(
    wanted: &str,
    entries: impl Iterator<Item = OsString>,
    is_same_file: impl Fn(&OsStr) -> bool,
) -> Option<OsString> {
    let folded = wanted.to_lowercase();
    let mut spelling = None;
    for entry in entries {
        if entry == wanted {
            return Some(entry);
        }
        if entry.to_str().is_some_and(|other| other.to_lowercase() == folded) && is_same_file(&entry) {
            spelling = Some(entry);
        }
    }
    spelling
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a disk ignores case or not: the decision is about the name that the folder holds.
    #[test]
    fn f56_a_name_in_another_case_is_spelt_as_on_disk() {
        let entries = |names: &[&str]| names.iter().map(OsString::from).collect::<Vec<_>>().into_iter();
        let spelling = |wanted, names, same| spelling_of(wanted, entries(names), |entry| entry == same);
        assert_eq!(spelling("CONFIG", &["head", "Config"], "Config"), Some("Config".into()));
        assert_eq!(spelling("Größe", &["GRÖßE", "other"], "GRÖßE"), Some("GRÖßE".into()));
        // Two files that differ in case alone, or a hard link: the name is its own.
        assert_eq!(spelling("config", &["Config", "config"], "Config"), Some("config".into()));
        assert_eq!(spelling("config", &["Config"], "another"), None);
    }
}
