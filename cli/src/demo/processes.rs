//! Finding this run's processes.

use std::io;

use super::RUN_VARIABLE;

/// The processes that this run has started, as `id (name)`, wherever they have gone.
///
/// Errors where the system does not show the environment of processes.
pub(super) async fn of_run(run: &str) -> io::Result<Vec<String>> {
    let marker = format!("{RUN_VARIABLE}={run}");
    tokio::task::spawn_blocking(move || find(marker.as_bytes())).await.map_err(io::Error::other)?
}

/// The processes that this one has started itself.
pub(super) async fn children() -> io::Result<Vec<String>> {
    tokio::task::spawn_blocking(|| {
        let own = std::process::id().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            // `1234 (name) state parent ...`; a name may hold anything.
            let Ok(stat) = std::fs::read_to_string(entry?.path().join("stat")) else { continue };
            let Some((process, rest)) = stat.rsplit_once(')') else { continue };
            if rest.split_whitespace().nth(1) == Some(&own) {
                found.push(format!("{process})"));
            }
        }
        Ok(found)
    })
    .await
    .map_err(io::Error::other)?
}

fn find(marker: &[u8]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        // Other files of /proc, and processes that are somebody else's or have ended meanwhile.
        let Ok(environment) = std::fs::read(path.join("environ")) else { continue };
        if environment.split(|byte| *byte == 0).any(|variable| variable == marker) {
            let id = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
            found.push(format!("{id} ({})", name.trim()));
        }
    }
    Ok(found)
}
