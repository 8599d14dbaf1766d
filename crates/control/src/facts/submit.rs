//! Accepting a submission: it is durable when it is acknowledged, and no more than that.
//!
//! The newest known facts of a node are the queued entry if there is one, and the
//! pointer otherwise. A submission with the same facts is acknowledged without a
//! write, because its content is already durable. Every transaction compares both
//! keys, so of two concurrent submissions one sees the other.
//!
//! One thing must be written even if nothing changed: the order of a submission
//! whose predecessor was not acknowledged. The predecessor may still be on its
//! way with other facts, and would otherwise be taken for the newer one.

use bunraku_model::{ContentId, FactSet, FactSetId, NodeName, canonical_json};
use bunraku_store::{Compare, Transaction, TransactionOutcome};
use bunraku_wire::api::{FactsReceipt, SubmissionOrder};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::pointer::{FactHistory, FactsPointer, referrer};
use super::queue::{Payload, QueuedFacts, queue_referrer};
use super::{Facts, blob_error};
use crate::document::{self, Stored};
use crate::{ServiceError, keys};

/// The stored facts of a node at one moment.
pub(super) struct Known {
    pub(super) queued: Option<Stored<QueuedFacts>>,
    pub(super) pointer: Option<Stored<FactsPointer>>,
}

impl Known {
    fn fact_set(&self) -> Option<FactSetId> {
        let queued = self.queued.as_ref().map(|stored| stored.document.fact_set);
        queued.or_else(|| self.pointer.as_ref().map(|stored| stored.document.fact_set))
    }

    fn order(&self) -> Option<SubmissionOrder> {
        match &self.queued {
            Some(queued) => queued.document.order,
            None => self.pointer.as_ref()?.document.order,
        }
    }

    /// Starts a transaction that succeeds only if none of this has changed.
    pub(super) fn unchanged(&self, node: &NodeName) -> Transaction {
        let (queue, pointer) = (keys::fact_queue(node), keys::node_facts(node));
        Transaction::new()
            .when_unchanged(&queue, self.queued.as_ref().map(|stored| &stored.entry))
            .when_unchanged(&pointer, self.pointer.as_ref().map(|stored| &stored.entry))
    }
}

impl Facts {
    /// Accepts a node's facts. When this returns, they are durable; a worker
    /// makes them the node's facts.
    ///
    /// With an order, a submission that an agent sent earlier but that arrives
    /// later is acknowledged and ignored. Without one, the last to arrive wins.
    pub async fn submit(
        &self,
        node: &NodeName,
        facts: &FactSet,
        order: Option<SubmissionOrder>,
    ) -> Result<FactsReceipt, ServiceError> {
        let fact_set = facts.id(&self.volatile_for(node).await?);
        loop {
            let known = self.known(node).await?;
            let receipt = |changed, superseded| FactsReceipt {
                fact_set,
                changed,
                superseded,
            };
            if is_late(order, known.order()) {
                return Ok(receipt(false, true));
            }
            let same = known.fact_set() == Some(fact_set);
            let done = match same {
                true => self.same_again(node, &known, facts, order).await?,
                false => self.enqueue(node, &known, fact_set, facts, order).await?,
            };
            if done {
                return Ok(receipt(!same, false));
            }
        }
    }

    /// Reads the known facts. Reads the queue first: an entry that leaves it is
    /// in the pointer by then.
    pub(super) async fn known(&self, node: &NodeName) -> Result<Known, ServiceError> {
        Ok(Known {
            queued: document::read(&*self.store, &keys::fact_queue(node)).await?,
            pointer: document::read(&*self.store, &keys::node_facts(node)).await?,
        })
    }

    /// Handles facts that are already known. Returns false if another writer was
    /// faster: read again.
    async fn same_again(
        &self,
        node: &NodeName,
        known: &Known,
        facts: &FactSet,
        order: Option<SubmissionOrder>,
    ) -> Result<bool, ServiceError> {
        if known.queued.is_none()
            && let Some(pointer) = &known.pointer
            && self.is_stale(pointer.document.received)
        {
            return self.refresh(node, known, pointer, facts, order).await;
        }
        match order.is_none_or(|order| order.settled) {
            true => Ok(true),
            false => self.touch(node, known, order).await,
        }
    }

    /// Returns whether the stored facts are due for a refresh. They also are if
    /// their time is in the future, since clocks are set back.
    fn is_stale(&self, received: Timestamp) -> bool {
        let every = SignedDuration::try_from(self.options.refreshed_every);
        let age = self.clock.now().duration_since(received);
        age.is_negative() || age >= every.unwrap_or(SignedDuration::MAX)
    }

    /// Stores the time and the newest volatile values, replacing the previous ones.
    async fn refresh(
        &self,
        node: &NodeName,
        known: &Known,
        pointer: &Stored<FactsPointer>,
        facts: &FactSet,
        order: Option<SubmissionOrder>,
    ) -> Result<bool, ServiceError> {
        let text = canonical_json(&Value::Object(facts.as_map().clone()));
        let written = self.blobs.put(&mut text.as_bytes(), None).await;
        let written = written.map_err(blob_error)?;
        let outcome = self
            .point_to(node, known, pointer, written.info.id, order)
            .await;
        // The blob is referenced or not needed: release the pin in both cases.
        written.pin.release().await.map_err(blob_error)?;
        outcome
    }

    async fn point_to(
        &self,
        node: &NodeName,
        known: &Known,
        pointer: &Stored<FactsPointer>,
        content: ContentId,
        order: Option<SubmissionOrder>,
    ) -> Result<bool, ServiceError> {
        let before = pointer.document.content;
        let refreshed = FactsPointer {
            content,
            received: self.clock.now(),
            order: order.or(pointer.document.order),
            ..pointer.document.clone()
        };
        let mut transaction = known
            .unchanged(node)
            .put(keys::node_facts(node), document::encode(&refreshed));
        if content != before {
            let history = keys::node_fact_history(node);
            let past: Option<Stored<FactHistory>> = document::read(&*self.store, &history).await?;
            let in_history = past
                .as_ref()
                .is_some_and(|past| past.document.contents().any(|content| content == before));
            transaction =
                transaction.when_unchanged(&history, past.as_ref().map(|past| &past.entry));
            let referrer = referrer(node);
            transaction = self
                .blobs
                .reference_in(transaction, content, &referrer)
                .await
                .map_err(blob_error)?;
            if !in_history {
                transaction = self
                    .blobs
                    .unreference_in(transaction, before, &referrer)
                    .map_err(blob_error)?;
            }
        }
        Ok(self.store.commit(transaction).await?.is_committed())
    }

    /// Stores only the time and the order.
    async fn touch(
        &self,
        node: &NodeName,
        known: &Known,
        order: Option<SubmissionOrder>,
    ) -> Result<bool, ServiceError> {
        let received = self.clock.now();
        let transaction = known.unchanged(node);
        let transaction = match (&known.queued, &known.pointer) {
            (Some(queued), _) => {
                let touched = QueuedFacts {
                    received,
                    order: order.or(queued.document.order),
                    ..queued.document.clone()
                };
                transaction.put(keys::fact_queue(node), document::encode(&touched))
            }
            (None, Some(pointer)) => {
                let touched = FactsPointer {
                    received,
                    order: order.or(pointer.document.order),
                    ..pointer.document.clone()
                };
                transaction.put(keys::node_facts(node), document::encode(&touched))
            }
            (None, None) => return Ok(false),
        };
        Ok(self.store.commit(transaction).await?.is_committed())
    }

    /// Queues the facts, replacing older queued ones.
    async fn enqueue(
        &self,
        node: &NodeName,
        known: &Known,
        fact_set: FactSetId,
        facts: &FactSet,
        order: Option<SubmissionOrder>,
    ) -> Result<bool, ServiceError> {
        let entry = |payload| QueuedFacts {
            fact_set,
            received: self.clock.now(),
            order,
            server: self.options.server,
            payload,
        };
        let inline = entry(Payload::Inline(facts.as_map().clone()));
        let value = document::encode(&inline);
        if value.len() <= self.options.inline_bytes {
            let transaction = known.unchanged(node).put(keys::fact_queue(node), value);
            return self.commit_queued(node, known, None, transaction).await;
        }
        let text = canonical_json(&Value::Object(facts.as_map().clone()));
        let written = self
            .blobs
            .put(&mut text.as_bytes(), None)
            .await
            .map_err(blob_error)?;
        let content = written.info.id;
        let value = document::encode(&entry(Payload::Content(content)));
        let transaction = known.unchanged(node).put(keys::fact_queue(node), value);
        let transaction = self
            .blobs
            .reference_in(transaction, content, &queue_referrer(node))
            .await
            .map_err(blob_error)?;
        let outcome = self
            .commit_queued(node, known, Some(content), transaction)
            .await;
        // The blob is referenced or not needed: release the pin in both cases.
        written.pin.release().await.map_err(blob_error)?;
        outcome
    }

    /// Writes the queue entry. Returns false if another writer was faster: read again.
    async fn commit_queued(
        &self,
        node: &NodeName,
        known: &Known,
        content: Option<bunraku_model::ContentId>,
        mut transaction: Transaction,
    ) -> Result<bool, ServiceError> {
        let record = keys::node_record(node);
        transaction = transaction
            .when(Compare::Exists(record.clone()))
            .read_on_failure(record);
        let replaced = known
            .queued
            .as_ref()
            .and_then(|queued| queued.document.content());
        if let Some(replaced) = replaced.filter(|replaced| Some(*replaced) != content) {
            transaction = self
                .blobs
                .unreference_in(transaction, replaced, &queue_referrer(node))
                .map_err(blob_error)?;
        }
        match self.store.commit(transaction).await? {
            TransactionOutcome::Committed(_) => Ok(true),
            TransactionOutcome::Refused(reads) if reads.first().is_some_and(Option::is_none) => {
                Err(ServiceError::no_such_node(node))
            }
            TransactionOutcome::Refused(_) => Ok(false),
        }
    }
}

/// Returns whether the same agent process has already sent newer facts.
fn is_late(order: Option<SubmissionOrder>, known: Option<SubmissionOrder>) -> bool {
    match (order, known) {
        (Some(order), Some(known)) => order.session == known.session && order.number < known.number,
        _ => false,
    }
}
