//! The signer: the only process that holds the CA key.
//!
//! Servers ask it over a socket ([`SignerHandle`]). It decides by its own rules
//! ([`SigningPolicy`]): which names, roles and lifetimes it signs, how often, and which requests
//! need an operator's proof. It logs every signature before it hands it out ([`SignatureLog`]).
//!
//! Rule: nothing that a server says is believed, except that it wants something. Not included:
//! the inventory of certificates, tokens and operators' decisions, which are the server's.

#![forbid(unsafe_code)]

mod caller;
mod dial;
mod frame;
mod handle;
mod message;
mod policy;
mod rate;
mod revoked;
mod serve;
mod signature_log;
mod signer;

pub use caller::Caller;
pub use dial::{ChildSigner, Dial, TlsSigner, UnixSigner};
pub use handle::{SignerError, SignerHandle};
pub use message::{
    Answer, Ask, AuthorityDescription, IssuerChoice, PuppetLists, Refusal, RefusalKind, SignAsk,
};
pub use policy::{LimitPerRole, SigningPolicy};
pub use serve::{serve_connection, serve_tls, serve_unix};
pub use signature_log::{LogError, SignatureLog};
pub use signer::{OpenError, Signer, SignerKind, SignerOptions};
