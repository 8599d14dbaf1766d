//! Plugins of Puppet modules on this node: types, providers, functions and facts.
//!
//! The archive of the deployed commit is fetched before facts are collected, and only if it
//! changed. Each archive has its own directory, named after its content. It is unpacked beside it
//! and moved into place when it is complete, so an interrupted synchronization is never used, and
//! a removed file does not come back. A catalog that needs plugins names its own archive.
//!
//! Not included: the evaluation of facts in files (`facts/external`), and the use of types by
//! Puppet (`runs/puppet`).

mod archive;
mod custom_facts;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::ContentId;
use bunraku_model::catalog::SourceFile;
use bunraku_wire::endpoints::{Endpoint, ShowNodePlugins};
use serde_json::{Map, Value};

use crate::catalogs::{CatalogError, Catalogs};

/// The name of the file that names the directory in use.
const CURRENT: &str = "current";

/// The options for plugins.
#[derive(Clone, Debug)]
pub struct PluginOptions {
    /// Whether this node fetches plugins and runs their facts.
    pub enabled: bool,
    /// The paths of Ruby, tried in order. Facts in Ruby need one that has Facter.
    pub rubies: Vec<PathBuf>,
    /// Puppet's settings for facts that ask for them, such as `--confdir DIR`.
    pub puppet_arguments: Vec<String>,
    /// The time limit for all facts in Ruby together.
    pub facts_timeout: Duration,
}

impl Default for PluginOptions {
    fn default() -> Self {
        let rubies = [
            "/opt/puppetlabs/puppet/bin/ruby",
            "/usr/bin/ruby",
            "/usr/local/bin/ruby",
        ];
        Self {
            enabled: true,
            rubies: rubies.map(PathBuf::from).to_vec(),
            puppet_arguments: Vec::new(),
            facts_timeout: Duration::from_secs(120),
        }
    }
}

/// The facts that modules add to those of the machine.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ModuleFacts {
    /// Facts in Ruby (`lib/facter`), with their values.
    pub custom: Map<String, Value>,
    /// The directory of external facts (`facts.d`).
    pub external_dir: Option<PathBuf>,
}

/// The reason why plugins cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error("the plugins cannot be fetched")]
    Fetch(#[from] CatalogError),
    #[error("the archive of plugins is not valid: {0}")]
    Archive(String),
    #[error("cannot use {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// A handle to this node's plugins.
#[derive(Clone)]
pub(crate) struct Plugins {
    inner: Arc<Inner>,
}

struct Inner {
    options: PluginOptions,
    catalogs: Catalogs,
    directory: PathBuf,
    /// Allows one change of the directory at a time.
    changing: tokio::sync::Mutex<()>,
    /// The facts of the last successful collection.
    known: Mutex<ModuleFacts>,
}

impl Plugins {
    /// Opens the directory, without the leftovers of an interrupted synchronization.
    pub(crate) fn open(
        data_dir: &Path,
        catalogs: Catalogs,
        options: PluginOptions,
    ) -> Result<Self, PluginError> {
        // Puppet refuses relative paths.
        let directory = std::path::absolute(data_dir.join("plugins"));
        let directory = directory.map_err(file_error(data_dir))?;
        bunraku_files::create_private_directory(&directory).map_err(file_error(&directory))?;
        archive::remove_leftovers(&directory);
        let plugins = Self {
            inner: Arc::new(Inner {
                options,
                catalogs,
                directory,
                changing: tokio::sync::Mutex::default(),
                known: Mutex::default(),
            }),
        };
        let external_dir = plugins.current().map(|directory| directory.join("facts.d"));
        plugins.known().external_dir = external_dir;
        Ok(plugins)
    }

    /// Synchronizes, and returns the facts of modules. If no server can be asked, the plugins
    /// that are here count.
    pub(crate) async fn facts(&self) -> ModuleFacts {
        if !self.inner.options.enabled {
            return ModuleFacts::default();
        }
        if let Err(error) = self.synchronize().await {
            let error = bunraku_model::error_chain(&error);
            tracing::warn!(
                error,
                "plugins cannot be synchronized; the last ones are used"
            );
        }
        let Some(directory) = self.current() else {
            *self.known() = ModuleFacts::default();
            return ModuleFacts::default();
        };
        let options = self.inner.options.clone();
        let at = directory.clone();
        let work = move || custom_facts::collect(&at, &options);
        let collected = tokio::task::spawn_blocking(work).await;
        let mut known = self.known();
        known.external_dir = Some(directory.join("facts.d"));
        match collected {
            Ok(Ok(custom)) => known.custom = custom,
            // Catalogs must not change because a fact hangs once.
            Ok(Err(reason)) => {
                tracing::warn!(%reason, "facts of modules are not collected; the last values are used");
            }
            Err(error) => tracing::error!(error = %error, "facts of modules are not collected"),
        }
        known.clone()
    }

    /// Returns the facts of the last collection.
    pub(crate) fn last_facts(&self) -> ModuleFacts {
        self.known().clone()
    }

    /// Fetches the plugins of the environment's deployed commit, if they changed.
    async fn synchronize(&self) -> Result<(), PluginError> {
        let catalogs = &self.inner.catalogs;
        let at = ShowNodePlugins.at(catalogs.node());
        let text = (catalogs.client().call(at).await).map_err(CatalogError::from)?;
        let _one = self.inner.changing.lock().await;
        let marker = self.inner.directory.join(CURRENT);
        let Some(file) = text.archive else {
            return match std::fs::remove_file(&marker) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    Err(file_error(&marker)(error))
                }
                _ => Ok(()),
            };
        };
        let file = SourceFile {
            content: file.content,
            size: file.size,
        };
        self.unpack(file).await?;
        let name = file.content.to_string();
        if std::fs::read_to_string(&marker).ok().as_deref() != Some(name.as_str()) {
            bunraku_files::replace(&marker, name.as_bytes(), 0o600).map_err(file_error(&marker))?;
            tracing::info!(plugins = %file.content.short(), "plugins synchronized");
        }
        self.prune(&[file.content]);
        Ok(())
    }

    /// Returns the directory of the plugins for a catalog: those that it names, or else those of
    /// the last synchronization.
    pub(crate) async fn for_catalog(
        &self,
        named: Option<SourceFile>,
    ) -> Result<Option<PathBuf>, PluginError> {
        let Some(file) = named else {
            return Ok(self.current());
        };
        let _one = self.inner.changing.lock().await;
        self.unpack(file).await.map(Some)
    }

    /// Returns the directory of an archive, which is complete.
    async fn unpack(&self, file: SourceFile) -> Result<PathBuf, PluginError> {
        let place = self.place(file.content);
        if place.is_dir() {
            return Ok(place);
        }
        let to = place.clone();
        let work = move |from: &Path| archive::unpack(from, &to);
        self.inner.catalogs.with_content(file, work).await??;
        Ok(place)
    }

    fn place(&self, id: ContentId) -> PathBuf {
        self.inner.directory.join(id.to_string())
    }

    /// Returns the directory of the last synchronization.
    fn current(&self) -> Option<PathBuf> {
        let name = std::fs::read_to_string(self.inner.directory.join(CURRENT)).ok()?;
        let place = self.place(name.parse().ok()?);
        place.is_dir().then_some(place)
    }

    /// Removes what neither these archives nor the node's catalogs need.
    fn prune(&self, kept: &[ContentId]) {
        let named = self.inner.catalogs.named_plugins();
        archive::prune(&self.inner.directory, |id| {
            kept.contains(&id) || named.contains(&id)
        });
    }

    fn known(&self) -> std::sync::MutexGuard<'_, ModuleFacts> {
        (self.inner.known.lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

fn file_error(path: &Path) -> impl FnOnce(std::io::Error) -> PluginError + use<> {
    let path = path.to_owned();
    move |source| PluginError::File { path, source }
}
