//! The bash tool, its commands being children of a keeper.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a test panics on purpose

#[path = "cases/bash.rs"]
mod bash;
#[path = "cases/endings.rs"]
mod endings;
#[path = "cases/output.rs"]
mod output;
mod support;

use std::sync::Arc;

use bma_hands_posix::hands::os::Os;

fn os() -> Arc<dyn Os> {
    let program = bma_hands_posix::keeper::KeeperProgram::at(env!("CARGO_BIN_EXE_bma-keeper"));
    Arc::new(bma_hands_posix::Posix::with_keeper(program).unwrap())
}
