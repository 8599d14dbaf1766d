//! From the store to the index: what each node's documents say of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bunraku_model::{Administration, ContentId, NodeName};
use bunraku_store::blobs::BlobError;
use bunraku_store::{Change, Follow, Followed, KeyValue, StoreError};
use bunraku_wire::api::NodeSummary;
use futures::{StreamExt, TryStreamExt};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Queries;
use crate::nodes::NodeDocuments;
use crate::{ServiceError, keys};

/// Contents that are read at the same time.
const AT_ONCE: usize = 16;

/// How long to wait for a store that was away.
const RETRY: Duration = Duration::from_millis(500);

/// What the index was told of a node.
#[derive(Default)]
struct Told {
    documents: NodeDocuments,
    facts: Option<ContentId>,
}

/// One server's way of keeping its index.
pub(super) struct Feed {
    queries: Queries,
    nodes: BTreeMap<NodeName, Told>,
}

impl Feed {
    pub(super) fn new(queries: Queries) -> Self {
        Self {
            queries,
            nodes: BTreeMap::new(),
        }
    }

    /// Follows the store for ever.
    pub(super) async fn run(&mut self) {
        let mut follow = Follow::new(self.queries.store.clone(), keys::NODES);
        loop {
            let changes = match follow.next().await {
                Ok(Followed::Snapshot { items, .. }) => {
                    items.into_iter().map(Change::Put).collect()
                }
                Ok(Followed::Changes(batch)) => batch.changes,
                Err(error) => {
                    tracing::error!(error = %error, "the index cannot follow the store; trying again");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            let touched = self.take_in(changes);
            self.tell(touched).await;
            self.queries.built.send_replace(true);
        }
    }

    fn take_in(&mut self, changes: Vec<Change>) -> BTreeSet<NodeName> {
        let mut touched = BTreeSet::new();
        for change in changes {
            let (key, entry) = match &change {
                Change::Put(entry) => (&entry.key, Some(entry)),
                Change::Delete { key } => (key, None),
            };
            if let Some((node, which)) = keys::parse_node_key(key) {
                let told = self.nodes.entry(node.clone()).or_default();
                read_in(&mut told.documents, which, entry);
                touched.insert(node);
            }
        }
        touched
    }

    /// Fields at once, then what must be read from blobs.
    async fn tell(&mut self, touched: BTreeSet<NodeName>) {
        let mut wanted = Vec::new();
        for node in touched {
            let Some(told) = self.nodes.get_mut(&node) else {
                continue;
            };
            let Some(summary) = told.documents.clone().summary(node.clone(), 0) else {
                self.queries.write().remove_node(&node);
                told.facts = None;
                if told.documents.is_empty() {
                    self.nodes.remove(&node);
                }
                continue;
            };
            let pointer = told.documents.facts.as_ref();
            let content = pointer.map(|pointer| pointer.content);
            let fields = fields(
                &summary,
                pointer.map(|pointer| pointer.changed),
                told.documents.joined(),
            );
            let changed = told.facts != content;
            told.facts = content;
            self.queries.write().set_fields(&node, fields);
            match content {
                Some(content) if changed => wanted.push((node, content)),
                None if changed => {
                    self.queries.write().set_facts(&node, &Map::new());
                }
                _ => {}
            }
        }
        self.read_facts(wanted).await;
    }

    async fn read_facts(&self, wanted: Vec<(NodeName, ContentId)>) {
        futures::stream::iter(wanted)
            .for_each_concurrent(AT_ONCE, async |(node, content)| {
                if let Some(facts) = self.read::<Map<String, Value>>(&node, content).await {
                    let whole = self.queries.write().set_facts(&node, &facts);
                    if !whole {
                        tracing::warn!(%node, "a fact set is too large to be indexed whole");
                    }
                }
            })
            .await;
    }

    /// What a content holds. Nothing when it is gone: then something newer
    /// took its place, and its change is on the way.
    async fn read<T: DeserializeOwned>(&self, node: &NodeName, content: ContentId) -> Option<T> {
        loop {
            match self.read_once(content).await {
                Ok(found) => return Some(found),
                Err(ServiceError::Store(StoreError::Unavailable(_))) => {
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => {
                    let error = crate::http::chain(&error);
                    tracing::warn!(%node, %content, error, "what a node refers to is not indexed");
                    return None;
                }
            }
        }
    }

    async fn read_once<T: DeserializeOwned>(&self, content: ContentId) -> Result<T, ServiceError> {
        let failed = |error: BlobError| match error {
            BlobError::Store(error) => ServiceError::Store(error),
            error => ServiceError::internal("a content cannot be read", error),
        };
        let stream = self.queries.blobs.open(content).await.map_err(failed)?;
        let bytes = stream.try_fold(Vec::new(), async |mut bytes, chunk| {
            bytes.extend_from_slice(&chunk);
            Ok(bytes)
        });
        let bytes: Vec<u8> = bytes.await.map_err(failed)?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ServiceError::internal("a content is not what it should be", error))
    }
}

/// A document that cannot be read is as good as none, and others still count.
fn read_in(documents: &mut NodeDocuments, which: &str, entry: Option<&KeyValue>) {
    documents.drop(which);
    if let Some(entry) = entry
        && let Err(error) = documents.take(which, entry)
    {
        tracing::error!(error = %crate::http::chain(&error), "a document is not indexed");
    }
}

fn fields(
    summary: &NodeSummary,
    facts_changed: Option<jiff::Timestamp>,
    joined: Option<jiff::Timestamp>,
) -> Map<String, Value> {
    let disabled = match &summary.status.administration {
        Administration::Enabled { .. } => None,
        Administration::Disabled { reason, .. } => Some(reason),
    };
    let fields = json!({
        "status": summary.word,
        "joined": joined,
        "disabled": disabled,
        "fact_set": summary.fact_set,
        "facts_changed": facts_changed,
        "facts_received": summary.facts_received,
    });
    match fields {
        Value::Object(fields) => fields,
        _ => unreachable!("it was written as an object"),
    }
}
