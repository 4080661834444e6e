//! Credentials that never show themselves.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A credential on the wire. `Debug` shows nothing of it and there is no
/// `Display`; [`expose`](Secret::expose) is the one way to its text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a credential.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The credential itself. Never log, print or put into a URL what this returns.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is no credential.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for Secret {
    fn default() -> Self {
        Self("".into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(deserializer)?.into()))
    }
}
