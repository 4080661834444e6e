//! The few things about files that differ between systems: names as bytes, listing a folder, and what a
//! replacement keeps.

#[cfg(unix)]
pub(super) use self::unix::{
    OpenDir, Stamp, dir_is_synced, for_reading, for_writing, keep_attributes, name_bytes, os_name,
};

#[cfg(not(unix))]
pub(super) use self::other::{
    OpenDir, Stamp, dir_is_synced, for_reading, for_writing, keep_attributes, name_bytes, os_name,
};

use std::io;

/// What a replacement could not keep.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) what: String,
    pub(super) source: io::Error,
}

#[cfg(unix)]
mod unix {
    use std::borrow::Cow;
    use std::ffi::{CStr, OsStr};
    use std::fs::{File, Metadata, Permissions};
    use std::io;
    use std::ops::ControlFlow;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
    use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
    use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};

    use super::Lost;
    use crate::workspace::resolve::Kind;

    pub(in super::super) fn name_bytes(name: &OsStr) -> Cow<'_, [u8]> {
        Cow::Borrowed(name.as_bytes())
    }

    pub(in super::super) fn os_name(bytes: &[u8]) -> Cow<'_, Path> {
        Cow::Borrowed(Path::new(OsStr::from_bytes(bytes)))
    }

    /// Options that open a file to read it, never a link, and without waiting for a pipe's other end.
    pub(in super::super) fn for_reading() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).follow(FollowSymlinks::No).nonblock(true).custom_flags(flags(OFlags::NOCTTY));
        options
    }

    /// The same for an old file that is about to be replaced: a question whether it may be written.
    pub(in super::super) fn for_writing() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).follow(FollowSymlinks::No).nonblock(true).custom_flags(flags(OFlags::NOCTTY));
        options
    }

    fn flags(flags: OFlags) -> i32 {
        // The flags' bits are the system's `int`; the type only shows them unsigned.
        flags.bits().cast_signed()
    }

    /// A folder open for listing, whose files are opened by name below it.
    #[derive(Debug)]
    pub(in super::super) struct OpenDir(File);

    impl OpenDir {
        /// Opens the folder at `path` below `base`; the empty path is `base` itself.
        pub(in super::super) fn open(base: &Dir, path: &[u8]) -> io::Result<Self> {
            let mut options = OpenOptions::new();
            options.read(true).follow(FollowSymlinks::No).custom_flags(flags(OFlags::DIRECTORY | OFlags::NONBLOCK));
            let path = if path.is_empty() { Cow::Borrowed(Path::new(".")) } else { os_name(path) };
            Ok(Self(base.open_with(path, &options)?.into_std()))
        }

        /// Calls `each` with every entry's name and kind, in no order. Names never hold a slash and are never
        /// `.` or `..`.
        pub(in super::super) fn entries(&self, mut each: impl FnMut(&[u8], Kind) -> ControlFlow<()>) -> io::Result<()> {
            let mut visit = |name: &CStr, kind: FileType| -> ControlFlow<()> {
                let name = name.to_bytes();
                if name == b"." || name == b".." || name.contains(&b'/') {
                    return ControlFlow::Continue(());
                }
                each(name, self.kind(name, kind))
            };
            #[cfg(any(target_os = "linux", target_os = "android"))]
            {
                let mut buffer: Vec<u8> = Vec::with_capacity(32 * 1024);
                let mut entries = rustix::fs::RawDir::new(&self.0, buffer.spare_capacity_mut());
                while let Some(entry) = entries.next() {
                    let entry = entry?;
                    if visit(entry.file_name(), entry.file_type()).is_break() {
                        break;
                    }
                }
            }
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            for entry in rustix::fs::Dir::read_from(&self.0)? {
                let entry = entry?;
                if visit(entry.file_name(), entry.file_type()).is_break() {
                    break;
                }
            }
            Ok(())
        }

        fn kind(&self, name: &[u8], kind: FileType) -> Kind {
            // Some file systems do not tell the kind in the listing.
            let kind = if kind == FileType::Unknown {
                rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
            } else {
                kind
            };
            match kind {
                FileType::RegularFile => Kind::File,
                FileType::Directory => Kind::Folder,
                FileType::Symlink => Kind::Link,
                FileType::Fifo => Kind::Pipe,
                FileType::Socket => Kind::Socket,
                FileType::CharacterDevice | FileType::BlockDevice => Kind::Device,
                FileType::Unknown => Kind::Other,
            }
        }

        /// Opens the entry `name` to read it, when it is a regular file; none when it is anything else.
        pub(in super::super) fn open_file(&self, name: &[u8]) -> io::Result<Option<File>> {
            // `name` is one name of this folder's listing, so it cannot lead anywhere else.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = match rustix::fs::openat(&self.0, name, flags, Mode::empty()) {
                Ok(fd) => File::from(fd),
                // A link, or a socket or a device without a driver, by now.
                Err(rustix::io::Errno::LOOP | rustix::io::Errno::NXIO | rustix::io::Errno::NODEV) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            Ok(if file.metadata()?.is_file() { Some(file) } else { None })
        }
    }

    /// Makes a rename in `dir` last. Best effort: the new content stands either way.
    pub(in super::super) fn dir_is_synced(dir: &Dir) {
        // The handle itself only names the folder and cannot be synced.
        if let Ok(dir) = OpenDir::open(dir, b"") {
            let _ = dir.0.sync_all();
        }
    }

    /// What changes when somebody changes a file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in super::super) struct Stamp {
        pub(in super::super) dev: u64,
        pub(in super::super) ino: u64,
        size: u64,
        modified: (i64, i64),
        changed: (i64, i64),
    }

    impl Stamp {
        pub(in super::super) fn of(file: &File) -> io::Result<Self> {
            Ok(Self::from(&file.metadata()?))
        }

        /// The stamp of the entry `name`, links not followed.
        pub(in super::super) fn at(dir: &Dir, name: &OsStr) -> io::Result<Self> {
            use cap_std::fs::MetadataExt as _;
            let metadata = dir.symlink_metadata(name)?;
            Ok(Self {
                dev: metadata.dev(),
                ino: metadata.ino(),
                size: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            })
        }

        pub(in super::super) fn is_same_file(&self, other: &Self) -> bool {
            (self.dev, self.ino) == (other.dev, other.ino)
        }
    }

    impl From<&Metadata> for Stamp {
        fn from(metadata: &Metadata) -> Self {
            Self {
                dev: metadata.dev(),
                ino: metadata.ino(),
                size: metadata.size(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            }
        }
    }

    /// Attributes that belong to the old content, or that the system makes itself.
    const NOT_KEPT: [&[u8]; 3] = [b"security.capability", b"security.ima", b"security.evm"];

    /// Gives `new` the group, attributes and mode of `old`, and its owner where this user may.
    /// Answers with notes about what differs all the same.
    pub(in super::super) fn keep_attributes(old: &File, new: &File) -> Result<Vec<String>, Lost> {
        let lost = |what: &str, source: io::Error| Lost { what: what.to_owned(), source };
        let before = old.metadata().map_err(|error| lost("its attributes", error))?;
        let fresh = new.metadata().map_err(|error| lost("its attributes", error))?;
        let mut notes = Vec::new();
        let mut mode = before.mode() & 0o7777;
        if before.uid() != fresh.uid() && rustix::fs::fchown(new, Some(Uid::from_raw(before.uid())), None).is_err() {
            notes.push("its owner is now the user that wrote it: only root can keep another one".to_owned());
            // Running as its owner was a property of the old owner.
            mode &= !0o6000;
        }
        if before.gid() != fresh.gid() {
            rustix::fs::fchown(new, None, Some(Gid::from_raw(before.gid())))
                .map_err(|error| lost("its group", error.into()))?;
        }
        // Before the mode, which may take away the right to set attributes.
        copy_xattrs(old, new)?;
        new.set_permissions(Permissions::from_mode(mode)).map_err(|error| lost("its mode", error))?;
        Ok(notes)
    }

    /// Gives `new` the attributes of `old`, and takes away what it has beyond them: what a folder gives to each new
    /// file, an access list above all, was not the old file's.
    fn copy_xattrs(old: &File, new: &File) -> Result<(), Lost> {
        use rustix::io::Errno;
        let lost = |name: &[u8], source: Errno| {
            let what = format!("its attribute {}", String::from_utf8_lossy(name));
            Lost { what, source: source.into() }
        };
        // Labels that the system's policy gives, and that only the privileged may change.
        let is_label = |name: &[u8]| name.starts_with(b"security.") || name.starts_with(b"trusted.");
        let wanted = xattr_names(old)?;
        for name in &wanted {
            if NOT_KEPT.contains(&name.as_slice()) {
                continue;
            }
            let value = match read_xattr(old, name) {
                Ok(value) => value,
                Err(Errno::NODATA) => continue,
                Err(error) => return Err(lost(name, error)),
            };
            if read_xattr(new, name).is_ok_and(|present| present == value) {
                continue;
            }
            match rustix::fs::fsetxattr(new, name.as_slice(), &value, XattrFlags::empty()) {
                Ok(()) => {}
                Err(Errno::PERM | Errno::ACCESS | Errno::NOTSUP) if is_label(name) => {}
                Err(error) => return Err(lost(name, error)),
            }
        }
        for name in xattr_names(new)?.iter().filter(|name| !wanted.contains(name) && !is_label(name)) {
            match rustix::fs::fremovexattr(new, name.as_slice()) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(error) => return Err(lost(name, error)),
            }
        }
        Ok(())
    }

    fn xattr_names(file: &File) -> Result<Vec<Vec<u8>>, Lost> {
        use rustix::io::Errno;
        let lost = |source: Errno| Lost { what: "its attributes".to_owned(), source: source.into() };
        let mut list: Vec<u8> = match rustix::fs::flistxattr_query(file) {
            Ok(0) | Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
            // Names added between the two calls make the second fail, which is told.
            Ok(size) => vec![0; size],
            Err(error) => return Err(lost(error)),
        };
        let length = rustix::fs::flistxattr(file, &mut list[..]).map_err(lost)?;
        Ok(list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn read_xattr(file: &File, name: &[u8]) -> rustix::io::Result<Vec<u8>> {
        let size = rustix::fs::fgetxattr_query(file, name)?;
        let mut value = vec![0; size];
        if size > 0 {
            let length = rustix::fs::fgetxattr(file, name, &mut value[..])?;
            value.truncate(length);
        }
        Ok(value)
    }
}

#[cfg(not(unix))]
mod other {
    use std::borrow::Cow;
    use std::ffi::OsStr;
    use std::fs::File;
    use std::io;
    use std::ops::ControlFlow;
    use std::path::Path;
    use std::time::SystemTime;

    use cap_fs_ext::{DirExt, FollowSymlinks, MetadataExt, OpenOptionsFollowExt};
    use cap_std::fs::{Dir, OpenOptions};

    use super::Lost;
    use crate::workspace::resolve::Kind;

    pub(in super::super) fn name_bytes(name: &OsStr) -> Cow<'_, [u8]> {
        match name.to_string_lossy() {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }

    pub(in super::super) fn os_name(bytes: &[u8]) -> Cow<'_, Path> {
        match String::from_utf8_lossy(bytes) {
            Cow::Borrowed(text) => Cow::Borrowed(Path::new(text)),
            Cow::Owned(text) => Cow::Owned(text.into()),
        }
    }

    pub(in super::super) fn for_reading() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).follow(FollowSymlinks::No);
        options
    }

    pub(in super::super) fn for_writing() -> OpenOptions {
        let mut options = OpenOptions::new();
        options.write(true).follow(FollowSymlinks::No);
        options
    }

    #[derive(Debug)]
    pub(in super::super) struct OpenDir(Dir);

    impl OpenDir {
        pub(in super::super) fn open(base: &Dir, path: &[u8]) -> io::Result<Self> {
            Ok(Self(if path.is_empty() { base.try_clone()? } else { base.open_dir_nofollow(os_name(path))? }))
        }

        pub(in super::super) fn entries(&self, mut each: impl FnMut(&[u8], Kind) -> ControlFlow<()>) -> io::Result<()> {
            for entry in self.0.entries()? {
                let entry = entry?;
                let kind = entry.file_type().map_or(Kind::Other, Kind::of);
                if each(&name_bytes(&entry.file_name()), kind).is_break() {
                    break;
                }
            }
            Ok(())
        }

        pub(in super::super) fn open_file(&self, name: &[u8]) -> io::Result<Option<File>> {
            let name = os_name(name);
            if !self.0.symlink_metadata(&name)?.is_file() {
                return Ok(None);
            }
            let file = self.0.open_with(&name, &for_reading())?.into_std();
            Ok(if file.metadata()?.is_file() { Some(file) } else { None })
        }
    }

    pub(in super::super) fn dir_is_synced(_dir: &Dir) {}

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in super::super) struct Stamp {
        pub(in super::super) dev: u64,
        pub(in super::super) ino: u64,
        size: u64,
        modified: Option<SystemTime>,
    }

    impl Stamp {
        pub(in super::super) fn of(file: &File) -> io::Result<Self> {
            Ok(Self::from(&cap_std::fs::File::from_std(file.try_clone()?).metadata()?))
        }

        pub(in super::super) fn at(dir: &Dir, name: &OsStr) -> io::Result<Self> {
            Ok(Self::from(&dir.symlink_metadata(name)?))
        }

        pub(in super::super) fn is_same_file(&self, other: &Self) -> bool {
            (self.dev, self.ino) == (other.dev, other.ino)
        }
    }

    impl From<&cap_std::fs::Metadata> for Stamp {
        fn from(metadata: &cap_std::fs::Metadata) -> Self {
            Self {
                dev: metadata.dev(),
                ino: metadata.ino(),
                size: metadata.len(),
                modified: metadata.modified().ok().map(|time| time.into_std()),
            }
        }
    }

    pub(in super::super) fn keep_attributes(old: &File, new: &File) -> Result<Vec<String>, Lost> {
        let copy = || new.set_permissions(old.metadata()?.permissions());
        copy().map(|()| Vec::new()).map_err(|source| Lost { what: "its attributes".to_owned(), source })
    }
}
