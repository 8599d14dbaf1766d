//! The server: all services wired together, the HTTP API with its access rules, upkeep, and
//! the services of cluster members.
//!
//! The state of an open connection (the command stream) is rebuilt from the store when an
//! agent reconnects.
//!
//! Absent here: the logic of the services (`control`, `cues`, `compile`, `orchestrate`).

pub mod backstage;
mod cluster;
mod credentials;
mod fleet_capacity;
mod history_window;
mod http;
mod liveness;
mod server;
mod service_options;
mod services;
mod space_status;
mod store_upkeep;
mod upkeep;
mod wiring;

pub use cluster::{Cluster, ClusterLink, ClusterMember};
pub use fleet_capacity::NODES_WITH_ETCD_ALONE;
pub use http::{AcceptOptions, NodeRates, RateOptions, RouterOptions};
pub use liveness::Liveness;
pub use server::{Server, ServerOptions, StartError};
pub use service_options::ServiceOptions;
pub use services::{ServerIdentity, ServiceSet, Services};
pub use store_upkeep::StoreUpkeepOptions;
pub use upkeep::UpkeepOptions;
pub use wiring::WiringParts;
