//! Peers that keep no rule. Whatever they do, they harm themselves alone: who
//! keeps the rules is served meanwhile, and memory stays bounded.
#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]

mod attacks;
mod client;
mod harness;
mod support;
