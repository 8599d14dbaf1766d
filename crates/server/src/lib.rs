//! The server: all services wired together, the HTTP API with its table of who
//! may call what, upkeep, and the services of a cluster's members.
//!
//! What a connection needs while it is open (the command stream) is rebuilt from
//! the store when an agent reconnects.
//!
//! Absent here: what the services do (`control`, `cues`, `compile`,
//! `orchestrate`).

pub mod backstage;
mod cluster;
mod credentials;
mod http;
mod server;
mod upkeep;

pub use cluster::{Cluster, ClusterLink, ClusterMember};
pub use http::{AcceptOptions, RouterOptions};
pub use server::{Server, ServerOptions, StartError};
pub use upkeep::UpkeepOptions;
