//! The compile queue: one entry per node, regardless of the number of requests.
//!
//! An entry records that a node must be compiled and why, but not the inputs:
//! the newest facts and the newest code are looked up when its turn comes. The
//! newest request rewrites the entry, so its revision shows the compiling
//! server whether another request came meanwhile.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bunraku_model::{EnvironmentName, FactSetId, NodeName, VolatileFacts};
use bunraku_store::{
    Compare, KeyValue, SharedStore, StoreError, Swap, Transaction, compare_and_swap, settle,
};
use bunraku_wire::api::CompileReason;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use bunraku_control::clock::Clock;
use bunraku_control::document;
use bunraku_control::nodes;
use bunraku_control::{EnvironmentOf, EnvironmentSettings, FactsChanged, ServiceError, keys};

/// Number of nodes per transaction: each costs two compares and one operation.
const BATCH: usize = 50;

/// A node to compile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueEntry {
    /// The node's environment at the time of the request. It decides which
    /// nodes wait for each other.
    pub environment: EnvironmentName,
    /// Each reason once, the most urgent first.
    pub reasons: Vec<CompileReason>,
    pub since: Timestamp,
    pub requested: Timestamp,
}

impl QueueEntry {
    fn with(
        known: Option<Self>,
        environment: EnvironmentName,
        reason: CompileReason,
        now: Timestamp,
    ) -> Self {
        let mut entry = known.unwrap_or(Self {
            environment: environment.clone(),
            reasons: Vec::new(),
            since: now,
            requested: now,
        });
        entry.environment = environment;
        entry.requested = now;
        entry.reasons.push(reason);
        entry.reasons.sort_unstable();
        entry.reasons.dedup();
        entry
    }

    pub fn priority(&self) -> u8 {
        let urgent = self.reasons.iter().map(|reason| reason.priority()).min();
        urgent.unwrap_or(u8::MAX)
    }
}

/// Handle for the queue.
#[derive(Clone)]
pub struct CompileQueue {
    store: SharedStore,
    clock: Clock,
}

impl CompileQueue {
    pub fn new(store: SharedStore, clock: Clock) -> Self {
        Self { store, clock }
    }

    /// Adds a request to the caller's transaction, so that both succeed or
    /// neither does. If the transaction is refused, start again from here.
    pub async fn request_in(
        &self,
        transaction: Transaction,
        node: &NodeName,
        reason: CompileReason,
    ) -> Result<Transaction, ServiceError> {
        let environment = nodes::environment_of(&*self.store, node).await?;
        let environment = environment.ok_or_else(|| ServiceError::no_such_node(node))?;
        let known = self.store.get(&keys::compile_request(node)).await?;
        self.put_in(transaction, node, environment, known.as_ref(), reason)
    }

    /// Adds a request for a caller that knows the node's environment and the
    /// queue's content.
    pub fn put_in(
        &self,
        transaction: Transaction,
        node: &NodeName,
        environment: EnvironmentName,
        known: Option<&KeyValue>,
        reason: CompileReason,
    ) -> Result<Transaction, ServiceError> {
        let key = keys::compile_request(node);
        let entry = known.map(document::decode).transpose()?;
        let entry = QueueEntry::with(entry, environment, reason, self.clock.now());
        Ok(transaction
            .when(Compare::Exists(keys::node_record(node)))
            .when_unchanged(&key, known)
            .put(key, document::encode(&entry)))
    }

    /// Adds one node to the queue.
    pub async fn request(
        &self,
        node: &NodeName,
        reason: CompileReason,
    ) -> Result<(), ServiceError> {
        compare_and_swap(&*self.store, |_| async {
            let transaction = self.request_in(Transaction::new(), node, reason).await?;
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    /// Adds many nodes to the queue, in several transactions. Skips nodes that
    /// were removed meanwhile. Requesting twice is harmless.
    pub async fn request_all(
        &self,
        nodes: &[(NodeName, EnvironmentName)],
        reason: CompileReason,
    ) -> Result<(), ServiceError> {
        for batch in nodes.chunks(BATCH) {
            if !self.try_batch(batch, reason).await? {
                // Another request touched one of them: add them one by one.
                for (node, _) in batch {
                    match self.request(node, reason).await {
                        Ok(()) | Err(ServiceError::NotFound { .. }) => {}
                        Err(other) => return Err(other),
                    }
                }
            }
        }
        Ok(())
    }

    async fn try_batch(
        &self,
        batch: &[(NodeName, EnvironmentName)],
        reason: CompileReason,
    ) -> Result<bool, ServiceError> {
        let mut transaction = Transaction::new();
        for (node, environment) in batch {
            let known = self.store.get(&keys::compile_request(node)).await?;
            let environment = environment.clone();
            transaction = self.put_in(transaction, node, environment, known.as_ref(), reason)?;
        }
        match settle(&*self.store, transaction).await {
            Ok(settled) => Ok(settled.is_committed()),
            // Requesting again is harmless.
            Err(StoreError::OutcomeUnknown(_)) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// Returns all pending entries, by node.
    pub async fn entries(&self) -> Result<BTreeMap<NodeName, QueueEntry>, ServiceError> {
        let mut entries = BTreeMap::new();
        for entry in document::read_all(&*self.store, keys::COMPILE_QUEUE).await? {
            if let Some(node) = keys::parse_node_below(keys::COMPILE_QUEUE, &entry.key) {
                entries.insert(node, document::decode(&entry)?);
            }
        }
        Ok(entries)
    }
}

#[async_trait]
impl FactsChanged for CompileQueue {
    async fn facts_changed(
        &self,
        transaction: Transaction,
        node: &NodeName,
        _: FactSetId,
    ) -> Result<Transaction, ServiceError> {
        self.request_in(transaction, node, CompileReason::Facts)
            .await
    }
}

#[async_trait]
impl EnvironmentOf for CompileQueue {
    async fn environment_of(
        &self,
        node: &NodeName,
    ) -> Result<Option<EnvironmentName>, ServiceError> {
        nodes::environment_of(&*self.store, node).await
    }

    async fn volatile_in(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<VolatileFacts>, ServiceError> {
        let settings = EnvironmentSettings::read(&*self.store, environment).await?;
        let volatile = settings.and_then(|settings| settings.volatile);
        Ok(volatile.map(VolatileFacts::new))
    }
}
