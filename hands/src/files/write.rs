//! `write`: create or replace a file.

use std::ffi::{OsStr, OsString};
use std::io;

use bma_proto_core::contract::{ToolName, WriteInput};
use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

use super::locks;
use super::names::count;
use super::open::{self, ATTEMPTS, not_a_file};
use super::save::{self, Before, SaveError};
use super::{FileContext, FileToolError, ToolText, shown_path};
use crate::access::FileOperation;
use crate::workspace::resolve::{Kind, swapped};

/// Creates the file at `path`, or replaces all of its content.
///
/// Missing parent folders are made. A link is followed and kept. The replacement is atomic: other readers see the
/// old content or the new one, and every failure leaves the old one. Mode, group and attributes
/// of a replaced file stay; a new file's mode follows the umask. What was written is read back.
///
/// # Errors
/// When the path leads outside or to something that is no regular file, may not be written, or when the file
/// system does not take it.
pub fn write(context: &FileContext<'_>, input: &WriteInput) -> Result<ToolText, FileToolError> {
    let path = &input.path;
    let no_folder = |error| FileToolError::io(path, "make its folder", error);
    for _ in 0..ATTEMPTS {
        context.check_canceled()?;
        let (root, found) = context.find(path)?;
        let Some(name) = found.name.as_deref().filter(|_| !path.ends_with('/')) else {
            return Err(not_a_file(path, Kind::Folder, "name the file to write"));
        };
        match found.kind {
            None | Some(Kind::File) => {}
            Some(kind) => return Err(not_a_file(path, kind, "name another file to write")),
        }
        if !root.writable {
            return Err(FileToolError::ReadOnly { path: path.clone() });
        }
        context.ask(ToolName::Write, FileOperation::Write, root, &found, path)?;
        let mut made = MadeFolders::default();
        let written = match made.down_to_file(found.parent_copy().map_err(no_folder)?, name, &found.missing) {
            Ok((parent, name)) => replace(context, input, &parent, &name),
            Err(error) if swapped(&error) => Ok(None),
            Err(error) => Err(no_folder(error)),
        };
        match written {
            Ok(Some(done)) => {
                made.keep();
                return Ok(ToolText::whole(done.text(&shown_path(root, &found), input.content.len())));
            }
            // Somebody swapped what was found: find it again.
            Ok(None) => {}
            Err(error) => return Err(error),
        }
    }
    Err(open::kept_changing(path))
}

struct Done {
    created: bool,
    notes: Vec<String>,
}

impl Done {
    fn text(&self, shown: &str, length: usize) -> String {
        let verb = if self.created { "created" } else { "replaced" };
        let mut text = format!("{verb} {shown} ({})", count(length as u64, "byte", "bytes"));
        for note in &self.notes {
            text.push_str("; ");
            text.push_str(note);
        }
        text
    }
}

/// None: what stands under `name` is no file any more.
fn replace(
    context: &FileContext<'_>,
    input: &WriteInput,
    parent: &Dir,
    name: &OsStr,
) -> Result<Option<Done>, FileToolError> {
    let path = &input.path;
    let _lock = locks::lock(parent, name, path, context.cancel)?;
    let old = match save::open_old(parent, name, path)? {
        Before::Nothing => None,
        Before::File(old) => Some(old),
        Before::Swapped => return Ok(None),
    };
    let content = [input.content.as_bytes()];
    match save::save(context, path, (parent, name), old.as_ref(), None, &content) {
        Ok(saved) => {
            save::verify(context, path, &saved, &content)?;
            Ok(Some(Done { created: old.is_none(), notes: saved.notes }))
        }
        Err(SaveError::Changed) => Ok(None),
        Err(SaveError::Failed(error)) => Err(error),
    }
}

/// Folders made on the way to a new file, taken away again when the file does not come to be.
#[derive(Default)]
struct MadeFolders(Vec<(Dir, OsString)>);

impl MadeFolders {
    /// Makes what is missing below `parent`; answers with the folder and the name of the file itself.
    fn down_to_file(&mut self, parent: Dir, name: &OsStr, missing: &[OsString]) -> io::Result<(Dir, OsString)> {
        let (mut dir, mut name) = (parent, name);
        for next in missing {
            match dir.create_dir(name) {
                Ok(()) => self.0.push((dir.try_clone()?, name.to_owned())),
                // Somebody else was faster; whether it is a folder shows in the next line.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            dir = dir.open_dir_nofollow(name)?;
            name = next;
        }
        Ok((dir, name.to_owned()))
    }

    fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for MadeFolders {
    fn drop(&mut self) {
        for (dir, name) in self.0.drain(..).rev() {
            // Not empty any more: somebody uses it.
            let _ = dir.remove_dir(name);
        }
    }
}
