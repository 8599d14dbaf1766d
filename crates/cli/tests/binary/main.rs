//! The binary as people use it: exit codes, output, real processes.

mod cluster;
mod configuration;
mod demo;
mod fleet;
mod support;
mod usage;
