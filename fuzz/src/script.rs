//! The language of the machines' targets: one step on each line, a word and
//! numbers. A fuzzer makes anything of it, and a person can read and write it.

/// Lines of a script that are taken; a fuzzer's longer ones would only be slow.
const MAX_STEPS: usize = 400;

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step<'a> {
    pub(crate) word: &'a str,
    pub(crate) rest: &'a str,
}

/// The steps of a script.
pub(crate) fn steps(text: &str) -> impl Iterator<Item = Step<'_>> {
    text.lines().take(MAX_STEPS).map(|line| {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        Step { word, rest }
    })
}

impl<'a> Step<'a> {
    /// The word at this place after the first.
    pub(crate) fn argument(&self, place: usize) -> &'a str {
        self.rest.split(' ').nth(place).unwrap_or("")
    }

    /// The number at this place, up to a bound.
    pub(crate) fn number(&self, place: usize, bound: u64) -> u64 {
        self.argument(place).parse::<u64>().unwrap_or(0).min(bound)
    }
}
