//! Applies a release: writes the targets that it changes.
//!
//! Every transaction compares the head, so no server continues with a release
//! that is no longer the newest. Targets that are already correct are skipped.
//! So applying may stop anywhere, run twice, or run on two servers at once.

use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber};
use bunraku_store::{KeyValue, Swap, Transaction, compare_and_swap, settle};
use bunraku_wire::api::Target;
use futures::{StreamExt, TryStreamExt, stream};

use super::Releases;
use super::document::{AppliedRelease, JoinOutcome, MapEntry, ReleaseMap};
use crate::targets::StoredTarget;
use bunraku_control::document::{self, Versioned};
use bunraku_control::{ServiceError, keys, nodes};

/// Number of targets written in one transaction: two compares each.
const TARGETS_PER_TRANSACTION: usize = 48;
/// Number of nodes checked concurrently.
const AT_ONCE: usize = 16;

/// The result of applying a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ApplyOutcome {
    /// Every target matches the newest release.
    Done,
    /// A newer release, or another server's work, came in between.
    Overtaken,
}

/// The entries of the map to check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Entries newer than the last applied release.
    News,
    /// All entries, including those that should already be correct.
    Everything,
}

/// A target to write, and the data that this decision is based on.
struct PendingTarget {
    node: NodeName,
    record: KeyValue,
    before: Option<KeyValue>,
    /// Nothing if the node's catalog is withdrawn.
    target: Option<StoredTarget>,
}

impl Releases {
    /// Updates every target to the newest release.
    pub async fn apply(
        &self,
        environment: &EnvironmentName,
        extent: Extent,
    ) -> Result<ApplyOutcome, ServiceError> {
        let head = self.head(environment).await?;
        let (Some(release), map) = self.newest_map(environment, &head).await? else {
            return Ok(ApplyOutcome::Done);
        };
        let head = head.expect("a release that was read has a head");
        let number = release.summary.number;
        let applied = self.applied(environment).await?;
        let applied = applied.map(|applied| applied.number);
        if applied == Some(number) && extent == Extent::News {
            return Ok(ApplyOutcome::Done);
        }
        let since = match extent {
            Extent::News => applied.unwrap_or(ReleaseNumber(0)),
            Extent::Everything => ReleaseNumber(0),
        };
        let lines = lines_since(&map, since);
        let mut written = 0;
        for batch in lines.chunks(TARGETS_PER_TRANSACTION) {
            match self.apply_batch(environment, &head.entry, batch).await? {
                Some(count) => written += count,
                None => return Ok(ApplyOutcome::Overtaken),
            }
        }
        let noted = self.note_applied(environment, &head.entry, number).await?;
        tracing::info!(%environment, release = %number, written, "applied a release");
        Ok(if noted {
            ApplyOutcome::Done
        } else {
            ApplyOutcome::Overtaken
        })
    }

    /// Returns the number of targets written, or nothing if the head changed.
    pub(super) async fn apply_batch(
        &self,
        environment: &EnvironmentName,
        head: &KeyValue,
        batch: &[(NodeName, MapEntry)],
    ) -> Result<Option<usize>, ServiceError> {
        compare_and_swap(&*self.store, |reads| async move {
            let now = reads.into_iter().next();
            if now.is_some_and(|now| now.map(|now| now.modified) != Some(head.modified)) {
                return Ok(Swap::Done(None));
            }
            let pending: Vec<Option<PendingTarget>> = stream::iter(batch.to_vec())
                .map(|(node, entry)| self.pending(environment, node, entry))
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            let pending: Vec<PendingTarget> = pending.into_iter().flatten().collect();
            if pending.is_empty() {
                return Ok(Swap::Done(Some(0)));
            }
            let written = Some(pending.len());
            Ok(Swap::Write(transaction(head, &pending), written))
        })
        .await
    }

    /// Returns the target to write for a node. Returns nothing if its target is
    /// correct, if the node is gone, or if it now belongs to another
    /// environment.
    async fn pending(
        &self,
        environment: &EnvironmentName,
        node: NodeName,
        entry: MapEntry,
    ) -> Result<Option<PendingTarget>, ServiceError> {
        let Some(record) = self.store.get(&keys::node_record(&node)).await? else {
            return Ok(None);
        };
        if nodes::environment_in(&record)? != *environment {
            return Ok(None);
        }
        let known: Option<Versioned<StoredTarget>> =
            document::read(&*self.store, &keys::target(&node)).await?;
        let Some(catalog) = entry.catalog else {
            let known = known.filter(|known| known.document.target.environment == *environment);
            return Ok(known.map(|known| PendingTarget {
                node,
                record,
                before: Some(known.entry),
                target: None,
            }));
        };
        let target = Target {
            environment: environment.clone(),
            release: entry.since,
            catalog,
            code_id: entry.code_id,
            mode: entry.mode,
        };
        if known
            .as_ref()
            .is_some_and(|known| known.document.target == target)
        {
            return Ok(None);
        }
        let Some(stored) = self.catalogs.record(catalog).await? else {
            // A catalog is held while a release names it, so this one was removed by force.
            tracing::error!(%node, %catalog, "a released catalog is missing; the node keeps its current one");
            return Ok(None);
        };
        let previous = known
            .as_ref()
            .map(|known| &known.document)
            .and_then(|known| {
                if known.target.catalog == target.catalog {
                    known.previous
                } else {
                    Some(known.target.catalog)
                }
            });
        Ok(Some(PendingTarget {
            node,
            record,
            before: known.map(|known| known.entry),
            target: Some(StoredTarget {
                target,
                content: stored.content,
                previous,
            }),
        }))
    }

    async fn note_applied(
        &self,
        environment: &EnvironmentName,
        head: &KeyValue,
        number: ReleaseNumber,
    ) -> Result<bool, ServiceError> {
        let known = self.applied(environment).await?;
        let known = known.filter(|known| known.number == number);
        let joins = known.and_then(|known| known.joins);
        self.write_applied(environment, head, AppliedRelease { number, joins })
            .await
    }

    /// Records that every node that the join rules cover has a catalog or a
    /// problem.
    pub(super) async fn note_joins(
        &self,
        environment: &EnvironmentName,
        head: &KeyValue,
        number: ReleaseNumber,
        joins: Option<JoinOutcome>,
    ) -> Result<bool, ServiceError> {
        let noted = AppliedRelease { number, joins };
        match self.applied(environment).await? {
            Some(known) if known == noted => Ok(true),
            Some(known) if known.number == number => {
                self.write_applied(environment, head, noted).await
            }
            // Another release came in between.
            _ => Ok(false),
        }
    }

    async fn write_applied(
        &self,
        environment: &EnvironmentName,
        head: &KeyValue,
        applied: AppliedRelease,
    ) -> Result<bool, ServiceError> {
        let key = keys::release_applied(environment);
        let transaction = Transaction::new()
            .when_unchanged(&head.key, Some(head))
            .put(key, document::encode(&applied));
        Ok(settle(&*self.store, transaction).await?.is_committed())
    }
}

fn lines_since(map: &ReleaseMap, since: ReleaseNumber) -> Vec<(NodeName, MapEntry)> {
    let news = map.iter().filter(|(_, entry)| entry.since > since);
    news.map(|(node, entry)| (node.clone(), entry.clone()))
        .collect()
}

fn transaction(head: &KeyValue, pending: &[PendingTarget]) -> Transaction {
    let mut transaction = Transaction::new()
        .when_unchanged(&head.key, Some(head))
        .read_on_failure(head.key.clone());
    for one in pending {
        let key = keys::target(&one.node);
        transaction = transaction
            .when_unchanged(&one.record.key, Some(&one.record))
            .when_unchanged(&key, one.before.as_ref());
        transaction = match &one.target {
            Some(target) => transaction.put(key, document::encode(target)),
            None => transaction.delete(key),
        };
    }
    transaction
}
