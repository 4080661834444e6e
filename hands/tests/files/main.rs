//! The file tools as a session uses them: real files below a fresh directory, one test to a rule or a field report.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

mod confinement;
mod edit;
mod hook;
mod limits;
mod read;
mod search;
mod support;
mod write;
