//! The repositories that this server has copied, one mirror per address.
//!
//! Environments and modules that use the same repository share its mirror. Only
//! one task writes to a mirror at a time, and only a few fetch at once. Objects
//! are never removed from a mirror in use, so commits can be read from it while
//! others fetch.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::ContentId;
use tokio::sync::Semaphore;

use super::credentials::{GitAddress, GitCredential};
use super::git::{FetchScope, GitError, Mirror, RemoteBranches};

/// Maximum number of concurrent fetches.
pub(super) const MOST_FETCHES: usize = 8;

/// All mirrors of a server.
#[derive(Clone)]
pub(super) struct Mirrors {
    directory: PathBuf,
    scratch: PathBuf,
    time_limit: Duration,
    credentials: Arc<[GitCredential]>,
    writers: Arc<Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<()>>>>>,
    slots: Arc<Semaphore>,
}

/// A commit in a mirror.
#[derive(Clone, Debug)]
pub(super) struct MirroredCommit {
    pub(super) mirror: Mirror,
    pub(super) commit: String,
}

impl Mirrors {
    pub(super) fn new(
        directory: PathBuf,
        scratch: PathBuf,
        time_limit: Duration,
        credentials: &[GitCredential],
    ) -> Self {
        Self {
            directory,
            scratch,
            time_limit,
            credentials: credentials.into(),
            writers: Arc::default(),
            slots: Arc::new(Semaphore::new(MOST_FETCHES)),
        }
    }

    /// Returns the mirror of an address. Its name does not depend on the
    /// password in the address, so a new password does not cause a new copy.
    fn mirror(&self, url: &str) -> Mirror {
        let hash = ContentId::of(GitAddress::of(url).url.as_bytes()).to_string();
        Mirror {
            directory: self.directory.join(format!("{}.git", &hash[..16])),
            scratch: self.scratch.clone(),
            time_limit: self.time_limit,
            credentials: Arc::clone(&self.credentials),
        }
    }

    /// Fetches, and returns the wanted commit.
    pub(super) async fn fetch(
        &self,
        url: &str,
        wanted: &FetchScope,
    ) -> Result<MirroredCommit, GitError> {
        let mirror = self.mirror(url);
        let writer = self.writer(&mirror);
        let _only = writer.lock().await;
        let _slot = self.slots.acquire().await;
        let commit = mirror.fetch(url, wanted).await?;
        Ok(MirroredCommit { mirror, commit })
    }

    /// Returns the first of the references that exists. Fetches only if the
    /// first one is not a commit or a tag that is already here: as for r10k,
    /// those are taken as fixed.
    pub(super) async fn resolve(
        &self,
        url: &str,
        references: &[FetchScope],
    ) -> Result<(MirroredCommit, FetchScope), GitError> {
        let mirror = self.mirror(url);
        let writer = self.writer(&mirror);
        let _only = writer.lock().await;
        let first = references.first().unwrap_or(&FetchScope::DefaultBranch);
        if let Some(commit) = mirror.find_fixed(first).await? {
            return Ok((MirroredCommit { mirror, commit }, first.clone()));
        }
        let _slot = self.slots.acquire().await;
        let mut outcome = mirror.fetch(url, first).await;
        let mut used = first.clone();
        for fallback in references.iter().skip(1) {
            if !matches!(
                outcome,
                Err(GitError::NoReference { .. } | GitError::NoBranch { .. })
            ) {
                break;
            }
            outcome = match mirror.find_wanted(fallback).await? {
                Some(commit) => Ok(commit),
                None => outcome,
            };
            used = fallback.clone();
        }
        let commit = outcome?;
        Ok((MirroredCommit { mirror, commit }, used))
    }

    /// Returns the branches that a repository has now.
    pub(super) async fn branches(&self, url: &str) -> Result<RemoteBranches, GitError> {
        let mirror = self.mirror(url);
        let writer = self.writer(&mirror);
        let _only = writer.lock().await;
        let _slot = self.slots.acquire().await;
        mirror.branches(url).await
    }

    fn writer(&self, mirror: &Mirror) -> Arc<tokio::sync::Mutex<()>> {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(writers.entry(mirror.directory.clone()).or_default())
    }
}
