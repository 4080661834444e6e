//! Which names a search sees: the rule of the [module's page](super), in code.

use std::ffi::OsString;
use std::io::Read;
use std::sync::Arc;

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;
use globset::{Glob, GlobSet, GlobSetBuilder};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::pattern::is_special;
use super::platform::{OpenDir, name_bytes, os_name};

/// As many rules count in a folder, its own and those from above together, and as many bytes of their text. A compiled
/// rule can take ten thousand bytes.
pub(super) const MAX_RULES: usize = 2048;
const MAX_RULES_BYTES: usize = 256 * 1024;

/// What the caller named outright, so that it is seen though it is hidden or ignored.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Parts of the pattern that begin with a dot.
    dotted: GlobSet,
    has_dotted: bool,
    /// Parts of the pattern that are plain names.
    plain: Vec<Vec<u8>>,
}

impl Named {
    pub(super) fn of<'p>(parts: impl Iterator<Item = &'p str>) -> Self {
        let mut named = Self::default();
        let mut dotted = GlobSetBuilder::new();
        for part in parts {
            // A brace may span parts; such a fragment is no pattern by itself and names nothing outright.
            if let (true, Ok(glob)) = (part.starts_with('.'), Glob::new(part)) {
                dotted.add(glob);
                named.has_dotted = true;
            }
            if !is_special(part) {
                named.plain.push(part.as_bytes().to_vec());
            }
        }
        named.dotted = dotted.build().unwrap_or_default();
        named
    }

    fn hidden_is_seen(&self, name: &[u8]) -> bool {
        self.has_dotted && self.dotted.is_match(os_name(name))
    }

    fn ignored_is_seen(&self, name: &[u8]) -> bool {
        self.plain.iter().any(|plain| plain == name)
    }
}

/// The ignore files that count in a folder: its own, and those of the folders above.
#[derive(Debug)]
pub(super) struct IgnoreFiles {
    above: Option<Arc<IgnoreFiles>>,
    rules: Gitignore,
    /// The bytes of the folder's own path and slash, which its rules do not see.
    skip: usize,
    /// How much of what may count is taken, with what is above.
    taken: Taken,
    /// Some of the folder's own rules do not count.
    cut: bool,
}

/// Rules, and bytes of their text.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    rules: usize,
    bytes: usize,
}

impl IgnoreFiles {
    /// Adds the folder's own ignore file, if it has one. `path` is the folder's, relative to the root.
    pub(super) fn enter(above: Option<Arc<Self>>, folder: &OpenDir, path: &[u8]) -> Option<Arc<Self>> {
        let Ok(Some(file)) = folder.open_file(b".gitignore") else { return above };
        let mut taken = above.as_ref().map_or_else(Taken::default, |above| above.taken);
        let room = MAX_RULES_BYTES.saturating_sub(taken.bytes);
        let mut text = Vec::new();
        // One byte more shows that there is more.
        if file.take(room as u64 + 1).read_to_end(&mut text).is_err() {
            return above;
        }
        let mut cut = text.len() > room;
        if cut {
            // A rule that is not whole is another one.
            text.truncate(memchr::memrchr(b'\n', &text).unwrap_or(0));
        }
        taken.bytes += text.len();
        let mut builder = GitignoreBuilder::new(".");
        for line in String::from_utf8_lossy(&text).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if taken.rules == MAX_RULES {
                cut = true;
                break;
            }
            taken.rules += 1;
            // A line that is no pattern excludes nothing, as in git.
            let _ = builder.add_line(None, line);
        }
        match builder.build() {
            Ok(rules) if !rules.is_empty() || cut => {
                let skip = if path.is_empty() { 0 } else { path.len() + 1 };
                Some(Arc::new(Self { above, rules, skip, taken, cut }))
            }
            _ => above,
        }
    }

    /// How many of the ignore files count only in part: the folder's own and those above, as far as `above` does not
    /// know of them.
    pub(super) fn cut_since(files: Option<&Arc<Self>>, above: Option<&Arc<Self>>) -> u64 {
        let chain = std::iter::successors(files, |files| files.above.as_ref());
        let new = chain.take_while(|files| above.is_none_or(|above| !Arc::ptr_eq(files, above)));
        new.filter(|files| files.cut).count() as u64
    }

    /// The ignore files that count inside the folder `names` below `root`, its own excepted.
    ///
    /// Where that folder, or one on the way, is itself ignored, the caller named it all the same, and what
    /// excluded it ends there.
    pub(super) fn down_to(root: &Dir, names: &[OsString]) -> Option<Arc<Self>> {
        let mut files: Option<Arc<Self>> = None;
        let mut path: Vec<u8> = Vec::new();
        let mut folder = root.try_clone().ok()?;
        for name in names {
            if let Ok(listing) = OpenDir::open(&folder, b"") {
                files = Self::enter(files, &listing, &path);
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name_bytes(name));
            if files.as_ref().is_some_and(|files| files.excludes_all_of(&path)) {
                files = None;
            }
            // Gone or swapped: nothing below it will be found either.
            folder = folder.open_dir_nofollow(name).ok()?;
        }
        files
    }

    /// Whether the folder is ignored, or whatever stands in it.
    fn excludes_all_of(&self, folder: &[u8]) -> bool {
        // A name that no rule was written for.
        const ANY_NAME: &[u8] = b"/\x01any name\x01";
        self.excludes(folder, true) || self.excludes(&[folder, ANY_NAME].concat(), false)
    }

    /// Whether the nearest rule about `path`, relative to the root, excludes it.
    fn excludes(&self, path: &[u8], is_folder: bool) -> bool {
        let mut files = Some(self);
        while let Some(here) = files {
            match here.rules.matched(os_name(path.get(here.skip..).unwrap_or(path)), is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => files = here.above.as_deref(),
            }
        }
        false
    }
}

/// What the rule says about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    Seen,
    /// Ignored, but named by the caller: what excluded it ends here.
    SeenByName,
    Hidden,
    Ignored,
}

/// Applies the rule to the entry `name` whose path from the root is `path`.
pub(super) fn look(named: &Named, files: Option<&IgnoreFiles>, path: &[u8], name: &[u8], is_folder: bool) -> Sight {
    if name.first() == Some(&b'.') && !named.hidden_is_seen(name) {
        return Sight::Hidden;
    }
    match files {
        Some(files) if files.excludes(path, is_folder) => {
            if named.ignored_is_seen(name) {
                Sight::SeenByName
            } else {
                Sight::Ignored
            }
        }
        _ => Sight::Seen,
    }
}
