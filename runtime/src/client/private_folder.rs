//! The folder of a socket that is for one user alone. Who can enter it could put a socket of their own there.

use std::io;
use std::path::Path;

/// Makes the folder of `socket` when it is missing, and refuses one that others can enter.
#[cfg(unix)]
pub(super) fn prepare(socket: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

    let folder = folder_of(socket);
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let told = |error: io::Error| io::Error::new(error.kind(), format!("its folder {}: {error}", folder.display()));
    made.map_err(told)?;
    let mode = std::fs::metadata(folder).map_err(told)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        let folder = folder.display();
        let problem = format!(
            "others can enter its folder {folder} (mode {mode:04o}): chmod 700 {folder}, or choose a path in a \
            folder of your own, which is made when it is missing"
        );
        return Err(io::Error::other(problem));
    }
    Ok(())
}

/// Refuses a folder of somebody else, who can open it for others at any time. Whose this program's files are is
/// told by the socket itself.
#[cfg(unix)]
pub(super) fn check_owner(socket: &Path) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;

    let folder = folder_of(socket);
    let (owner, own) = (std::fs::metadata(folder)?.uid(), std::fs::symlink_metadata(socket)?.uid());
    if owner != own {
        let folder = folder.display();
        let problem = format!("its folder {folder} belongs to another user (uid {owner}): choose one of your own");
        return Err(io::Error::other(problem));
    }
    Ok(())
}

#[cfg(unix)]
fn folder_of(socket: &Path) -> &Path {
    match socket.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Elsewhere there are no such sockets, as the runtime says.
#[cfg(not(unix))]
pub(super) fn prepare(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(not(unix))]
pub(super) fn check_owner(_: &Path) -> io::Result<()> {
    Ok(())
}
