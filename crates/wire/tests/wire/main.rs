//! The wire against real peers: HTTP/2 on loopback, OpenSSL, Puppet.

#![allow(clippy::unwrap_used)] // helpers of tests too

mod authority;
mod client;
mod openssl;
mod parsers;
mod puppet;
mod requests;
mod streams;
mod support;
mod tls;
mod tools;
