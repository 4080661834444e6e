//! `edit`: replace the single occurrence of a text.

use std::fs::File;
use std::io::Read;

use bma_proto_core::contract::{EditInput, ToolName};
use memchr::memmem;

use super::locks;
use super::open::{self, ATTEMPTS};
use super::platform::Stamp;
use super::save::{self, Before, SaveError};
use super::{FileContext, FileToolError, ToolText, shown_path};
use crate::access::FileOperation;

/// The largest file that `edit` takes, in bytes: it is held in memory twice.
pub const MAX_EDIT_BYTES: u64 = 16 * 1024 * 1024;
/// Where counting the places of an ambiguous text stops.
const MAX_PLACES: usize = 1000;
/// How many places' line numbers are told.
const PLACES_TOLD: usize = 5;

/// Replaces the one place where `old_string` stands by `new_string`, byte for byte and literally.
///
/// The rest of the file keeps its bytes, whatever they are. Places count where they overlap, too. The file is
/// replaced as [`write`](super::write()) does it, and only if nobody changed it since it was read: otherwise
/// the edit is made anew on the changed file, so that both changes stand.
///
/// # Errors
/// When `old_string` is empty, does not occur or occurs more than once, when it equals `new_string`, when the
/// file is larger than [`MAX_EDIT_BYTES`], and for what reading and writing can meet.
pub fn edit(context: &FileContext<'_>, input: &EditInput) -> Result<ToolText, FileToolError> {
    let path = &input.path;
    let invalid = |member, problem: &str| FileToolError::InvalidInput { member, problem: problem.to_owned() };
    if input.old_string.is_empty() {
        return Err(invalid("old_string", "it is empty; give the text to replace, or use write to make a new file"));
    }
    if input.old_string == input.new_string {
        return Err(invalid("new_string", "it equals old_string, so there is nothing to change"));
    }
    for _ in 0..ATTEMPTS {
        context.check_canceled()?;
        let (root, found) = context.find(path)?;
        context.ask(ToolName::Edit, FileOperation::Read, root, &found, path)?;
        if !root.writable {
            return Err(FileToolError::ReadOnly { path: path.clone() });
        }
        context.ask(ToolName::Edit, FileOperation::Write, root, &found, path)?;
        // Waits for other calls that write to this file, so it comes before reading.
        let Some(name) = &found.name else {
            open::open_for_reading(&found, path)?;
            continue;
        };
        let _lock = locks::lock(&found.parent, name, path, context.cancel)?;
        let Some(mut file) = open::open_for_reading(&found, path)? else { continue };
        let Some((content, stamp)) = read_whole(&mut file, path)? else { continue };
        let place = find_place(&content, input)?;
        let old = match save::open_old(&found.parent, name, path)? {
            Before::File(old) => old,
            Before::Nothing | Before::Swapped => continue,
        };
        let parts = [&content[..place], input.new_string.as_bytes(), &content[place + input.old_string.len()..]];
        match save::save(context, path, (&found.parent, name), Some(&old), Some(stamp), &parts) {
            Ok(saved) => {
                save::verify(context, path, &saved, &parts)?;
                let line = line_of(&content, place);
                let mut text = format!("edited {}: 1 place, at line {line}", shown_path(root, &found));
                for note in &saved.notes {
                    text.push_str("; ");
                    text.push_str(note);
                }
                return Ok(ToolText::whole(text));
            }
            Err(SaveError::Changed) => {}
            Err(SaveError::Failed(error)) => return Err(error),
        }
    }
    Err(open::kept_changing(path))
}

/// The whole content with the state that it belongs to. None: it changed while it was read.
fn read_whole(file: &mut File, path: &str) -> Result<Option<(Vec<u8>, Stamp)>, FileToolError> {
    let failed = |error| FileToolError::io(path, "read it", error);
    let size = file.metadata().map_err(failed)?.len();
    let too_large = |size| FileToolError::TooLarge { path: path.to_owned(), size, limit: MAX_EDIT_BYTES };
    if size > MAX_EDIT_BYTES {
        return Err(too_large(size));
    }
    let before = Stamp::of(file).map_err(failed)?;
    let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    file.take(MAX_EDIT_BYTES + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > MAX_EDIT_BYTES {
        return Err(too_large(content.len() as u64));
    }
    let unchanged = Stamp::of(file).map_err(failed)? == before;
    Ok(unchanged.then_some((content, before)))
}

/// The offset of the only place.
fn find_place(content: &[u8], input: &EditInput) -> Result<usize, FileToolError> {
    let old = input.old_string.as_bytes();
    let finder = memmem::Finder::new(old);
    let Some(first) = finder.find(content) else {
        return Err(FileToolError::NoOccurrence {
            path: input.path.clone(),
            hint: near_miss(content, &input.old_string),
        });
    };
    let mut places = vec![first];
    let mut from = first + 1;
    while places.len() < MAX_PLACES {
        let Some(next) = finder.find(&content[from..]) else { break };
        places.push(from + next);
        from += next + 1;
    }
    if places.len() == 1 {
        return Ok(first);
    }
    let told: Vec<String> = places.iter().take(PLACES_TOLD).map(|place| line_of(content, *place).to_string()).collect();
    Err(FileToolError::Ambiguous {
        path: input.path.clone(),
        at_least: if places.len() == MAX_PLACES { "at least " } else { "" },
        count: places.len(),
        lines: told.join(", ") + if places.len() > PLACES_TOLD { ", ..." } else { "" },
    })
}

/// What comes near to a text that does not occur.
fn near_miss(content: &[u8], old: &str) -> String {
    let occurs = |text: &str| memmem::find(content, text.as_bytes()).is_some();
    if old.contains('\n') {
        if !old.contains("\r\n") && occurs(&old.replace('\n', "\r\n")) {
            return " as it is written: the file ends its lines with CRLF (\\r\\n), old_string with LF".to_owned();
        }
        if old.contains("\r\n") && occurs(&old.replace("\r\n", "\n")) {
            return " as it is written: the file ends its lines with LF (\\n), old_string with CRLF".to_owned();
        }
    }
    let Some(line) = old.lines().map(str::trim).find(|line| line.len() >= 3) else { return String::new() };
    if let Some(place) = memmem::find(content, line.as_bytes()) {
        return format!(
            "; line {} holds its first line, but white space or what follows differs",
            line_of(content, place)
        );
    }
    let folded = line.to_lowercase();
    let lines = content.split(|byte| *byte == b'\n');
    match lines.enumerate().find(|(_, text)| String::from_utf8_lossy(text).to_lowercase().contains(&folded)) {
        Some((number, _)) => format!("; line {} holds its first line in another case", number + 1),
        None => String::new(),
    }
}

fn line_of(content: &[u8], place: usize) -> usize {
    memchr::memchr_iter(b'\n', &content[..place]).count() + 1
}
