//! The binary as people use it: exit codes, output, real processes.

mod cluster;
mod configuration;
mod demo;
mod facts;
mod fleet;
mod locks;
mod once;
mod ssh;
mod support;
mod usage;
