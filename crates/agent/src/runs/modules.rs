//! The extension modules that a catalog pins, prepared for a run.
//!
//! Packages come with the catalog's files, by content. Only this node decides whether they may run:
//! it checks them against the keys in its own directory, without the keys that are revoked there or
//! that a server revoked. A server can revoke trust, but never grant it. The servers' revocations
//! are kept, so that they apply even when no server can be reached.

use std::collections::BTreeSet;
use std::path::PathBuf;

use bunraku_engine::Registry;
use bunraku_engine::modules::{ModuleStore, check_pins, read_trust};
use bunraku_model::{Catalog, ContentId};
use bunraku_wire::endpoints::ListRevokedModuleKeys;
use serde_json::Value;

use super::engine::EngineOptions;
use super::method::RunStartError;
use crate::catalogs::{CatalogError, Catalogs};
use bunraku_wire::api::Target;

/// The address scheme of packages among a catalog's files.
const SCHEME: &str = "module:";

/// The packages that a catalog pins, with their bytes.
pub(super) struct PinnedPackages {
    packages: Vec<(PathBuf, Vec<u8>)>,
    /// Fingerprints that servers revoked.
    revoked: BTreeSet<String>,
}

impl PinnedPackages {
    /// Returns all packages that a catalog needs. Nothing is verified yet.
    pub(super) async fn of(
        catalogs: &Catalogs,
        target: &Target,
        catalog: &Catalog,
    ) -> Result<Option<Self>, RunStartError> {
        let pins = match catalog.other.get("modules") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Object(pins)) => pins,
            Some(_) => return Err(RunStartError::new("the catalog's `modules` is not a map")),
        };
        let mut packages = Vec::with_capacity(pins.len());
        for (name, pin) in pins {
            let id = pin.as_str().and_then(|pin| pin.parse().ok());
            let known = (catalog.sources.get(&format!("{SCHEME}{name}")))
                .is_some_and(|source| source.files().any(|file| Some(file.content) == id));
            let Some(id) = id.filter(|_| known) else {
                return Err(RunStartError::new(format!(
                    "the catalog pins the module `{name}` without its location"
                )));
            };
            let package = package(catalogs, target, id).await.map_err(|error| {
                RunStartError::because(&format!("the module `{name}` is not on this node"), &error)
            })?;
            packages.push((PathBuf::from(name), package));
        }
        let revoked = revoked(catalogs).await;
        Ok(Some(Self { packages, revoked }))
    }

    /// Verifies all packages, and adds their types. Blocks.
    pub(super) fn add_to(
        &self,
        registry: &mut Registry,
        catalog: &Catalog,
        options: &EngineOptions,
        remember: bool,
    ) -> Result<(), RunStartError> {
        let refused =
            |error: &dyn std::error::Error| RunStartError::because("nothing was run", error);
        let mut trust = read_trust(&options.module_keys).map_err(|error| refused(&error))?;
        for fingerprint in &self.revoked {
            trust.revoke(fingerprint).map_err(|error| refused(&error))?;
        }
        let shelf = ModuleStore::new(&options.state_directory);
        let modules =
            (shelf.admit(&self.packages, &trust, remember)).map_err(|error| refused(&error))?;
        check_pins(catalog, &modules).map_err(|error| refused(&error))?;
        for module in &modules {
            let added = registry.add_module(module, &options.state_directory);
            added.map_err(|error| refused(&error))?;
        }
        Ok(())
    }
}

/// Returns the bytes with this hash: from the cache, or fetched again if the cached copy is
/// damaged.
async fn package(
    catalogs: &Catalogs,
    target: &Target,
    id: ContentId,
) -> Result<Vec<u8>, CatalogError> {
    let path = catalogs.cache.content(id);
    for _ in 0..2 {
        match tokio::fs::read(&path).await {
            Ok(package) if ContentId::of(&package) == id => return Ok(package),
            Ok(_) => {
                tracing::warn!(module = %id.short(), "a cached module is corrupt; fetching it again");
                let _ = tokio::fs::remove_file(&path).await;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(source) => return Err(CatalogError::File { path, source }),
        }
        catalogs.complete(target).await?;
    }
    Err(CatalogError::Wrong {
        what: format!("file {}", id.short()),
    })
}

/// Returns the keys that servers revoked: the current list, or the last known one.
async fn revoked(catalogs: &Catalogs) -> BTreeSet<String> {
    let path = catalogs.cache.revoked_keys();
    let kept = std::fs::read(&path).ok();
    let mut known: BTreeSet<String> = kept
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    match catalogs.client().call(ListRevokedModuleKeys).await {
        Ok(now) => {
            let before = known.len();
            known.extend(now);
            if known.len() > before {
                let text = serde_json::to_vec(&known).expect("texts are plain data");
                if let Err(error) = bunraku_files::replace(&path, &text, 0o600) {
                    tracing::error!(error = %error, "cannot store the revoked keys");
                }
            }
        }
        Err(error) => {
            tracing::warn!(error = %error, "cannot ask a server for revoked keys; using the last known list");
        }
    }
    known
}
