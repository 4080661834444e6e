//! The `bma` program, run as its users run it.

#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

mod brain;
mod call;
mod demo;
mod docs;
mod hand;
mod reversed;
mod scripted;
mod secrecy;
mod support;
mod usage;
