//! Every node's target, in memory.
//!
//! The agent feed keeps it current. Until the first read is complete,
//! lookups go to the store. So do lookups that must not be even slightly stale.
//!
//! Invariant: the board changes before anyone is notified, so everyone who is
//! notified sees the change.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use bunraku_model::{CatalogId, NodeName};
use bunraku_store::{
    Change, Compare, KeyValue, Revision, SharedStore, Transaction, TransactionOutcome,
};
use bunraku_wire::api::ReleaseEntry;

use super::StoredTarget;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// Number of nodes per read: at most as many as a transaction accepts.
const ASKED_TOGETHER: usize = 100;

/// A node's target as this server knows it.
#[derive(Debug)]
pub struct KnownTarget {
    pub stored: StoredTarget,
    pub entity_tag: String,
    pub modified: Revision,
}

#[derive(Default)]
struct Entries {
    by_node: HashMap<NodeName, Arc<KnownTarget>>,
    /// True when the first read is complete.
    complete: bool,
}

/// Handle for the board.
#[derive(Clone)]
pub struct TargetBoard {
    store: SharedStore,
    entries: Arc<RwLock<Entries>>,
}

impl TargetBoard {
    pub fn new(store: SharedStore) -> Self {
        Self {
            store,
            entries: Arc::default(),
        }
    }

    /// Returns a node's target, if a release named its catalog.
    pub async fn get(&self, node: &NodeName) -> Result<Option<Arc<KnownTarget>>, ServiceError> {
        {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            if entries.complete {
                return Ok(entries.by_node.get(node).cloned());
            }
        }
        match self.store.get(&keys::target(node)).await? {
            None => Ok(None),
            Some(entry) => decode_target(&entry).map(Some),
        }
    }

    /// Returns a node's target as it is in the store at this moment. Nothing
    /// that was released before is missing.
    pub async fn get_newest(
        &self,
        node: &NodeName,
    ) -> Result<Option<Arc<KnownTarget>>, ServiceError> {
        let before = {
            let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
            entries.by_node.get(node).map(|known| known.modified)
        };
        let stored = self.store.get(&keys::target(node)).await?;
        {
            let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
            match &stored {
                Some(entry) => {
                    put(&mut entries, entry);
                }
                None => entries.withdraw(node, before),
            }
        }
        self.get(node).await
    }

    /// Ensures that the board has the current targets of these nodes from the
    /// store. Usually it already has all of them; then a check of many nodes
    /// costs hardly more than a check of one.
    async fn refresh(&self, nodes: &[NodeName]) -> Result<(), ServiceError> {
        for chunk in nodes.chunks(ASKED_TOGETHER) {
            if let [node] = chunk {
                self.get_newest(node).await?;
                continue;
            }
            let known: Vec<Option<Revision>> = {
                let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
                let known = chunk.iter().map(|node| entries.by_node.get(node));
                known
                    .map(|known| known.map(|known| known.modified))
                    .collect()
            };
            let both = chunk.iter().zip(&known);
            let question = both.fold(Transaction::new(), |question, (node, known)| {
                let key = keys::target(node);
                let as_known = match known {
                    Some(modified) => Compare::Modified(key.clone(), *modified),
                    None => Compare::Absent(key.clone()),
                };
                question.when(as_known).read_on_failure(key)
            });
            if let TransactionOutcome::Refused(found) = self.store.commit(question).await? {
                let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
                for (node, (before, entry)) in chunk.iter().zip(known.into_iter().zip(found)) {
                    match entry {
                        Some(entry) => {
                            put(&mut entries, &entry);
                        }
                        None => entries.withdraw(node, before),
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the catalogs that a node may read: its target's, and the previous one.
    pub async fn catalogs_of(&self, node: &NodeName) -> Result<Vec<CatalogId>, ServiceError> {
        Ok(catalogs_of(self.get(node).await?.as_deref()))
    }

    /// Returns the same catalogs as they are in the store at this moment.
    /// Another server may have seen the node's target earlier than this one and
    /// notified the node of it.
    pub async fn newest_catalogs_of(
        &self,
        node: &NodeName,
    ) -> Result<Vec<CatalogId>, ServiceError> {
        Ok(catalogs_of(self.get_newest(node).await?.as_deref()))
    }

    /// Returns true if a node may read this catalog.
    pub async fn may_read(&self, node: &NodeName, id: CatalogId) -> Result<bool, ServiceError> {
        Ok(self.catalogs_of(node).await?.contains(&id)
            || self.newest_catalogs_of(node).await?.contains(&id))
    }

    /// Reads the targets of these nodes from the store if the board's targets
    /// differ from the expected ones.
    pub async fn catch_up(&self, thought: &[ReleaseEntry]) -> Result<(), ServiceError> {
        let mut other = Vec::new();
        for entry in thought {
            let known = self.get(&entry.node).await?;
            let thought = (entry.catalog, entry.mode);
            let target = known.as_ref().map(|known| &known.stored.target);
            if target.map(|target| (target.catalog, target.mode)) != Some(thought) {
                other.push(entry.node.clone());
            }
        }
        self.refresh(&other).await
    }

    /// Records everything that the store holds, and returns the nodes whose targets changed.
    pub(crate) fn fill(&self, items: &[KeyValue]) -> Vec<NodeName> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        let touched = items.iter().filter_map(|entry| put(&mut entries, entry));
        let touched = touched.collect();
        entries.complete = true;
        touched
    }

    /// Records a change, and returns the node whose target changed, if it is one of a target.
    pub(crate) fn change(&self, change: &Change, revision: Revision) -> Option<NodeName> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        match change {
            Change::Put(entry) => put(&mut entries, entry),
            Change::Delete { key } => delete(&mut entries, key, revision),
        }
    }
}

fn put(entries: &mut Entries, entry: &KeyValue) -> Option<NodeName> {
    let node = keys::parse_target(&entry.key)?;
    if entries.is_after(&node, entry.modified) {
        return None;
    }
    match decode_target(entry) {
        Ok(known) => {
            entries.by_node.insert(node.clone(), known);
            Some(node)
        }
        Err(error) => {
            // Serving the previous target is better than serving nothing.
            tracing::error!(error = %error, "cannot read a target; keeping the previous one");
            None
        }
    }
}

fn delete(entries: &mut Entries, key: &str, at: Revision) -> Option<NodeName> {
    let node = keys::parse_target(key)?;
    if entries.is_after(&node, at) {
        return None;
    }
    entries.by_node.remove(&node);
    Some(node)
}

impl Entries {
    /// Removes a target that is not in the store any more, although the watch
    /// is behind. `before` is its revision before the store was read: a target
    /// that came after the read stays.
    fn withdraw(&mut self, node: &NodeName, before: Option<Revision>) {
        let known = self.by_node.get(node).map(|known| known.modified);
        if known.is_some() && known == before {
            self.by_node.remove(node);
        }
    }

    /// Returns true if the known target is newer than this revision: it was
    /// read from the store directly, and the watch is behind.
    fn is_after(&self, node: &NodeName, revision: Revision) -> bool {
        let known = self.by_node.get(node);
        known.is_some_and(|known| known.modified > revision)
    }
}

fn catalogs_of(known: Option<&KnownTarget>) -> Vec<CatalogId> {
    known.map_or_else(Vec::new, |known| known.stored.catalogs())
}

fn decode_target(entry: &KeyValue) -> Result<Arc<KnownTarget>, ServiceError> {
    let stored: StoredTarget = document::decode(entry)?;
    Ok(Arc::new(KnownTarget {
        entity_tag: stored.entity_tag(),
        stored,
        modified: entry.modified,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_model::ContentId;
    use bunraku_store::testing::MemoryStore;
    use serde_json::json;

    fn target(release: u64) -> serde_json::Value {
        let id = ContentId::of(b"catalog");
        json!({"environment": "production", "release": release, "catalog": id, "mode": "enforce",
            "content": id})
    }

    /// The watch is behind in this test: the board hears of nothing.
    #[tokio::test]
    async fn a_withdrawn_target_is_gone_for_those_who_ask_for_the_newest() {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let board = TargetBoard::new(store.clone());
        let nodes = ["web-1", "web-2"].map(|name| NodeName::new(name).expect("a name"));
        for node in &nodes {
            let put = Transaction::new().put(keys::target(node), document::encode(&target(1)));
            store.commit(put).await.expect("written");
        }
        let all = document::read_all(&*store, keys::TARGETS).await;
        assert_eq!(board.fill(&all.expect("read")).len(), 2);
        let gone = Transaction::new().delete(keys::target(&nodes[0]));
        store.commit(gone).await.expect("deleted");
        assert!(board.get(&nodes[0]).await.expect("known").is_some());
        board.refresh(&nodes).await.expect("read");
        assert!(board.get(&nodes[0]).await.expect("known").is_none());
        let newest = board.get_newest(&nodes[1]).await.expect("read");
        assert!(newest.is_some());
        let gone = Transaction::new().delete(keys::target(&nodes[1]));
        store.commit(gone).await.expect("deleted");
        assert!(board.get_newest(&nodes[1]).await.expect("read").is_none());
    }

    #[tokio::test]
    async fn a_target_that_came_after_the_read_stays() {
        let store: SharedStore = Arc::new(MemoryStore::new());
        let node = NodeName::new("web-1").expect("a name");
        let put = Transaction::new().put(keys::target(&node), document::encode(&target(1)));
        store.commit(put).await.expect("written");
        let board = TargetBoard::new(store.clone());
        let all = document::read_all(&*store, keys::TARGETS).await;
        board.fill(&all.expect("read"));
        let mut entries = board
            .entries
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        entries.withdraw(&node, None);
        assert!(entries.by_node.contains_key(&node));
    }
}
