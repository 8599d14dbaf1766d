//! The API as its callers see it: real TLS, real stores, on loopback.

mod access;
mod agent_runs;
mod commands;
mod compiles;
mod content;
mod environments;
mod fact_queue;
mod facts;
mod fleet;
mod hooks;
mod joining;
mod lifecycle;
mod locks;
mod once;
mod presence;
mod puppet_authority;
mod query;
mod releases;
mod reports;
mod repository;
mod revocation;
mod silence;
mod support;
mod triggers;
mod two_compilers;
mod two_servers;
