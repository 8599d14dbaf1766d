//! Taking a node off the queue for oneself, for as long as the lease holds.

use bunraku_model::{NodeName, ServerId};
use bunraku_store::{Compare, Revision, Transaction, TransactionOutcome};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Compiles, WorkLease};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// What the store has of a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ClaimDocument {
    pub(super) server: ServerId,
    pub(super) started: Timestamp,
}

/// This server compiles this node now.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) node: NodeName,
    /// The revision at which it was claimed: nobody else's claim has the same,
    /// so a write that compares it cannot be made by one who lost it.
    pub(super) token: Revision,
    /// The request's revision when it was claimed: another one came if it moved.
    pub(super) requested: Revision,
}

impl Compiles {
    /// Nothing if somebody else was faster, or if the request has moved.
    pub(super) async fn claim(
        &self,
        node: &NodeName,
        requested: Revision,
        lease: &WorkLease,
    ) -> Result<Option<Claim>, ServiceError> {
        let key = keys::compile_claim(node);
        let document = ClaimDocument {
            server: self.inner.server,
            started: self.inner.clock.now(),
        };
        let transaction = Transaction::new()
            .when(Compare::Modified(keys::compile_request(node), requested))
            .when(Compare::Absent(key.clone()))
            .put_with_lease(key, document::encode(&document), lease.id);
        Ok(match self.inner.store.commit(transaction).await? {
            TransactionOutcome::Refused(_) => None,
            TransactionOutcome::Committed(token) => Some(Claim {
                node: node.clone(),
                token,
                requested,
            }),
        })
    }

    /// Gives the node back: the request stays.
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<(), ServiceError> {
        let key = keys::compile_claim(&claim.node);
        let transaction = Transaction::new()
            .when(Compare::Modified(key.clone(), claim.token))
            .delete(key);
        self.inner.store.commit(transaction).await?;
        Ok(())
    }
}
