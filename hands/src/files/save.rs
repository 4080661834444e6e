//! Replacing a file as a whole: the new content beside it, then its name moved over.
//!
//! Until the rename the old content stands untouched, so whatever fails before it (no space, a short write,
//! no permission, a cancel) changes nothing, and the file beside is taken away again.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cap_fs_ext::{FollowSymlinks, MetadataExt, OpenOptionsFollowExt};
use cap_std::fs::{Dir, OpenOptions};

use super::open::read_up_to;
use super::platform::{self, Stamp};
use super::{FileContext, FileToolError};
use crate::workspace::resolve::{Kind, swapped};

/// As much as is written between two looks at the cancel flag.
const PIECE_BYTES: usize = 1024 * 1024;
/// As much is read back at a time.
const READ_BACK_BYTES: usize = 256 * 1024;

/// The file that is about to be replaced.
#[derive(Debug)]
pub(super) struct Old {
    file: File,
    links: u64,
}

/// What a name held when it was opened to be replaced.
#[derive(Debug)]
pub(super) enum Before {
    Nothing,
    File(Old),
    /// A link or a folder by now: walk there again.
    Swapped,
}

/// Opens the file behind `name` as far as a replacement needs it, and finds out whether it may be written.
pub(super) fn open_old(parent: &Dir, name: &OsStr, path: &str) -> Result<Before, FileToolError> {
    let failed = |error| FileToolError::io(path, "write to it", error);
    let metadata = match parent.symlink_metadata(name) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Before::Nothing),
        Err(error) => return Err(failed(error)),
    };
    if Kind::of(metadata.file_type()) != Kind::File {
        return Ok(Before::Swapped);
    }
    let opened = parent.open_with(name, &platform::for_writing()).or_else(|error| match error.kind() {
        // A program that runs cannot be written, but it can be replaced.
        io::ErrorKind::ExecutableFileBusy => parent.open_with(name, &platform::for_reading()),
        _ => Err(error),
    });
    match opened {
        Ok(file) => {
            let metadata = file.metadata().map_err(failed)?;
            let (links, file) = (metadata.nlink(), file.into_std());
            Ok(if metadata.is_file() { Before::File(Old { file, links }) } else { Before::Swapped })
        }
        Err(error) if swapped(&error) => Ok(Before::Swapped),
        Err(error) => Err(failed(error)),
    }
}

/// What a replacement left behind.
#[derive(Debug)]
pub(super) struct Saved {
    stamp: Stamp,
    /// What the caller should know.
    pub(super) notes: Vec<String>,
}

/// Why a replacement was not made.
#[derive(Debug)]
pub(super) enum SaveError {
    /// The file is another one than `expected` by now.
    Changed,
    Failed(FileToolError),
}

impl From<FileToolError> for SaveError {
    fn from(error: FileToolError) -> Self {
        Self::Failed(error)
    }
}

/// Gives `name` in `parent` the content `parts`, one after the other.
///
/// With `expected`, only while the file behind the name is still that one, unchanged.
pub(super) fn save(
    context: &FileContext<'_>,
    path: &str,
    (parent, name): (&Dir, &OsStr),
    old: Option<&Old>,
    expected: Option<Stamp>,
    parts: &[&[u8]],
) -> Result<Saved, SaveError> {
    let failed = |action: &'static str| move |error: io::Error| FileToolError::io(path, action, error);
    let (mut file, temporary) = Temporary::create(parent, old.is_some()).map_err(failed("make a file beside it"))?;
    fill(&mut file, parts, context.cancel).map_err(|error| match error.kind() {
        _ if context.cancel.load(Ordering::Relaxed) => FileToolError::Canceled,
        _ => FileToolError::io(path, "write its new content", error),
    })?;
    let mut notes = Vec::new();
    if let Some(old) = old {
        notes = platform::keep_attributes(&old.file, &file).map_err(|lost| FileToolError::AttributesLost {
            path: path.to_owned(),
            what: lost.what,
            source: lost.source,
        })?;
        if old.links > 1 {
            let others = super::names::count(old.links - 1, "other name", "other names");
            notes.push(format!("it had {others} (hard links), which keep the old content"));
        }
    }
    file.sync_all().map_err(failed("write its new content to disk"))?;
    context.check_canceled()?;
    if let Some(expected) = expected
        && !Stamp::at(parent, name).is_ok_and(|now| now == expected)
    {
        return Err(SaveError::Changed);
    }
    temporary.rename_to(name).map_err(failed("put its new content in place"))?;
    platform::dir_is_synced(parent);
    let stamp = Stamp::of(&file).map_err(failed("look at it after writing"))?;
    Ok(Saved { stamp, notes })
}

/// Walks to `path` anew and reads back what stands there: what was written, or an error.
pub(super) fn verify(
    context: &FileContext<'_>,
    path: &str,
    saved: &Saved,
    parts: &[&[u8]],
) -> Result<(), FileToolError> {
    let replaced = || FileToolError::Conflict {
        path: path.to_owned(),
        outcome: "it was written, but something else stands there now; read it again",
    };
    let (_, found) = context.find(path)?;
    let Some(name) = &found.name else { return Err(replaced()) };
    let failed = |error| FileToolError::io(path, "read back what was written", error);
    let mut file = match found.parent.open_with(name, &platform::for_reading()) {
        Ok(file) => file.into_std(),
        Err(error) if swapped(&error) => return Err(replaced()),
        // Writable but not readable: its identity has to do.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let now = Stamp::at(&found.parent, name).map_err(failed)?;
            return if now.is_same_file(&saved.stamp) { Ok(()) } else { Err(replaced()) };
        }
        Err(error) => return Err(failed(error)),
    };
    if !Stamp::of(&file).map_err(failed)?.is_same_file(&saved.stamp) {
        return Err(replaced());
    }
    let mut piece = vec![0; READ_BACK_BYTES];
    for expected in parts.iter().flat_map(|part| part.chunks(READ_BACK_BYTES)) {
        let length = read_up_to(&mut file, &mut piece[..expected.len()]).map_err(failed)?;
        if piece[..length] != *expected {
            return Err(replaced());
        }
    }
    match read_up_to(&mut file, &mut piece[..1]).map_err(failed)? {
        0 => Ok(()),
        _ => Err(replaced()),
    }
}

/// Writes all of `parts`, however little is taken at a time.
fn fill(out: &mut impl Write, parts: &[&[u8]], cancel: &AtomicBool) -> io::Result<()> {
    for piece in parts.iter().flat_map(|part| part.chunks(PIECE_BYTES)) {
        if cancel.load(Ordering::Relaxed) {
            return Err(io::Error::other("canceled"));
        }
        out.write_all(piece)?;
    }
    out.flush()
}

/// A file beside the one to be replaced, taken away again unless it gets its name.
struct Temporary<'d> {
    dir: &'d Dir,
    name: Option<String>,
}

impl<'d> Temporary<'d> {
    fn create(dir: &'d Dir, private: bool) -> io::Result<(File, Self)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).follow(FollowSymlinks::No);
        // A new file's mode is the system's business (umask, default ACLs). A replacement gets the old file's mode
        // in the end, and until then nobody else may look: the old mode may be narrower than the umask.
        #[cfg(unix)]
        if private {
            use cap_std::fs::OpenOptionsExt;
            options.mode(0o600);
        }
        #[cfg(not(unix))]
        let _ = private;
        let mut attempts = 0;
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!(".bma-write-{:x}-{number:x}.tmp", process::id());
            match dir.open_with(&name, &options) {
                Ok(file) => return Ok((file.into_std(), Self { dir, name: Some(name) })),
                // Left by an earlier process of this id that was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempts < 1000 => attempts += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn rename_to(mut self, name: &OsStr) -> io::Result<()> {
        if let Some(from) = &self.name {
            self.dir.rename(from, self.dir, name)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = self.dir.remove_file(name);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

    use super::*;

    /// Takes 1 KiB at a time, is interrupted now and then, and is full after `room` bytes.
    struct Reluctant {
        taken: Vec<u8>,
        room: usize,
        turn: usize,
    }

    impl Write for Reluctant {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.turn += 1;
            if self.turn.is_multiple_of(7) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let length = buf.len().min(1024).min(self.room - self.taken.len());
            if length == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.taken.extend_from_slice(&buf[..length]);
            Ok(length)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn f39_short_writes_are_carried_on_and_a_full_disk_is_an_error() {
        let content: Vec<u8> = (0..1024 * 1024_u32).map(|i| i.to_le_bytes()[0]).collect();
        let cancel = AtomicBool::new(false);
        let mut out = Reluctant { taken: Vec::new(), room: usize::MAX, turn: 0 };
        fill(&mut out, &[&content[..300], &content[300..]], &cancel).unwrap();
        assert!(out.taken == content);
        let mut out = Reluctant { taken: Vec::new(), room: 10_000, turn: 0 };
        let error = fill(&mut out, &[&content], &cancel).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn f38_a_file_that_changed_since_it_was_read_is_not_replaced() {
        use std::io::Write as _;

        let folder = tempfile::tempdir().unwrap();
        let workspace = crate::workspace::Workspace::open(folder.path()).unwrap();
        let (session, call, cancel) = ("session".into(), "call".into(), AtomicBool::new(false));
        let context = FileContext::new(&workspace, &session, &call, &cancel);
        let path = folder.path().join("f");
        std::fs::write(&path, "key=1\n").unwrap();
        let read = Stamp::of(&File::open(&path).unwrap()).unwrap();
        let place = (workspace.dir(), OsStr::new("f"));
        File::options().append(true).open(&path).unwrap().write_all(b"appended\n").unwrap();
        let outcome = save(&context, "f", place, None, Some(read), &[b"key=2\n"]);
        assert!(matches!(outcome, Err(SaveError::Changed)));
        assert_eq!(std::fs::read(&path).unwrap(), b"key=1\nappended\n");
        // A replacement by somebody else is a change as well, also of the same size.
        let read = Stamp::of(&File::open(&path).unwrap()).unwrap();
        std::fs::write(folder.path().join("g"), "KEY=1\nAPPENDED\n").unwrap();
        std::fs::rename(folder.path().join("g"), &path).unwrap();
        assert!(matches!(save(&context, "f", place, None, Some(read), &[b"x"]), Err(SaveError::Changed)));
        let now = Stamp::of(&File::open(&path).unwrap()).unwrap();
        let saved = save(&context, "f", place, None, Some(now), &[b"key", b"=2\n"]).unwrap();
        verify(&context, "f", &saved, &[b"key=2\n"]).unwrap();
        std::fs::write(&path, "key=3\n").unwrap();
        assert!(verify(&context, "f", &saved, &[b"key=2\n"]).is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
