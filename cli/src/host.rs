//! What the commands need to know of this machine.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use bma_hands::os::Os;
use bma_hands_posix::Posix;

use crate::common::Failure;

/// Does what this process was started for when it is the helper that [`os`] starts, and gives its exit code then.
pub(crate) fn helper_main() -> Option<ExitCode> {
    #[cfg(target_os = "linux")]
    return bma_hands_posix::keeper::main_if_requested();
    #[cfg(not(target_os = "linux"))]
    None
}

/// Keeps this process's memory and environment, where a token may be, from other
/// programs of the same user, the tools' children among them.
pub(crate) fn harden() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    bma_hands_posix::protect_this_process()?;
    Ok(())
}

/// How programs are run here: on Linux through a helper process, which ends them all when this one is gone, even
/// by `kill -9`.
pub(crate) fn os() -> Arc<dyn Os> {
    #[cfg(target_os = "linux")]
    match Posix::with_keeper(bma_hands_posix::keeper::KeeperProgram::this_program()) {
        Ok(posix) => return Arc::new(posix),
        Err(error) => {
            tracing::warn!(%error, "commands start without a helper process: what they start lives on if bma is killed");
        }
    }
    bma_hands_posix::restore_child_status();
    Arc::new(Posix::direct())
}

/// What this machine calls itself.
pub(crate) fn name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().trim().to_owned();
    if name.is_empty() { "executor".to_owned() } else { name }
}

/// Where workspaces are kept unless the user says otherwise.
pub(crate) fn default_work_root() -> Result<PathBuf, Failure> {
    work_root_in(|variable| std::env::var_os(variable).map(PathBuf::from))
}

fn work_root_in(variable: impl Fn(&str) -> Option<PathBuf>) -> Result<PathBuf, Failure> {
    // Relative ones are to be ignored, says the XDG base directory specification.
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let none = || {
        Failure::usage(
            "--work-root",
            "neither XDG_STATE_HOME nor HOME is set: say where workspaces go, --work-root DIR",
        )
    };
    state.map(|state| state.join("bma/work")).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
    use super::*;

    #[test]
    fn workspaces_go_where_a_users_state_goes() {
        let with = |xdg: Option<&str>, home: Option<&str>| {
            let (xdg, home) = (xdg.map(PathBuf::from), home.map(PathBuf::from));
            work_root_in(move |name| if name == "HOME" { home.clone() } else { xdg.clone() })
        };
        assert_eq!(with(Some("/state"), Some("/home/u")).unwrap(), PathBuf::from("/state/bma/work"));
        assert_eq!(with(Some("state"), Some("/home/u")).unwrap(), PathBuf::from("/home/u/.local/state/bma/work"));
        assert!(with(None, None).unwrap_err().to_string().starts_with("--work-root: "));
    }

    #[test]
    fn a_machine_has_a_name() {
        assert!(!name().is_empty());
    }
}
