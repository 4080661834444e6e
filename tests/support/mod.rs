//! Tools that test suites share: a runtime that is watched for what is left
//! behind, a log that is read back, a network between the two ends that can be
//! broken, and WebSocket peers written by hand.

pub mod duplex;
pub mod logs;
pub mod proxy;
pub mod raw;
pub mod watched;
