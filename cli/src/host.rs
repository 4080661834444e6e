//! What the commands need to know of this machine.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bma_hands::os::Os;
use bma_hands_posix::Posix;

use crate::common::Failure;

/// Keeps this process's memory and environment, where a token may be, from other
/// programs of the same user, the tools' children among them.
pub(crate) fn harden() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// How programs are run here.
pub(crate) fn os() -> Arc<dyn Os> {
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
