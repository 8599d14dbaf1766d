//! The catalog that this node applies: how the node learns of it, fetches it and keeps it.
//!
//! A node learns its target (which released catalog to apply, and whether it may enforce it) from
//! its open stream. Without a stream, it sends a conditional request. It then fetches what it
//! lacks: catalogs by their id, files by their hash. Both are verified before they are used. The
//! target, its catalog and its files outlive the agent and every server. So does the information
//! that a catalog is for noop only.

mod cache;
mod fetch;
mod sources;
mod target;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

pub(crate) use cache::CatalogCache;
pub(crate) use sources::CachedSources;
pub(crate) use target::{CachedTarget, Targets};

use bunraku_model::catalog::{CatalogSource, PLUGINS_ADDRESS, SourceFile};
use bunraku_model::{Catalog, CatalogId, ContentId, NodeName};
use bunraku_wire::{Client, ClientError};
use tokio::sync::{Mutex, Notify};

/// Size limits of fetched and cached data.
#[derive(Clone, Debug)]
pub struct CatalogOptions {
    /// Larger catalogs are refused.
    pub largest_catalog: u64,
    /// Larger files are refused.
    pub largest_file: u64,
    /// Whether the plugins that a catalog names are fetched with it. Only Puppet uses them.
    pub plugins: bool,
}

impl Default for CatalogOptions {
    fn default() -> Self {
        Self {
            largest_catalog: 32 << 20,
            largest_file: 4 << 30,
            plugins: false,
        }
    }
}

/// The reason why there is no catalog to apply.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("this node has no released catalog")]
    NoTarget,
    #[error("cannot ask a server")]
    Server(#[source] Box<ClientError>),
    #[error("{what} exceeds this node's limit of {limit} bytes")]
    TooLarge { what: String, limit: u64 },
    #[error("{what} does not match its hash and was discarded")]
    Wrong { what: String },
    #[error("catalog {0} is for `{1}`, not for this node")]
    OtherNode(String, String),
    #[error("cannot read {what}")]
    Unreadable {
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("cannot use {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

impl From<ClientError> for CatalogError {
    fn from(error: ClientError) -> Self {
        Self::Server(Box::new(error))
    }
}

/// A handle to this node's catalogs.
#[derive(Clone)]
pub(crate) struct Catalogs {
    node: NodeName,
    client: Client,
    pub(crate) targets: Targets,
    pub(crate) cache: CatalogCache,
    options: CatalogOptions,
    /// Allows one fetch at a time. A second caller finds the result in the cache.
    fetching: Arc<Mutex<()>>,
    /// The catalog of the current or last run, which may be another one than the target's. Its
    /// files stay in the cache until the next run.
    in_use: Arc<std::sync::Mutex<Option<CatalogId>>>,
    /// Notified when there is a new target.
    pub(crate) changed: Arc<Notify>,
}

impl Catalogs {
    pub(crate) fn open(
        data_dir: &Path,
        node: &NodeName,
        client: Client,
        options: CatalogOptions,
    ) -> Result<Self, CatalogError> {
        Ok(Self {
            targets: Targets::open(data_dir, node)?,
            cache: CatalogCache::open(data_dir)?,
            node: node.clone(),
            client,
            options,
            fetching: Arc::default(),
            in_use: Arc::default(),
            changed: Arc::default(),
        })
    }

    pub(crate) fn node(&self) -> &NodeName {
        &self.node
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the newest target that can be determined.
    pub(crate) async fn newest(&self) -> Result<CachedTarget, CatalogError> {
        self.targets.newest(&self.client).await
    }

    /// Asks for a newer target, and notifies the tasks that wait for one.
    pub(crate) async fn ask(&self) -> Result<(), ClientError> {
        if self.targets.ask(&self.client).await? {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Records a target that arrived on the stream.
    pub(crate) fn receive_target(&self, target: Option<bunraku_wire::api::Target>) {
        if self.targets.receive_from_stream(target) {
            self.changed.notify_one();
        }
    }

    /// Fetches a file if it is not in the cache, and passes its path to `work`. The file stays
    /// until `work` has ended.
    pub(crate) async fn with_content<T: Send + 'static>(
        &self,
        file: SourceFile,
        work: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Result<T, CatalogError> {
        let _alone = self.fetching.lock().await;
        let cache = &self.cache;
        if !cache.has_content(file.content, file.size) {
            cache
                .fetch_content(&self.client, file, &self.options)
                .await?;
        }
        let path = cache.content(file.content);
        let at = path.clone();
        let done = tokio::task::spawn_blocking(move || work(&at)).await;
        done.map_err(|error| cache::file_error(&path)(error.into()))
    }

    /// Returns the archives of plugins that the cached catalogs name.
    pub(crate) fn named_plugins(&self) -> Vec<ContentId> {
        let catalogs = self.catalogs_to_keep().into_iter();
        let catalogs = catalogs.filter_map(|id| self.cache.catalog(id));
        let plugins = catalogs.filter_map(|catalog| plugins_of(&catalog));
        plugins.map(|file| file.content).collect()
    }

    /// Returns the catalog of a target, with all its files on this node.
    pub(crate) async fn complete(
        &self,
        target: &bunraku_wire::api::Target,
    ) -> Result<Catalog, CatalogError> {
        let _alone = self.fetching.lock().await;
        let complete = self
            .cache
            .complete(&self.client, &self.node, target, &self.options);
        let catalog = complete.await?;
        self.cache.prune(&self.catalogs_to_keep());
        Ok(catalog)
    }

    /// Same as [`Catalogs::complete`], for a run: the files stay until the next run, even if the
    /// node's target is or becomes another catalog.
    pub(crate) async fn complete_for_run(
        &self,
        target: &bunraku_wire::api::Target,
    ) -> Result<Catalog, CatalogError> {
        *self.in_use.lock().unwrap_or_else(PoisonError::into_inner) = Some(target.catalog);
        self.complete(target).await
    }

    fn catalogs_to_keep(&self) -> Vec<CatalogId> {
        let mut kept = self.targets.catalogs_to_keep();
        kept.extend(*self.in_use.lock().unwrap_or_else(PoisonError::into_inner));
        kept
    }
}

/// Returns the archive of plugins that a catalog names.
pub(crate) fn plugins_of(catalog: &Catalog) -> Option<SourceFile> {
    match catalog.sources.get(PLUGINS_ADDRESS) {
        Some(CatalogSource::File(file)) => Some(*file),
        _ => None,
    }
}
