//! `grep`: lines that match a regular expression.

use std::fs::File;
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};

use bma_proto_core::contract::{GrepInput, ToolName};
use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};

use super::names::{count, grouped, show};
use super::open::{kept_changing, open_for_reading};
use super::pattern::{Exclusion, Pattern};
use super::platform::{OpenDir, name_bytes};
use super::search::{Place, Unseen, place};
use super::smallest::Smallest;
use super::visible::{IgnoreFiles, Named, Sight};
use super::walk::{Visit, Walk};
use super::{FileContext, FileToolError, ToolText, answer_bytes};

/// The longest line that is searched, in bytes: what one thread of a search holds of a file at most.
pub const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;
/// The longest line that is shown whole, in bytes.
const SHOWN_LINE_BYTES: usize = 1000;
/// What is shown before the match in a longer one.
const BEFORE_MATCH_BYTES: usize = 200;
/// What a compiled expression may take; it bounds the time that one byte of text can take, too.
const MAX_REGEX_BYTES: usize = 8 * 1024 * 1024;
/// What the tables made while matching may take, for each thread.
const MAX_REGEX_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// The longest expression, in bytes.
const MAX_PATTERN_BYTES: usize = 16 * 1024;

/// Searches the lines of the files below `path` (the workspace when not given) for a regular expression; a
/// result is `path:line:text`, in the order of path and line.
///
/// `path` may also name one file. `glob` limits the search to files that match it: a pattern without `/` is
/// about the name in any folder, one with `/` about the path below `path`; with `!` before it, the search
/// leaves out what matches. The expression is in the syntax of Rust's regex crate and takes time linear in
/// the text. What a search sees is the [module's rule](super).
///
/// # Errors
/// When the expression or the filter is malformed or too large, or `path` is not inside the workspace.
pub fn grep(context: &FileContext<'_>, input: &GrepInput) -> Result<ToolText, FileToolError> {
    let matcher = compile(&input.pattern)?;
    let filter = Filter::parse(context, input.glob.as_deref())?;
    let place = place(context, ToolName::Grep, input.path.as_deref(), filter.only.as_ref())?;
    let nobody = Named::default();
    let mut hits = Hits::new(matcher, context.cancel, Vec::new());
    match place {
        Place::Nowhere => {}
        Place::File { root, found } => {
            let path = input.path.as_deref().unwrap_or(".");
            hits.prefix = answer_bytes(root, &found);
            // Named outright: whatever it holds, it is text for this search.
            hits.searcher = searcher(BinaryDetection::none());
            let file = open_for_reading(&found, path)?.ok_or_else(|| kept_changing(path))?;
            if found.name.as_ref().is_some_and(|name| filter.wants(&name_bytes(name))) {
                hits.search(file, b"");
            }
        }
        Place::Folder(start) => {
            let walk = Walk {
                base: &start.base,
                base_path: &start.path,
                ignore: IgnoreFiles::down_to(&start.root.dir, &start.names),
                named: filter.only.as_ref().map_or(&nobody, |only| &only.named),
                cancel: context.cancel,
            };
            let visitors = (0..context.threads())
                .map(|_| Search {
                    filter: &filter,
                    hits: Hits::new(hits.matcher.clone(), context.cancel, start.shown_prefix.clone()),
                })
                .collect();
            for visitor in walk.run(visitors) {
                hits.merge(visitor.hits);
            }
        }
    }
    context.check_canceled()?;
    Ok(hits.answer(&input.pattern))
}

/// Compiles the expression for single lines, with bounds on what it may take.
fn compile(pattern: &str) -> Result<RegexMatcher, FileToolError> {
    let invalid = |problem: String| FileToolError::InvalidInput { member: "pattern", problem };
    if pattern.is_empty() {
        return Err(invalid("it is empty; give an expression that matches what you look for".to_owned()));
    }
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(invalid(format!(
            "it has more than {} bytes; look for less at a time",
            grouped(MAX_PATTERN_BYTES as u64)
        )));
    }
    RegexMatcherBuilder::new()
        // `^` and `$` stand at each line's ends: what is searched at a time is many lines.
        .multi_line(true)
        // `$` stands before CRLF as well.
        .crlf(true)
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_CACHE_BYTES)
        .build(pattern)
        .map_err(|error| {
            let told = error.to_string();
            let advice = if told.contains("size limit") {
                "repeat less, or look for a part of it"
            } else {
                "escape special characters with \\, and match within one line"
            };
            invalid(format!("{told}; {advice}"))
        })
}

fn searcher(binary: BinaryDetection) -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .binary_detection(binary)
        .heap_limit(Some(MAX_LINE_BYTES))
        .build()
}

/// Which files are searched.
struct Filter {
    only: Option<Pattern>,
    without: Option<Exclusion>,
}

impl Filter {
    fn parse(context: &FileContext<'_>, glob: Option<&str>) -> Result<Self, FileToolError> {
        let (mut only, mut without) = (None, None);
        match glob.map(|glob| (glob, glob.strip_prefix('!'))) {
            None | Some(("", _)) => {}
            Some((_, Some(excluded))) => without = Some(Exclusion::parse("glob", excluded, context.workspace)?),
            Some((glob, None)) => only = Some(Pattern::parse_filter("glob", glob, context.workspace)?),
        }
        Ok(Self { only, without })
    }

    fn wants(&self, path: &[u8]) -> bool {
        self.only.as_ref().is_none_or(|only| only.matches(path))
            && !self.without.as_ref().is_some_and(|without| without.matches(path))
    }
}

/// One thread's part of a search.
struct Search<'a> {
    filter: &'a Filter,
    hits: Hits<'a>,
}

impl Visit for Search<'_> {
    const HEAVY: bool = true;

    fn wants(&mut self, path: &[u8]) -> bool {
        self.filter.wants(path)
    }

    fn file(&mut self, folder: &OpenDir, name: &[u8], path: &[u8]) {
        match folder.open_file(name) {
            Ok(Some(file)) => self.hits.search(file, path),
            // Not a regular file any more.
            Ok(None) => {}
            Err(error) => self.hits.unseen.file(self.hits.full(path), &error),
        }
    }

    fn prunes(&mut self, path: &[u8]) -> bool {
        self.filter.without.as_ref().is_some_and(|without| without.matches_folder(path))
    }

    fn unreadable(&mut self, path: &[u8], error: &io::Error) {
        self.hits.unseen.folder(self.hits.full(path), error);
    }

    fn passed_by(&mut self, sight: Sight) {
        self.hits.unseen.passed_by(sight);
    }

    fn rules_cut(&mut self, files: u64) {
        self.hits.unseen.rules_cut(files);
    }
}

/// What was found.
struct Hits<'a> {
    matcher: RegexMatcher,
    searcher: Searcher,
    cancel: &'a AtomicBool,
    /// What answers put before a file's path.
    prefix: Vec<u8>,
    lines: Smallest,
    /// Files with a matching line.
    files: u64,
    cut_lines: bool,
    unseen: Unseen,
}

impl<'a> Hits<'a> {
    fn new(matcher: RegexMatcher, cancel: &'a AtomicBool, prefix: Vec<u8>) -> Self {
        let searcher = searcher(BinaryDetection::quit(0));
        let (lines, unseen) = (Smallest::new(), Unseen::default());
        Self { matcher, searcher, cancel, prefix, lines, files: 0, cut_lines: false, unseen }
    }

    fn full(&self, path: &[u8]) -> Vec<u8> {
        [&self.prefix, path].concat()
    }

    fn search(&mut self, file: File, path: &[u8]) {
        let mut found = InFile {
            matcher: &self.matcher,
            room: self.lines.has_room_for(path, 0),
            kept: Vec::new(),
            kept_bytes: 0,
            number: 0,
            binary: false,
        };
        let reader = Cancelable { file, cancel: self.cancel };
        let ended = self.searcher.search_reader(&self.matcher, reader, &mut found);
        let InFile { kept, number, binary, .. } = found;
        if binary {
            return self.unseen.binary(self.full(path));
        }
        if number > 0 {
            self.files += 1;
            let shown = show(&self.full(path)).into_owned();
            self.lines.count(number - kept.len() as u64);
            for (line, text, cut) in kept {
                self.cut_lines |= cut;
                self.lines.offer(path, line, || format!("{shown}:{line}:{text}"));
            }
        }
        match ended {
            Ok(()) => {}
            Err(error) if error.get_ref().is_some_and(|inner| inner.is::<Canceled>()) => {}
            // The searcher's only error of its own: a line that does not fit its buffer.
            Err(error) if error.kind() == io::ErrorKind::Other => self.unseen.long_line(self.full(path)),
            Err(error) => self.unseen.file(self.full(path), &error),
        }
    }

    fn merge(&mut self, other: Self) {
        self.lines.merge(other.lines);
        self.files += other.files;
        self.cut_lines |= other.cut_lines;
        self.unseen.merge(other.unseen);
    }

    fn answer(self, pattern: &str) -> ToolText {
        let mut notices = Vec::new();
        let left_out = self.lines.total() - self.lines.shown();
        if self.lines.total() == 0 {
            let short: String = pattern.chars().take(200).collect();
            // What was not searched may hold one; the notices below name it.
            let where_looked = if self.unseen.is_partial() { ", as far as was searched" } else { "" };
            notices.push(format!("no line matches {short}{where_looked}"));
        }
        if left_out > 0 {
            let more = count(left_out, "more matching line", "more matching lines");
            let files = self.files.saturating_sub(self.lines.shown_paths());
            let files = match files {
                0 => String::new(),
                files => format!(" (nothing is shown of {})", count(files, "file", "files")),
            };
            notices.push(format!("{more} not shown{files}; narrow the expression, the path or the glob"));
        }
        if self.cut_lines {
            notices.push(format!("lines of more than {SHOWN_LINE_BYTES} bytes are cut, around their first match"));
        }
        self.unseen.notices(&mut notices);
        if self.lines.total() == 0 {
            notices.extend(self.unseen.passed_by_text());
        }
        let partial = left_out > 0 || self.cut_lines || self.unseen.is_partial();
        ToolText::assemble(self.lines.into_text(), notices, partial)
    }
}

/// The matching lines of one file. They are handed on when the file has turned out to be text.
struct InFile<'m> {
    matcher: &'m RegexMatcher,
    room: bool,
    kept: Vec<(u64, String, bool)>,
    kept_bytes: usize,
    number: u64,
    binary: bool,
}

impl Sink for InFile<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, line: &SinkMatch<'_>) -> Result<bool, io::Error> {
        self.number += 1;
        // An answer has no room for more of one file than this.
        if self.room && self.kept_bytes < 64 * 1024 {
            let (text, cut) = shown_line(self.matcher, line.bytes());
            self.kept_bytes += text.len() + 8;
            self.kept.push((line.line_number().unwrap_or(0), text, cut));
        }
        Ok(true)
    }

    fn binary_data(&mut self, searcher: &Searcher, _offset: u64) -> Result<bool, io::Error> {
        self.binary = searcher.binary_detection().quit_byte().is_some();
        Ok(!self.binary)
    }

    fn finish(&mut self, searcher: &Searcher, end: &grep_searcher::SinkFinish) -> Result<(), io::Error> {
        self.binary |= searcher.binary_detection().quit_byte().is_some() && end.binary_byte_offset().is_some();
        Ok(())
    }
}

/// A line without its end, or the part around its first match when it is long.
fn shown_line(matcher: &RegexMatcher, line: &[u8]) -> (String, bool) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.len() <= SHOWN_LINE_BYTES {
        return (String::from_utf8_lossy(line).into_owned(), false);
    }
    let first = matcher.find(line).ok().flatten().map_or(0, |found| found.start());
    let from = char_start(line, first.saturating_sub(BEFORE_MATCH_BYTES).min(line.len() - SHOWN_LINE_BYTES));
    let to = char_start(line, from + SHOWN_LINE_BYTES);
    let mut text = String::new();
    if from > 0 {
        text.push_str(&format!("[{} cut] ", count(from as u64, "byte", "bytes")));
    }
    text.push_str(&String::from_utf8_lossy(&line[from..to]));
    if to < line.len() {
        text.push_str(&format!(" [{} cut]", count((line.len() - to) as u64, "byte", "bytes")));
    }
    (text, true)
}

/// The start of the character that the byte at `place` belongs to.
fn char_start(line: &[u8], place: usize) -> usize {
    (place.saturating_sub(3)..=place)
        .rev()
        .find(|at| line.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80))
        .unwrap_or(place)
}

/// A file that cannot be read any more once the call is canceled.
struct Cancelable<'c> {
    file: File,
    cancel: &'c AtomicBool,
}

#[derive(Debug, thiserror::Error)]
#[error("canceled")]
struct Canceled;

impl Read for Cancelable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.load(Ordering::Relaxed) {
            return Err(io::Error::other(Canceled));
        }
        self.file.read(buffer)
    }
}
