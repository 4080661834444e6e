//! Walking a tree on several threads, by handle: every folder is opened below the handle where the walk
//! began, and links are not walked into. Should one be swapped in at the wrong moment, it can lead to
//! another place below that handle at most: nothing outside is ever listed or opened.
//!
//! Folders wait on one stack, last in, first out; so what waits is about as much as the tree is deep. When a
//! wide tree fills the stack all the same, folders are walked where they are found instead, and memory stays
//! flat.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cap_std::fs::Dir;

use super::platform::OpenDir;
use super::visible::{self, IgnoreFiles, Named, Sight};
use crate::workspace::resolve::Kind;

/// As many folders wait at most.
const MAX_WAITING: usize = 8 * 1024;
/// As many folders deep a full stack is bypassed: each level holds a descriptor and some of the thread's stack.
const MAX_INLINE_DEPTH: usize = 64;
/// As many files of one folder are handed to another thread at a time.
const FILES_A_BATCH: usize = 64;
/// How long an idle thread sleeps before it looks whether the call was canceled.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What one thread of a walk does with the files it meets.
pub(super) trait Visit: Send {
    /// Whether files are worth sharing out among threads, because each is read.
    const HEAVY: bool;

    /// Whether the file at `path`, relative to where the walk began, is meant at all.
    fn wants(&mut self, path: &[u8]) -> bool;

    /// Visits a wanted file, the entry `name` of `folder`.
    fn file(&mut self, folder: &OpenDir, name: &[u8], path: &[u8]);

    /// Whether the folder at `path` is to be left out with all that is in it.
    fn prunes(&mut self, _path: &[u8]) -> bool {
        false
    }

    /// A folder that cannot be opened or listed to its end.
    fn unreadable(&mut self, path: &[u8], error: &std::io::Error);

    /// A name that the rule passes by.
    fn passed_by(&mut self, sight: Sight);

    /// So many ignore files count only in part.
    fn rules_cut(&mut self, files: u64);
}

/// Where a walk begins and what it sees.
pub(super) struct Walk<'w> {
    /// The folder where the walk begins.
    pub(super) base: &'w Dir,
    /// That folder's path from the root, which ignore files are about.
    pub(super) base_path: &'w [u8],
    /// The ignore files above it.
    pub(super) ignore: Option<Arc<IgnoreFiles>>,
    pub(super) named: &'w Named,
    pub(super) cancel: &'w AtomicBool,
}

enum Job {
    Folder { path: Vec<u8>, ignore: Option<Arc<IgnoreFiles>> },
    Files { folder: Arc<OpenDir>, path: Vec<u8>, names: Vec<Vec<u8>> },
}

struct Waiting {
    jobs: Vec<Job>,
    at_work: usize,
}

struct Shared<'w> {
    walk: &'w Walk<'w>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    threads: usize,
}

impl Walk<'_> {
    /// Visits everything, with one visitor to a thread; gives the visitors back. After a cancel it has
    /// visited a part.
    pub(super) fn run<V: Visit>(&self, mut visitors: Vec<V>) -> Vec<V> {
        let first = Job::Folder { path: Vec::new(), ignore: self.ignore.clone() };
        let shared = Shared {
            walk: self,
            waiting: Mutex::new(Waiting { jobs: vec![first], at_work: 0 }),
            changed: Condvar::new(),
            threads: visitors.len(),
        };
        std::thread::scope(|scope| {
            let shared = &shared;
            if let Some((mine, others)) = visitors.split_first_mut() {
                mine.rules_cut(IgnoreFiles::cut_since(self.ignore.as_ref(), None));
                for visitor in others {
                    // Without another thread this one does it all.
                    let _ = std::thread::Builder::new()
                        .name("bma-file-search".to_owned())
                        .spawn_scoped(scope, move || shared.work(visitor));
                }
                shared.work(mine);
            }
        });
        visitors
    }
}

impl Shared<'_> {
    fn canceled(&self) -> bool {
        self.walk.cancel.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // A visitor that panics does so outside the lock, and the walk ends with its panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work<V: Visit>(&self, visitor: &mut V) {
        while let Some(job) = self.next() {
            let done = Done(self);
            match job {
                Job::Folder { path, ignore } => self.folder(visitor, path, ignore, 0),
                Job::Files { folder, path, names } => self.files(visitor, &folder, &path, &names),
            }
            drop(done);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut waiting = self.lock();
        loop {
            if self.canceled() {
                return None;
            }
            if let Some(job) = waiting.jobs.pop() {
                waiting.at_work += 1;
                return Some(job);
            }
            if waiting.at_work == 0 {
                return None;
            }
            waiting = self.changed.wait_timeout(waiting, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn push(&self, jobs: &mut Vec<Job>) {
        if !jobs.is_empty() {
            self.lock().jobs.append(jobs);
            self.changed.notify_all();
        }
    }

    fn folder<V: Visit>(&self, visitor: &mut V, path: Vec<u8>, above: Option<Arc<IgnoreFiles>>, depth: usize) {
        let folder = match OpenDir::open(self.walk.base, &path) {
            Ok(folder) => Arc::new(folder),
            Err(error) => return visitor.unreadable(&path, &error),
        };
        let mut full = self.walk.base_path.to_vec();
        join(&mut full, &path);
        let ignore = IgnoreFiles::enter(above.clone(), &folder, &full);
        visitor.rules_cut(IgnoreFiles::cut_since(ignore.as_ref(), above.as_ref()));
        // Paths of entries are made in place: cut back to the folder, add the name.
        let (mut entry, mut full_entry) = (path.clone(), full);
        let (entry_start, full_start) = (start_of_name(&mut entry), start_of_name(&mut full_entry));
        let mut found = Vec::new();
        let mut batch: Vec<Vec<u8>> = Vec::new();
        let listed = folder.entries(|name, kind| {
            if self.canceled() {
                return ControlFlow::Break(());
            }
            if !matches!(kind, Kind::Folder | Kind::File) {
                return ControlFlow::Continue(());
            }
            entry.truncate(entry_start);
            entry.extend_from_slice(name);
            full_entry.truncate(full_start);
            full_entry.extend_from_slice(name);
            // The cheaper question first.
            if kind == Kind::File && !visitor.wants(&entry) {
                return ControlFlow::Continue(());
            }
            let is_folder = kind == Kind::Folder;
            let inherited = match visible::look(self.walk.named, ignore.as_deref(), &full_entry, name, is_folder) {
                Sight::Seen => ignore.clone(),
                Sight::SeenByName => None,
                sight => {
                    visitor.passed_by(sight);
                    return ControlFlow::Continue(());
                }
            };
            if is_folder {
                if visitor.prunes(&entry) {
                    return ControlFlow::Continue(());
                }
                if found.len() >= MAX_WAITING / 2 {
                    self.push(&mut found);
                }
                if depth < MAX_INLINE_DEPTH && found.len() >= 16 && self.lock().jobs.len() >= MAX_WAITING {
                    self.folder(visitor, entry.clone(), inherited, depth + 1);
                } else {
                    found.push(Job::Folder { path: entry.clone(), ignore: inherited });
                }
            } else if V::HEAVY && self.threads > 1 {
                batch.push(name.to_vec());
                if batch.len() >= FILES_A_BATCH {
                    self.hand_out(visitor, &folder, &path, &mut batch);
                }
            } else {
                visitor.file(&folder, name, &entry);
            }
            ControlFlow::Continue(())
        });
        self.push(&mut found);
        self.files(visitor, &folder, &path, &batch);
        if let Err(error) = listed {
            visitor.unreadable(&path, &error);
        }
    }

    /// Leaves a batch of files to a thread that has nothing to do, or visits it here.
    fn hand_out<V: Visit>(&self, visitor: &mut V, folder: &Arc<OpenDir>, path: &[u8], batch: &mut Vec<Vec<u8>>) {
        let names = std::mem::take(batch);
        if self.lock().jobs.len() < self.threads {
            self.push(&mut vec![Job::Files { folder: folder.clone(), path: path.to_vec(), names }]);
        } else {
            self.files(visitor, folder, path, &names);
        }
    }

    fn files<V: Visit>(&self, visitor: &mut V, folder: &OpenDir, path: &[u8], names: &[Vec<u8>]) {
        let mut entry = path.to_vec();
        let start = start_of_name(&mut entry);
        for name in names {
            if self.canceled() {
                return;
            }
            entry.truncate(start);
            entry.extend_from_slice(name);
            visitor.file(folder, name, &entry);
        }
    }
}

/// Says that a job is done, also when the visitor panics: the others must not wait for it.
struct Done<'s, 'w>(&'s Shared<'w>);

impl Drop for Done<'_, '_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.at_work -= 1;
        if waiting.at_work == 0 && waiting.jobs.is_empty() {
            self.0.changed.notify_all();
        }
    }
}

fn join(path: &mut Vec<u8>, rest: &[u8]) {
    if !rest.is_empty() {
        start_of_name(path);
        path.extend_from_slice(rest);
    }
}

/// Ends a folder's path with a slash, unless it is empty; answers where a name begins.
fn start_of_name(path: &mut Vec<u8>) -> usize {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.len()
}
