//! runs
