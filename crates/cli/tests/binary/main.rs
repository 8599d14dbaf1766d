//! The binary as people use it: exit codes, output, real processes.

mod code;
mod configuration;
mod demo;
mod facts;
mod fleet;
mod locks;
mod once;
mod runs;
mod ssh;
mod support;
mod usage;
