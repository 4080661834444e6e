//! Opening what a path led to: regular files only, and without waiting for anybody.

use std::fs::File;
use std::io;

use super::error::FileToolError;
use super::platform;
use crate::workspace::PathError;
use crate::workspace::resolve::{Found, Kind, swapped};

/// How often a call looks again when what it found was swapped before it was opened.
pub(super) const ATTEMPTS: usize = 8;

/// Opens a found file to read it. None: it is another thing than it was when it was found, so find it again.
pub(super) fn open_for_reading(found: &Found, path: &str) -> Result<Option<File>, FileToolError> {
    let name = match (&found.kind, &found.name) {
        (None, _) => return Err(not_found(found, path)),
        (Some(Kind::File), Some(name)) => name,
        (Some(kind), _) => return Err(not_a_file(path, *kind, "list_files shows a folder, and bash reads the rest")),
    };
    let file = match found.parent.open_with(name, &platform::for_reading()) {
        Ok(file) => file.into_std(),
        Err(error) if swapped(&error) => return Ok(None),
        Err(error) => return Err(FileToolError::io(path, "read it", error)),
    };
    // The kind that was looked at belongs to the name; this belongs to what was opened.
    match file.metadata() {
        Ok(metadata) if metadata.is_file() => Ok(Some(file)),
        Ok(_) => Ok(None),
        Err(error) => Err(FileToolError::io(path, "read it", error)),
    }
}

pub(super) fn not_found(found: &Found, path: &str) -> FileToolError {
    let hint = match (&found.name, found.missing.is_empty()) {
        (Some(name), false) => format!(" (there is no `{}`)", name.to_string_lossy()),
        _ => String::new(),
    };
    PathError::NotFound { path: path.to_owned(), hint }.into()
}

pub(super) fn not_a_file(path: &str, kind: Kind, advice: &'static str) -> FileToolError {
    FileToolError::NotAFile { path: path.to_owned(), kind: kind.describe(), advice }
}

/// What a call says that lost every race for the file.
pub(super) fn kept_changing(path: &str) -> FileToolError {
    FileToolError::Conflict { path: path.to_owned(), outcome: "nothing was done, try again" }
}

/// Fills `buffer` as far as the file goes.
pub(super) fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    use io::Read;
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
