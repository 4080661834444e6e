//! The bash tool, its commands being children of this process.
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
    Arc::new(bma_hands_posix::Posix::direct())
}
