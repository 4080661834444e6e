#![allow(clippy::unwrap_used, reason = "a test panics on purpose")]
