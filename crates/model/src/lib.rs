//! The values that every part of Bunraku uses, and their hashes.
//!
//! This crate has no I/O, no async, no clock and no randomness: times and ids are arguments.
//! Everything that is sent or stored is defined here, or is built from definitions here.

pub mod access;
mod audit_chain;
mod canonical;
pub mod catalog;
mod content_place;
mod error_chain;
mod excerpt;
mod facts;
mod glob;
mod ids;
mod names;
mod near_names;
mod node;
mod node_matcher;
mod ordering_mode;
mod role;
mod span;

pub use audit_chain::{
    AUDIT_CHAIN_START, AuditChainCheck, AuditChainPlace, AuditChainSummary, BrokenAuditChain,
    audit_line_hash,
};
pub use canonical::{canonical_json, content_id_of_json};
pub use catalog::{Catalog, CatalogId};
pub use content_place::ContentPlace;
pub use error_chain::error_chain;
pub use excerpt::Excerpt;
pub use facts::{FactSet, FactSetError, VolatileFacts};
pub use glob::Glob;
pub use ids::{
    ClaimId, CodeId, CommandId, ContentId, ContentIdError, FactSetId, FiringId, NodeRunId,
    ReleaseNumber, RunId, ServerId,
};
pub use names::{
    AppName, EnvironmentName, InvalidName, LockName, NodeName, RepositoryName, TriggerName,
    default_environment,
};
pub use near_names::near_names;
pub use node::{Activity, Administration, Connection, NodeStatus, StatusWord};
pub use node_matcher::{InvalidNodeMatcher, NodeMatcher};
pub use ordering_mode::{InvalidOrderingMode, OrderingMode};
pub use role::{InvalidRole, Role};
pub use span::{InvalidSpan, parse_span};
