//! The wire against real peers: HTTP/2 on loopback, OpenSSL, Puppet.

#![allow(clippy::unwrap_used)] // helpers of tests too

mod client;
mod support;
