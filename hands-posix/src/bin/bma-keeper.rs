//! The keeper as an executable of its own, for programs that embed the hands and whose own `main` should not act
//! as one. It is started by `Posix::with_keeper`, not by hand.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    return bma_hands_posix::keeper::main();
    #[cfg(not(target_os = "linux"))]
    {
        eprintln!("there is no keeper on this system");
        ExitCode::from(2)
    }
}
