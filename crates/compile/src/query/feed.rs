//! Feeds the index from the store with the documents of each node.
//!
//! It follows all documents and keeps the last version of each. It updates the
//! index from all of a node's documents together, so their order of arrival
//! makes no difference.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Duration;

use bunraku_model::{Administration, Catalog, ContentId, NodeName, NodeRunId};
use bunraku_store::stale::{self, Permission};
use bunraku_store::{Change, Follow, FollowEvent, KeyValue, StoreError};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Queries;
use super::node_reports::{self, IndexedReport, NodeReports};
use crate::compiles::CompiledCatalog;
use crate::targets::StoredTarget;
use bunraku_control::metrics::NodeCondition;
use bunraku_control::nodes::NodeDocuments;
use bunraku_control::{ServiceError, document, keys};
use bunraku_wire::api::NodeSummary;

/// Number of contents read concurrently.
const AT_ONCE: usize = 16;

/// Delay before an unavailable store is retried.
const RETRY: Duration = Duration::from_millis(500);

/// The stored data of a node, and the part of it that the index has.
#[derive(Default)]
struct IndexedNode {
    documents: NodeDocuments,
    compiled: Option<CompiledCatalog>,
    target: Option<StoredTarget>,
    /// The node's certificates, and whether each is revoked.
    certificates: BTreeMap<String, bool>,
    facts: Option<ContentId>,
    catalog: Option<ContentId>,
    /// The exports that the index has.
    exports: Option<ContentId>,
    reports: NodeReports,
    /// The condition that the metrics count.
    counted: Option<NodeCondition>,
}

/// The part of a certificate's document that matters here.
#[derive(serde::Deserialize)]
struct CertificateState {
    #[serde(default)]
    revoked: Option<serde::de::IgnoredAny>,
}

/// Something that must be read before the index can be updated.
enum PendingRead {
    Facts(NodeName, ContentId),
    Catalog(NodeName, ContentId),
    /// The resources that a catalog exports.
    Exports(NodeName, ContentId),
    /// The events after those that the index has.
    Report(NodeName, NodeRunId, IndexedReport),
}

/// Maintains the index of one server.
pub(super) struct Feed {
    queries: Queries,
    nodes: BTreeMap<NodeName, IndexedNode>,
}

impl Feed {
    pub(super) fn new(queries: Queries) -> Self {
        Self {
            queries,
            nodes: BTreeMap::new(),
        }
    }

    /// Follows the store forever.
    pub(super) async fn run(&mut self) {
        let follow = |prefix| Follow::new(self.queries.store.clone(), prefix);
        let mut nodes = follow(keys::NODES);
        let mut compiled = follow(keys::COMPILED);
        let mut targets = follow(keys::TARGETS);
        let mut reports = follow(keys::REPORTS);
        let mut certificates = follow(keys::CERTIFICATES);
        // Without a majority of the datastores, start from the data of one;
        // newer data arrives as changes.
        let first = self.build([
            &mut certificates,
            &mut nodes,
            &mut compiled,
            &mut targets,
            &mut reports,
        ]);
        stale::allow(Permission::default(), first).await;
        self.queries.built.send_replace(true);
        loop {
            let followed = tokio::select! {
                followed = nodes.next() => followed,
                followed = compiled.next() => followed,
                followed = targets.next() => followed,
                followed = reports.next() => followed,
                followed = certificates.next() => followed,
            };
            self.take(followed).await;
        }
    }

    /// Reads one after the other: the index is built when all are read.
    async fn build(&mut self, follows: [&mut Follow; 5]) {
        for follow in follows {
            let mut read = false;
            while !read {
                let first = follow.next().await;
                read = first.is_ok();
                self.take(first).await;
            }
        }
    }

    async fn take(&mut self, followed: Result<FollowEvent, StoreError>) {
        let changes: Vec<Change> = match followed {
            Ok(FollowEvent::Snapshot { items, .. }) => items.into_iter().map(Change::Put).collect(),
            Ok(FollowEvent::Changes(batch)) => batch.changes,
            Err(error) => {
                tracing::error!(error = %error, "the index cannot follow the store; retrying");
                return tokio::time::sleep(RETRY).await;
            }
        };
        let mut touched = BTreeSet::new();
        for change in &changes {
            touched.extend(self.note(change));
        }
        let wanted = touched
            .into_iter()
            .flat_map(|node| self.update_fields(node));
        let wanted: Vec<PendingRead> = wanted.collect();
        let read: Vec<_> = futures::stream::iter(wanted)
            .map(|wanted| self.read_in(wanted))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        for (node, run, in_index) in read.into_iter().flatten() {
            if let Some(known) = self.nodes.get_mut(&node) {
                known.reports.mark_indexed(run, in_index);
            }
        }
        let changes = &self.queries.changes;
        changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Keeps a document's content, and returns its node.
    fn note(&mut self, change: &Change) -> Option<NodeName> {
        let (key, entry) = match change {
            Change::Put(entry) => (&entry.key, Some(entry)),
            Change::Delete { key } => (key, None),
        };
        if let Some((node, which)) = keys::parse_node_key(key) {
            let known = self.nodes.entry(node.clone()).or_default();
            known.documents.drop(which);
            let taken = entry.map(|entry| known.documents.take(which, entry));
            report(taken.transpose().map(drop));
            return Some(node);
        }
        if let Some(node) = keys::parse_target(key) {
            self.nodes.entry(node.clone()).or_default().target = decoded(entry);
            return Some(node);
        }
        if let Some((node, run)) = keys::parse_report(key) {
            let known = self.nodes.entry(node.clone()).or_default();
            known.reports.note(run, decoded(entry).as_ref());
            return Some(node);
        }
        if let Some((node, serial)) = keys::parse_certificate(key) {
            let known = self.nodes.entry(node.clone()).or_default();
            match decoded::<CertificateState>(entry) {
                Some(state) => known.certificates.insert(serial, state.revoked.is_some()),
                None => known.certificates.remove(&serial),
            };
            return Some(node);
        }
        let name = key.strip_prefix(keys::COMPILED)?;
        let node = NodeName::new(name).ok()?;
        self.nodes.entry(node.clone()).or_default().compiled = decoded(entry);
        Some(node)
    }

    /// Updates the fields at once. Returns the contents to read before the rest
    /// can be updated.
    fn update_fields(&mut self, node: NodeName) -> Vec<PendingRead> {
        let Some(known) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        let summary = known.documents.clone().summary(node.clone(), 0);
        let condition = summary.as_ref().map(NodeCondition::of);
        let before = std::mem::replace(&mut known.counted, condition);
        self.queries.fleet.change(before, condition);
        let Some(fields) = summary.map(|summary| known.fields(&summary)) else {
            // Without a record the node does not exist, whatever other data is left.
            self.queries.write().remove_node(&node);
            (known.facts, known.catalog, known.exports) = (None, None, None);
            known.reports.reset();
            if known.is_empty() {
                self.nodes.remove(&node);
            }
            return Vec::new();
        };
        let pointer = known.documents.facts.as_ref();
        let facts = pointer.map(|pointer| pointer.content);
        let catalog = known.catalog_content();
        let (exports, exported_by) = known.exports().unzip();
        let exports_changed = std::mem::replace(&mut known.exports, exports) != exports;
        let facts_changed = std::mem::replace(&mut known.facts, facts) != facts;
        let catalog_changed = std::mem::replace(&mut known.catalog, catalog) != catalog;
        let (gone, reports) = known.reports.differences();
        let mut index = self.queries.write();
        index.set_fields(&node, fields);
        for run in gone {
            index.remove_report(&node, &run.to_string());
        }
        if facts_changed && facts.is_none() {
            index.set_facts(&node, &Map::new());
        }
        if catalog_changed && catalog.is_none() {
            index.clear_catalog(&node);
        }
        if exports_changed && exports.is_none() {
            index.set_exports(&node, &[]);
        }
        let exports = exported_by.filter(|_| exports_changed);
        let exports = exports.map(|content| PendingRead::Exports(node.clone(), content));
        let facts = facts.filter(|_| facts_changed);
        let catalog = catalog.filter(|_| catalog_changed);
        let facts = facts.map(|content| PendingRead::Facts(node.clone(), content));
        let catalog = catalog.map(|content| PendingRead::Catalog(node.clone(), content));
        let reports = reports.into_iter();
        let reports =
            reports.map(|(run, in_index)| PendingRead::Report(node.clone(), run, in_index));
        let contents = facts.into_iter().chain(catalog).chain(exports);
        contents.chain(reports).collect()
    }

    /// Reads a content into the index. For a report, returns how much of it the
    /// index has now.
    async fn read_in(&self, wanted: PendingRead) -> Option<(NodeName, NodeRunId, IndexedReport)> {
        match wanted {
            PendingRead::Report(node, run, in_index) => {
                let in_index = self.read_report(&node, run, in_index).await?;
                return Some((node, run, in_index));
            }
            PendingRead::Facts(node, content) => {
                if let Some(facts) = self.read::<Map<String, Value>>(&node, content).await
                    && !self.queries.write().set_facts(&node, &facts)
                {
                    tracing::warn!(%node, "a fact set is too large to index completely");
                }
            }
            PendingRead::Catalog(node, content) => {
                if let Some(catalog) = self.read::<Catalog>(&node, content).await {
                    self.queries.write().set_catalog(&node, &catalog);
                }
            }
            PendingRead::Exports(node, content) => {
                if let Some(catalog) = self.read::<Catalog>(&node, content).await {
                    self.queries.write().set_exports(&node, &catalog.exports);
                }
            }
        }
        None
    }

    async fn read_report(
        &self,
        node: &NodeName,
        run: NodeRunId,
        in_index: IndexedReport,
    ) -> Option<IndexedReport> {
        let reports = &self.queries.reports;
        let (head, events) = loop {
            let read = match reports.differences_from(node, run, in_index.next).await {
                // The rest of the index does not wait for history. The events are read with the
                // next change of the node.
                Err(error) if error.is_history_outage() => {
                    let head = reports.head_of(node, run).await.ok()??;
                    let row = node_reports::report_row(&head);
                    let mut index = self.queries.write();
                    index.extend_report(node, &run.to_string(), row, Vec::new());
                    return None;
                }
                read => read,
            };
            if let ControlFlow::Break(found) = check_read(node, read).await {
                break found??;
            }
        };
        let rows = node_reports::event_rows(&events, in_index.rows);
        let in_index = IndexedReport {
            next: head.next,
            rows: in_index.rows + rows.len(),
        };
        let row = node_reports::report_row(&head);
        let mut index = self.queries.write();
        index.extend_report(node, &run.to_string(), row, rows);
        Some(in_index)
    }

    /// Reads a content. Returns nothing when it is gone: then something newer
    /// has replaced it, and that change will arrive.
    async fn read<T: DeserializeOwned>(&self, node: &NodeName, content: ContentId) -> Option<T> {
        loop {
            let read = self.read_once(content).await;
            if let ControlFlow::Break(found) = check_read(node, read).await {
                return found;
            }
        }
    }

    async fn read_once<T: DeserializeOwned>(&self, content: ContentId) -> Result<T, ServiceError> {
        let bytes = (self.queries.blobs.read(content).await)
            .map_err(|error| ServiceError::content("a cannot read content", error))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ServiceError::internal("content does not match its hash", error))
    }
}

impl IndexedNode {
    fn is_empty(&self) -> bool {
        let documents = self.documents.is_empty() && self.reports.is_empty();
        documents
            && self.compiled.is_none()
            && self.target.is_none()
            && self.certificates.is_empty()
    }

    /// Returns the node's exports and the catalog that has them: the newest
    /// compiled one, released or not. A node without a valid certificate
    /// exports nothing.
    fn exports(&self) -> Option<(ContentId, ContentId)> {
        let mut certificates = self.certificates.values();
        if !self.certificates.is_empty() && certificates.all(|is_revoked| *is_revoked) {
            return None;
        }
        let compiled = self.compiled.as_ref()?;
        Some((compiled.exports?, compiled.content))
    }

    /// Returns the catalog that the node was given, or else the one that it would get.
    fn catalog_content(&self) -> Option<ContentId> {
        let released = self.target.as_ref().map(|target| target.content);
        released.or_else(|| self.compiled.as_ref().map(|compiled| compiled.content))
    }

    /// Returns the node's fields.
    fn fields(&self, summary: &NodeSummary) -> Map<String, Value> {
        let disabled = match &summary.status.administration {
            Administration::Enabled { .. } => None,
            Administration::Disabled { reason, .. } => Some(reason),
        };
        let target = self.target.as_ref().map(|target| &target.target);
        let compiled = self.compiled.as_ref();
        let fields = json!({
            "status": summary.word,
            "joined": self.documents.joined(),
            "disabled": disabled,
            "fact_set": summary.fact_set,
            "facts_changed": self.documents.facts.as_ref().map(|facts| facts.changed),
            "facts_received": summary.facts_received,
            "environment": summary.environment,
            "release": target.map(|target| target.release),
            "catalog": target.map(|target| target.catalog)
                .or(compiled.map(|compiled| compiled.catalog)),
            "code_id": target.map_or(compiled.map(|compiled| &compiled.code_id), |target| {
                target.code_id.as_ref()
            }),
            "catalog_changed": compiled.map(|compiled| compiled.compiled_at),
        });
        match fields {
            Value::Object(mut fields) => {
                fields.extend(self.reports.fields());
                fields
            }
            _ => unreachable!("it was written as an object"),
        }
    }
}

/// Returns the result, or nothing if it cannot be read. Continues after a pause
/// if the store is unavailable.
async fn check_read<T>(node: &NodeName, read: Result<T, ServiceError>) -> ControlFlow<Option<T>> {
    match read {
        Ok(found) => ControlFlow::Break(Some(found)),
        Err(ServiceError::Store(StoreError::Unavailable(_))) => {
            tokio::time::sleep(RETRY).await;
            ControlFlow::Continue(())
        }
        Err(error) => {
            let error = bunraku_control::error::chain(&error);
            tracing::warn!(%node, error, "cannot index the content that a node refers to");
            ControlFlow::Break(None)
        }
    }
}

/// Decodes a document. One that cannot be read counts as missing, and others still count.
fn decoded<T: DeserializeOwned>(entry: Option<&KeyValue>) -> Option<T> {
    report(entry.map(document::decode).transpose()).flatten()
}

fn report<T>(outcome: Result<T, ServiceError>) -> Option<T> {
    outcome
        .inspect_err(|error| {
            tracing::error!(error = %bunraku_control::error::chain(error), "cannot index a document");
        })
        .ok()
}
