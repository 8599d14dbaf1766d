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

use bunraku_model::{ContentId, FactSet, FactSetId, NodeName};
use bunraku_store::blobs::Pins;
use bunraku_store::{Swap, Transaction, compare_and_swap};
use bunraku_wire::api::{FactsReceipt, SubmissionOrder};
use jiff::{SignedDuration, Timestamp};

use super::pointer::{FactHistory, FactsPointer, referrer};
use super::queue::{Payload, QueuedFacts, queue_referrer};
use super::{Facts, blob_error};
use crate::document::{self, Versioned};
use crate::{ServiceError, keys, node_condition};

/// The stored facts of a node at one moment.
pub(super) struct StoredFacts {
    pub(super) queued: Option<Versioned<QueuedFacts>>,
    pub(super) pointer: Option<Versioned<FactsPointer>>,
}

impl StoredFacts {
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

    /// Adds the condition that none of this has changed.
    pub(super) fn unchanged(&self, transaction: Transaction, node: &NodeName) -> Transaction {
        let (queue, pointer) = (keys::fact_queue(node), keys::node_facts(node));
        transaction
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
        let held = Pins::default();
        let pins = &held;
        let receipt = compare_and_swap(&*self.store, |refused| async move {
            node_condition::check_refusal(&refused, node)?;
            let known = self.read_stored(node).await?;
            let receipt = |changed, superseded| FactsReceipt {
                fact_set,
                changed,
                superseded,
            };
            if is_late(order, known.order()) {
                return Ok(Swap::Done(receipt(false, true)));
            }
            let same = known.fact_set() == Some(fact_set);
            let transaction = if same {
                self.same_again(node, &known, facts, order, pins).await?
            } else {
                let queued = self.enqueue(node, &known, fact_set, facts, order, pins);
                Some(queued.await?)
            };
            let receipt = receipt(!same, false);
            Ok(match transaction {
                None => Swap::Done(receipt),
                Some(transaction) => Swap::Write(transaction, receipt),
            })
        })
        .await;
        held.release().await.map_err(blob_error)?;
        receipt
    }

    /// Reads the known facts. Reads the queue first: an entry that leaves it is
    /// in the pointer by then.
    pub(super) async fn read_stored(&self, node: &NodeName) -> Result<StoredFacts, ServiceError> {
        Ok(StoredFacts {
            queued: document::read(&*self.store, &keys::fact_queue(node)).await?,
            pointer: document::read(&*self.store, &keys::node_facts(node)).await?,
        })
    }

    /// Returns what to write for facts that are already known, if anything.
    async fn same_again(
        &self,
        node: &NodeName,
        known: &StoredFacts,
        facts: &FactSet,
        order: Option<SubmissionOrder>,
        pins: &Pins,
    ) -> Result<Option<Transaction>, ServiceError> {
        if known.queued.is_none()
            && let Some(pointer) = &known.pointer
            && self.is_stale(pointer.document.received)
        {
            let refresh = self.refresh(node, known, pointer, facts, order, pins);
            return refresh.await.map(Some);
        }
        if order.is_none_or(|order| order.settled) {
            return Ok(None);
        }
        Ok(self.touch(node, known, order))
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
        known: &StoredFacts,
        pointer: &Versioned<FactsPointer>,
        facts: &FactSet,
        order: Option<SubmissionOrder>,
        pins: &Pins,
    ) -> Result<Transaction, ServiceError> {
        let content = self.write_content(facts.as_map(), pins).await?;
        self.point_to(node, known, pointer, content, order).await
    }

    async fn point_to(
        &self,
        node: &NodeName,
        known: &StoredFacts,
        pointer: &Versioned<FactsPointer>,
        content: ContentId,
        order: Option<SubmissionOrder>,
    ) -> Result<Transaction, ServiceError> {
        let before = pointer.document.content;
        let refreshed = FactsPointer {
            content,
            received: self.clock.now(),
            order: order.or(pointer.document.order),
            ..pointer.document.clone()
        };
        let mut transaction = known
            .unchanged(Transaction::new(), node)
            .put(keys::node_facts(node), document::encode(&refreshed));
        if content != before {
            let history = keys::node_fact_history(node);
            let past: Option<Versioned<FactHistory>> =
                document::read(&*self.store, &history).await?;
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
        Ok(transaction)
    }

    /// Stores only the time and the order.
    fn touch(
        &self,
        node: &NodeName,
        known: &StoredFacts,
        order: Option<SubmissionOrder>,
    ) -> Option<Transaction> {
        let received = self.clock.now();
        let transaction = known.unchanged(Transaction::new(), node);
        Some(match (&known.queued, &known.pointer) {
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
            (None, None) => return None,
        })
    }

    /// Queues the facts, replacing older queued ones.
    async fn enqueue(
        &self,
        node: &NodeName,
        known: &StoredFacts,
        fact_set: FactSetId,
        facts: &FactSet,
        order: Option<SubmissionOrder>,
        pins: &Pins,
    ) -> Result<Transaction, ServiceError> {
        let entry = |payload| QueuedFacts {
            fact_set,
            received: self.clock.now(),
            order,
            server: self.options.server,
            payload,
        };
        let transaction = known.unchanged(node_condition::when_exists(node), node);
        let inline = entry(Payload::Inline(facts.as_map().clone()));
        let value = document::encode(&inline);
        if value.len() <= self.options.inline_bytes {
            let transaction = transaction.put(keys::fact_queue(node), value);
            return self.without_replaced(transaction, node, known, None);
        }
        let content = self.write_content(facts.as_map(), pins).await?;
        let value = document::encode(&entry(Payload::Content(content)));
        let transaction = transaction.put(keys::fact_queue(node), value);
        let transaction = self
            .blobs
            .reference_in(transaction, content, &queue_referrer(node))
            .await
            .map_err(blob_error)?;
        self.without_replaced(transaction, node, known, Some(content))
    }

    /// Removes the reference to the content that was queued before.
    fn without_replaced(
        &self,
        transaction: Transaction,
        node: &NodeName,
        known: &StoredFacts,
        content: Option<ContentId>,
    ) -> Result<Transaction, ServiceError> {
        let queued = known.queued.as_ref();
        let replaced = queued.and_then(|queued| queued.document.content());
        match replaced.filter(|replaced| Some(*replaced) != content) {
            None => Ok(transaction),
            Some(replaced) => self
                .blobs
                .unreference_in(transaction, replaced, &queue_referrer(node))
                .map_err(blob_error),
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
