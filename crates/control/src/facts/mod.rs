//! The fact service: the facts that nodes report.
//!
//! A submission is acknowledged when it is in the queue (`submit.rs`), one entry
//! per node; workers persist it (`workers.rs`, `persist.rs`). A node's pointer
//! names its newest fact set. The facts themselves are a blob that the pointer
//! refers to, as are the last few fact sets before it. If only volatile facts
//! changed, the submission is acknowledged and leaves no trace: no blob, no queue
//! entry, no compile, no write. Only at intervals of
//! [`FactOptions::refreshed_every`] are the newest volatile values and the time
//! stored, replacing the previous ones.
//!
//! Readers see every acknowledged submission, because they look in the queue first.

mod difference;
mod hooks;
mod past;
mod persist;
mod pointer;
mod queue;
mod submit;
mod workers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{EnvironmentName, FactSet, NodeName, ServerId, VolatileFacts};
use bunraku_store::blobs::{BlobError, SharedBlobs};
use bunraku_store::{SharedStore, Swap, Transaction, compare_and_swap};
use bunraku_wire::api::FactsReply;
use uuid::Uuid;

use crate::clock::Clock;
use crate::document;
use crate::{ServiceError, keys};

pub use hooks::{EnvironmentOf, FactsChanged};
pub use persist::PersistOutcome;
pub use pointer::FactsPointer;
use queue::Payload;

/// Volatile facts, history size and workers of the fact service.
#[derive(Clone, Debug)]
pub struct FactOptions {
    /// Facts that do not count, unless the node's environment has its own list.
    pub volatile: VolatileFacts,
    /// The lists of environments that have their own.
    pub volatile_in: BTreeMap<EnvironmentName, VolatileFacts>,
    /// The number of readable fact sets before the newest.
    pub history: usize,
    /// The number of submissions persisted concurrently.
    pub workers: usize,
    /// The age at which this server processes another server's queue entry.
    pub adopt_after: Duration,
    /// The interval at which unchanged facts are written again, with the time and
    /// their volatile values.
    pub refreshed_every: Duration,
    /// The size above which a fact set waits in the queue as a blob.
    pub inline_bytes: usize,
    /// The id of this server.
    pub server: ServerId,
}

impl Default for FactOptions {
    fn default() -> Self {
        Self {
            volatile: VolatileFacts::default(),
            volatile_in: BTreeMap::new(),
            history: 5,
            workers: 8,
            adopt_after: Duration::from_secs(5),
            refreshed_every: Duration::from_secs(3_600),
            inline_bytes: 256 << 10,
            server: ServerId(Uuid::nil()),
        }
    }
}

/// The listeners and lookups that the fact service calls.
#[derive(Clone, Default)]
pub struct FactHooks {
    pub changed: Option<Arc<dyn FactsChanged>>,
    pub environment: Option<Arc<dyn EnvironmentOf>>,
}

/// The handle on the fact service.
#[derive(Clone)]
pub struct Facts {
    store: SharedStore,
    blobs: SharedBlobs,
    clock: Clock,
    options: Arc<FactOptions>,
    hooks: FactHooks,
}

impl Facts {
    pub fn new(
        store: SharedStore,
        blobs: SharedBlobs,
        clock: Clock,
        options: FactOptions,
        hooks: FactHooks,
    ) -> Self {
        Self {
            store,
            blobs,
            clock,
            options: Arc::new(options),
            hooks,
        }
    }

    /// Returns the newest facts of a node.
    pub async fn show(&self, node: &NodeName) -> Result<FactsReply, ServiceError> {
        let known = self.read_stored(node).await?;
        if let Some(queued) = known.queued.map(|stored| stored.document) {
            let facts = match queued.payload {
                Payload::Inline(facts) => FactSet::new(facts),
                Payload::Content(content) => self.read(node, content).await?,
            };
            return Ok(FactsReply {
                node: node.clone(),
                fact_set: queued.fact_set,
                changed: queued.received,
                received: queued.received,
                facts,
            });
        }
        let Some(pointer) = known.pointer.map(|stored| stored.document) else {
            return Err(self.none_of(node).await?);
        };
        Ok(FactsReply {
            node: node.clone(),
            fact_set: pointer.fact_set,
            changed: pointer.changed,
            received: pointer.received,
            facts: self.read(node, pointer.content).await?,
        })
    }

    /// Deletes all stored facts of a node in one transaction.
    ///
    /// Facts that are submitted while the node still exists bring it back. To
    /// remove a node, delete its record only while it has no facts.
    pub async fn forget(&self, node: &NodeName) -> Result<(), ServiceError> {
        compare_and_swap(&*self.store, |_| async {
            let known = self.read_stored(node).await?;
            let key = keys::node_fact_history(node);
            let history: Option<document::Versioned<pointer::FactHistory>> =
                document::read(&*self.store, &key).await?;
            let mut transaction = known
                .unchanged(Transaction::new(), node)
                .when_unchanged(&key, history.as_ref().map(|stored| &stored.entry))
                .delete(keys::node_facts(node))
                .delete(key);
            if let Some(queued) = &known.queued {
                transaction = self.out_of_the_queue(transaction, node, &queued.document)?;
            }
            let past = history.map(|stored| stored.document).unwrap_or_default();
            let newest = known.pointer.map(|stored| stored.document.content);
            let mut contents: Vec<_> = past.contents().chain(newest).collect();
            contents.sort_unstable();
            contents.dedup();
            for content in contents {
                transaction = self
                    .blobs
                    .unreference_in(transaction, content, &pointer::referrer(node))
                    .map_err(blob_error)?;
            }
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    /// Returns the volatile facts for a node. The operators' settings for the
    /// node's environment apply on every server; without them, the server's own
    /// settings apply.
    async fn volatile_for(&self, node: &NodeName) -> Result<VolatileFacts, ServiceError> {
        let Some(hook) = &self.hooks.environment else {
            return Ok(self.options.volatile.clone());
        };
        let Some(environment) = hook.environment_of(node).await? else {
            return Ok(self.options.volatile.clone());
        };
        if let Some(said) = hook.volatile_in(&environment).await? {
            return Ok(said);
        }
        let own = self.options.volatile_in.get(&environment);
        Ok(own.unwrap_or(&self.options.volatile).clone())
    }

    /// The error for a node without facts, with the reason.
    async fn none_of(&self, node: &NodeName) -> Result<ServiceError, ServiceError> {
        Ok(match self.store.get(&keys::node_record(node)).await? {
            None => ServiceError::no_such_node(node),
            Some(_) => ServiceError::NotFound {
                what: format!("a fact set of `{node}`"),
                hint: Some("the agent sends it when it first connects".to_owned()),
            },
        })
    }
}

fn blob_error(error: BlobError) -> ServiceError {
    ServiceError::content("cannot read the content of the facts", error)
}
