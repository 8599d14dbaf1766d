//! Differences between catalogs, including the changed lines of files.

mod group;
mod proposed;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::catalog::{CatalogDiff, Difference, DisplayValue, ResourceChange};
use bunraku_model::{Catalog, CatalogId, ContentId, EnvironmentName, NodeName, ReleaseNumber};
use bunraku_store::SharedStore;
use bunraku_store::blobs::{BlobError, SharedBlobs};
use bunraku_wire::api::{CatalogDiffReply, CatalogState, CatalogSummary, FleetDiff};
use futures::{StreamExt, TryStreamExt, stream};
use group::Groups;
use serde_json::Value;

use crate::catalogs::{Catalogs, FileSource};
use crate::compiles::CompiledCatalog;
use crate::releases::Releases;
use crate::targets::StoredTarget;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// Number of nodes compared concurrently.
const AT_ONCE: usize = 8;
/// Values with at most this many lines are shown on one line each, whatever they contain.
const WORTH_LINES: usize = 1;

/// Files that are not stored yet, and the location of their bytes.
type NewFiles = BTreeMap<ContentId, FileSource>;

/// Handle for comparing catalogs.
#[derive(Clone)]
pub struct CatalogDiffs {
    store: SharedStore,
    blobs: SharedBlobs,
    catalogs: Catalogs,
    releases: Releases,
}

impl CatalogDiffs {
    pub fn new(
        store: SharedStore,
        blobs: SharedBlobs,
        catalogs: Catalogs,
        releases: Releases,
    ) -> Self {
        Self {
            store,
            blobs,
            catalogs,
            releases,
        }
    }

    /// Returns the differences between two stored catalogs.
    pub async fn between(
        &self,
        before: CatalogId,
        after: CatalogId,
    ) -> Result<CatalogDiffReply, ServiceError> {
        let (old, new) = (
            self.catalogs.get(before).await?,
            self.catalogs.get(after).await?,
        );
        Ok(CatalogDiffReply {
            before,
            after,
            diff: self.compare(&old, &new, &NewFiles::default()).await?,
        })
    }

    /// Returns the differences, with lines. `files` are the files that are not stored yet.
    async fn compare(
        &self,
        old: &Catalog,
        new: &Catalog,
        files: &NewFiles,
    ) -> Result<CatalogDiff, ServiceError> {
        let mut diff = CatalogDiff::between(old, new);
        for resource in &mut diff.resources {
            if let ResourceChange::Changed { parameters, .. } = &mut resource.change {
                parameters.iter_mut().for_each(fill_in);
            }
        }
        for source in &mut diff.sources {
            if let (Some(before), Some(after)) = (source.before, source.after) {
                let before = self.text(before, files).await?;
                let after = self.text(after, files).await?;
                if let (Some(before), Some(after)) = (before, after) {
                    source.text = text::unified(&before, &after);
                }
            }
        }
        Ok(diff)
    }

    /// Returns the changes from one release to another, with equal changes grouped.
    pub async fn between_releases(
        &self,
        environment: &EnvironmentName,
        before: Option<ReleaseNumber>,
        after: Option<ReleaseNumber>,
    ) -> Result<FleetDiff, ServiceError> {
        let (summary, new) = self.releases.with_map(environment, after).await?;
        let old = match before.or(summary.parent) {
            Some(ReleaseNumber(0)) | None => BTreeMap::new(),
            Some(before) => self.releases.with_map(environment, Some(before)).await?.1,
        };
        let pairs = new.iter().map(|(node, entry)| {
            let before = old.get(node).map(|entry| entry.catalog);
            (node.clone(), before, Some(entry.catalog))
        });
        let mut fleet = self.fleet(pairs.collect()).await?;
        fleet.code_id = summary.code_id;
        Ok(fleet)
    }

    /// Returns the changes that releasing all held catalogs would make.
    pub async fn held(&self, environment: &EnvironmentName) -> Result<FleetDiff, ServiceError> {
        let mut pairs = Vec::new();
        for summary in self.list(Some(environment), None).await? {
            match summary.state {
                CatalogState::Held => {
                    let released = self.released(&summary.node).await?;
                    pairs.push((summary.node, released, Some(summary.catalog)));
                }
                CatalogState::Released => {
                    pairs.push((summary.node, Some(summary.catalog), Some(summary.catalog)));
                }
                CatalogState::Outdated => {}
            }
        }
        self.fleet(pairs).await
    }

    async fn released(&self, node: &NodeName) -> Result<Option<CatalogId>, ServiceError> {
        let key = keys::target(node);
        let stored = document::read::<StoredTarget>(&*self.store, &key).await?;
        Ok(stored.map(|stored| stored.document.target.catalog))
    }

    /// Returns the changes from one catalog to another on each node, with equal changes grouped.
    pub async fn fleet(
        &self,
        pairs: Vec<(NodeName, Option<CatalogId>, Option<CatalogId>)>,
    ) -> Result<FleetDiff, ServiceError> {
        let mut fleet = FleetDiff::default();
        let mut changed = Vec::new();
        for (node, before, after) in pairs {
            match (before, after) {
                (Some(before), Some(after)) if before == after => {
                    fleet.compared += 1;
                    fleet.unchanged += 1;
                }
                (Some(before), Some(after)) => changed.push((node, before, after)),
                _ => fleet.without_catalog.push(node),
            }
        }
        fleet.compared += changed.len();
        let mut groups = Groups::default();
        let mut diffs = stream::iter(changed)
            .map(|(node, before, after)| async move {
                let reply = self.between(before, after).await?;
                Ok::<_, ServiceError>((node, reply.diff))
            })
            .buffer_unordered(AT_ONCE);
        while let Some((node, diff)) = diffs.try_next().await? {
            groups.add(&node, diff);
        }
        drop(diffs);
        fleet.groups = groups.finish();
        Ok(fleet)
    }

    /// Lists the nodes' catalogs and their states.
    pub async fn list(
        &self,
        environment: Option<&EnvironmentName>,
        node: Option<&NodeName>,
    ) -> Result<Vec<CatalogSummary>, ServiceError> {
        let (compiled, targets) = match node {
            Some(node) => (keys::compiled(node), keys::target(node)),
            None => (keys::COMPILED.to_owned(), keys::TARGETS.to_owned()),
        };
        let mut newest: BTreeMap<NodeName, CompiledCatalog> = BTreeMap::new();
        for entry in document::read_all(&*self.store, &compiled).await? {
            if let Some(node) = keys::parse_compiled(&entry.key) {
                newest.insert(node, document::decode(&entry)?);
            }
        }
        let mut released: BTreeMap<NodeName, StoredTarget> = BTreeMap::new();
        for entry in document::read_all(&*self.store, &targets).await? {
            if let Some(node) = keys::parse_target(&entry.key) {
                released.insert(node, document::decode(&entry)?);
            }
        }
        let names: BTreeSet<NodeName> = newest.keys().chain(released.keys()).cloned().collect();
        let names = names
            .into_iter()
            .filter(|name| node.is_none_or(|node| node == name));
        let all = names.flat_map(|name| summaries(&name, newest.get(&name), released.get(&name)));
        Ok(all
            .filter(|summary| environment.is_none_or(|wanted| summary.environment == *wanted))
            .collect())
    }

    async fn text(&self, id: ContentId, files: &NewFiles) -> Result<Option<Vec<u8>>, ServiceError> {
        match files.get(&id) {
            Some(FileSource::Bytes(bytes)) => return Ok(Some(bytes.to_vec())),
            Some(FileSource::Path(path)) => return Ok(small_file(path).await),
            None => {}
        }
        let size = self.blobs.size(id).await.map_err(content_error)?;
        if size.is_none_or(|size| size > text::LARGEST) {
            return Ok(None);
        }
        let bytes = self.blobs.read(id).await;
        bytes.map(Some).map_err(content_error)
    }
}

fn summaries(
    node: &NodeName,
    compiled: Option<&CompiledCatalog>,
    target: Option<&StoredTarget>,
) -> Vec<CatalogSummary> {
    let is_newest = |target: &StoredTarget| {
        compiled.is_some_and(|compiled| compiled.catalog == target.target.catalog)
    };
    let released = target.map(|target| CatalogSummary {
        node: node.clone(),
        environment: target.target.environment.clone(),
        catalog: target.target.catalog,
        code_id: target.target.code_id.clone(),
        compiled: None,
        resources: None,
        state: if is_newest(target) {
            CatalogState::Released
        } else {
            CatalogState::Outdated
        },
    });
    let newest = compiled.map(|compiled| CatalogSummary {
        node: node.clone(),
        environment: compiled.environment.clone(),
        catalog: compiled.catalog,
        code_id: Some(compiled.code_id.clone()),
        compiled: Some(compiled.compiled_at),
        resources: Some(compiled.resources),
        state: if target.is_some_and(is_newest) {
            CatalogState::Released
        } else {
            CatalogState::Held
        },
    });
    match (released, newest) {
        // One line for both: the newest has more information.
        (Some(released), Some(newest)) if released.state == CatalogState::Released => vec![newest],
        (released, newest) => released.into_iter().chain(newest).collect(),
    }
}

/// Reads a file of the code under review. Returns nothing if it is too large or missing.
async fn small_file(path: &std::path::Path) -> Option<Vec<u8>> {
    let metadata = tokio::fs::metadata(path).await.ok()?;
    if metadata.len() > text::LARGEST {
        return None;
    }
    tokio::fs::read(path).await.ok()
}

/// Fills in the changed lines of a text that has several lines.
fn fill_in(difference: &mut Difference) {
    if let (
        Some(DisplayValue::Value(Value::String(before))),
        Some(DisplayValue::Value(Value::String(after))),
    ) = (&difference.before, &difference.after)
        && before.lines().count().max(after.lines().count()) > WORTH_LINES
    {
        difference.text = text::unified(before.as_bytes(), after.as_bytes());
    }
}

fn content_error(error: BlobError) -> ServiceError {
    ServiceError::content("cannot compare content", error)
}
