//! The first results in order, as many as an answer holds, out of any number in any order.

use std::collections::BTreeMap;

use super::budget::Budget;

/// A path and a line in it; searches without lines use 0.
type Key = (Vec<u8>, u64);

/// Keeps the smallest results that fit and counts them all: memory does not grow with the tree.
///
/// Exact: what is kept is the start of the sorted list of everything offered, since a result only goes when
/// smaller ones fill the answer without it.
#[derive(Debug)]
pub(super) struct Smallest {
    kept: BTreeMap<Key, String>,
    budget: Budget,
    /// From here on nothing fits.
    cut: Option<Key>,
    total: u64,
}

impl Smallest {
    pub(super) fn new() -> Self {
        Self { kept: BTreeMap::new(), budget: Budget::new(), cut: None, total: 0 }
    }

    /// Whether a result of this key could still be kept.
    pub(super) fn has_room_for(&self, path: &[u8], line: u64) -> bool {
        match &self.cut {
            Some((cut_path, cut_line)) => (path, line) < (cut_path.as_slice(), *cut_line),
            None => true,
        }
    }

    /// Counts results that need not be kept.
    pub(super) fn count(&mut self, number: u64) {
        self.total += number;
    }

    /// Counts one result and keeps its text when there is room.
    pub(super) fn offer(&mut self, path: &[u8], line: u64, text: impl FnOnce() -> String) {
        self.total += 1;
        if self.has_room_for(path, line) {
            let mut text = text();
            text.push('\n');
            self.keep((path.to_vec(), line), text);
        }
    }

    fn keep(&mut self, key: Key, text: String) {
        while !self.budget.take(&text) {
            match self.kept.pop_last() {
                Some((largest, given_up)) if largest > key => {
                    self.budget.give_back(&given_up);
                    self.cut = Some(largest);
                }
                last => {
                    self.kept.extend(last);
                    self.cut = Some(key);
                    return;
                }
            }
        }
        self.kept.insert(key, text);
    }

    /// Joins what two threads found.
    pub(super) fn merge(&mut self, other: Self) {
        self.total += other.total;
        // What either side gave up bounds both: a larger result of the other side would leave a gap.
        if let Some(cut) = other.cut.filter(|cut| self.has_room_for(&cut.0, cut.1)) {
            for (_, text) in self.kept.split_off(&cut) {
                self.budget.give_back(&text);
            }
            self.cut = Some(cut);
        }
        for ((path, line), text) in other.kept {
            if self.has_room_for(&path, line) {
                self.keep((path, line), text);
            }
        }
    }

    /// How many were offered.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// How many are kept.
    pub(super) fn shown(&self) -> u64 {
        self.kept.len() as u64
    }

    /// How many different paths are kept.
    pub(super) fn shown_paths(&self) -> u64 {
        let mut paths = 0;
        let mut last: Option<&[u8]> = None;
        for (path, _) in self.kept.keys() {
            if last != Some(path) {
                paths += 1;
                last = Some(path);
            }
        }
        paths
    }

    /// The kept texts, a line each, in order.
    pub(super) fn into_text(self) -> String {
        let mut text: String = self.kept.into_values().collect();
        text.pop();
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In whatever order results come, and over however many threads, the answer is the start of the sorted list.
    #[test]
    fn the_first_in_order_are_kept_whatever_the_order_of_arrival() {
        let names: Vec<String> = (0..20_000_u32).map(|i| format!("dir{}/file{:05}.txt", i % 7, i)).collect();
        let mut sorted = names.clone();
        sorted.sort();
        let expected: Vec<String> = {
            let mut budget = Budget::new();
            sorted.into_iter().take_while(|name| budget.take(&format!("{name}\n"))).collect()
        };
        assert!(expected.len() > 100 && expected.len() < names.len());
        for stride in [1_usize, 7919, 12_347] {
            let mut parts: Vec<Smallest> = (0..3).map(|_| Smallest::new()).collect();
            for step in 0..names.len() {
                let name = &names[step * stride % names.len()];
                parts[step % 3].offer(name.as_bytes(), 0, || name.clone());
            }
            let mut all = Smallest::new();
            parts.into_iter().for_each(|part| all.merge(part));
            assert_eq!(all.total(), 20_000);
            assert_eq!(all.shown(), expected.len() as u64);
            assert_eq!(all.into_text(), expected.join("\n"));
        }
    }
}
