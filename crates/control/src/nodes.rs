//! Nodes: their records, whether they may run, and their status.

mod pages;

use std::collections::BTreeMap;
use std::sync::Arc;

use bunraku_model::{
    Activity, Administration, CommandId, Connection, EnvironmentName, NodeName, NodeStatus,
    default_environment, near_names,
};
use bunraku_store::{
    KeyValue, Settled, SharedStore, Store, Swap, Transaction, compare_and_swap, settle,
};
use bunraku_wire::api::{ActivityReceipt, Command, Envelope, NodeQueue, NodeSummary, QueueReport};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::clock::Clock;
use crate::document;
use crate::facts::FactsPointer;
use crate::node_events::{NoRecorder, NodeEventRecorder};
use crate::presence::StoredConnection;
use crate::reports::StoredLastRun;
use crate::{ServiceError, keys, node_condition};

/// The time in which a connected agent learns that it was disabled or enabled. An
/// agent that is away learns it when it returns.
const TOLD_WITHIN: SignedDuration = SignedDuration::from_mins(10);

/// The part of a node that exists from its first certificate on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    joined: Timestamp,
    administration: Administration,
    /// Absent in records from before environments existed.
    #[serde(default = "default_environment")]
    pub environment: EnvironmentName,
}

/// The part of a node's record that names its environment.
#[derive(Deserialize)]
struct NodeEnvironment {
    #[serde(default = "default_environment")]
    environment: EnvironmentName,
}

/// Returns the environment of a node, if the node exists.
pub async fn environment_of(
    store: &dyn Store,
    node: &NodeName,
) -> Result<Option<EnvironmentName>, ServiceError> {
    let record = store.get(&keys::node_record(node)).await?;
    record.as_ref().map(environment_in).transpose()
}

/// Returns the environment that a node's record names.
pub fn environment_in(record: &KeyValue) -> Result<EnvironmentName, ServiceError> {
    document::decode::<NodeEnvironment>(record).map(|record| record.environment)
}

/// A run queue as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredQueue {
    queue: QueueReport,
    received: Timestamp,
}

/// The handle on the node service.
#[derive(Clone)]
pub struct Nodes {
    store: SharedStore,
    clock: Clock,
    recorder: Arc<dyn NodeEventRecorder>,
}

impl Nodes {
    pub fn new(store: SharedStore, clock: Clock) -> Self {
        Self {
            store,
            clock,
            recorder: Arc::new(NoRecorder),
        }
    }

    /// Records nodes that join in the transaction that creates them.
    #[must_use]
    pub fn with_recorder(mut self, recorder: Arc<dyn NodeEventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Creates the record of a node whose certificate was signed. Keeps an existing one.
    pub async fn register(&self, node: &NodeName) -> Result<(), ServiceError> {
        let now = self.clock.now();
        let record = NodeRecord {
            joined: now,
            administration: Administration::Enabled { since: now },
            environment: default_environment(),
        };
        let key = keys::node_record(node);
        let transaction = Transaction::new()
            .when(bunraku_store::Compare::Absent(key.clone()))
            .put(key, document::encode(&record));
        let transaction = self.recorder.node_joined(transaction, node);
        settle(&*self.store, transaction).await?;
        Ok(())
    }

    /// Returns whether the node exists.
    pub async fn exists(&self, node: &NodeName) -> Result<bool, ServiceError> {
        Ok(self.store.get(&keys::node_record(node)).await?.is_some())
    }

    /// Returns an error that names similar nodes, unless the node exists.
    pub async fn require(&self, node: &NodeName) -> Result<(), ServiceError> {
        if self.exists(node).await? {
            return Ok(());
        }
        let keys = document::keys_under(&*self.store, keys::NODES).await?;
        let names: Vec<NodeName> = keys
            .iter()
            .filter_map(|key| match keys::parse_node_key(key)? {
                (name, "record") => Some(name),
                _ => None,
            })
            .collect();
        let near = near_names(node.as_str(), names.iter().map(NodeName::as_str));
        Err(match near.first() {
            Some(near) => ServiceError::NotFound {
                what: format!("node `{node}`"),
                hint: Some(format!("did you mean `{near}`?")),
            },
            None => ServiceError::no_such_node(node),
        })
    }

    /// Returns all nodes, by name.
    pub async fn list(&self) -> Result<Vec<NodeSummary>, ServiceError> {
        let mut pending: BTreeMap<NodeName, usize> = BTreeMap::new();
        for key in document::keys_under(&*self.store, &keys::all_pending_commands()).await? {
            if let Some((node, _)) = keys::parse_pending_command(&key) {
                *pending.entry(node).or_default() += 1;
            }
        }
        let mut documents: BTreeMap<NodeName, NodeDocuments> = BTreeMap::new();
        for entry in document::read_all(&*self.store, keys::NODES).await? {
            if let Some((node, which)) = keys::parse_node_key(&entry.key) {
                documents.entry(node).or_default().take(which, &entry)?;
            }
        }
        Ok(documents
            .into_iter()
            .filter_map(|(node, documents)| {
                let waiting = pending.get(&node).copied().unwrap_or(0);
                documents.summary(node, waiting)
            })
            .collect())
    }

    /// Returns one node.
    pub async fn show(&self, node: &NodeName) -> Result<NodeSummary, ServiceError> {
        let mut documents = NodeDocuments::default();
        let prefix = keys::node_prefix(node);
        for entry in document::read_all(&*self.store, &prefix).await? {
            documents.take(&entry.key[prefix.len()..], &entry)?;
        }
        let pending = document::keys_under(&*self.store, &keys::command_pending_prefix(node))
            .await?
            .len();
        if let Some(summary) = documents.summary(node.clone(), pending) {
            return Ok(summary);
        }
        self.require(node).await?;
        Err(ServiceError::no_such_node(node))
    }

    /// Disables the node. A second reason replaces the first.
    pub async fn disable(
        &self,
        node: &NodeName,
        reason: &str,
        by: &str,
    ) -> Result<(), ServiceError> {
        if reason.trim().is_empty() {
            return Err(ServiceError::invalid("disabling a node needs a reason"));
        }
        let now = self.clock.now();
        self.administer(node, by, |current| match current {
            Administration::Disabled { reason: known, .. } if known == reason => None,
            _ => Some(Administration::Disabled {
                since: now,
                reason: reason.to_owned(),
                by: by.to_owned(),
            }),
        })
        .await
    }

    /// Enables the node again.
    pub async fn enable(&self, node: &NodeName, by: &str) -> Result<(), ServiceError> {
        let now = self.clock.now();
        self.administer(node, by, |current| match current {
            Administration::Enabled { .. } => None,
            Administration::Disabled { .. } => Some(Administration::Enabled { since: now }),
        })
        .await
    }

    /// Stores the state, and notifies the agent in the same transaction.
    async fn administer(
        &self,
        node: &NodeName,
        by: &str,
        decide: impl Fn(&Administration) -> Option<Administration>,
    ) -> Result<(), ServiceError> {
        let key = keys::node_record(node);
        let (key, decide) = (&key, &decide);
        compare_and_swap(&*self.store, |_| async move {
            let known = document::read::<NodeRecord>(&*self.store, key).await?;
            let known = known.ok_or_else(|| ServiceError::no_such_node(node))?;
            let Some(administration) = decide(&known.document.administration) else {
                return Ok(Swap::Done(()));
            };
            let tell = self.command_envelope(administration.clone(), by);
            let record = NodeRecord {
                administration,
                ..known.document
            };
            let transaction = Transaction::new()
                .when_unchanged(key, Some(&known.entry))
                .put(key, document::encode(&record))
                .put(
                    keys::command_pending(node, tell.id),
                    document::encode(&tell),
                );
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    fn command_envelope(&self, administration: Administration, by: &str) -> Envelope {
        let now = self.clock.now();
        Envelope {
            id: CommandId(Uuid::now_v7()),
            command: Command::Administer { administration },
            sent_by: by.to_owned(),
            sent: now,
            expires: now.saturating_add(TOLD_WITHIN).unwrap_or(now),
        }
    }

    /// Stores the activity that the agent reports. Returns whether the agent may run.
    pub async fn report_activity(
        &self,
        node: &NodeName,
        activity: &Activity,
    ) -> Result<ActivityReceipt, ServiceError> {
        self.put_document(node, keys::node_activity(node), document::encode(activity))
            .await?;
        let record: NodeRecord =
            match document::read(&*self.store, &keys::node_record(node)).await? {
                Some(known) => known.document,
                None => return Err(ServiceError::no_such_node(node)),
            };
        Ok(ActivityReceipt {
            administration: record.administration,
        })
    }

    /// Stores the run queue that the agent reports.
    pub async fn report_queue(
        &self,
        node: &NodeName,
        queue: &QueueReport,
    ) -> Result<(), ServiceError> {
        let stored = StoredQueue {
            queue: queue.clone(),
            received: self.clock.now(),
        };
        self.put_document(node, keys::node_queue(node), document::encode(&stored))
            .await
    }

    /// Returns the run queue that the node reported last.
    pub async fn queue(&self, node: &NodeName) -> Result<NodeQueue, ServiceError> {
        let waiting = keys::command_pending_prefix(node);
        let waiting = document::keys_under(&*self.store, &waiting).await?;
        let waiting_commands = waiting.len() as u64;
        match document::read::<StoredQueue>(&*self.store, &keys::node_queue(node)).await? {
            Some(known) => Ok(NodeQueue {
                queue: known.document.queue,
                received: known.document.received,
                waiting_commands,
            }),
            None if self.exists(node).await? => Err(ServiceError::NotFound {
                what: format!("a run queue of `{node}`"),
                hint: Some("the agent sends it when it first connects".to_owned()),
            }),
            None => Err(ServiceError::no_such_node(node)),
        }
    }

    async fn put_document(
        &self,
        node: &NodeName,
        key: String,
        value: bytes::Bytes,
    ) -> Result<(), ServiceError> {
        let transaction = node_condition::when_exists(node).put(key, value);
        match settle(&*self.store, transaction).await? {
            Settled::Committed => Ok(()),
            Settled::Refused(_) => Err(ServiceError::no_such_node(node)),
        }
    }

    /// Deletes a node's record and commands. Returns false if the node still has
    /// facts: delete those first, or the blobs they refer to would stay.
    ///
    /// The caller must revoke the node's certificates first: a node with a valid
    /// certificate would come back.
    pub async fn remove(&self, node: &NodeName) -> Result<bool, ServiceError> {
        let transaction = node_condition::when_exists(node)
            .when(bunraku_store::Compare::Absent(keys::node_facts(node)))
            .delete_prefix(keys::node_prefix(node))
            .delete(keys::target(node))
            .delete(keys::trigger_budget(node))
            .delete_prefix(keys::command_pending_prefix(node))
            .delete_prefix(keys::command_result_prefix(node));
        match settle(&*self.store, transaction).await? {
            Settled::Committed => Ok(true),
            Settled::Refused(reads) => {
                node_condition::check_refusal(&reads, node)?;
                Ok(false)
            }
        }
    }
}

/// The stored documents of one node.
#[derive(Clone, Default)]
pub struct NodeDocuments {
    record: Option<NodeRecord>,
    connection: Option<StoredConnection>,
    activity: Option<Activity>,
    pub facts: Option<FactsPointer>,
    last_run: Option<StoredLastRun>,
}

impl NodeDocuments {
    /// Removes a document that no longer exists.
    pub fn drop(&mut self, which: &str) {
        match which {
            "record" => self.record = None,
            "connection" => self.connection = None,
            "activity" => self.activity = None,
            "facts" => self.facts = None,
            "last-run" => self.last_run = None,
            _ => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        self.record.is_none()
            && self.connection.is_none()
            && self.activity.is_none()
            && self.facts.is_none()
            && self.last_run.is_none()
    }

    pub fn joined(&self) -> Option<Timestamp> {
        self.record.as_ref().map(|record| record.joined)
    }

    pub fn take(&mut self, which: &str, entry: &KeyValue) -> Result<(), ServiceError> {
        match which {
            "record" => self.record = Some(document::decode(entry)?),
            "connection" => self.connection = Some(document::decode(entry)?),
            "activity" => self.activity = Some(document::decode(entry)?),
            "facts" => self.facts = Some(document::decode(entry)?),
            "last-run" => self.last_run = Some(document::decode(entry)?),
            _ => {}
        }
        Ok(())
    }

    /// Builds the summary. Returns `None` without a record: such documents are
    /// leftovers of a removed node.
    pub fn summary(self, name: NodeName, pending_commands: usize) -> Option<NodeSummary> {
        let record = self.record?;
        let agent_version = self
            .connection
            .as_ref()
            .map(|stored| stored.agent_version.clone());
        let connection = match self.connection {
            None => Connection::Never {
                since: record.joined,
            },
            Some(stored) => stored.connection,
        };
        let activity = self.activity.unwrap_or(Activity::Idle {
            since: record.joined,
        });
        let status = NodeStatus {
            connection,
            administration: record.administration,
            activity,
        };
        let (word, since) = status.status();
        Some(NodeSummary {
            name,
            environment: record.environment,
            word,
            since,
            status,
            fact_set: self.facts.as_ref().map(|facts| facts.fact_set),
            facts_received: self.facts.as_ref().map(|facts| facts.received),
            pending_commands,
            agent_version,
            last_run: self.last_run.map(|stored| stored.last_run),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bunraku_store::testing::{CutPoint, CutStore, InterferingStore, MemoryStore};

    use super::*;

    fn nodes(store: impl Store) -> Nodes {
        Nodes::new(Arc::new(store), Clock::system())
    }

    /// Creates a store with one node.
    async fn store_with(node: &NodeName) -> SharedStore {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let nodes = Nodes::new(store.clone(), Clock::system());
        nodes.register(node).await.expect("registered");
        store
    }

    async fn commands(store: &SharedStore, node: &NodeName) -> usize {
        let pending = keys::command_pending_prefix(node);
        let pending = document::keys_under(&**store, &pending).await;
        pending.expect("read").len()
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_disabled_and_notified_once_even_if_the_answer_is_lost() {
        let node = NodeName::new("web-1").expect("a name");
        for done in [true, false] {
            let store = store_with(&node).await;
            let unsure = CutStore::at_commit(store.clone(), 0, CutPoint::Unsure { done });
            let disabled = nodes(unsure).disable(&node, "repair", "alice").await;
            disabled.expect("disabled");
            assert_eq!(commands(&store, &node).await, 1, "done: {done}");
        }
    }

    #[tokio::test]
    async fn of_two_who_disable_a_node_at_once_the_later_one_decides_on_the_earlier_ones_state() {
        let node = NodeName::new("web-1").expect("a name");
        let store = store_with(&node).await;
        let (other, same) = (Nodes::new(store.clone(), Clock::system()), node.clone());
        let meddled = InterferingStore::new(store.clone(), async move {
            let disabled = other.disable(&same, "repair", "bob").await;
            disabled.expect("disabled");
        });
        let disabled = nodes(meddled).disable(&node, "repair", "alice").await;
        disabled.expect("it is disabled for this reason already");
        assert_eq!(commands(&store, &node).await, 1);
    }
}
