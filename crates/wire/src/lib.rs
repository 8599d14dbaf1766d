//! What crosses the network: messages, the client, TLS, certificates, roles.

pub mod api;
