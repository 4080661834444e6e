//! hands

pub mod access;
pub mod core;
pub mod bash;
mod blocking;
pub mod env;
pub mod files;
pub mod launch;
pub mod os;
pub mod workspace;

pub use core::{Core, CoreError, CoreOptions, CoreSession};
