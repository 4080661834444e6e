//! hands

pub mod access;
pub mod bash;
mod blocking;
pub mod env;
pub mod files;
pub mod launch;
pub mod os;
pub mod workspace;

