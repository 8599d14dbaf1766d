//! Pins the modules that an environment names in its catalogs.
//!
//! For each module of which a catalog uses a type, the catalog gets the hash of
//! its package (`modules`). Its files get the package, under the address
//! `module:NAME`. So nodes fetch packages by content, like files. A package
//! stays as long as a catalog needs it, and another module makes another
//! catalog.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bunraku_model::catalog::{CatalogSource, SourceFile};
use bunraku_model::{Catalog, ContentId};
use bunraku_module::{Fingerprint, VerifiedModule, VerifyError, verify};
use bunraku_wire::api::CompileProblem;
use serde_json::{Map, Value};

use super::named::{ModuleOrigin, NamedModule};
use super::{FetchError, LARGEST_PACKAGE, ModuleReach, Modules, fetch};
use crate::catalogs::{CatalogFile, FileSource};
use crate::compile_failure::CompileFailure;
use bunraku_control::ServiceError;
use bunraku_control::error::chain;

/// The modules of one environment at one commit.
#[derive(Clone, Default)]
pub struct PinnedModules(Option<Arc<Inner>>);

struct Inner {
    modules: Modules,
    list: Vec<PinnedModule>,
}

struct PinnedModule {
    named: NamedModule,
    types: Vec<String>,
    content: ContentId,
    size: u64,
    signed_by: Fingerprint,
    path: PathBuf,
}

impl Modules {
    /// Fetches and verifies the modules that the code in `tree` names.
    pub(crate) async fn pin(
        &self,
        tree: &Path,
        named: Vec<NamedModule>,
        reach: ModuleReach,
    ) -> Result<(PinnedModules, Vec<VerifiedModule>), CompileFailure> {
        let (mut list, mut all) = (Vec::new(), Vec::new());
        for named in named {
            let package = self.package_of(&named, tree, reach).await?;
            let (pinned, verified) = self.admit(named, package).await?;
            list.push(pinned);
            all.push(verified);
        }
        if list.is_empty() {
            return Ok((PinnedModules::default(), all));
        }
        let modules = self.clone();
        Ok((PinnedModules(Some(Arc::new(Inner { modules, list }))), all))
    }

    async fn package_of(
        &self,
        named: &NamedModule,
        tree: &Path,
        reach: ModuleReach,
    ) -> Result<Vec<u8>, CompileFailure> {
        match &named.from {
            ModuleOrigin::Published => {
                let version = named.version.to_string();
                let found = match self.version(&named.name, &version).await {
                    Ok(found) => found,
                    Err(ServiceError::NotFound { hint, .. }) => {
                        let message = "it is not published".to_owned();
                        return Err(CompileFailure::problem(named.problem(message, hint)));
                    }
                    Err(other) => return Err(CompileFailure::temporary(other)),
                };
                self.package(&found)
                    .await
                    .map_err(CompileFailure::temporary)
            }
            ModuleOrigin::Elsewhere(source) => {
                if let super::ModuleSource::Url { sha256, .. } = source
                    && let Some(cached) = self.cached(*sha256).await
                {
                    return Ok(cached);
                }
                fetch(source, &self.directory, reach)
                    .await
                    .map_err(|error| {
                        let message = format!("{source}: {}", chain(&error));
                        if error.is_lasting() {
                            CompileFailure::problem(named.problem(message, None))
                        } else {
                            CompileFailure::temporary(FetchFailed(message, error))
                        }
                    })
            }
            ModuleOrigin::Tree(path) => in_tree(named, tree, path).await,
        }
    }

    /// Verifies a package against the keys that servers trust now, and checks
    /// that its name and version are the expected ones.
    async fn admit(
        &self,
        named: NamedModule,
        package: Vec<u8>,
    ) -> Result<(PinnedModule, VerifiedModule), CompileFailure> {
        let trust = (self.read_keys().await)
            .map_err(CompileFailure::temporary)?
            .trust;
        let package = Arc::new(package);
        let bytes = Arc::clone(&package);
        let verified = tokio::task::spawn_blocking(move || verify(&bytes, &trust)).await;
        let verified = verified.map_err(CompileFailure::temporary)?;
        let verified = verified.map_err(|error| {
            let hint = match error {
                VerifyError::UnknownKey(_) => {
                    Some("trust its key with `bunraku module trust`".to_owned())
                }
                _ => None,
            };
            let message = format!("refused: {}", chain(&error));
            CompileFailure::problem(named.problem(message, hint))
        })?;
        let manifest = verified.manifest();
        if manifest.name != named.name || manifest.version != named.version {
            let message = format!("the package is `{}` {}", manifest.name, manifest.version);
            return Err(CompileFailure::problem(named.problem(message, None)));
        }
        let content = ContentId::of(&package);
        let path = self.keep_cached(content, &package).await;
        let pinned = PinnedModule {
            types: manifest.types.iter().map(|one| one.name.clone()).collect(),
            content,
            size: package.len() as u64,
            signed_by: verified.signed_by(),
            path: path.map_err(CompileFailure::temporary)?,
            named,
        };
        Ok((pinned, verified))
    }

    /// Returns a package from this server's cache; its content is verified again.
    async fn cached(&self, content: ContentId) -> Option<Vec<u8>> {
        let package = tokio::fs::read(self.directory.join(content.to_string())).await;
        package
            .ok()
            .filter(|package| ContentId::of(package) == content)
    }

    /// Stores a package in the cache, where the catalog service finds it.
    async fn keep_cached(&self, content: ContentId, package: &[u8]) -> std::io::Result<PathBuf> {
        let path = self.directory.join(content.to_string());
        if self.cached(content).await.is_some() {
            return Ok(path);
        }
        tokio::fs::create_dir_all(&self.directory).await?;
        let (place, package) = (path.clone(), package.to_vec());
        tokio::task::spawn_blocking(move || bunraku_files::replace(&place, &package, 0o600))
            .await
            .map_err(std::io::Error::other)??;
        Ok(path)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct FetchFailed(String, #[source] FetchError);

async fn in_tree(named: &NamedModule, tree: &Path, path: &str) -> Result<Vec<u8>, CompileFailure> {
    let wrong = |message: String| CompileFailure::problem(named.problem(message, None));
    let file = tree.join(path);
    let metadata = tokio::fs::metadata(&file).await;
    let metadata = metadata.map_err(|error| wrong(format!("cannot read {path}: {error}")))?;
    if !metadata.is_file() || metadata.len() > LARGEST_PACKAGE {
        return Err(wrong(format!(
            "{path} is not a regular file, or too large for a module"
        )));
    }
    let package = tokio::fs::read(&file).await;
    package.map_err(|error| wrong(format!("cannot read {path}: {error}")))
}

impl PinnedModules {
    /// Records which modules the catalog uses, and the location of their bytes.
    /// Fails if a key was revoked since the code was deployed.
    pub async fn pin(
        &self,
        catalog: &mut Catalog,
        files: &mut Vec<CatalogFile>,
    ) -> Result<(), CompileFailure> {
        let Some(inner) = &self.0 else {
            return Ok(());
        };
        let used: Vec<&PinnedModule> = (inner.list.iter())
            .filter(|module| module.is_used_by(catalog))
            .collect();
        if used.is_empty() {
            return Ok(());
        }
        let keys = inner.modules.read_keys().await;
        let trust = keys.map_err(CompileFailure::temporary)?.trust;
        let mut pins = Map::new();
        let mut problems: Vec<CompileProblem> = Vec::new();
        for module in used {
            if trust.is_revoked(&module.signed_by) {
                let message = format!("its key {} was revoked", module.signed_by);
                problems.push(module.named.problem(message, None));
            }
            let name = &module.named.name;
            pins.insert(name.clone(), Value::String(module.content.to_string()));
            catalog.sources.insert(
                format!("module:{name}"),
                CatalogSource::File(SourceFile {
                    content: module.content,
                    size: module.size,
                }),
            );
            if !files.iter().any(|file| file.content == module.content) {
                files.push(CatalogFile {
                    content: module.content,
                    from: FileSource::Path(module.path.clone()),
                });
            }
        }
        if !problems.is_empty() {
            return Err(CompileFailure::Problems(problems));
        }
        catalog
            .other
            .insert("modules".to_owned(), Value::Object(pins));
        Ok(())
    }
}

impl PinnedModule {
    fn is_used_by(&self, catalog: &Catalog) -> bool {
        catalog.resources.iter().any(|resource| {
            let name = resource.type_name.to_lowercase();
            self.types.contains(&name)
        })
    }
}
