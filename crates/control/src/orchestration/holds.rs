//! Nodes that a run has for itself.
//!
//! A hold is a key per node, bound to the leader's lease: a dead orchestrator
//! leaves no fleet behind that nobody may use.

use bunraku_model::{NodeName, RunId};
use bunraku_store::Transaction;
use serde::{Deserialize, Serialize};

use super::log::LogWriter;
use super::{Inner, Orchestration};
use crate::document;
use crate::{ServiceError, keys};

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

impl Inner {
    /// Holds the nodes for as long as the lease lives.
    pub(super) async fn hold_nodes(
        &self,
        run: RunId,
        nodes: &[NodeName],
        lease: bunraku_store::LeaseId,
        writer: &LogWriter,
    ) -> Result<(), ServiceError> {
        let hold = document::encode(&Hold { run });
        for chunk in nodes.chunks(PER_TRANSACTION) {
            let transaction: Transaction =
                chunk.iter().fold(writer.fenced(), |transaction, node| {
                    transaction.put_with_lease(keys::node_hold(node), hold.clone(), lease)
                });
            self.store.commit(transaction).await?;
        }
        Ok(())
    }
}
