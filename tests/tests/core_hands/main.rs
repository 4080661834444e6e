//! The hands' core as its brains see it: a real client and a real harness, joined over loopback, with this
//! system's processes and files.
#![cfg(unix)]
#![allow(clippy::unwrap_used)] // a test panics on purpose

mod bash;
mod capacity;
mod endings;
mod files;
mod hooks;
mod mounts;
mod recovery;
mod script;
mod support;
mod workspaces;
