//! The binary as people use it: exit codes, output, real processes.

mod cluster;
mod cluster_lost;
mod cluster_restart;
mod cluster_support;
mod code;
mod configuration;
mod console;
mod console_browser;
mod cues;
mod demo;
mod facts;
mod fleet;
mod locks;
mod modules;
mod once;
mod orchestration;
mod outputs;
mod puppet_module;
mod puppet_runs;
mod puppet_server;
mod reactors;
mod runs;
mod ssh;
mod support;
mod triggers;
mod usage;
