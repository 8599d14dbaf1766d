//! The newest compiled catalog of each node, which a release can name.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName};
use bunraku_store::KeyValue;
use bunraku_wire::api::{CompileOutcome, LastCompile};
use jiff::Timestamp;
use serde::Deserialize;

use super::Releases;
use bunraku_control::document;
use bunraku_control::{ServiceError, keys};

/// The data of a compiled catalog that a release needs.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct HeldCatalog {
    pub environment: EnvironmentName,
    pub catalog: CatalogId,
    pub code_id: CodeId,
    #[serde(default)]
    pub compiled_at: Option<Timestamp>,
}

/// The held catalogs of one environment, by node.
pub(crate) type HeldCatalogs = BTreeMap<NodeName, HeldCatalog>;

/// Reads an entry under `compiled/`, with its node.
pub(crate) fn read(entry: &KeyValue) -> Result<Option<(NodeName, HeldCatalog)>, ServiceError> {
    let Some(node) = keys::parse_compiled(&entry.key) else {
        return Ok(None);
    };
    Ok(Some((node, document::decode(entry)?)))
}

impl Releases {
    pub(super) async fn held(
        &self,
        environment: &EnvironmentName,
    ) -> Result<HeldCatalogs, ServiceError> {
        let mut all = HeldCatalogs::new();
        for entry in document::read_all(&*self.store, keys::COMPILED).await? {
            if let Some((node, held)) = read(&entry)?
                && held.environment == *environment
            {
                all.insert(node, held);
            }
        }
        Ok(all)
    }

    /// Returns the newest code that the chosen catalogs were compiled from. A
    /// commit that changes no catalog counts too.
    pub(super) async fn newest_code(
        &self,
        held: &HeldCatalogs,
        chosen: &BTreeSet<NodeName>,
    ) -> Result<Option<CodeId>, ServiceError> {
        let mut newest = None;
        for (_, held) in held.iter().filter(|(node, _)| chosen.contains(*node)) {
            newest = newest.max(Some((held.compiled_at, held.code_id.clone())));
        }
        for entry in document::read_all(&*self.store, keys::COMPILE_STATUS).await? {
            let node = keys::parse_node_below(keys::COMPILE_STATUS, &entry.key);
            let Some(node) = node.filter(|node| chosen.contains(node)) else {
                continue;
            };
            let last: LastCompile = document::decode(&entry)?;
            if let Some(code) = held.get(&node).and_then(|held| again(held, &last)) {
                newest = newest.max(Some((Some(last.at), code)));
            }
        }
        Ok(newest.map(|(_, code)| code))
    }

    /// Returns the newest code that produced this catalog.
    pub(super) async fn current_code(
        &self,
        node: &NodeName,
        held: &HeldCatalog,
    ) -> Result<CodeId, ServiceError> {
        let key = keys::compile_status(node);
        let last = document::read::<LastCompile>(&*self.store, &key).await?;
        let code = last.and_then(|last| again(held, &last.document));
        Ok(code.unwrap_or_else(|| held.code_id.clone()))
    }
}

/// Returns the code of a compile that produced the same catalog again.
fn again(held: &HeldCatalog, last: &LastCompile) -> Option<CodeId> {
    match &last.outcome {
        CompileOutcome::Compiled { catalog, .. }
            if *catalog == held.catalog && last.environment == held.environment =>
        {
            last.code_id.clone()
        }
        _ => None,
    }
}
