//! What the tests of several crates share.
#![allow(clippy::unwrap_used)] // a test panics on purpose

pub mod adapter_suite;
