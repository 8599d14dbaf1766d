//! The newest compiled catalog of each node, which a release can name.

use std::collections::BTreeMap;

use bunraku_model::{CatalogId, CodeId, EnvironmentName, NodeName};
use bunraku_store::KeyValue;
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
}
