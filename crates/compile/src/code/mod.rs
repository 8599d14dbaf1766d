//! Code by commit: fetched once, stored as blobs, unpacked on each server that
//! uses it.
//!
//! `code/<environment>/<code>` names the blobs with the files of a commit and of
//! the modules that came with it. The server that runs a deploy needs the
//! repositories; all other servers use the blobs. So every server can compile
//! deployed code for as long as it is stored, even if a repository is gone.

mod additional;
mod copies;
mod credentials;
mod download;
mod forge;
mod git;
mod mirrors;
mod plugins;
mod private;
mod puppetfile;
mod repository;
mod retention;
mod sources;
mod tree;
mod unpacked;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{CodeId, ContentId, EnvironmentName};
use bunraku_store::blobs::{BlobError, PinnedBlob, SharedBlobs};
use bunraku_store::{SharedStore, Swap, Transaction, compare_and_swap};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use bunraku_control::clock::Clock;
use bunraku_control::document;
use bunraku_control::{EnvironmentSettings, ServiceError, keys};
use bunraku_wire::api::{CompileProblem, DeployedModule};
use copies::entries_of;
use forge::{Forge, PUBLIC_FORGE};
use mirrors::Mirrors;
use private::private_directory;
use sources::{ResolvedCode, Resolver};
use tree::{TreeLimits, TreeUsage};

pub use credentials::GitCredential;
pub(crate) use download::{DownloadError, DownloadLimits, TIME_LIMIT, download};
pub use forge::ForgeError;
pub use git::GitError;
pub use git::{CommittedFile, FetchScope, Mirror, RemoteBranches};
pub use plugins::PluginRecord;
pub(crate) use repository::is_local;
pub use repository::{check_branch, check_reference, check_url, masked};
pub use sources::CodeRequest;
pub use tree::TreeError;
pub use tree::is_below;

/// The location and limits of the code on this server.
#[derive(Clone, Debug)]
pub struct CodeOptions {
    /// Time limit for a git fetch.
    pub git_time_limit: Duration,
    /// Maximum size of all files of one commit in bytes.
    pub max_bytes: u64,
    pub max_files: usize,
    /// Number of commits kept per environment, besides the deployed one.
    pub keep: usize,
    /// Access to private repositories.
    pub credentials: Vec<GitCredential>,
    /// The Puppet Forge, or a mirror of it.
    pub forge: String,
    /// A file with the token for a private Forge.
    pub forge_token_file: Option<PathBuf>,
    /// Copies of repositories and archives that are unused for this long are removed.
    pub keep_copies: Duration,
}

impl Default for CodeOptions {
    fn default() -> Self {
        Self {
            git_time_limit: Duration::from_secs(120),
            max_bytes: 512 << 20,
            max_files: 100_000,
            keep: 10,
            credentials: Vec::new(),
            forge: PUBLIC_FORGE.to_owned(),
            forge_token_file: None,
            keep_copies: Duration::from_secs(30 * 24 * 3_600),
        }
    }
}

/// The reason why code is not available.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    #[error("cannot fetch the code")]
    Git(#[from] GitError),
    #[error("cannot use the commit")]
    Tree(#[from] TreeError),
    #[error("a module cannot be fetched")]
    Forge(#[from] ForgeError),
    /// An error in a file of the code.
    #[error("{}", .0.message)]
    Problem(CompileProblem),
    #[error("code {0} is not on this server: deploy it first")]
    Missing(CodeId),
    #[error("cannot store the code")]
    Blob(#[from] BlobError),
    #[error("cannot store the code's record")]
    Service(#[from] ServiceError),
    #[error("cannot {doing}")]
    Io {
        doing: String,
        #[source]
        source: std::io::Error,
    },
}

impl From<bunraku_store::StoreError> for CodeError {
    fn from(error: bunraku_store::StoreError) -> Self {
        Self::Service(error.into())
    }
}

impl CodeError {
    /// Returns true if the code or the repository is at fault, so that a retry
    /// alone would not help.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::Git(_) | Self::Tree(_) | Self::Missing(_) | Self::Forge(_) | Self::Problem(_)
        )
    }

    /// Describes the error for people, with its place in the code if it has one.
    pub fn into_problem(self) -> CompileProblem {
        match self {
            Self::Problem(problem) => problem,
            other => CompileProblem {
                message: bunraku_control::error::chain(&other),
                ..CompileProblem::default()
            },
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct CodeRecord {
    content: ContentId,
    /// The files of all modules, if the code names any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    module_content: Option<ContentId>,
    /// The commit or version of each module and additional repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    modules: Vec<DeployedModule>,
    fetched: Timestamp,
}

impl CodeRecord {
    fn contents(&self) -> impl Iterator<Item = ContentId> {
        [Some(self.content), self.module_content]
            .into_iter()
            .flatten()
    }
}

/// Packed code that is not stored yet.
struct CodeDraft {
    id: CodeId,
    own_archive: PathBuf,
    /// Absent if there are no modules, or they are stored already.
    module_archive: Option<PathBuf>,
    known_modules: Option<ContentId>,
    pins: Vec<DeployedModule>,
}

/// Handle for the code service.
#[derive(Clone)]
pub struct Code {
    store: SharedStore,
    blobs: SharedBlobs,
    clock: Clock,
    directory: PathBuf,
    options: CodeOptions,
    mirrors: Mirrors,
    forge: Forge,
    /// Only one task unpacks at a time; the others find the result.
    unpacking: Arc<Mutex<()>>,
}

impl Code {
    pub fn new(
        store: SharedStore,
        blobs: SharedBlobs,
        clock: Clock,
        data_dir: &Path,
        options: CodeOptions,
    ) -> Self {
        let directory = data_dir.join("code");
        // Code contains secrets. Directories of earlier versions were readable for everybody.
        if let Err(error) = private_directory(&directory) {
            tracing::warn!(error = %error, path = %directory.display(), "cannot protect the directory of code");
        }
        // Remove the leftovers of a server that died while unpacking, and the
        // mirrors of a version that had one per environment.
        let _ = std::fs::remove_dir_all(directory.join("incoming"));
        let _ = std::fs::remove_dir_all(directory.join("git"));
        let mirrors = Mirrors::new(
            directory.join("repositories"),
            directory.join("incoming"),
            options.git_time_limit,
            &options.credentials,
            clock.clone(),
        );
        let token = options.forge_token_file.as_deref();
        let forge = Forge::new(
            &options.forge,
            token,
            directory.join("forge"),
            clock.clone(),
        );
        Self {
            store,
            blobs,
            clock,
            directory,
            options,
            mirrors,
            forge,
            unpacking: Arc::default(),
        }
    }

    /// Returns the address of an environment's repository.
    pub(crate) async fn repository_of(
        &self,
        environment: &EnvironmentName,
    ) -> Result<Option<String>, ServiceError> {
        let settings = EnvironmentSettings::read(&*self.store, environment).await?;
        Ok(settings.map(|settings| settings.url))
    }

    fn limits(&self) -> TreeLimits {
        TreeLimits {
            bytes: self.options.max_bytes,
            files: self.options.max_files,
        }
    }

    /// Fetches the wanted commit with its modules, stores all files, and
    /// returns the id of the code.
    pub async fn fetch(
        &self,
        environment: &EnvironmentName,
        request: &CodeRequest,
    ) -> Result<CodeId, CodeError> {
        if let FetchScope::Reference(name) = &request.wanted {
            let known = CodeId(name.clone());
            if self.record(environment, &known).await?.is_some() {
                self.tree(environment, &known).await?;
                return Ok(known);
            }
        }
        let resolver = Resolver {
            mirrors: &self.mirrors,
            forge: &self.forge,
            request,
        };
        let resolved = resolver.resolve().await?;
        let id = resolved.id.clone();
        if self.record(environment, &id).await?.is_none() {
            self.store(environment, resolved).await?;
        }
        // A tree that cannot be used must not be deployed.
        self.tree(environment, &id).await?;
        Ok(id)
    }

    /// Returns the branches that a repository has now.
    pub async fn branches(&self, url: &str) -> Result<RemoteBranches, CodeError> {
        Ok(self.mirrors.branches(url).await?)
    }

    /// Returns the modules that came with code, if it is kept.
    pub async fn modules(
        &self,
        environment: &EnvironmentName,
        id: &CodeId,
    ) -> Result<Vec<DeployedModule>, CodeError> {
        let record = self.record(environment, id).await?;
        Ok(record.map(|record| record.modules).unwrap_or_default())
    }

    /// Packs and stores resolved code. Its record comes last, so that code
    /// with a record is complete.
    async fn store(
        &self,
        environment: &EnvironmentName,
        resolved: ResolvedCode,
    ) -> Result<(), CodeError> {
        let ResolvedCode {
            id,
            own,
            modules,
            pins,
        } = resolved;
        let known = self.known_modules(environment, &pins).await?;
        let (own_archive, module_archive) = (self.scratch().await?, self.scratch().await?);
        let limits = self.limits();
        let packs_modules = known.is_none() && !modules.is_empty();
        let (one, two) = (own_archive.clone(), module_archive.clone());
        let packed = blocking(move || {
            let mut usage = TreeUsage::default();
            tree::pack(&own, limits, &mut usage, &one)?;
            if packs_modules {
                Ok(tree::pack(&modules, limits, &mut usage, &two)?)
            } else {
                Ok(())
            }
        });
        let module_archive = packs_modules.then_some(module_archive);
        let outcome = match packed.await {
            Err(error) => Err(error),
            Ok(()) => {
                let draft = CodeDraft {
                    id,
                    own_archive: own_archive.clone(),
                    module_archive: module_archive.clone(),
                    known_modules: known,
                    pins,
                };
                self.store_draft(environment, draft).await
            }
        };
        for archive in [Some(own_archive), module_archive].into_iter().flatten() {
            let _ = tokio::fs::remove_file(archive).await;
        }
        outcome
    }

    async fn store_draft(
        &self,
        environment: &EnvironmentName,
        draft: CodeDraft,
    ) -> Result<(), CodeError> {
        let own = self.put(&draft.own_archive).await?;
        let modules = match &draft.module_archive {
            Some(archive) => Some(self.put(archive).await?),
            None => None,
        };
        let record = CodeRecord {
            content: own.info.id,
            module_content: match &modules {
                Some(modules) => Some(modules.info.id),
                None => draft.known_modules,
            },
            modules: draft.pins,
            fetched: self.clock.now(),
        };
        self.write_record(environment, &draft.id, &record).await?;
        own.pin.release().await?;
        if let Some(modules) = modules {
            modules.pin.release().await?;
        }
        Ok(())
    }

    /// Returns the stored files of the same modules, if an earlier commit of the
    /// environment had exactly these.
    async fn known_modules(
        &self,
        environment: &EnvironmentName,
        pins: &[DeployedModule],
    ) -> Result<Option<ContentId>, CodeError> {
        if pins.is_empty() {
            return Ok(None);
        }
        for entry in document::read_all(&*self.store, &keys::code_of(environment)).await? {
            let record: CodeRecord = document::decode(&entry)?;
            let Some(content) = record.module_content else {
                continue;
            };
            if record.modules == pins && self.blobs.has(content).await? {
                return Ok(Some(content));
            }
        }
        Ok(None)
    }

    async fn put(&self, packed: &Path) -> Result<PinnedBlob, CodeError> {
        let mut file = tokio::fs::File::open(packed)
            .await
            .map_err(io("read the packed code"))?;
        Ok(self.blobs.put(&mut file, None).await?)
    }

    async fn write_record(
        &self,
        environment: &EnvironmentName,
        id: &CodeId,
        record: &CodeRecord,
    ) -> Result<(), CodeError> {
        let key = &keys::code(environment, id);
        let kept = compare_and_swap(&*self.store, |_| async move {
            if self.record(environment, id).await?.is_some() {
                return Ok(Swap::Done(()));
            }
            let mut transaction = Transaction::new()
                .when_unchanged(key, None)
                .put(key, document::encode(record));
            for content in record.contents() {
                let referenced = self.blobs.reference_in(transaction, content, key);
                transaction = referenced.await?;
            }
            Ok::<_, CodeError>(Swap::Write(transaction, ()))
        });
        kept.await?;
        Ok(())
    }

    async fn record(
        &self,
        environment: &EnvironmentName,
        commit: &CodeId,
    ) -> Result<Option<CodeRecord>, CodeError> {
        let key = keys::code(environment, commit);
        let found = document::read(&*self.store, &key).await?;
        Ok(found.map(|found| found.document))
    }
}

fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> CodeError {
    let doing = doing.into();
    move |source| CodeError::Io { doing, source }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CodeError> + Send + 'static,
) -> Result<T, CodeError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|stopped| Err(io("access files")(stopped.into())))
}
