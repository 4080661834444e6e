//! The hands of a machine: sessions, and the tools that work in them.
//!
//! [`Core`] is what a program attaches to its clients, one for each brain. Below it, each usable alone: [`bash`] runs
//! commands, [`files`] are the file tools, [`workspace`] confines them, and [`env`](mod@env), [`access`] and
//! [`launch`] are what the machine's owner has a say in. What differs between systems is behind [`os::Os`]; the crate
//! of a system implements it, and a runtime's crate drives everything.

pub mod access;
pub mod bash;
mod blocking;
pub mod core;
pub mod env;
pub mod files;
pub mod launch;
pub mod os;
pub mod workspace;

pub use core::{Core, CoreError, CoreOptions, CoreSession};
