//! `glob`: files whose paths match a pattern.

use std::io;

use bma_proto_core::contract::{GlobInput, ToolName};

use super::names::{count, show};
use super::pattern::Pattern;
use super::platform::OpenDir;
use super::search::{Place, Start, Unseen, place};
use super::smallest::Smallest;
use super::visible::{IgnoreFiles, Sight};
use super::walk::{Visit, Walk};
use super::{FileContext, FileToolError, ToolText};

/// Lists the files that match `pattern` below `path` (the workspace when not given), a path to a line, in the
/// order of their bytes.
///
/// The paths are relative to the workspace (absolute in a mount), so that other tools take them as they
/// stand. `*` stops at `/`, `**` does not. What a search sees is the [module's rule](super). What does not
/// fit is counted in a notice.
///
/// # Errors
/// When the pattern is malformed or leaves the workspace, or `path` is no folder inside it.
pub fn glob(context: &FileContext<'_>, input: &GlobInput) -> Result<ToolText, FileToolError> {
    let pattern = Pattern::parse("pattern", &input.pattern, context.workspace)?;
    let start = match place(context, ToolName::Glob, input.path.as_deref(), Some(&pattern))? {
        Place::Folder(start) => start,
        Place::File { .. } => {
            return Err(FileToolError::NotAFolder { path: input.path.clone().unwrap_or_default() });
        }
        Place::Nowhere => return Ok(nothing(input, &Unseen::default())),
    };
    let walk = Walk {
        base: &start.base,
        base_path: &start.path,
        ignore: IgnoreFiles::down_to(&start.root.dir, &start.names),
        named: &pattern.named,
        cancel: context.cancel,
    };
    let visitor = || Matches { start: &start, pattern: &pattern, files: Smallest::new(), unseen: Unseen::default() };
    let mut files = Smallest::new();
    let mut unseen = Unseen::default();
    for visitor in walk.run((0..context.threads()).map(|_| visitor()).collect()) {
        files.merge(visitor.files);
        unseen.merge(visitor.unseen);
    }
    context.check_canceled()?;
    if files.total() == 0 {
        return Ok(nothing(input, &unseen));
    }
    let mut notices = Vec::new();
    let left_out = files.total() - files.shown();
    if left_out > 0 {
        let more = count(left_out, "more file", "more files");
        notices.push(format!("{more} not shown; narrow the pattern or give a path"));
    }
    unseen.notices(&mut notices);
    let partial = left_out > 0 || unseen.is_partial();
    Ok(ToolText::assemble(files.into_text(), notices, partial))
}

fn nothing(input: &GlobInput, unseen: &Unseen) -> ToolText {
    let mut notices = vec![format!("no file matches {}", show(input.pattern.as_bytes()))];
    unseen.notices(&mut notices);
    notices.extend(unseen.passed_by_text());
    ToolText::assemble(String::new(), notices, unseen.is_partial())
}

struct Matches<'a> {
    start: &'a Start<'a>,
    pattern: &'a Pattern,
    files: Smallest,
    unseen: Unseen,
}

impl Visit for Matches<'_> {
    const HEAVY: bool = false;

    fn wants(&mut self, path: &[u8]) -> bool {
        self.pattern.matches(path)
    }

    fn file(&mut self, _folder: &OpenDir, _name: &[u8], path: &[u8]) {
        self.files.offer(path, 0, || show(&[&self.start.shown_prefix, path].concat()).into_owned());
    }

    fn unreadable(&mut self, path: &[u8], error: &io::Error) {
        self.unseen.folder([&self.start.shown_prefix, path].concat(), error);
    }

    fn passed_by(&mut self, sight: Sight) {
        self.unseen.passed_by(sight);
    }

    fn rules_cut(&mut self, files: u64) {
        self.unseen.rules_cut(files);
    }
}
