//! From the queue to the node's facts: a worker's processing of one entry.
//!
//! One transaction removes the entry from the queue, moves the pointer, the
//! history and the references, and requests a compile. It compares everything
//! that it read, so any number of workers on any number of servers may try: one
//! succeeds, and the others find the work done.

use bunraku_model::{ContentId, NodeName, canonical_json};
use bunraku_store::blobs::Pins;
use bunraku_store::{Swap, Transaction, compare_and_swap};
use serde_json::{Map, Value};

use super::pointer::{FactHistory, FactsPointer, PastFacts, referrer};
use super::queue::{Payload, QueuedFacts, queue_referrer};
use super::submit::StoredFacts;
use super::{Facts, blob_error};
use crate::document::{self, Versioned};
use crate::{ServiceError, keys, node_condition};

/// The outcome for a node's queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PersistOutcome {
    /// The facts became the node's facts, and a compile was requested.
    Changed,
    /// The facts are the same as the node's current ones.
    Unchanged,
    /// No entry is queued: another worker processed it, or the node was removed.
    Nothing,
}

impl Facts {
    /// Processes a node's queued submissions until none is left.
    pub async fn persist(&self, node: &NodeName) -> Result<PersistOutcome, ServiceError> {
        let mut done = PersistOutcome::Nothing;
        while let Some(outcome) = self.persist_next(node).await? {
            done = outcome;
        }
        Ok(done)
    }

    /// Processes a node's queue entry. Returns `None` if there is none.
    async fn persist_next(&self, node: &NodeName) -> Result<Option<PersistOutcome>, ServiceError> {
        let held = Pins::default();
        let pins = &held;
        let outcome = compare_and_swap(&*self.store, |refused| async move {
            let known = self.read_stored(node).await?;
            let Some(queued) = &known.queued else {
                return Ok(Swap::Done(None));
            };
            let queued = &queued.document;
            if node_condition::is_gone(&refused) {
                // The node was removed in the meantime.
                let transaction = known.unchanged(Transaction::new(), node);
                let transaction = self.out_of_the_queue(transaction, node, queued)?;
                return Ok(Swap::Write(transaction, Some(PersistOutcome::Nothing)));
            }
            Ok(match &known.pointer {
                Some(pointer) if pointer.document.fact_set == queued.fact_set => {
                    let transaction = self.keep_current(node, &known, queued, pointer)?;
                    Swap::Write(transaction, Some(PersistOutcome::Unchanged))
                }
                _ => {
                    let transaction = self.replace(node, &known, queued, pins).await?;
                    Swap::Write(transaction, Some(PersistOutcome::Changed))
                }
            })
        })
        .await;
        held.release().await.map_err(blob_error)?;
        outcome
    }

    /// Removes an entry whose facts equal the current ones: they changed back
    /// before a worker processed the entry.
    fn keep_current(
        &self,
        node: &NodeName,
        known: &StoredFacts,
        queued: &QueuedFacts,
        pointer: &Versioned<FactsPointer>,
    ) -> Result<Transaction, ServiceError> {
        let touched = FactsPointer {
            received: queued.received,
            order: queued.order.or(pointer.document.order),
            ..pointer.document.clone()
        };
        let transaction = known
            .unchanged(Transaction::new(), node)
            .put(keys::node_facts(node), document::encode(&touched));
        self.out_of_the_queue(transaction, node, queued)
    }

    /// Makes the queued facts the node's facts.
    async fn replace(
        &self,
        node: &NodeName,
        known: &StoredFacts,
        queued: &QueuedFacts,
        pins: &Pins,
    ) -> Result<Transaction, ServiceError> {
        let pointer = FactsPointer {
            fact_set: queued.fact_set,
            content: self.content_of(queued, pins).await?,
            changed: queued.received,
            received: queued.received,
            order: queued.order,
        };
        let transaction = known
            .unchanged(node_condition::when_exists(node), node)
            .put(keys::node_facts(node), document::encode(&pointer));
        let transaction = self.out_of_the_queue(transaction, node, queued)?;
        let transaction = self
            .with_history(transaction, node, known, &pointer)
            .await?;
        match &self.hooks.changed {
            None => Ok(transaction),
            Some(hook) => hook.facts_changed(transaction, node, queued.fact_set).await,
        }
    }

    /// Returns the facts as a blob that stays until the pins are released.
    async fn content_of(
        &self,
        queued: &QueuedFacts,
        pins: &Pins,
    ) -> Result<ContentId, ServiceError> {
        match &queued.payload {
            // The queue's own reference keeps it.
            Payload::Content(content) => Ok(*content),
            Payload::Inline(facts) => self.write_content(facts, pins).await,
        }
    }

    /// Writes facts as a blob that stays until the pins are released.
    pub(super) async fn write_content(
        &self,
        facts: &Map<String, Value>,
        pins: &Pins,
    ) -> Result<ContentId, ServiceError> {
        let text = canonical_json(&Value::Object(facts.clone()));
        let written = self.blobs.put(&mut text.as_bytes(), None).await;
        let written = written.map_err(blob_error)?;
        pins.add(written.pin);
        Ok(written.info.id)
    }

    /// Adds references to the new facts, adds the previous ones to the history,
    /// and drops facts that are beyond the length of the history.
    async fn with_history(
        &self,
        transaction: Transaction,
        node: &NodeName,
        known: &StoredFacts,
        pointer: &FactsPointer,
    ) -> Result<Transaction, ServiceError> {
        let key = keys::node_fact_history(node);
        let history: Option<Versioned<FactHistory>> = document::read(&*self.store, &key).await?;
        let old = history.as_ref().map(|stored| stored.document.clone());
        let old = old.unwrap_or_default();
        let new = match &known.pointer {
            None => old.clone(),
            Some(known) => {
                let past = PastFacts {
                    fact_set: known.document.fact_set,
                    content: known.document.content,
                    changed: known.document.changed,
                    replaced: pointer.changed,
                };
                old.with(past, self.options.history)
            }
        };
        let mut transaction = transaction
            .when_unchanged(&key, history.as_ref().map(|stored| &stored.entry))
            .put(key, document::encode(&new));
        let referrer = referrer(node);
        transaction = self
            .blobs
            .reference_in(transaction, pointer.content, &referrer)
            .await
            .map_err(blob_error)?;
        let kept: Vec<ContentId> = new.contents().chain([pointer.content]).collect();
        let held = known.pointer.as_ref().map(|known| known.document.content);
        let mut dropped: Vec<ContentId> = old.contents().chain(held).collect();
        dropped.sort_unstable();
        dropped.dedup();
        for content in dropped {
            if !kept.contains(&content) {
                transaction = self
                    .blobs
                    .unreference_in(transaction, content, &referrer)
                    .map_err(blob_error)?;
            }
        }
        Ok(transaction)
    }

    pub(super) fn out_of_the_queue(
        &self,
        transaction: Transaction,
        node: &NodeName,
        queued: &QueuedFacts,
    ) -> Result<Transaction, ServiceError> {
        let transaction = transaction.delete(keys::fact_queue(node));
        match queued.content() {
            None => Ok(transaction),
            Some(content) => self
                .blobs
                .unreference_in(transaction, content, &queue_referrer(node))
                .map_err(blob_error),
        }
    }
}
