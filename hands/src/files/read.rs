//! `read`: lines of a file.

use std::fs::File;
use std::io::Read;

use bma_proto_core::contract::{ReadInput, ToolName};

use super::budget::Budget;
use super::names::{count, grouped};
use super::open::{self, ATTEMPTS};
use super::{FileContext, FileToolError, ToolText};
use crate::access::FileOperation;

/// One piece of a file at a time: all the memory that a file of any size takes.
const PIECE_BYTES: usize = 256 * 1024;
/// How far past the last line shown lines are counted for the notice.
const COUNT_AHEAD_BYTES: u64 = 256 * 1024 * 1024;
/// More of the file than an answer can hold (text is never shorter than the bytes it stands for), so that
/// what is full is also cut.
const SHOWN_BYTES: usize = 48 * 1024;

/// Returns lines of a text file, byte for byte, from line `offset` (1-based) on and at most `limit` of them.
///
/// An `offset` or `limit` of 0 counts as not given. What does not fit is cut at the end of a line, and a
/// notice says how much follows and where to read on; a line that does not fit alone is cut inside. Bytes
/// that are not UTF-8 are shown as U+FFFD, and a notice counts them.
///
/// # Errors
/// When the path leads nowhere or outside, is no regular file, may not be read, or has fewer lines than `offset`.
pub fn read(context: &FileContext<'_>, input: &ReadInput) -> Result<ToolText, FileToolError> {
    let first = line_number("offset", input.offset)?.unwrap_or(1);
    let limit = line_number("limit", input.limit)?;
    for _ in 0..ATTEMPTS {
        context.check_canceled()?;
        let (root, found) = context.find(&input.path)?;
        context.ask(ToolName::Read, FileOperation::Read, root, &found, &input.path)?;
        if let Some(file) = open::open_for_reading(&found, &input.path)? {
            return Lines::new(context, file, &input.path)?.show(first, limit);
        }
    }
    Err(open::kept_changing(&input.path))
}

fn line_number(member: &'static str, value: Option<i64>) -> Result<Option<u64>, FileToolError> {
    let Some(value) = value else { return Ok(None) };
    match u64::try_from(value) {
        Ok(0) => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(FileToolError::InvalidInput {
            member,
            problem: format!(
                "{value} is negative; lines are counted from 1, so leave it out or give a positive number"
            ),
        }),
    }
}

/// A file read piece by piece.
struct Lines<'a> {
    context: &'a FileContext<'a>,
    path: &'a str,
    file: File,
    size: u64,
    piece: Vec<u8>,
    /// What of `piece` is still unread.
    start: usize,
    end: usize,
    /// Bytes of the file that were taken out of pieces.
    taken: u64,
}

impl<'a> Lines<'a> {
    fn new(context: &'a FileContext<'a>, file: File, path: &'a str) -> Result<Self, FileToolError> {
        let size = file.metadata().map_err(|error| FileToolError::io(path, "read it", error))?.len();
        let piece = vec![0; PIECE_BYTES.min(usize::try_from(size).unwrap_or(PIECE_BYTES).max(8 * 1024))];
        Ok(Self { context, path, file, size, piece, start: 0, end: 0, taken: 0 })
    }

    /// The unread rest of the current piece, or the next piece; empty at the end of the file.
    fn rest(&mut self) -> Result<&[u8], FileToolError> {
        while self.start == self.end {
            self.context.check_canceled()?;
            match self.file.read(&mut self.piece) {
                Ok(0) => break,
                Ok(length) => (self.start, self.end) = (0, length),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FileToolError::io(self.path, "read it", error)),
            }
        }
        Ok(&self.piece[self.start..self.end])
    }

    fn take(&mut self, length: usize) {
        self.start += length;
        self.taken += length as u64;
    }

    fn show(mut self, first: u64, limit: Option<u64>) -> Result<ToolText, FileToolError> {
        self.skip_to(first)?;
        let raw = self.collect(limit.unwrap_or(u64::MAX))?;
        let shown = fit(&raw);
        let mut notices = Vec::new();
        let cut = shown.consumed < raw.len();
        if cut {
            let (lines, inside_a_line) = (newlines(&raw[..shown.consumed]), !raw[..shown.consumed].ends_with(b"\n"));
            let wanted = limit.map(|limit| limit.saturating_sub(lines + u64::from(inside_a_line)));
            let ahead = self.count_ahead(&raw[shown.consumed..], inside_a_line, wanted)?;
            notices.extend(ahead.notices(first + lines, inside_a_line, shown.consumed, wanted));
        }
        if shown.replaced > 0 {
            let sequences = count(shown.replaced, "byte sequence that is", "byte sequences that are");
            notices.push(format!(
                "{sequences} not UTF-8 shown as U+FFFD; edit changes only what it is told and keeps them"
            ));
        }
        Ok(ToolText::assemble(shown.text, notices, cut))
    }

    /// Goes on to the start of line `first`.
    fn skip_to(&mut self, first: u64) -> Result<(), FileToolError> {
        let mut to_skip = first - 1;
        let mut ends_in_newline = true;
        while to_skip > 0 {
            let rest = self.rest()?;
            if rest.is_empty() {
                let lines = first - 1 - to_skip + u64::from(!ends_in_newline);
                return Err(FileToolError::PastEnd { path: self.path.to_owned(), lines, offset: first });
            }
            let here = newlines(rest);
            let length = if here < to_skip {
                to_skip -= here;
                rest.len()
            } else {
                // The iterator has `here` items, and `to_skip` is between 1 and that.
                let index = usize::try_from(to_skip - 1).unwrap_or(usize::MAX);
                let newline = memchr::memchr_iter(b'\n', rest).nth(index).unwrap_or(rest.len() - 1);
                to_skip = 0;
                newline + 1
            };
            ends_in_newline = rest[length - 1] == b'\n';
            self.take(length);
        }
        // The line after the last newline is a line only if something stands in it, but line 1 always is.
        if first > 1 && self.rest()?.is_empty() {
            return Err(FileToolError::PastEnd { path: self.path.to_owned(), lines: first - 1, offset: first });
        }
        Ok(())
    }

    /// Takes at most `limit` lines and at most [`SHOWN_BYTES`].
    fn collect(&mut self, limit: u64) -> Result<Vec<u8>, FileToolError> {
        let (mut raw, mut lines) = (Vec::new(), 0);
        while lines < limit && raw.len() < SHOWN_BYTES {
            let room = SHOWN_BYTES - raw.len();
            let rest = self.rest()?;
            let rest = &rest[..rest.len().min(room)];
            if rest.is_empty() {
                break;
            }
            let mut length = rest.len();
            for newline in memchr::memchr_iter(b'\n', rest) {
                lines += 1;
                if lines == limit {
                    length = newline + 1;
                    break;
                }
            }
            raw.extend_from_slice(&rest[..length]);
            self.take(length);
        }
        Ok(raw)
    }

    /// Counts what follows the part shown: `unshown` was taken from the file already.
    fn count_ahead(
        &mut self,
        unshown: &[u8],
        inside_a_line: bool,
        wanted: Option<u64>,
    ) -> Result<Ahead, FileToolError> {
        let bytes = self.size.saturating_sub(self.taken) + unshown.len() as u64;
        let mut ahead = Ahead { bytes, line_rest: 0, lines: 0, exact: true };
        let mut in_line = inside_a_line;
        let mut open_end = false;
        let mut piece = unshown.to_vec();
        let mut seen = 0u64;
        let most = wanted.unwrap_or(u64::MAX);
        loop {
            let mut rest = &piece[..];
            if in_line {
                let newline = memchr::memchr(b'\n', rest);
                ahead.line_rest += newline.unwrap_or(rest.len()) as u64;
                rest = newline.map_or(&[][..], |newline| &rest[newline + 1..]);
                in_line = newline.is_none();
            }
            ahead.lines += newlines(rest);
            open_end = if rest.is_empty() { open_end } else { !rest.ends_with(b"\n") };
            seen += piece.len() as u64;
            if !in_line && ahead.lines >= most {
                ahead.lines = most;
                return Ok(ahead);
            }
            if seen >= COUNT_AHEAD_BYTES {
                ahead.exact = false;
                return Ok(ahead);
            }
            piece.clear();
            piece.extend_from_slice(self.rest()?);
            if piece.is_empty() {
                ahead.lines += u64::from(open_end);
                return Ok(ahead);
            }
            self.take(piece.len());
        }
    }
}

/// What follows the part of a file that is shown.
struct Ahead {
    /// To the end of the file.
    bytes: u64,
    /// Of the line that is cut.
    line_rest: u64,
    /// After the line that is shown last, as far as they were asked for.
    lines: u64,
    /// Whether the counting went all the way.
    exact: bool,
}

impl Ahead {
    fn notices(&self, line: u64, inside_a_line: bool, shown: usize, wanted: Option<u64>) -> Vec<String> {
        let mut notices = Vec::new();
        let at_least = if self.exact { "" } else { "at least " };
        if inside_a_line {
            notices.push(format!(
                "line {line} is cut: {} shown, {at_least}{} more in it; bash can show the rest (cut -b, tail -c)",
                count(shown as u64, "byte", "bytes"),
                count(self.line_rest, "byte", "bytes"),
            ));
        }
        let next = line + u64::from(inside_a_line);
        if self.lines > 0 {
            let of = if wanted.is_some() { " of those asked for" } else { "" };
            notices.push(format!(
                "{at_least}{}{of} not shown; {} bytes follow in the file; read on with offset {next}",
                count(self.lines, "more line", "more lines"),
                grouped(self.bytes),
            ));
        }
        notices
    }
}

/// The part of a file's bytes that is shown.
struct Shown {
    text: String,
    /// How many of the bytes that is.
    consumed: usize,
    /// How many U+FFFD stand for something else.
    replaced: u64,
}

/// As much of `raw` as an answer may hold, to the end of a line unless there is only one.
fn fit(raw: &[u8]) -> Shown {
    let mut budget = Budget::new();
    let mut shown = Shown { text: String::with_capacity(raw.len()), consumed: 0, replaced: 0 };
    for line in raw.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        let replaced = line.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count() as u64;
        if budget.take(&text) {
            shown.text.push_str(&text);
            shown.consumed += line.len();
            shown.replaced += replaced;
            continue;
        }
        if shown.consumed == 0 {
            cut_line(line, &budget, &mut shown);
        }
        return shown;
    }
    shown
}

fn cut_line(line: &[u8], budget: &Budget, shown: &mut Shown) {
    let mut budget = *budget;
    for chunk in line.utf8_chunks() {
        let length = budget.fitting(chunk.valid());
        let valid = &chunk.valid()[..length];
        budget.take(valid);
        shown.text.push_str(valid);
        shown.consumed += length;
        if length < chunk.valid().len() {
            return;
        }
        if !chunk.invalid().is_empty() {
            if !budget.take("\u{fffd}") {
                return;
            }
            shown.text.push('\u{fffd}');
            shown.consumed += chunk.invalid().len();
            shown.replaced += 1;
        }
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}
