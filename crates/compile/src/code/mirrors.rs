//! The repositories that this server has copied, one mirror per address.
//!
//! Environments and modules that use the same repository share its mirror. Only
//! one task writes to a mirror at a time, and only a few fetch at once. Objects
//! are never removed from a mirror in use, so commits can be read from it while
//! others fetch. A mirror that nothing has used for long is removed as a whole.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bunraku_control::Clock;
use bunraku_model::ContentId;
use tokio::sync::Semaphore;

use super::credentials::{GitAddress, GitCredential};
use super::git::{FetchScope, GitError, Mirror, RemoteBranches};

/// A file in a mirror. Its age is the time since the mirror was last used.
const USED: &str = "bunraku-used";
/// Maximum number of concurrent fetches.
pub(super) const MOST_FETCHES: usize = 8;

/// All mirrors of a server.
#[derive(Clone)]
pub(super) struct Mirrors {
    directory: PathBuf,
    scratch: PathBuf,
    time_limit: Duration,
    credentials: Arc<[GitCredential]>,
    clock: Clock,
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
        clock: Clock,
    ) -> Self {
        Self {
            directory,
            scratch,
            time_limit,
            credentials: credentials.into(),
            clock,
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
        self.mark_used(&mirror.directory);
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
            self.mark_used(&mirror.directory);
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
        self.mark_used(&mirror.directory);
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

    /// Removes the mirrors that were last used before this time, and returns
    /// their number. They are copies: a deploy that needs one fetches it again.
    pub(super) async fn remove_unused(&self, before: SystemTime) -> std::io::Result<usize> {
        let mut removed = 0;
        for directory in super::entries_of(&self.directory)? {
            if directory.extension().is_none_or(|kind| kind != "git") {
                continue;
            }
            let writer = self.writer_in(&directory);
            // Someone who fetches is using it.
            let Ok(_only) = writer.try_lock() else {
                continue;
            };
            match last_used(&directory) {
                // The mirror of an earlier version: its age is unknown.
                None => self.mark_used(&directory),
                Some(used) if used >= before => {}
                Some(_) => {
                    let leaving = directory.with_extension("removed");
                    std::fs::rename(&directory, &leaving)?;
                    let gone = move || std::fs::remove_dir_all(leaving);
                    tokio::task::spawn_blocking(gone).await??;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// A mark that cannot be written only makes the mirror look older.
    fn mark_used(&self, directory: &Path) {
        let marked = std::fs::File::create(directory.join(USED));
        let _ = marked.and_then(|file| file.set_modified(self.clock.now().into()));
    }

    fn writer(&self, mirror: &Mirror) -> Arc<tokio::sync::Mutex<()>> {
        self.writer_in(&mirror.directory)
    }

    fn writer_in(&self, directory: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut writers = self.writers.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(writers.entry(directory.to_owned()).or_default())
    }
}

fn last_used(directory: &Path) -> Option<SystemTime> {
    directory.join(USED).metadata().ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use tempfile::TempDir;

    use super::*;

    const DAY: i64 = 24 * 3_600;

    fn mirrors(directory: &Path, day: &Arc<AtomicI64>) -> Mirrors {
        let day = Arc::clone(day);
        let clock = Clock::new(move || {
            let seconds = day.load(Ordering::SeqCst) * DAY;
            jiff::Timestamp::from_second(seconds).expect("a time")
        });
        let scratch = directory.join("incoming");
        Mirrors::new(
            directory.to_owned(),
            scratch,
            Duration::from_secs(60),
            &[],
            clock,
        )
    }

    #[tokio::test]
    async fn only_mirrors_that_are_unused_for_long_are_removed() {
        let root = TempDir::new().expect("a directory");
        let day = Arc::new(AtomicI64::new(1));
        let mirrors = mirrors(root.path(), &day);
        let at = |name: &str| root.path().join(name);
        for name in ["old.git", "used.git", "busy.git", "earlier.git", "other"] {
            std::fs::create_dir_all(at(name).join("objects")).expect("made");
        }
        for name in ["old.git", "used.git", "busy.git"] {
            mirrors.mark_used(&at(name));
        }
        day.store(20, Ordering::SeqCst);
        mirrors.mark_used(&at("used.git"));
        let writer = mirrors.writer_in(&at("busy.git"));
        let busy = writer.lock().await;
        let before =
            |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(day * DAY.unsigned_abs());
        assert_eq!(mirrors.remove_unused(before(1)).await.expect("looked"), 0);
        assert_eq!(mirrors.remove_unused(before(10)).await.expect("looked"), 1);
        let left = |name: &str| at(name).is_dir();
        assert!(!left("old.git") && !left("old.removed"));
        assert!(left("used.git") && left("other"));
        // Someone fetches; and nobody knows the age of this one, from now on it counts.
        assert!(left("busy.git") && left("earlier.git"));
        drop(busy);
        assert_eq!(mirrors.remove_unused(before(20)).await.expect("looked"), 1);
        assert!(!left("busy.git") && left("earlier.git"));
    }
}
