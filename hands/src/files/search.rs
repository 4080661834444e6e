//! What `glob`, `grep` and `list_files` share: where a search begins, and what it has to tell beside its results.

use std::ffi::OsString;
use std::io;

use bma_proto_core::contract::ToolName;
use cap_std::fs::Dir;

use super::names::{count, grouped, show};
use super::open::{self, ATTEMPTS, not_a_file, not_found};
use super::pattern::Pattern;
use super::platform::{OpenDir, name_bytes};
use super::visible::{MAX_RULES, Sight};
use super::{FileContext, FileToolError, answer_bytes};
use crate::access::FileOperation;
use crate::workspace::Root;
use crate::workspace::resolve::{Found, Kind, resolve, swapped};

/// The folder where a search begins.
pub(super) struct Start<'a> {
    pub(super) root: &'a Root,
    pub(super) base: Dir,
    /// The base's names below the root.
    pub(super) names: Vec<OsString>,
    /// The same as one path.
    pub(super) path: Vec<u8>,
    /// What answers put before a path that is relative to the base.
    pub(super) shown_prefix: Vec<u8>,
}

/// What a search was asked to look at.
pub(super) enum Place<'a> {
    Folder(Start<'a>),
    /// A file named outright.
    File {
        root: &'a Root,
        found: Found,
    },
    /// The leading folders of the pattern are not there.
    Nowhere,
}

/// Finds and opens where a search begins, and asks the hook about it: about the folder that `path` names, and about
/// the one that the pattern leads to when that is another.
pub(super) fn place<'a>(
    context: &FileContext<'a>,
    tool: ToolName,
    path: Option<&str>,
    pattern: Option<&Pattern>,
) -> Result<Place<'a>, FileToolError> {
    let path = match (pattern.and_then(|pattern| pattern.root.as_deref()), path) {
        (Some(root), _) => root,
        (None, Some("") | None) => ".",
        (None, Some(path)) => path,
    };
    for _ in 0..ATTEMPTS {
        context.check_canceled()?;
        let (root, mut found) = context.find(path)?;
        context.ask(tool.clone(), FileOperation::Read, root, &found, path)?;
        match found.kind {
            None => return Err(not_found(&found, path)),
            Some(Kind::Folder) => {}
            Some(Kind::File) if pattern.is_none_or(|pattern| pattern.lead.is_empty()) => {
                return Ok(Place::File { root, found });
            }
            Some(Kind::File) => return Err(FileToolError::NotAFolder { path: path.to_owned() }),
            Some(kind) => return Err(not_a_file(path, kind, "name a folder")),
        }
        if let Some(pattern) = pattern.filter(|pattern| !pattern.lead.is_empty()) {
            let names = found.names().map(ToOwned::to_owned).chain(pattern.lead.iter().map(Into::into)).collect();
            let lead = pattern.lead.join("/");
            found = resolve(root, names, context.access.is_some()).map_err(|error| error.named(&lead))?;
            if found.kind != Some(Kind::Folder) {
                return Ok(Place::Nowhere);
            }
            context.ask(tool.clone(), FileOperation::Read, root, &found, &lead)?;
        }
        // Opened for listing as well, once: a folder named outright that cannot be listed is an error, no
        // partial answer.
        let base = match found.open_dir().and_then(|base| OpenDir::open(&base, b"").map(|_| base)) {
            Ok(base) => base,
            Err(error) if swapped(&error) => continue,
            Err(error) => return Err(FileToolError::io(path, "open it", error)),
        };
        let names: Vec<OsString> = found.names().map(ToOwned::to_owned).collect();
        let path = names.iter().map(|name| name_bytes(name)).collect::<Vec<_>>().join(&b'/');
        let mut shown_prefix = answer_bytes(root, &found);
        if !shown_prefix.is_empty() && !shown_prefix.ends_with(b"/") {
            shown_prefix.push(b'/');
        }
        return Ok(Place::Folder(Start { root, base, names, path, shown_prefix }));
    }
    Err(open::kept_changing(path))
}

/// A count, and the first few names in order.
#[derive(Debug, Default)]
pub(super) struct Sample {
    number: u64,
    first: Vec<(Vec<u8>, &'static str)>,
}

impl Sample {
    const NAMES: usize = 3;

    fn add(&mut self, path: Vec<u8>, why: &'static str) {
        self.number += 1;
        self.first.push((path, why));
        self.trim();
    }

    fn trim(&mut self) {
        self.first.sort();
        self.first.truncate(Self::NAMES);
    }

    fn merge(&mut self, other: Self) {
        self.number += other.number;
        self.first.extend(other.first);
        self.trim();
    }

    /// `2 files (a: why, b: why, ...)`.
    fn tell(&self, one: &str, many: &str) -> String {
        let names: Vec<String> = self
            .first
            .iter()
            .map(|(path, why)| {
                let shown = show(path);
                // A hostile name must not fill the notice.
                let short: String = shown.chars().take(160).collect();
                let dots = if short.len() < shown.len() { "..." } else { "" };
                if why.is_empty() { format!("{short}{dots}") } else { format!("{short}{dots}: {why}") }
            })
            .collect();
        let more = if self.number > self.first.len() as u64 { ", ..." } else { "" };
        format!("{} ({}{more})", count(self.number, one, many), names.join(", "))
    }
}

/// What a search did not see.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    folders: Sample,
    files: Sample,
    binary: Sample,
    long: Sample,
    hidden: u64,
    ignored: u64,
    rules_cut: u64,
}

impl Unseen {
    pub(super) fn folder(&mut self, path: Vec<u8>, error: &io::Error) {
        let path = path.strip_suffix(b"/").unwrap_or(&path);
        self.folders.add(if path.is_empty() { b".".to_vec() } else { path.to_vec() }, why(error));
    }

    pub(super) fn file(&mut self, path: Vec<u8>, error: &io::Error) {
        self.files.add(path, why(error));
    }

    pub(super) fn binary(&mut self, path: Vec<u8>) {
        self.binary.add(path, "");
    }

    pub(super) fn long_line(&mut self, path: Vec<u8>) {
        self.long.add(path, "");
    }

    pub(super) fn passed_by(&mut self, sight: Sight) {
        match sight {
            Sight::Hidden => self.hidden += 1,
            Sight::Ignored => self.ignored += 1,
            Sight::Seen | Sight::SeenByName => {}
        }
    }

    pub(super) fn rules_cut(&mut self, files: u64) {
        self.rules_cut += files;
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.rules_cut += other.rules_cut;
        self.folders.merge(other.folders);
        self.files.merge(other.files);
        self.binary.merge(other.binary);
        self.long.merge(other.long);
        self.hidden += other.hidden;
        self.ignored += other.ignored;
    }

    /// Whether results may be missing.
    pub(super) fn is_partial(&self) -> bool {
        [&self.folders, &self.files, &self.binary, &self.long].iter().any(|sample| sample.number > 0)
    }

    /// A notice for everything that may be missing from the results.
    pub(super) fn notices(&self, notices: &mut Vec<String>) {
        if self.folders.number > 0 {
            notices.push(format!("partial: could not look into {}", self.folders.tell("folder", "folders")));
        }
        if self.files.number > 0 {
            notices.push(format!("partial: could not read {}", self.files.tell("file", "files")));
        }
        if self.binary.number > 0 {
            notices.push(format!("skipped {}", self.binary.tell("binary file", "binary files")));
        }
        if self.long.number > 0 {
            let files = self.long.tell("file", "files");
            notices.push(format!("partial: searched {files} only up to a line of more than 8 MiB"));
        }
        if self.rules_cut > 0 {
            let files = count(self.rules_cut, "ignore file counts", "ignore files count");
            let most = grouped(MAX_RULES as u64);
            notices.push(format!("{files} only in part: no more than {most} rules are looked at in one place"));
        }
    }

    /// What was passed by because it is hidden or ignored; none when nothing was.
    pub(super) fn passed_by_text(&self) -> Option<String> {
        let hidden = count(self.hidden, "hidden name", "hidden names");
        let ignored = count(self.ignored, "ignored name", "ignored names");
        let told = match (self.hidden, self.ignored) {
            (0, 0) => return None,
            (_, 0) => hidden,
            (0, _) => ignored,
            _ => format!("{hidden} and {ignored}"),
        };
        Some(format!("{told} passed by; to see one, name it in path or pattern"))
    }
}

/// The system's reason in few words that hold no path.
fn why(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "no permission",
        io::ErrorKind::InvalidFilename => "path too long",
        _ if swapped(error) => "changed meanwhile",
        _ => "input/output error",
    }
}
