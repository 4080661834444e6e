//! hands-posix
