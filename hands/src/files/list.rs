//! `list_files`: what stands in a folder.

use std::ops::ControlFlow;

use bma_proto_core::contract::{ListFilesInput, ToolName};

use super::names::{count, show};
use super::platform::OpenDir;
use super::search::{Place, Unseen, place};
use super::smallest::Smallest;
use super::visible::{self, IgnoreFiles, Named, Sight};
use super::{FileContext, FileToolError, ToolText};
use crate::workspace::resolve::Kind;

/// Lists the entries of the folder `path` (the workspace when not given), not those of its folders: a path to
/// a line, in the order of their bytes. A folder's path ends in `/`; a link, pipe, socket or device says what
/// it is.
///
/// What is hidden or ignored is counted and not shown. In a folder that is itself ignored, the rules above it do not
/// count; the [module's rule](super) says more.
///
/// # Errors
/// When `path` is no folder inside the workspace, or may not be read.
pub fn list_files(context: &FileContext<'_>, input: &ListFilesInput) -> Result<ToolText, FileToolError> {
    let path = input.path.as_deref().filter(|path| !path.is_empty()).unwrap_or(".");
    let Place::Folder(start) = place(context, ToolName::ListFiles, Some(path), None)? else {
        return Err(FileToolError::NotAFolder { path: path.to_owned() });
    };
    let failed = |error| FileToolError::io(path, "list it", error);
    let folder = OpenDir::open(&start.base, b"").map_err(failed)?;
    let ignore = IgnoreFiles::enter(IgnoreFiles::down_to(&start.root.dir, &start.names), &folder, &start.path);
    let mut entries = Smallest::new();
    let mut unseen = Unseen::default();
    unseen.rules_cut(IgnoreFiles::cut_since(ignore.as_ref(), None));
    let mut full = start.path.clone();
    if !full.is_empty() {
        full.push(b'/');
    }
    let names_from = full.len();
    let listed = folder.entries(|name, kind| {
        full.truncate(names_from);
        full.extend_from_slice(name);
        match visible::look(&Named::default(), ignore.as_deref(), &full, name, kind.is_dir()) {
            Sight::Seen | Sight::SeenByName => {
                entries.offer(name, 0, || {
                    let mut line = show(&[&start.shown_prefix, name].concat()).into_owned();
                    line.push_str(suffix(kind));
                    line
                });
            }
            sight => unseen.passed_by(sight),
        }
        match context.check_canceled() {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    });
    context.check_canceled()?;
    listed.map_err(failed)?;
    let mut notices = Vec::new();
    let left_out = entries.total() - entries.shown();
    if entries.total() == 0 {
        notices.push("the folder shows nothing".to_owned());
    }
    if left_out > 0 {
        notices.push(format!(
            "{} not shown; glob with a pattern shows a part",
            count(left_out, "more entry", "more entries")
        ));
    }
    unseen.notices(&mut notices);
    notices.extend(unseen.passed_by_text());
    Ok(ToolText::assemble(entries.into_text(), notices, left_out > 0))
}

fn suffix(kind: Kind) -> &'static str {
    match kind {
        Kind::Folder => "/",
        Kind::File => "",
        Kind::Link => " (link)",
        Kind::Pipe => " (pipe)",
        Kind::Socket => " (socket)",
        Kind::Device => " (device)",
        Kind::Other => " (no file)",
    }
}
