//! The helper process of the hands, for tests that start programs through one.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    return bma_hands_posix::keeper::main();
    #[cfg(not(target_os = "linux"))]
    ExitCode::from(2)
}
