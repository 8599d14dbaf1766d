//! The binary as people use it: exit codes, output, real processes.

mod configuration;
mod demo;
mod fleet;
mod runs;
mod support;
mod usage;
