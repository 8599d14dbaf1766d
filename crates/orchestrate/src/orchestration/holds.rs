//! Nodes that a run has for itself.
//!
//! A hold is a key per node, bound to a lease: a dead orchestrator leaves no
//! fleet behind that nobody may use. The lease is not the leader's own, which
//! is short: it lives on when a leader dies, so that the nodes stay held until
//! the next leader holds them on. Agents hear of holds (`hold_board`) and start
//! nothing else meanwhile.

use bunraku_model::{NodeName, RunId};
use bunraku_store::{LeaseId, SharedStore, StoreError, Transaction};
use serde::{Deserialize, Serialize};

use super::log::LogWriter;
use super::{Inner, Orchestration};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

const PER_TRANSACTION: usize = 100;

/// Which run has a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hold {
    pub run: RunId,
}

impl Orchestration {
    /// The run that has a node for itself now.
    pub async fn hold_of(&self, node: &NodeName) -> Result<Option<Hold>, ServiceError> {
        let stored = document::read(&*self.inner.store, &keys::node_hold(node)).await?;
        Ok(stored.map(|stored| stored.document))
    }

    /// Refuses if some run has one of the nodes for itself.
    pub async fn refuse_held(&self, nodes: &[NodeName]) -> Result<(), ServiceError> {
        for node in nodes {
            if let Some(Hold { run }) = self.hold_of(node).await? {
                return Err(ServiceError::conflict(
                    format!("run {run} has `{node}` for itself"),
                    format!("wait for it with `bunraku run watch {run}`"),
                ));
            }
        }
        Ok(())
    }
}

/// Nodes that are held, for as long as this lives; then for as long as the
/// lease does, unless they are let go.
pub(super) struct Held {
    store: SharedStore,
    lease: LeaseId,
    keeper: tokio::task::JoinHandle<()>,
}

impl Held {
    /// Lets all of them go.
    pub(super) async fn let_go(self) {
        if let Err(error) = self.store.lease_revoke(self.lease).await {
            tracing::warn!(error = %error, "the holds of a run that is over run out by themselves");
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Keeps the lease until it is gone, or this is aborted.
async fn keep(store: SharedStore, lease: LeaseId, ttl: std::time::Duration) {
    let mut tick = tokio::time::interval(ttl / 3);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match store.lease_keep_alive(lease).await {
            Ok(()) => {}
            Err(StoreError::LeaseNotFound(_)) => {
                tracing::warn!("the nodes of a run are not held any more");
                return;
            }
            Err(error) => tracing::warn!(error = %error, "cannot keep nodes held"),
        }
    }
}

impl Inner {
    /// Holds the nodes.
    pub(super) async fn hold_nodes(
        &self,
        run: RunId,
        nodes: &[NodeName],
        writer: &LogWriter,
    ) -> Result<Held, ServiceError> {
        let ttl = self.options.hold_ttl;
        let lease = self.store.lease_grant(ttl).await?;
        let held = Held {
            store: self.store.clone(),
            lease,
            keeper: tokio::spawn(keep(self.store.clone(), lease, ttl)),
        };
        let hold = document::encode(&Hold { run });
        for chunk in nodes.chunks(PER_TRANSACTION) {
            let transaction: Transaction =
                chunk.iter().fold(writer.fenced(), |transaction, node| {
                    transaction.put_with_lease(keys::node_hold(node), hold.clone(), lease)
                });
            self.store.commit(transaction).await?;
        }
        Ok(held)
    }
    /// Lets those go that the run still has, whoever held them.
    pub(super) async fn let_go_of(
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
                // Refused: some other run has it by now.
                self.store.commit(transaction).await?;
            }
        }
        Ok(())
    }
}
