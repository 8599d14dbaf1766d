//! The API as its callers see it: real TLS, real stores, on loopback.

mod access;
mod commands;
mod compiles;
mod environments;
mod facts;
mod hooks;
mod joining;
mod lifecycle;
mod presence;
mod puppet_authority;
mod repository;
mod revocation;
mod silence;
mod support;
mod two_compilers;
mod two_servers;
