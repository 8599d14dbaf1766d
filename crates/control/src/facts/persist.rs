//! From the queue to the node's facts: what a worker does with one entry.
//!
//! One transaction takes the entry out of the queue, moves the pointer, the
//! history and the references, and asks for a compile. It compares all that it
//! read, so any number of workers on any number of servers may try: one does
//! it, the others find that it is done.

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

/// What became of a node's entry in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Persisted {
    /// They are the node's facts now, and a compile was asked for.
    Changed,
    /// They are what the node had.
    Unchanged,
    /// Nothing waits: somebody else did it, or the node is gone.
    Nothing,
}

impl Facts {
    /// Works on what is queued for a node, until nothing is.
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

    /// The facts came back to what they were before the entry was looked at.
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

    /// The facts as a blob that stays until the pin goes.
    async fn content_of(
        &self,
        queued: &QueuedFacts,
    ) -> Result<(ContentId, Option<Pin>), ServiceError> {
        match &queued.payload {
            // The queue's own reference holds it.
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

    /// `None`: somebody was faster, look again.
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

    /// References to what is new, history of what is not, and an end to what
    /// is older than the history goes back.
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

    /// The entry of a node that was removed meanwhile.
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
