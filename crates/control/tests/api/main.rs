//! The API as its callers see it: real TLS, real stores, on loopback.

mod access;
mod cluster;
mod commands;
mod facts;
mod joining;
mod lifecycle;
mod presence;
mod puppet_authority;
mod revocation;
mod silence;
mod support;
mod two_servers;
