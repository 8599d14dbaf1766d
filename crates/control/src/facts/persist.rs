//! From the queue to the node's facts: a worker's processing of one entry.
//!
//! One transaction removes the entry from the queue, moves the pointer, the
//! history and the references, and requests a compile. It compares everything
//! that it read, so any number of workers on any number of servers may try: one
//! succeeds, and the others find the work done.

use bunraku_model::{ContentId, NodeName, canonical_json};
use bunraku_store::blobs::Pin;
use bunraku_store::{Compare, Transaction, TransactionOutcome};
use serde_json::Value;

use super::pointer::{FactHistory, FactsPointer, PastFacts, referrer};
use super::queue::{Payload, QueuedFacts, queue_referrer};
use super::submit::Known;
use super::{Facts, blob_error};
use crate::document::{self, Stored};
use crate::{ServiceError, keys};

/// The outcome for a node's queue entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persisted {
    /// The facts became the node's facts, and a compile was requested.
    Changed,
    /// The facts are the same as the node's current ones.
    Unchanged,
    /// No entry is queued: another worker processed it, or the node was removed.
    Nothing,
}

impl Facts {
    /// Processes a node's queued submissions until none is left.
    pub async fn persist(&self, node: &NodeName) -> Result<Persisted, ServiceError> {
        let mut done = Persisted::Nothing;
        loop {
            let known = self.known(node).await?;
            let Some(queued) = &known.queued else {
                return Ok(done);
            };
            let outcome = match &known.pointer {
                Some(pointer) if pointer.document.fact_set == queued.document.fact_set => {
                    let kept = self.keep(node, &known, queued, pointer).await?;
                    kept.then_some(Persisted::Unchanged)
                }
                _ => self.replace(node, &known, queued).await?,
            };
            done = outcome.unwrap_or(done);
        }
    }

    /// Removes an entry whose facts equal the current ones: they changed back
    /// before a worker processed the entry.
    async fn keep(
        &self,
        node: &NodeName,
        known: &Known,
        queued: &Stored<QueuedFacts>,
        pointer: &Stored<FactsPointer>,
    ) -> Result<bool, ServiceError> {
        let touched = FactsPointer {
            received: queued.document.received,
            order: queued.document.order.or(pointer.document.order),
            ..pointer.document.clone()
        };
        let transaction = known
            .unchanged(node)
            .put(keys::node_facts(node), document::encode(&touched));
        let transaction = self.out_of_the_queue(transaction, node, &queued.document)?;
        Ok(self.store.commit(transaction).await?.is_committed())
    }

    async fn replace(
        &self,
        node: &NodeName,
        known: &Known,
        queued: &Stored<QueuedFacts>,
    ) -> Result<Option<Persisted>, ServiceError> {
        let (content, pin) = self.content_of(&queued.document).await?;
        let outcome = self.move_to(node, known, &queued.document, content).await;
        if let Some(pin) = pin {
            pin.release().await.map_err(blob_error)?;
        }
        outcome
    }

    /// Returns the facts as a blob that stays until the pin is released.
    async fn content_of(
        &self,
        queued: &QueuedFacts,
    ) -> Result<(ContentId, Option<Pin>), ServiceError> {
        match &queued.payload {
            // The queue's own reference keeps it.
            Payload::Content(content) => Ok((*content, None)),
            Payload::Inline(facts) => {
                let text = canonical_json(&Value::Object(facts.clone()));
                let written = self
                    .blobs
                    .put(&mut text.as_bytes(), None)
                    .await
                    .map_err(blob_error)?;
                Ok((written.info.id, Some(written.pin)))
            }
        }
    }

    /// Makes the queued facts the node's facts. `None`: another writer was faster, so read again.
    async fn move_to(
        &self,
        node: &NodeName,
        known: &Known,
        queued: &QueuedFacts,
        content: ContentId,
    ) -> Result<Option<Persisted>, ServiceError> {
        let record = keys::node_record(node);
        let pointer = FactsPointer {
            fact_set: queued.fact_set,
            content,
            changed: queued.received,
            received: queued.received,
            order: queued.order,
        };
        let transaction = known
            .unchanged(node)
            .when(Compare::Exists(record.clone()))
            .read_on_failure(record)
            .put(keys::node_facts(node), document::encode(&pointer));
        let transaction = self.out_of_the_queue(transaction, node, queued)?;
        let transaction = self
            .with_history(transaction, node, known, &pointer)
            .await?;
        let transaction = match &self.hooks.changed {
            None => transaction,
            Some(hook) => {
                hook.facts_changed(transaction, node, queued.fact_set)
                    .await?
            }
        };
        match self.store.commit(transaction).await? {
            TransactionOutcome::Committed(_) => Ok(Some(Persisted::Changed)),
            TransactionOutcome::Refused(reads) if reads.first().is_some_and(Option::is_none) => {
                self.drop_entry(node, known, queued).await
            }
            TransactionOutcome::Refused(_) => Ok(None),
        }
    }

    /// Adds references to the new facts, adds the previous ones to the history,
    /// and drops facts that are beyond the length of the history.
    async fn with_history(
        &self,
        transaction: Transaction,
        node: &NodeName,
        known: &Known,
        pointer: &FactsPointer,
    ) -> Result<Transaction, ServiceError> {
        let key = keys::node_fact_history(node);
        let history: Option<Stored<FactHistory>> = document::read(&*self.store, &key).await?;
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

    /// Removes the queue entry of a node that was removed in the meantime.
    async fn drop_entry(
        &self,
        node: &NodeName,
        known: &Known,
        queued: &QueuedFacts,
    ) -> Result<Option<Persisted>, ServiceError> {
        let transaction = self.out_of_the_queue(known.unchanged(node), node, queued)?;
        let done = self.store.commit(transaction).await?.is_committed();
        Ok(done.then_some(Persisted::Nothing))
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
