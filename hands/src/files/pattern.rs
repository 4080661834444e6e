//! Glob patterns: where a search for one begins, and what it matches from there.
//!
//! Only the pattern is a pattern: the folder it is looked for in is an open handle, so its own special characters
//! mean nothing. `*` and `?` stop at `/`, `**` does not; `[...]`, `{a,b}` and `\` work as usual.

use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use super::FileToolError;
use super::visible::Named;
use crate::workspace::{PathError, Workspace};

/// The longest pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 4096;

/// A checked pattern.
#[derive(Debug)]
pub(super) struct Pattern {
    /// For an absolute pattern the spelling of the root that it began with.
    pub(super) root: Option<String>,
    /// The leading folders without special characters: the search begins below them.
    pub(super) lead: Vec<String>,
    /// Matches paths relative to where the search begins.
    matcher: GlobSet,
    /// What the pattern names outright.
    pub(super) named: Named,
}

impl Pattern {
    /// Reads a pattern that matches whole paths.
    pub(super) fn parse(member: &'static str, text: &str, workspace: &Workspace) -> Result<Self, FileToolError> {
        let invalid = |problem: String| FileToolError::InvalidInput { member, problem };
        if text.is_empty() {
            return Err(invalid("it is empty; `**/*` matches every file".to_owned()));
        }
        if text.contains('\0') || text.len() > MAX_PATTERN_BYTES {
            return Err(invalid(format!("it holds a NUL character or has more than {MAX_PATTERN_BYTES} bytes")));
        }
        let (root, relative) = take_root_off(text, workspace)?;
        let plain = relative.replace('\\', "");
        if plain.split(['/', '{', '}', ',']).any(|part| part == "..") {
            return Err(outside(text, "a pattern cannot hold `..`; give the folder as path"));
        }
        if has_absolute_alternative(relative) {
            return Err(outside(text, "an alternative of it is absolute; give the folder as path"));
        }
        let mut parts: Vec<&str> = relative.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        // A folder's name stands for what is in it.
        if relative.ends_with('/') || parts.is_empty() {
            parts.push("**");
        }
        let literal = parts.iter().take_while(|part| !is_special(part)).count().min(parts.len() - 1);
        let (lead, rest) = parts.split_at(literal);
        let matcher = compile(&rest.join("/")).map_err(invalid)?;
        Ok(Self {
            root,
            lead: lead.iter().map(|part| (*part).to_owned()).collect(),
            matcher,
            named: Named::of(rest.iter().copied()),
        })
    }

    /// Reads a filter on files: without a `/` it matches the name in any folder.
    pub(super) fn parse_filter(member: &'static str, text: &str, workspace: &Workspace) -> Result<Self, FileToolError> {
        if text.is_empty() || text.contains('/') {
            Self::parse(member, text, workspace)
        } else {
            Self::parse(member, &format!("**/{text}"), workspace)
        }
    }

    /// Whether the file at `path`, relative to where the search begins, is meant.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.matcher.is_match(super::platform::os_name(path))
    }
}

/// What a search leaves out, relative to the folder that it was asked to search.
#[derive(Debug)]
pub(super) struct Exclusion {
    matcher: GlobSet,
    /// For a pattern that excludes all that is in some folders: those folders.
    folders: GlobSet,
}

impl Exclusion {
    /// Reads what stands after the `!` of a filter. Without a `/` it is a name in any folder.
    pub(super) fn parse(member: &'static str, text: &str, workspace: &Workspace) -> Result<Self, FileToolError> {
        // Read as a filter for its checks and its root; an exclusion does not move where the search begins.
        Pattern::parse_filter(member, text, workspace)?;
        let (root, relative) = take_root_off(text, workspace)?;
        let parts: Vec<&str> = relative.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let mut whole = parts.join("/");
        if root.is_none() && !text.contains('/') {
            whole.insert_str(0, "**/");
        }
        if relative.ends_with('/') {
            whole.push_str("/**");
        }
        let invalid = |problem| FileToolError::InvalidInput { member, problem };
        let folders = compile(whole.strip_suffix("/**").unwrap_or(&whole)).map_err(invalid)?;
        Ok(Self { matcher: compile(&whole).map_err(invalid)?, folders })
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.matcher.is_match(super::platform::os_name(path))
    }

    pub(super) fn matches_folder(&self, path: &[u8]) -> bool {
        self.folders.is_match(super::platform::os_name(path))
    }
}

/// A part of a pattern that is more than a name.
pub(super) fn is_special(part: &str) -> bool {
    part.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

/// Whether an alternative begins with a `/` where a name has to begin, so that it is a path of its own: `{/etc,a}` and
/// `src/{/etc,a}`, but not `src{/a,/b}`, where it ends the name before it.
fn has_absolute_alternative(pattern: &str) -> bool {
    // Whether a name begins here; and of each open group, whether one begins with it, and may begin after it.
    let (mut begins, mut groups) = (true, Vec::<(bool, bool)>::new());
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        match (next, groups.last_mut()) {
            ('/', Some(_)) if begins => return true,
            ('/', _) => begins = true,
            ('{', _) => groups.push((begins, false)),
            (',', Some((before, after))) => (*after, begins) = (*after || begins, *before),
            ('}', Some(&mut (_, after))) => {
                begins |= after;
                groups.pop();
            }
            ('[', _) => {
                begins = false;
                // A class: `]` as its first character is one of it.
                let start = rest.clone().take_while(|c| matches!(c, '!' | '^')).count();
                rest.by_ref().take(start + 1).for_each(drop);
                rest.by_ref().take_while(|c| *c != ']').for_each(drop);
            }
            ('\\', _) if rest.clone().next() == Some('/') => {}
            ('\\', _) => {
                begins = false;
                rest.next();
            }
            _ => begins = false,
        }
    }
    false
}

/// A set of one: it finds the fast way for the usual shapes (`*.rs`, `**/name`).
pub(super) fn compile(pattern: &str) -> Result<GlobSet, String> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
    let set = glob.and_then(|glob| GlobSetBuilder::new().add(glob).build());
    set.map_err(|error| format!("`{pattern}` is no glob pattern: {}", error.kind()))
}

/// Takes a spelling of a root off the front of an absolute pattern, as text: its special characters are no pattern.
fn take_root_off<'t>(text: &'t str, workspace: &Workspace) -> Result<(Option<String>, &'t str), FileToolError> {
    if !Path::new(text).has_root() {
        return Ok((None, text));
    }
    let mut best: Option<(&'t str, &'t str)> = None;
    for spelling in workspace.roots().flat_map(|root| root.spellings()).filter_map(Path::to_str) {
        let Some(rest) = text.strip_prefix(spelling) else { continue };
        let whole_names = rest.is_empty() || rest.starts_with('/') || spelling.ends_with('/');
        if whole_names && best.is_none_or(|(taken, _)| taken.len() < spelling.len()) {
            best = Some((&text[..spelling.len()], rest));
        }
    }
    match best {
        Some((taken, rest)) => Ok((Some(taken.to_owned()), rest.trim_start_matches('/'))),
        None => Err(outside(text, "it is absolute and does not begin with the workspace's own path")),
    }
}

fn outside(pattern: &str, why: &str) -> FileToolError {
    PathError::Outside { path: pattern.to_owned(), why: why.to_owned() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternative_is_absolute_where_a_name_has_to_begin() {
        for absolute in [
            "{/etc,a}",
            "{a,/etc}",
            "src/{/etc,a}",
            "src/{a,/etc}/*",
            "src/{a,{b,/etc}}",
            "*/{{/etc,a},b}",
            "src{/a,/b}/{/c,d}",
            "{a/,b}{/c,d}",
            "src/{\\/etc,a}",
            "[{]/{/etc,a}",
        ] {
            assert!(has_absolute_alternative(absolute), "{absolute}");
        }
        for relative in
            ["src{/a,/b}", "{a,b}{/c,/d}", "{a/,b}", "{a,{b,c}/d}", "a//b", "[{]/[/],/", "\\{/a,b", "[]{]/x", "a,/b"]
        {
            assert!(!has_absolute_alternative(relative), "{relative}");
        }
    }
}
