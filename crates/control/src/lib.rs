//! The services behind the API, and the server that offers them.
//!
//! A service is options, a cheap handle and an error. Services keep nothing in
//! memory that the store does not have: any server answers for any node, and a
//! restart loses nothing. What a connection needs while it is open (the
//! command stream) is the only exception, and it is rebuilt from the store
//! when an agent reconnects.
//!
//! Absent here: certificates' cryptography (`wire`), how things are kept
//! (`store`), and anything that changes a machine (`engine`).

pub mod backstage;
mod catalog_diffs;
pub mod catalogs;
mod certificates;
mod clock;
mod cluster;
pub mod code;
mod code_problems;
mod command_hub;
mod commands;
mod compile_failure;
pub mod compiles;
mod content;
mod credentials;
mod document;
mod due;
pub mod environments;
mod error;
mod facts;
pub mod find_nodes;
mod http;
pub mod keys;
mod leader;
mod locks;
pub mod metrics;
pub mod modules;
mod node_events;
mod nodes;
mod once;
mod orchestration;
mod outputs;
mod presence;
mod query;
mod reactors;
pub mod releases;
mod reports;
mod server;
mod signals;
pub mod targets;
mod triggers;
mod upkeep;
mod webhook_secrets;

pub use catalog_diffs::CatalogDiffs;
pub use certificates::{CertificateOptions, Certificates};
pub use clock::Clock;
pub use cluster::{Cluster, ClusterLink, ClusterMember};
pub use command_hub::{CommandHub, Subscription, Told};
pub use commands::{CommandOptions, Commands};
pub use content::Contents;
pub use error::ServiceError;
pub use facts::{EnvironmentOf, FactHooks, FactOptions, Facts, FactsChanged, Persisted};
pub use find_nodes::{FindNodes, NoQueries};
pub use http::{AcceptOptions, RouterOptions, openapi_document};
pub use keys::RunRequestKind;
pub use locks::Locks;
pub use metrics::Metrics;
pub use node_events::{NoRecorder, NodeEventRecorder};
pub use nodes::Nodes;
pub use once::Once;
pub use orchestration::{Hold, Orchestration, OrchestrationOptions};
pub use outputs::Outputs;
pub use presence::{Presence, PresenceOptions, Session};
pub use query::Queries;
pub use reactors::Reactors;
pub use releases::{ReleaseOptions, Releases};
pub use reports::{
    FollowedEvents, NodeRunNews, ReportFilter, ReportHead, ReportOptions, ReportSubscription,
    Reports, TakenBatch,
};
pub use server::{Server, ServerOptions, StartError};
pub use targets::TargetBoard;
pub use triggers::Triggers;
pub use triggers::chain as chains;
pub use upkeep::UpkeepOptions;
