//! The changes that undeployed code would make, and the affected nodes.
//!
//! Every node is compiled with that code. The result is compared with the
//! node's newest catalog, or with the result of another commit. Only the
//! fetched code is written.

use std::collections::BTreeMap;

use bunraku_model::catalog::CatalogDiff;
use bunraku_model::{Catalog, CodeId, EnvironmentName, NodeName};
use bunraku_wire::api::{FleetDiff, FleetDiffRequest, FleetFailure};
use futures::{StreamExt, TryStreamExt, stream};

use super::group::Groups;
use super::{AT_ONCE, CatalogDiffs, NewFiles};
use crate::compiles::{CompileFailure, CompiledCatalog, Compiles};
use crate::environments::Environments;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The result for one node.
enum NodeComparison {
    Diff(CatalogDiff),
    Failed(String),
    /// The node has no catalog to compare with.
    New,
}

impl CatalogDiffs {
    pub async fn proposed(
        &self,
        environments: &Environments,
        compiles: &Compiles,
        request: &FleetDiffRequest,
    ) -> Result<FleetDiff, ServiceError> {
        let environment = &request.environment;
        let commit = Some(request.commit.as_str());
        let after = environments.fetch_commit(environment, commit).await?;
        let before = match &request.against {
            None => None,
            Some(commit) => Some(environments.fetch_commit(environment, Some(commit)).await?),
        };
        let nodes = if request.nodes.is_empty() {
            self.nodes_of(environment).await?
        } else {
            request.nodes.clone()
        };
        let (mut groups, mut failures) = (Groups::default(), BTreeMap::new());
        let mut fleet = FleetDiff {
            code_id: Some(after.clone()),
            ..FleetDiff::default()
        };
        let mut compared = stream::iter(nodes)
            .map(|node| {
                let (before, after) = (before.as_ref(), &after);
                async move {
                    let compared = self.propose(compiles, &node, before, after).await?;
                    Ok::<_, ServiceError>((node, compared))
                }
            })
            .buffer_unordered(AT_ONCE);
        while let Some((node, compared)) = compared.try_next().await? {
            match compared {
                NodeComparison::New => fleet.without_catalog.push(node),
                NodeComparison::Failed(message) => {
                    let nodes: &mut Vec<NodeName> = failures.entry(message).or_default();
                    nodes.push(node);
                }
                NodeComparison::Diff(diff) => {
                    fleet.compared += 1;
                    fleet.unchanged += usize::from(diff.is_empty());
                    groups.add(&node, diff);
                }
            }
        }
        drop(compared);
        fleet.groups = groups.finish();
        fleet.without_catalog.sort_unstable();
        fleet.failures = failures
            .into_iter()
            .map(|(message, mut nodes)| {
                nodes.sort_unstable();
                FleetFailure { nodes, message }
            })
            .collect();
        Ok(fleet)
    }

    async fn propose(
        &self,
        compiles: &Compiles,
        node: &NodeName,
        before: Option<&CodeId>,
        after: &CodeId,
    ) -> Result<NodeComparison, ServiceError> {
        let mut files = NewFiles::new();
        let old = match before {
            Some(code) => match compile(compiles, node, code, &mut files).await? {
                Ok(catalog) => catalog,
                Err(message) => return Ok(NodeComparison::Failed(message)),
            },
            None => match self.newest(node).await? {
                Some(catalog) => catalog,
                None => return Ok(NodeComparison::New),
            },
        };
        Ok(match compile(compiles, node, after, &mut files).await? {
            Ok(new) => NodeComparison::Diff(self.compare(&old, &new, &files).await?),
            Err(message) => NodeComparison::Failed(message),
        })
    }

    async fn newest(&self, node: &NodeName) -> Result<Option<Catalog>, ServiceError> {
        let key = keys::compiled(node);
        match document::read::<CompiledCatalog>(&*self.store, &key).await? {
            None => Ok(None),
            Some(compiled) => Ok(Some(self.catalogs.get(compiled.document.catalog).await?)),
        }
    }

    /// Returns the nodes that are compiled in the environment.
    async fn nodes_of(&self, environment: &EnvironmentName) -> Result<Vec<NodeName>, ServiceError> {
        let mut nodes = Vec::new();
        for entry in document::read_all(&*self.store, keys::COMPILED).await? {
            let compiled: CompiledCatalog = document::decode(&entry)?;
            if let Some(node) = keys::parse_compiled(&entry.key)
                && compiled.environment == *environment
            {
                nodes.push(node);
            }
        }
        Ok(nodes)
    }
}

/// Returns the catalog, or the problems in the code.
async fn compile(
    compiles: &Compiles,
    node: &NodeName,
    code: &CodeId,
    files: &mut NewFiles,
) -> Result<Result<Catalog, String>, ServiceError> {
    match compiles.compile_for(node, code).await {
        Ok(proposed) => {
            let new = proposed.files.into_iter();
            files.extend(new.map(|file| (file.content, file.from)));
            Ok(Ok(proposed.catalog))
        }
        Err(failure @ (CompileFailure::Problems(_) | CompileFailure::WorkerDied(_))) => {
            Ok(Err(failure.to_string()))
        }
        Err(failure @ CompileFailure::Temporary(_)) => {
            Err(ServiceError::internal("cannot compile a node now", failure))
        }
    }
}
