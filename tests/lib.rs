//! What the tests of several crates share.
#![allow(clippy::unwrap_used)] // a test panics on purpose

pub mod adapter_suite;
pub mod exchange_suite;
pub mod simulation;
pub mod support;

/// The README's examples, compiled as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
