//! hands

pub mod env;
pub mod launch;
pub mod os;
