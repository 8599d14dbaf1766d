//! Forgets old releases, and removes holds on catalogs that only they named.
//!
//! Kept: the newest releases, and always the current one and its parent. Held:
//! every catalog that a kept release or a target names.
//!
//! A crash in between leaves unneeded holds. They are found again, because the
//! check covers all held catalogs, not only those that a forgotten release
//! named.

use std::collections::BTreeSet;

use bunraku_model::{CatalogId, EnvironmentName};
use bunraku_store::{Transaction, TransactionOutcome};

use super::document::{Release, ReleaseHead};
use super::maps::map_error;
use super::{Releases, StoredHead, holder};
use crate::targets::StoredTarget;
use bunraku_control::document::{self, Versioned};
use bunraku_control::{ServiceError, keys};

/// Number of holds removed in one transaction.
const LET_GO_PER_TRANSACTION: usize = 100;

/// The result of one collection.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CollectedReleases {
    pub forgotten: usize,
    pub released: usize,
}

impl Releases {
    /// Forgets the releases of one environment that exceed the retention.
    pub async fn collect(
        &self,
        environment: &EnvironmentName,
    ) -> Result<CollectedReleases, ServiceError> {
        let mut collected = CollectedReleases::default();
        let head = self.head(environment).await?;
        let Some(newest) = head.as_ref().map(|head| head.document.number) else {
            return Ok(collected);
        };
        let prefix = keys::releases(environment);
        let mut releases = Vec::new();
        for entry in document::read_all(&*self.store, &prefix).await? {
            let document: Release = document::decode(&entry)?;
            releases.push(Versioned { document, entry });
        }
        let parent = releases
            .iter()
            .find(|release| release.document.summary.number == newest)
            .and_then(|release| release.document.summary.parent);
        let beyond = releases.len().saturating_sub(self.options.keep.max(2));
        let (old, mut kept): (Vec<_>, Vec<_>) =
            releases
                .into_iter()
                .enumerate()
                .partition(|(position, release)| {
                    let number = release.document.summary.number;
                    *position < beyond && number != newest && Some(number) != parent
                });
        for (_, release) in &old {
            self.forget(environment, release).await?;
            collected.forgotten += 1;
        }
        let kept: Vec<Release> = kept
            .drain(..)
            .map(|(_, release)| release.document)
            .collect();
        collected.released = self.release_catalogs(environment, &head, &kept).await?;
        Ok(collected)
    }

    /// Removes the document together with its references to blobs.
    async fn forget(
        &self,
        environment: &EnvironmentName,
        release: &Versioned<Release>,
    ) -> Result<(), ServiceError> {
        let number = release.document.summary.number;
        let referrer = format!("release/{environment}/{number}");
        let key = &release.entry.key;
        let mut transaction = Transaction::new()
            .when_unchanged(key, Some(&release.entry))
            .delete(key);
        let map = &release.document.map;
        for blob in [Some(map.base), map.changes].into_iter().flatten() {
            let unreferred = self.blobs.unreference_in(transaction, blob, &referrer);
            transaction = unreferred.map_err(map_error)?;
        }
        self.store.commit(transaction).await?;
        Ok(())
    }

    async fn release_catalogs(
        &self,
        environment: &EnvironmentName,
        head: &StoredHead,
        kept: &[Release],
    ) -> Result<usize, ServiceError> {
        let holder = holder(environment);
        let held = self.held_by(&holder).await?;
        if held.is_empty() {
            return Ok(0);
        }
        let mut named = self.named_by_targets(environment).await?;
        for release in kept {
            let map = self.maps.read(&release.map).await?;
            named.extend(map.values().filter_map(|entry| entry.catalog));
        }
        let unneeded: Vec<CatalogId> = held.difference(&named).copied().collect();
        let (mut head, mut count) = (
            head.as_ref()
                .map(|head| (head.document, head.entry.clone())),
            0,
        );
        for batch in unneeded.chunks(LET_GO_PER_TRANSACTION) {
            let Some((document, entry)) = head else {
                break;
            };
            // Writing the head forces any server that is creating a release to start over.
            let next = ReleaseHead {
                collections: document.collections + 1,
                ..document
            };
            let mut transaction = Transaction::new()
                .when_unchanged(&entry.key, Some(&entry))
                .put(entry.key.clone(), document::encode(&next));
            for catalog in batch {
                transaction = self.catalogs.release_in(transaction, *catalog, &holder);
            }
            head = match self.store.commit(transaction).await? {
                TransactionOutcome::Committed(revision) => {
                    count += batch.len();
                    let mut entry = entry;
                    entry.modified = revision;
                    Some((next, entry))
                }
                // There is a newer release: check again another time.
                TransactionOutcome::Refused(_) => None,
            };
        }
        Ok(count)
    }

    /// Returns the catalogs that targets name: those of this environment, or
    /// left over from it.
    async fn named_by_targets(
        &self,
        environment: &EnvironmentName,
    ) -> Result<BTreeSet<CatalogId>, ServiceError> {
        let mut named = BTreeSet::new();
        for entry in document::read_all(&*self.store, keys::TARGETS).await? {
            let target: StoredTarget = document::decode(&entry)?;
            if target.target.environment == *environment {
                named.insert(target.target.catalog);
            }
            // A previous catalog may be of any environment.
            named.extend(target.previous);
        }
        Ok(named)
    }

    async fn held_by(&self, holder: &str) -> Result<BTreeSet<CatalogId>, ServiceError> {
        let end = format!("/{holder}");
        let all = document::keys_under(&*self.store, keys::CATALOG_HOLDS).await?;
        let ids = all.iter().filter_map(|key| {
            let key = key.strip_prefix(keys::CATALOG_HOLDS)?;
            key.strip_suffix(&end)?.parse().ok()
        });
        Ok(ids.collect())
    }
}
