//! The network layer: certificates and roles, TLS, and the client of the HTTP API.
//!
//! Absent: routes and services (they live in `control`), and any record of certificate
//! requests. This crate signs whatever the caller asks it to sign. Times and serial numbers
//! are arguments; libraries never print.

mod accept;
pub mod api;
pub mod authority;
pub mod certificate;
pub mod client;
pub mod credentials;
pub mod endpoints;
pub mod fingerprint;
mod groups;
pub mod keep_alive;
pub mod key;
pub mod operator_proof;
pub mod puppet_server;
pub mod request;
pub mod revocation;
pub mod serial;
mod text_form;
pub mod tls;
pub mod trust;
pub mod trusted_extensions;

pub use accept::accept;
pub use authority::Authority;
pub use certificate::Certificate;
pub use client::{Client, ClientError, ClientOptions, ServerAddress};
pub use credentials::Credentials;
pub use fingerprint::Fingerprint;
pub use key::PrivateKey;
pub use operator_proof::{OperatorProof, RequestedCertificate};
pub use request::{Grant, Request, SignedCertificate};
pub use revocation::Revocations;
pub use serial::Serial;
pub use tls::{PeerIdentity, ReloadableClientTls, ReloadableServerTls};
