//! The wire against real peers: HTTP on loopback, OpenSSL, Puppet.

#![allow(clippy::unwrap_used)] // helpers of tests too

mod authority;
mod client;
mod connections;
mod endpoints;
mod openssl;
mod parsers;
mod puppet;
mod requests;
mod streams;
mod support;
mod tls;
mod tools;
