//! Claims a node of the queue for this server, for as long as the lease is valid.

use bunraku_model::{NodeName, ServerId};
use bunraku_store::{Compare, Revision, Transaction, TransactionOutcome};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attempts::AttemptRecord;
use super::view::QueuedRequest;
use super::{Compiles, WorkLease};
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The stored form of a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ClaimDocument {
    pub(super) server: ServerId,
    pub(super) started: Timestamp,
}

/// A claim of this server: it compiles this node now.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) node: NodeName,
    /// The revision of the claim. No other claim has the same revision, so a
    /// server that lost its claim cannot complete a write that compares it.
    pub(super) token: Revision,
    /// The request's revision at the time of the claim. If it differs now, a
    /// new request came.
    pub(super) requested: Revision,
    /// A person asked for the compile.
    pub(super) asked: bool,
    /// The node's attempt as this claim left it, and its revision.
    pub(super) record: AttemptRecord,
    pub(super) attempt: Revision,
    /// The attempt before this one ended with its server.
    pub(super) was_interrupted: bool,
}

impl Compiles {
    /// Claims the node. Returns nothing if another server was faster or the
    /// request changed.
    pub(super) async fn claim(
        &self,
        node: &NodeName,
        requested: QueuedRequest,
        lease: &WorkLease,
    ) -> Result<Option<Claim>, ServiceError> {
        let key = keys::compile_claim(node);
        let document = ClaimDocument {
            server: self.inner.server,
            started: self.inner.clock.now(),
        };
        let attempt_key = keys::compile_attempt(node);
        let known = document::read::<AttemptRecord>(&*self.inner.store, &attempt_key).await?;
        let entry = known.as_ref().map(|known| known.entry.clone());
        let mut record = known.map(|known| known.document).unwrap_or_default();
        // Nobody has claimed the node, so the server that left this open is dead.
        let was_interrupted = record.open.replace(self.inner.server).is_some();
        let transaction = Transaction::new()
            .when(Compare::Modified(
                keys::compile_request(node),
                requested.revision,
            ))
            .when(Compare::Absent(key.clone()))
            .when_unchanged(&attempt_key, entry.as_ref())
            .put(attempt_key, document::encode(&record))
            .put_with_lease(key, document::encode(&document), lease.id);
        Ok(match self.inner.store.commit(transaction).await? {
            TransactionOutcome::Refused(_) => None,
            TransactionOutcome::Committed(token) => Some(Claim {
                node: node.clone(),
                token,
                requested: requested.revision,
                asked: requested.asked,
                record,
                attempt: token,
                was_interrupted,
            }),
        })
    }

    /// Releases the claim; the request stays.
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<(), ServiceError> {
        let key = keys::compile_claim(&claim.node);
        let transaction = Transaction::new()
            .when(Compare::Modified(key.clone(), claim.token))
            .delete(key);
        let transaction = Self::close_in(transaction, claim, Some(&claim.record));
        self.inner.store.commit(transaction).await?;
        Ok(())
    }
}
