//! The binary as people use it: exit codes, output, real processes.

mod configuration;
mod demo;
mod fleet;
mod ssh;
mod locks;
mod once;
mod support;
mod usage;
