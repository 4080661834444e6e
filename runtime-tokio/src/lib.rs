//! runtime-tokio
