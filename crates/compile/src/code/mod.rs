//! Code by commit: fetched once, stored as a blob, unpacked on each server that
//! uses it.
//!
//! `code/<environment>/<commit>` names the blob with a commit's files. The
//! server that runs a deploy needs the git repository; all other servers use
//! the blob. So every server can compile deployed code for as long as it is
//! stored, even if the repository is gone.

mod git;
mod repository;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::{CodeId, ContentId, EnvironmentName};
use bunraku_store::blobs::{BlobError, SharedBlobs};
use bunraku_store::{SharedStore, Transaction};
use futures::TryStreamExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use uuid::Uuid;

use bunraku_control::clock::Clock;
use bunraku_control::document::{self, Decision};
use bunraku_control::{ServiceError, keys};
use tree::TreeLimits;

pub use git::GitError;
pub use git::{Mirror, Wanted};
pub use repository::{check_branch, check_commit, check_url, masked};
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
}

impl Default for CodeOptions {
    fn default() -> Self {
        Self {
            git_time_limit: Duration::from_secs(120),
            max_bytes: 512 << 20,
            max_files: 100_000,
            keep: 10,
        }
    }
}

/// The reason why code is not available.
#[derive(Debug, thiserror::Error)]
pub enum CodeError {
    #[error("the code cannot be fetched")]
    Git(#[from] GitError),
    #[error("the commit cannot be used")]
    Tree(#[from] TreeError),
    #[error("code {0} is not here: deploy it first")]
    Missing(CodeId),
    #[error("the code cannot be kept")]
    Blob(#[from] BlobError),
    #[error("the code's record cannot be kept")]
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
        matches!(self, Self::Git(_) | Self::Tree(_) | Self::Missing(_))
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct CodeRecord {
    content: ContentId,
    fetched: Timestamp,
}

/// Handle for the code service.
#[derive(Clone)]
pub struct Code {
    store: SharedStore,
    blobs: SharedBlobs,
    clock: Clock,
    directory: PathBuf,
    options: CodeOptions,
    /// Only one task unpacks at a time; the others find the result.
    unpacking: Arc<Mutex<()>>,
    /// Only one task uses a mirror at a time.
    fetching: Arc<Mutex<()>>,
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
        // Remove the leftovers of a server that died while unpacking.
        let _ = std::fs::remove_dir_all(directory.join("incoming"));
        Self {
            store,
            blobs,
            clock,
            directory,
            options,
            unpacking: Arc::default(),
            fetching: Arc::default(),
        }
    }

    fn limits(&self) -> TreeLimits {
        TreeLimits {
            bytes: self.options.max_bytes,
            files: self.options.max_files,
        }
    }

    /// Fetches the wanted commit, stores its files, and returns its id.
    pub async fn fetch(
        &self,
        environment: &EnvironmentName,
        url: &str,
        wanted: &Wanted,
    ) -> Result<CodeId, CodeError> {
        if let Wanted::Commit(commit) = wanted {
            let known = CodeId(commit.clone());
            if self.record(environment, &known).await?.is_some() {
                self.tree(environment, &known).await?;
                return Ok(known);
            }
        }
        let _one = self.fetching.lock().await;
        let mirror = Mirror {
            directory: self
                .directory
                .join("git")
                .join(mirror_name(environment, url)),
            time_limit: self.options.git_time_limit,
        };
        let commit = CodeId(mirror.fetch(url, wanted).await?);
        if self.record(environment, &commit).await?.is_none() {
            self.keep(environment, &commit, &mirror).await?;
        }
        // A tree that cannot be used must not be deployed.
        self.tree(environment, &commit).await?;
        Ok(commit)
    }

    async fn keep(
        &self,
        environment: &EnvironmentName,
        commit: &CodeId,
        mirror: &Mirror,
    ) -> Result<(), CodeError> {
        let packed = self.scratch().await?;
        let (from, to) = (mirror.directory.clone(), packed.clone());
        let (id, limits) = (commit.clone(), self.limits());
        blocking(move || Ok(tree::pack(&from, &id.0, limits, &to)?)).await?;
        let outcome = self.keep_packed(environment, commit, &packed).await;
        let _ = tokio::fs::remove_file(&packed).await;
        outcome
    }

    async fn keep_packed(
        &self,
        environment: &EnvironmentName,
        commit: &CodeId,
        packed: &Path,
    ) -> Result<(), CodeError> {
        let mut file = tokio::fs::File::open(packed)
            .await
            .map_err(io("read the packed code"))?;
        let written = self.blobs.put(&mut file, None).await?;
        let record = CodeRecord {
            content: written.info.id,
            fetched: self.clock.now(),
        };
        let key = keys::code(environment, commit);
        loop {
            let transaction = Transaction::new()
                .when_unchanged(&key, None)
                .put(key.clone(), document::encode(&record));
            let transaction = self
                .blobs
                .reference_in(transaction, record.content, &key)
                .await?;
            if self.store.commit(transaction).await?.is_committed()
                || self.record(environment, commit).await?.is_some()
            {
                break;
            }
        }
        written.pin.release().await?;
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

    /// Returns the directory with a commit's files. The files never change.
    pub async fn tree(
        &self,
        environment: &EnvironmentName,
        commit: &CodeId,
    ) -> Result<PathBuf, CodeError> {
        let place = self.place(environment, commit);
        if tokio::fs::try_exists(&place).await.unwrap_or(false) {
            return Ok(place);
        }
        let _one = self.unpacking.lock().await;
        if tokio::fs::try_exists(&place).await.unwrap_or(false) {
            return Ok(place);
        }
        let record = self.record(environment, commit).await?;
        let record = record.ok_or_else(|| CodeError::Missing(commit.clone()))?;
        self.unpack(record.content, &place).await?;
        Ok(place)
    }

    fn place(&self, environment: &EnvironmentName, commit: &CodeId) -> PathBuf {
        let below = self.directory.join("trees").join(environment.as_str());
        below.join(&commit.0)
    }

    /// Unpacks under a temporary name first, so a directory with its final name
    /// is complete.
    async fn unpack(&self, content: ContentId, place: &Path) -> Result<(), CodeError> {
        let stream = self.blobs.open(content).await?;
        let reader = tokio_util::io::StreamReader::new(stream.map_err(std::io::Error::other));
        let mut reader = Box::pin(reader);
        let incoming = self.scratch().await?;
        // Read and verify the whole blob first, then unpack its files.
        let mut file = tokio::fs::File::create(&incoming)
            .await
            .map_err(io("write the packed code"))?;
        tokio::io::copy(&mut reader, &mut file)
            .await
            .map_err(io("read the code's content"))?;
        drop(file);
        let (place, limits) = (place.to_owned(), self.limits());
        let fresh = self.scratch().await?;
        blocking(move || {
            let packed = std::fs::File::open(&incoming).map_err(io("read the packed code"))?;
            let outcome = tree::unpack(packed, &fresh, limits).map_err(CodeError::from);
            let _ = std::fs::remove_file(&incoming);
            let outcome = outcome.and_then(|()| publish(&fresh, &place));
            if outcome.is_err() {
                let _ = std::fs::remove_dir_all(&fresh);
            }
            outcome
        })
        .await
    }

    async fn scratch(&self) -> Result<PathBuf, CodeError> {
        let incoming = self.directory.join("incoming");
        tokio::fs::create_dir_all(&incoming)
            .await
            .map_err(io(format!("create {}", incoming.display())))?;
        Ok(incoming.join(Uuid::new_v4().simple().to_string()))
    }

    /// Removes all but the newest commits, and the trees that no record names.
    pub async fn prune(
        &self,
        environment: &EnvironmentName,
        deployed: Option<&CodeId>,
    ) -> Result<usize, CodeError> {
        let prefix = keys::code_of(environment);
        let mut known = Vec::new();
        for entry in document::read_all(&*self.store, &prefix).await? {
            let record: CodeRecord = document::decode(&entry)?;
            let commit = CodeId(entry.key[prefix.len()..].to_owned());
            known.push((record, commit, entry));
        }
        known.sort_by_key(|(record, _, _)| std::cmp::Reverse(record.fetched));
        let mut kept = Vec::new();
        let mut removed = 0;
        for (at, (record, commit, entry)) in known.into_iter().enumerate() {
            if at < self.options.keep || Some(&commit) == deployed {
                kept.push(commit);
                continue;
            }
            let transaction = Transaction::new()
                .when_unchanged(&entry.key, Some(&entry))
                .delete(entry.key.clone());
            let transaction = self
                .blobs
                .unreference_in(transaction, record.content, &entry.key)?;
            self.store.commit(transaction).await?;
            removed += 1;
        }
        self.remove_trees(environment, kept).await?;
        Ok(removed)
    }

    /// Removes all code of an environment that is being removed.
    pub async fn forget(&self, environment: &EnvironmentName) -> Result<(), CodeError> {
        let prefix = keys::code_of(environment);
        for entry in document::read_all(&*self.store, &prefix).await? {
            let record: CodeRecord = document::decode(&entry)?;
            let transaction = Transaction::new().delete(entry.key.clone());
            let transaction = self
                .blobs
                .unreference_in(transaction, record.content, &entry.key)?;
            self.store.commit(transaction).await?;
        }
        self.remove_trees(environment, Vec::new()).await
    }

    async fn remove_trees(
        &self,
        environment: &EnvironmentName,
        kept: Vec<CodeId>,
    ) -> Result<(), CodeError> {
        let trees = self.directory.join("trees").join(environment.as_str());
        blocking(move || {
            let Ok(entries) = std::fs::read_dir(&trees) else {
                return Ok(());
            };
            for entry in entries.flatten() {
                let name = entry.file_name();
                if !kept.iter().any(|commit| name.to_str() == Some(&commit.0)) {
                    let _ = std::fs::remove_dir_all(entry.path());
                }
            }
            Ok(())
        })
        .await
    }

    /// Marks a commit as recently used, so that it counts as new when old
    /// commits are removed.
    pub async fn touch(
        &self,
        environment: &EnvironmentName,
        commit: &CodeId,
    ) -> Result<(), CodeError> {
        let now = self.clock.now();
        document::update(
            &*self.store,
            &keys::code(environment, commit),
            |record: Option<CodeRecord>| {
                Ok(record.map_or(Decision::Keep, |record| {
                    Decision::Write(CodeRecord {
                        fetched: now,
                        ..record
                    })
                }))
            },
        )
        .await?;
        Ok(())
    }
}

/// Returns the name of a mirror. It depends on the address, so that a new
/// address does not meet the branches of the previous one.
fn mirror_name(environment: &EnvironmentName, url: &str) -> String {
    format!(
        "{environment}-{}.git",
        ContentId::of(url.as_bytes()).short()
    )
}

fn publish(fresh: &Path, place: &Path) -> Result<(), CodeError> {
    let naming = || io(format!("name {}", place.display()));
    let parent = place.parent().unwrap_or(place);
    std::fs::create_dir_all(parent).map_err(naming())?;
    bunraku_files::move_into_place(fresh, place).map_err(naming())
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
        .unwrap_or_else(|stopped| Err(io("do file work")(stopped.into())))
}
