//! One writer at a time for each file of this process, whatever session it comes from.
//!
//! A lock belongs to a name in a folder, the folder told by its identity: that holds while the file behind the
//! name is replaced, and however the way to it was spelt. The table is as large as the number of
//! calls at work, which the thread pool bounds.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cap_fs_ext::MetadataExt;
use cap_std::fs::Dir;

use super::FileToolError;

type Place = (u64, u64, OsString);

static HELD: Mutex<BTreeSet<Place>> = Mutex::new(BTreeSet::new());
static RELEASED: Condvar = Condvar::new();

/// How long a waiter sleeps before it looks whether its call was canceled.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A name that no other call of this process writes to.
#[derive(Debug)]
pub(super) struct WriteLock {
    place: Place,
}

/// Waits until `name` in `folder` is nobody's, or the call is canceled.
pub(super) fn lock(folder: &Dir, name: &OsStr, path: &str, cancel: &AtomicBool) -> Result<WriteLock, FileToolError> {
    let metadata = folder.dir_metadata().map_err(|error| FileToolError::io(path, "look at its folder", error))?;
    let place = (metadata.dev(), metadata.ino(), name.to_owned());
    let mut held = table();
    while held.contains(&place) {
        if cancel.load(Ordering::Relaxed) {
            return Err(FileToolError::Canceled);
        }
        held = RELEASED.wait_timeout(held, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
    }
    held.insert(place.clone());
    Ok(WriteLock { place })
}

fn table() -> MutexGuard<'static, BTreeSet<Place>> {
    // No code of ours panics while it holds the table, and the set is whole even then.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for WriteLock {
    fn drop(&mut self) {
        table().remove(&self.place);
        RELEASED.notify_all();
    }
}
