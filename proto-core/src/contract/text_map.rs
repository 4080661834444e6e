//! Texts by name: environments and metadata.

use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Serialize};

/// Texts by name, in the order of their names: an environment, metadata.
///
/// A value can be a credential (`model_token` in the metadata of a turn, an API
/// key in an environment), so `Debug` shows the names only. Everything else is
/// the `BTreeMap` that it dereferences to.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TextMap(BTreeMap<String, String>);

impl TextMap {
    /// An empty map.
    pub const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Whether there is no text. (Also what keeps an empty map off the wire.)
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Deref for TextMap {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for TextMap {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl fmt::Debug for TextMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl From<BTreeMap<String, String>> for TextMap {
    fn from(texts: BTreeMap<String, String>) -> Self {
        Self(texts)
    }
}

impl From<TextMap> for BTreeMap<String, String> {
    fn from(texts: TextMap) -> Self {
        texts.0
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for TextMap {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(texts: I) -> Self {
        Self(texts.into_iter().map(|(name, text)| (name.into(), text.into())).collect())
    }
}

impl<K: Into<String>, V: Into<String>, const N: usize> From<[(K, V); N]> for TextMap {
    fn from(texts: [(K, V); N]) -> Self {
        texts.into_iter().collect()
    }
}

impl IntoIterator for TextMap {
    type Item = (String, String);
    type IntoIter = btree_map::IntoIter<String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a TextMap {
    type Item = (&'a String, &'a String);
    type IntoIter = btree_map::Iter<'a, String, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
