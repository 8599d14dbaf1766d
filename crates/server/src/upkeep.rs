//! Periodic maintenance of the services' data, done by any server.
//!
//! Each task is safe to run on any number of servers at once, and harmless to skip.

use std::sync::Arc;
use std::time::Duration;

use bunraku_store::blobs::SharedBlobs;
use bunraku_wire::api::AuditOutcome;
use tokio_util::sync::CancellationToken;

use bunraku_compile::Releases;
use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::environments::Environments;
use bunraku_control::clock::Clock;
use bunraku_control::metrics::FleetMetrics;
use bunraku_control::{AuditAction, AuditLog, Certificates, Commands, Reports, ServiceError};

use crate::fleet_capacity::Engines;
use crate::store_upkeep::StoreUpkeepOptions;

/// Intervals, and the amount of history to keep.
#[derive(Clone, Debug)]
pub struct UpkeepOptions {
    /// Interval between checks for expired commands.
    pub sweep_every: Duration,
    /// Interval between collections of unreferenced content.
    pub collect_every: Duration,
    /// Interval between searches for certificates that ended long ago.
    pub expire_every: Duration,
    /// Maintenance of the store itself.
    pub store: StoreUpkeepOptions,
}

impl Default for UpkeepOptions {
    fn default() -> Self {
        Self {
            sweep_every: Duration::from_secs(30),
            collect_every: Duration::from_secs(3_600),
            expire_every: Duration::from_secs(6 * 3_600),
            store: StoreUpkeepOptions::default(),
        }
    }
}

pub(crate) struct Upkeep {
    pub(crate) blobs: SharedBlobs,
    pub(crate) commands: Commands,
    pub(crate) certificates: Certificates,
    pub(crate) catalogs: Catalogs,
    pub(crate) reports: Reports,
    pub(crate) environments: Environments,
    pub(crate) releases: Releases,
    pub(crate) audit: AuditLog,
    pub(crate) clock: Clock,
    pub(crate) fleet: Arc<FleetMetrics>,
    pub(crate) store_kind: &'static str,
    pub(crate) options: UpkeepOptions,
}

impl Upkeep {
    /// Runs until cancelled.
    pub(crate) async fn run(&self, shutdown: CancellationToken) {
        let mut sweep = interval(self.options.sweep_every);
        let mut collect = interval(self.options.collect_every);
        let mut expire = interval(self.options.expire_every);
        // It reads all certificates, which a start should not wait for.
        expire.reset();
        loop {
            let (what, outcome) = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = sweep.tick() => ("expired commands", self.sweep().await),
                _ = collect.tick() => ("unreferenced content", self.collect().await),
                _ = expire.tick() => ("expired certificates", self.expire().await),
            };
            if let Err(error) = outcome {
                tracing::warn!(error = %error, what, "maintenance failed; retrying");
            }
        }
    }

    async fn sweep(&self) -> Result<(), ServiceError> {
        self.commands.expire_overdue().await?;
        self.certificates.expire_requests().await?;
        Ok(())
    }

    /// Says in the log and in a metric how many nodes the engines carry.
    async fn watch_capacity(&self) -> Result<(), ServiceError> {
        let history = self.reports.history_state().await?.active;
        let engines = Engines::of(self.store_kind, self.blobs.active_place(), history);
        self.fleet.set_capacity(engines.carries().unwrap_or(0));
        let nodes = self.fleet.nodes().unwrap_or(0);
        if let Some(advice) = engines.advice(nodes) {
            tracing::warn!(
                nodes,
                carries = advice.carries,
                add = advice.add.join(", "),
                "there are nearly as many nodes as this cluster carries; see docs/scale.md"
            );
        }
        Ok(())
    }

    async fn expire(&self) -> Result<(), ServiceError> {
        let deleted = self.certificates.forget_expired().await?;
        tracing::debug!(deleted, "deleted certificates that ended long ago");
        Ok(())
    }

    async fn collect(&self) -> Result<(), ServiceError> {
        self.watch_capacity().await?;
        // Collect everything that references content before the content itself.
        let catalogs = self.catalogs.collect().await?;
        let old = match self.reports.upkeep().await {
            // Nothing else waits for history.
            Err(error) if error.is_history_outage() => {
                tracing::warn!(error = %error, "old reports are deleted later");
                0
            }
            deleted => deleted?,
        };
        tracing::debug!(old, "deleted old reports");
        let code = self.releases.codes_in_use().await?;
        let code = self.environments.prune(&code).await?;
        tracing::debug!(?catalogs, code, "deleted unused catalogs and code");
        let collected = self.blobs.collect(self.clock.now()).await;
        let collected = collected
            .map_err(|error| ServiceError::internal("cannot delete unused content", error))?;
        tracing::debug!(?collected, "deleted unreferenced content");
        if catalogs.removed + old + code > 0 {
            let action = AuditAction::new("delete-old-data")
                .detail("catalogs", catalogs.removed)
                .detail("reports", old)
                .detail("commits", code)
                .because(Some("nothing refers to them, or they are too old"));
            self.audit
                .record_or_warn(action, AuditOutcome::Succeeded)
                .await;
        }
        Ok(())
    }
}

fn interval(every: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval
}
