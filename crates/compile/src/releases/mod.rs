//! Releases: the compiled catalogs that nodes get.
//!
//! A release is an immutable map from node to catalog for one environment, with
//! a parent. Creating one (`create.rs`) is one transaction on the environment's
//! head. Applying it (`apply.rs`) writes the targets of the nodes that it
//! changes; if a server stops in the middle, another one continues. `worker.rs`
//! applies releases, creates the automatic ones, and removes holds on catalogs
//! that only forgotten releases named. Every release carries rules for nodes
//! that join later (`join_rules.rs`); `joins.rs` gives those nodes the catalogs
//! that the rules name. A rollback (`rollback.rs`) also restores older rules.
//!
//! These rules keep it correct with several servers on one store:
//!
//! - Everything that depends on the newest release compares the head's revision
//!   in the transaction that acts on it.
//! - A catalog is held (`releases/<environment>`) before a release names it.
//!   The hold is removed only in a transaction that writes the head: a server
//!   that is creating a release at that time starts over, and holds the catalog
//!   again.
//! - Nodes see only targets.

mod apply;
mod choice;
mod compiled_catalogs;
mod create;
mod current_rules;
mod document;
#[cfg(test)]
mod history_model;
#[cfg(test)]
mod history_tests;
mod join_rules;
mod joins;
mod maps;
mod policy;
mod retention;
mod rollback;
#[cfg(test)]
mod rollback_tests;
mod show;
#[cfg(test)]
mod tests;
mod withdrawal;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{EnvironmentName, ReleaseNumber};
use bunraku_store::SharedStore;
use bunraku_store::blobs::SharedBlobs;
use bunraku_wire::api::{HoldRequest, ReleaseHold};

pub use create::ProposedRelease;
pub use joins::{CompileAtCode, CompileAtCodeError};
pub use worker::ReleaseWorker;

use crate::catalogs::Catalogs;
use bunraku_control::clock::Clock;
use bunraku_control::document::{self as documents, Decision, Versioned};
use bunraku_control::{FindNodes, ServiceAudit, ServiceError, keys};
use bunraku_cues::reactors::ReactorInbox;
use document::{AppliedRelease, Release, ReleaseHead, ReleaseMap};
use maps::Maps;

/// Durations and limits of the release service.
#[derive(Clone, Debug)]
pub struct ReleaseOptions {
    /// Number of releases kept per environment, the newest ones.
    pub keep: usize,
    /// After this time without a compile, the compiled catalogs are released together.
    pub quiet: Duration,
    /// Catalogs are released after this time, even if compiling continues.
    pub longest_wait: Duration,
    /// Time after which another server takes over.
    pub leader_ttl: Duration,
    /// Interval between two checks for releases to forget.
    pub collect_every: Duration,
}

impl Default for ReleaseOptions {
    fn default() -> Self {
        Self {
            keep: 50,
            quiet: Duration::from_secs(1),
            longest_wait: Duration::from_secs(10),
            leader_ttl: Duration::from_secs(10),
            collect_every: Duration::from_secs(600),
        }
    }
}

/// Handle for the release service.
#[derive(Clone)]
pub struct Releases {
    store: SharedStore,
    blobs: SharedBlobs,
    catalogs: Catalogs,
    clock: Clock,
    maps: Maps,
    find_nodes: Arc<dyn FindNodes>,
    audit: ServiceAudit,
    options: ReleaseOptions,
    reactors: ReactorInbox,
}

/// The head of an environment, as read from the store.
type StoredHead = Option<Versioned<ReleaseHead>>;

impl Releases {
    pub fn new(
        store: SharedStore,
        blobs: SharedBlobs,
        catalogs: Catalogs,
        clock: Clock,
        find_nodes: Arc<dyn FindNodes>,
        options: ReleaseOptions,
    ) -> Self {
        Self {
            store,
            maps: Maps::new(blobs.clone()),
            blobs,
            catalogs,
            clock,
            find_nodes,
            audit: ServiceAudit::default(),
            options,
            reactors: ReactorInbox::default(),
        }
    }

    /// Records every release for the rules that wait for one.
    #[must_use]
    pub fn with_reactors(mut self, reactors: ReactorInbox) -> Self {
        self.reactors = reactors;
        self
    }

    /// Records changes in this audit log.
    #[must_use]
    pub fn with_audit(mut self, audit: impl Into<ServiceAudit>) -> Self {
        self.audit = audit.into();
        self
    }

    /// Stops automatic releases in the environment until [`Releases::resume`].
    pub async fn hold(
        &self,
        environment: &EnvironmentName,
        request: &HoldRequest,
        by: &str,
    ) -> Result<ReleaseHold, ServiceError> {
        if request.reason.trim().is_empty() {
            return Err(ServiceError::invalid("a hold needs a reason"));
        }
        let hold = ReleaseHold {
            reason: request.reason.clone(),
            by: by.to_owned(),
            since: self.clock.now(),
        };
        let key = keys::release_hold(environment);
        let held = documents::update(&*self.store, &key, |_| Ok(Decision::Write(hold.clone())));
        held.await?;
        Ok(hold)
    }

    /// Ends a hold. Returns false if there was none.
    pub async fn resume(&self, environment: &EnvironmentName) -> Result<bool, ServiceError> {
        let key = keys::release_hold(environment);
        let transaction = bunraku_store::Transaction::new()
            .when(bunraku_store::Compare::Exists(key.clone()))
            .delete(key);
        Ok(self.store.commit(transaction).await?.is_committed())
    }

    async fn hold_of(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<ReleaseHold>, ServiceError> {
        let stored = documents::read(&*self.store, &keys::release_hold(environment)).await?;
        Ok(stored.map(|stored| stored.document))
    }

    async fn head(&self, environment: &EnvironmentName) -> Result<StoredHead, ServiceError> {
        documents::read(&*self.store, &keys::release_head(environment)).await
    }

    async fn applied(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<AppliedRelease>, ServiceError> {
        let key = keys::release_applied(environment);
        let stored = documents::read(&*self.store, &key).await?;
        Ok(stored.map(|stored| stored.document))
    }

    async fn release(
        &self,
        environment: &EnvironmentName,
        number: ReleaseNumber,
    ) -> Result<Release, ServiceError> {
        let key = keys::release(environment, number);
        let stored = documents::read(&*self.store, &key).await?;
        stored
            .map(|stored| stored.document)
            .ok_or_else(|| no_such_release(environment, number))
    }

    /// Returns the map of the newest release; empty before the first.
    async fn newest_map(
        &self,
        environment: &EnvironmentName,
        head: &StoredHead,
    ) -> Result<(Option<Release>, ReleaseMap), ServiceError> {
        let Some(head) = head else {
            return Ok((None, ReleaseMap::new()));
        };
        let release = self.release(environment, head.document.number).await?;
        let map = self.maps.read(&release.map).await?;
        Ok((Some(release), map))
    }
}

/// Returns the number of the newest release; 0 before the first.
fn number_of(head: &StoredHead) -> ReleaseNumber {
    head.as_ref()
        .map_or(ReleaseNumber(0), |head| head.document.number)
}

/// Returns the name under which an environment's releases hold catalogs.
fn holder(environment: &EnvironmentName) -> String {
    keys::releases(environment).trim_end_matches('/').to_owned()
}

fn no_such_release(environment: &EnvironmentName, number: ReleaseNumber) -> ServiceError {
    ServiceError::NotFound {
        what: format!("release {number} of `{environment}`"),
        hint: Some(format!(
            "list the stored releases with `bunraku release list {environment}`"
        )),
    }
}
