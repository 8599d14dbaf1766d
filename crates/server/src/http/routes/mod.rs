//! One file per resource type of the API.

pub(super) mod catalogs;
pub(super) mod certificates;
pub(super) mod cluster;
pub(super) mod commands;
pub(super) mod compiles;
pub(super) mod content;
pub(super) mod environments;
pub(super) mod facts;
pub(super) mod join;
pub(super) mod locks;
pub(super) mod modules;
pub(super) mod nodes;
pub(super) mod once;
pub(super) mod outputs;
pub(super) mod query;
pub(super) mod reactors;
pub(super) mod releases;
pub(super) mod reports;
pub(super) mod runs;
pub(super) mod server;
pub(super) mod targets;
pub(super) mod tokens;
pub(super) mod triggers;

use std::sync::Arc;

use bunraku_model::ServerId;
use bunraku_store::SharedStore;
use bunraku_wire::Revocations;
use jiff::Timestamp;

use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::compiles::Compiles;
use bunraku_compile::environments::Environments;
use bunraku_compile::modules::Modules;
use bunraku_compile::{CatalogDiffs, CommandHub, Contents, Queries, Releases, TargetBoard};
use bunraku_control::certificates::Certificates;
use bunraku_control::metrics::Metrics;
use bunraku_control::{Clock, Commands, Facts, Nodes, Presence, Reports};
use bunraku_cues::{Locks, Once, Triggers};
use bunraku_orchestrate::Orchestration;

/// Everything that handlers can access. A single pointer, because every open stream holds
/// one.
#[derive(Clone)]
pub(crate) struct Services(Arc<ServiceSet>);

impl std::ops::Deref for Services {
    type Target = ServiceSet;

    fn deref(&self) -> &ServiceSet {
        &self.0
    }
}

impl From<ServiceSet> for Services {
    fn from(set: ServiceSet) -> Self {
        Self(Arc::new(set))
    }
}

/// The services behind [`Services`].
pub(crate) struct ServiceSet {
    pub(crate) store: SharedStore,
    pub(crate) nodes: Nodes,
    pub(crate) facts: Facts,
    pub(crate) queries: Queries,
    pub(crate) catalogs: Catalogs,
    pub(crate) compiles: Compiles,
    pub(crate) environments: Environments,
    pub(crate) modules: Modules,
    pub(crate) once: Once,
    pub(crate) orchestration: Orchestration,
    pub(crate) outputs: bunraku_orchestrate::Outputs,
    pub(crate) triggers: Triggers,
    pub(crate) reactors: bunraku_cues::Reactors,
    pub(crate) locks: Locks,
    pub(crate) commands: Commands,
    pub(crate) reports: Reports,
    pub(crate) hub: CommandHub,
    pub(crate) contents: Contents,
    pub(crate) diffs: CatalogDiffs,
    pub(crate) releases: Releases,
    pub(crate) board: TargetBoard,
    pub(crate) presence: Presence,
    pub(crate) certificates: Certificates,
    pub(crate) cluster: crate::Cluster,
    pub(crate) revocations: Revocations,
    pub(crate) clock: Clock,
    /// Interval of empty lines on a silent command stream.
    pub(crate) heartbeat: std::time::Duration,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) identity: Arc<ServerIdentity>,
    /// Writes that open streams still have to make when they end.
    pub(crate) closing: tokio_util::task::TaskTracker,
    /// Cancelled when the server shuts down: streams end, and nothing new starts.
    pub(crate) shutdown: tokio_util::sync::CancellationToken,
}

/// This server's description of itself.
pub(crate) struct ServerIdentity {
    pub(crate) id: ServerId,
    pub(crate) started: Timestamp,
    pub(crate) store: &'static str,
}

/// Returns the time that a reply may be delayed, at most one minute.
fn longest_wait(seconds: u64) -> std::time::Duration {
    std::time::Duration::from_secs(seconds.min(60))
}
