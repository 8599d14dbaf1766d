//! The API as its callers see it: real TLS, real stores, on loopback.

mod access;
mod cluster;
mod commands;
mod content;
mod fact_queue;
mod facts;
mod fleet;
mod joining;
mod lifecycle;
mod locks;
mod once;
mod presence;
mod puppet_authority;
mod releases;
mod reports;
mod revocation;
mod silence;
mod support;
mod two_servers;
