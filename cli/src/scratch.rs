//! A directory that lives as long as its owner.

use std::io;
use std::path::{Path, PathBuf};

/// A fresh directory that only this user can enter, removed with everything in it when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one among the system's temporary files. `suffix` makes its name unique.
    pub(crate) fn new(suffix: &str) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let path = std::env::temp_dir().join(format!("bma-demo-{suffix}"));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        // Without links in its own path: what tools say of it can be compared.
        path.canonicalize().map(|path| Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it now.
    pub(crate) fn remove(&self) -> io::Result<()> {
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nobody is left to be told.
        let _ = self.remove();
    }
}
