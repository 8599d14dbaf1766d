//! The fact service: what nodes say of themselves.
//!
//! A node's pointer names its newest fact set; the facts themselves are a
//! blob that the pointer refers to. Facts that changed in nothing but
//! volatile ones cost one timestamp, and no blob.

use bunraku_model::{ContentId, FactSet, FactSetId, NodeName, VolatileFacts, canonical_json};
use bunraku_store::blobs::{BlobError, SharedBlobs};
use bunraku_store::{Compare, SharedStore, Transaction, TransactionOutcome};
use bunraku_wire::api::{FactsReceipt, FactsReply};
use futures::TryStreamExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::Clock;
use crate::document::{self, Stored};
use crate::{ServiceError, keys};

/// Which facts do not count.
#[derive(Clone, Debug, Default)]
pub struct FactOptions {
    pub volatile: VolatileFacts,
}

/// What the store has of a node's facts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FactsPointer {
    pub(crate) fact_set: FactSetId,
    pub(crate) content: ContentId,
    pub(crate) changed: Timestamp,
    pub(crate) received: Timestamp,
}

/// The handle on the fact service.
#[derive(Clone)]
pub struct Facts {
    store: SharedStore,
    blobs: SharedBlobs,
    clock: Clock,
    options: FactOptions,
}

impl Facts {
    pub fn new(store: SharedStore, blobs: SharedBlobs, clock: Clock, options: FactOptions) -> Self {
        Self {
            store,
            blobs,
            clock,
            options,
        }
    }

    /// Takes a node's facts. When this returns they are durable.
    pub async fn submit(
        &self,
        node: &NodeName,
        facts: &FactSet,
    ) -> Result<FactsReceipt, ServiceError> {
        let fact_set = facts.id(&self.options.volatile);
        loop {
            let known = self.pointer(node).await?;
            let same = known
                .as_ref()
                .filter(|known| known.document.fact_set == fact_set);
            let done = match same {
                Some(known) => self.touch(node, known).await?,
                None => self.replace(node, known.as_ref(), fact_set, facts).await?,
            };
            if done {
                return Ok(FactsReceipt {
                    fact_set,
                    changed: same.is_none(),
                });
            }
        }
    }

    /// The newest facts of a node.
    pub async fn show(&self, node: &NodeName) -> Result<FactsReply, ServiceError> {
        let Some(known) = self.pointer(node).await? else {
            return Err(match self.store.get(&keys::node_record(node)).await? {
                None => ServiceError::no_such_node(node),
                Some(_) => ServiceError::NotFound {
                    what: format!("a fact set of `{node}`"),
                    hint: Some("it comes with the agent's first connection".to_owned()),
                },
            });
        };
        let FactsPointer {
            fact_set,
            content,
            changed,
            received,
        } = known.document;
        let stream = self.blobs.open(content).await.map_err(blob_error)?;
        let text: Vec<u8> = stream
            .try_fold(Vec::new(), async |mut text, chunk| {
                text.extend_from_slice(&chunk);
                Ok(text)
            })
            .await
            .map_err(blob_error)?;
        let facts = serde_json::from_slice(&text).map_err(|source| ServiceError::Document {
            key: keys::node_facts(node),
            source,
        })?;
        Ok(FactsReply {
            node: node.clone(),
            fact_set,
            changed,
            received,
            facts,
        })
    }

    /// Lets go of the facts of a node whose pointer is about to be deleted.
    pub async fn forget(&self, node: &NodeName) -> Result<(), ServiceError> {
        match self.pointer(node).await? {
            None => Ok(()),
            Some(known) => self
                .blobs
                .unreference(known.document.content, &referrer(node))
                .await
                .map_err(blob_error),
        }
    }

    async fn pointer(&self, node: &NodeName) -> Result<Option<Stored<FactsPointer>>, ServiceError> {
        document::read(&*self.store, &keys::node_facts(node)).await
    }

    /// One timestamp, nothing else.
    async fn touch(
        &self,
        node: &NodeName,
        known: &Stored<FactsPointer>,
    ) -> Result<bool, ServiceError> {
        let key = keys::node_facts(node);
        let touched = FactsPointer {
            received: self.clock.now(),
            ..known.document.clone()
        };
        let transaction = Transaction::new()
            .when_unchanged(&key, Some(&known.entry))
            .put(key, document::encode(&touched));
        Ok(self.store.commit(transaction).await?.is_committed())
    }

    /// Writes the facts as a blob, and points to it while it is pinned.
    async fn replace(
        &self,
        node: &NodeName,
        known: Option<&Stored<FactsPointer>>,
        fact_set: FactSetId,
        facts: &FactSet,
    ) -> Result<bool, ServiceError> {
        let text = canonical_json(&Value::Object(facts.as_map().clone()));
        let written = self
            .blobs
            .put(&mut text.as_bytes(), None)
            .await
            .map_err(blob_error)?;
        let outcome = self.point_to(node, known, fact_set, written.info.id).await;
        // Referred to or not wanted: either way the pin has done its work.
        written.pin.release().await.map_err(blob_error)?;
        outcome
    }

    /// Moves the pointer and its references in one transaction. False: somebody
    /// was faster, look again.
    async fn point_to(
        &self,
        node: &NodeName,
        known: Option<&Stored<FactsPointer>>,
        fact_set: FactSetId,
        content: ContentId,
    ) -> Result<bool, ServiceError> {
        let now = self.clock.now();
        let key = keys::node_facts(node);
        let record = keys::node_record(node);
        let pointer = FactsPointer {
            fact_set,
            content,
            changed: now,
            received: now,
        };
        let transaction = Transaction::new()
            .when(Compare::Exists(record.clone()))
            .read_on_failure(record)
            .when_unchanged(&key, known.map(|known| &known.entry))
            .put(key, document::encode(&pointer));
        let referrer = referrer(node);
        let mut transaction = self
            .blobs
            .reference_in(transaction, content, &referrer)
            .await
            .map_err(blob_error)?;
        if let Some(known) = known.filter(|known| known.document.content != content) {
            transaction = self
                .blobs
                .unreference_in(transaction, known.document.content, &referrer)
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

fn referrer(node: &NodeName) -> String {
    format!("facts/{node}")
}

fn blob_error(error: BlobError) -> ServiceError {
    match error {
        BlobError::Store(error) => ServiceError::Store(error),
        error => ServiceError::internal("the facts' content cannot be used", error),
    }
}
