//! The services of one server, as handlers and simulated requests use them.
//!
//! Absent here: how they are built and which background work they need (`wiring`).

use std::sync::Arc;

use bunraku_model::ServerId;
use bunraku_store::SharedStore;
use bunraku_wire::Revocations;
use jiff::Timestamp;

use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::compiles::Compiles;
use bunraku_compile::environments::Environments;
use bunraku_compile::modules::Modules;
use bunraku_compile::{
    CatalogDiffs, CommandHub, Contents, Queries, Releases, Repositories, TargetBoard,
};
use bunraku_control::certificates::Certificates;
use bunraku_control::metrics::Metrics;
use bunraku_control::{
    Access, AuditLog, Clock, Commands, ContentPlacement, Facts, Nodes, Presence, Reports,
};
use bunraku_cues::{Locks, Once, Reactors, Triggers};
use bunraku_orchestrate::{Approvals, Orchestration, Outputs, Plans, ReactorRuns};

/// Everything that handlers can access. A single pointer, because every open stream holds
/// one.
#[derive(Clone)]
pub struct Services(Arc<ServiceSet>);

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
pub struct ServiceSet {
    pub store: SharedStore,
    pub access: Access,
    pub audit: AuditLog,
    pub nodes: Nodes,
    pub facts: Facts,
    pub queries: Queries,
    pub catalogs: Catalogs,
    pub compiles: Compiles,
    pub environments: Environments,
    pub repositories: Repositories,
    pub modules: Modules,
    pub once: Once,
    pub orchestration: Orchestration,
    pub outputs: Outputs,
    pub triggers: Triggers,
    pub reactors: Reactors,
    pub reactor_runs: ReactorRuns,
    pub approvals: Approvals,
    pub locks: Locks,
    pub commands: Commands,
    pub reports: Reports,
    pub hub: CommandHub,
    pub contents: Contents,
    pub diffs: CatalogDiffs,
    pub plans: Plans,
    pub releases: Releases,
    pub board: TargetBoard,
    pub presence: Presence,
    pub placement: ContentPlacement,
    pub liveness: crate::Liveness,
    pub rates: crate::NodeRates,
    pub certificates: Certificates,
    pub cluster: crate::Cluster,
    pub revocations: Revocations,
    pub clock: Clock,
    /// Interval of empty lines on a silent command stream.
    pub heartbeat: std::time::Duration,
    pub metrics: Arc<Metrics>,
    pub identity: Arc<ServerIdentity>,
    /// Writes that open streams still have to make when they end.
    pub closing: tokio_util::task::TaskTracker,
    /// Cancelled when the server shuts down: streams end, and nothing new starts.
    pub shutdown: tokio_util::sync::CancellationToken,
}

/// This server's description of itself.
pub struct ServerIdentity {
    pub id: ServerId,
    /// The name in the server's certificate.
    pub name: String,
    pub started: Timestamp,
    pub store: &'static str,
}
