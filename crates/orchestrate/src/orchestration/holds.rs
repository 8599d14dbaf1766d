//! Node holds: nodes that a run has reserved.
//!
//! A hold is one key per node, bound to a lease, so that a dead orchestrator does
//! not leave behind a fleet that nobody may use. The lease is not the leader's
//! own, which is short: it outlives a dead leader, so that the nodes stay held
//! until the next leader takes over the holds. Agents learn of holds
//! (`hold_board`) and start nothing else in the meantime.

use std::collections::BTreeMap;

use bunraku_model::{CatalogId, NodeName, RunId};
use bunraku_plan::{PlannedWork, RunPlan};
use bunraku_store::{LeaseId, SharedStore, StoreError, Transaction, settle};
use serde::{Deserialize, Serialize};

use super::log::LogWriter;
use super::{Inner, Orchestration};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

const PER_TRANSACTION: usize = 100;

/// The run that holds a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hold {
    pub run: RunId,
    /// The planned catalog, which the node may read while it is held, whatever its target is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalog: Option<CatalogId>,
}

impl Orchestration {
    /// Returns the run that holds a node now.
    pub async fn hold_of(&self, node: &NodeName) -> Result<Option<Hold>, ServiceError> {
        let stored = document::read(&*self.inner.store, &keys::node_hold(node)).await?;
        Ok(stored.map(|stored| stored.document))
    }

    /// Returns the catalog that the run that holds a node planned for it. The node may read it.
    pub async fn held_catalog(&self, node: &NodeName) -> Result<Option<CatalogId>, ServiceError> {
        Ok(self.hold_of(node).await?.and_then(|hold| hold.catalog))
    }

    /// Returns an error if a run holds one of the nodes.
    pub async fn refuse_held(&self, nodes: &[NodeName]) -> Result<(), ServiceError> {
        for node in nodes {
            if let Some(Hold { run, .. }) = self.hold_of(node).await? {
                return Err(ServiceError::conflict(
                    format!("run {run} holds `{node}`"),
                    format!("wait for it with `bunraku run watch {run}`"),
                ));
            }
        }
        Ok(())
    }
}

/// Nodes that are held as long as this value lives, and then until the lease
/// ends, unless they are released.
pub(super) struct HeldNodes {
    store: SharedStore,
    lease: LeaseId,
    keeper: tokio::task::JoinHandle<()>,
}

impl HeldNodes {
    /// Releases all of them.
    pub(super) async fn release(self) {
        if let Err(error) = self.store.lease_revoke(self.lease).await {
            tracing::warn!(error = %error, "cannot release the node holds of a finished run; they expire with their lease");
        }
    }
}

impl Drop for HeldNodes {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Keeps the lease alive until it is gone, or this task is aborted.
async fn keep_alive(store: SharedStore, lease: LeaseId, ttl: std::time::Duration) {
    let mut tick = tokio::time::interval(ttl / 3);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match store.lease_keep_alive(lease).await {
            Ok(()) => {}
            Err(StoreError::LeaseNotFound(_)) => {
                tracing::warn!("the nodes of a run are no longer held");
                return;
            }
            Err(error) => tracing::warn!(error = %error, "cannot renew the node holds"),
        }
    }
}

impl Inner {
    /// Holds the nodes.
    pub(super) async fn hold_nodes(
        &self,
        run: RunId,
        plan: &RunPlan,
        writer: &LogWriter,
    ) -> Result<HeldNodes, ServiceError> {
        let ttl = self.options.hold_ttl;
        let lease = self.store.lease_grant(ttl).await?;
        let held = HeldNodes {
            store: self.store.clone(),
            lease,
            keeper: tokio::spawn(keep_alive(self.store.clone(), lease, ttl)),
        };
        let holds: BTreeMap<&NodeName, Hold> = (plan.steps.iter())
            .map(|step| {
                let planned = step.work.as_ref().and_then(PlannedWork::catalog);
                let catalog = planned.map(|planned| planned.catalog);
                (&step.node, Hold { run, catalog })
            })
            .collect();
        let holds: Vec<(&NodeName, Hold)> = holds.into_iter().collect();
        for chunk in holds.chunks(PER_TRANSACTION) {
            let transaction: Transaction =
                chunk
                    .iter()
                    .fold(writer.fenced(), |transaction, (node, hold)| {
                        let hold = document::encode(hold);
                        transaction.put_with_lease(keys::node_hold(node), hold, lease)
                    });
            settle(&*self.store, transaction).await?;
        }
        Ok(held)
    }
    /// Releases the nodes that the run still holds, whichever leader held them.
    pub(super) async fn release_all(
        &self,
        run: RunId,
        nodes: &[NodeName],
    ) -> Result<(), ServiceError> {
        for key in nodes.iter().map(keys::node_hold) {
            let held = document::read::<Hold>(&*self.store, &key).await?;
            if let Some(held) = held.filter(|held| held.document.run == run) {
                let transaction = Transaction::new()
                    .when_unchanged(&key, Some(&held.entry))
                    .delete(key);
                // Refused: another run holds it by now.
                settle(&*self.store, transaction).await?;
            }
        }
        Ok(())
    }
}
