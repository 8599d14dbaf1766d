//! The services about nodes: certificates, facts, reports, presence, commands;
//! and the parts that all services share: keys, documents, errors, metrics,
//! leadership.
//!
//! A service consists of options, a cheap handle and an error. Services keep
//! nothing in memory that the store does not have: any server answers for any
//! node, and a restart loses nothing.
//!
//! Absent here: certificates' cryptography (`wire`), storage (`store`), catalogs
//! (`compile`), and the API (`server`).

pub mod access;
pub mod audit;
pub mod certificates;
pub mod clock;
pub mod code_problems;
mod command_expiry;
pub mod commands;
pub mod content_placement;
pub mod data_keys;
pub mod document;
pub mod environment_settings;
pub mod epoch;
pub mod error;
pub mod facts;
pub mod find_nodes;
pub mod former_keys;
pub mod keys;
pub mod leader;
pub mod metrics;
mod node_condition;
pub mod node_events;
pub mod nodes;
pub mod pages;
pub mod presence;
pub mod reports;
pub mod webhook_secrets;

pub use access::{Access, KnownRules, OperatorIdentity, Reach};
pub use audit::{AuditAction, AuditLog, AuditOptions, ServiceAudit};
pub use certificates::{CertificateOptions, Certificates, Signer};
pub use clock::Clock;
pub use commands::{CommandOptions, Commands};
pub use content_placement::ContentPlacement;
pub use environment_settings::EnvironmentSettings;
pub use epoch::{Epoch, RestoreSigns};
pub use error::ServiceError;
pub use facts::{EnvironmentOf, FactHooks, FactOptions, Facts, FactsChanged, PersistOutcome};
pub use find_nodes::{FindNodes, NoQueries};
pub use keys::RunRequestKind;
pub use metrics::Metrics;
pub use node_events::{NoRecorder, NodeEventRecorder};
pub use nodes::Nodes;
pub use presence::{Presence, PresenceOptions, SILENT_AGENT, Session};
pub use reports::{
    AcceptedBatch, FollowedEvents, HistoryBackends, HistoryMove, HistoryPlace, NodeRunNews,
    ReportFilter, ReportHead, ReportOptions, ReportSubscription, Reports,
};
