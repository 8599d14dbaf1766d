//! Applying a release: writing the targets that it changes.
//!
//! Every transaction compares the head, so nobody goes on with a release that
//! is not the newest any more, and every target that is as it should be is
//! passed by. So it may stop anywhere, be done twice, or by two at once.

use bunraku_model::{EnvironmentName, NodeName, ReleaseNumber};
use bunraku_store::{KeyValue, StoreError, Transaction, TransactionOutcome};
use bunraku_wire::api::Target;
use futures::{StreamExt, TryStreamExt, stream};

use super::Releases;
use super::document::{Applied, Entry, ReleaseMap};
use crate::targets::StoredTarget;
use bunraku_control::document::{self, Stored};
use bunraku_control::{ServiceError, keys, nodes};

/// Targets that are written in one transaction: two compares each.
const TARGETS_PER_TRANSACTION: usize = 48;
/// Nodes that are looked at at the same time.
const AT_ONCE: usize = 16;

/// How an application ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Every target is what the newest release says.
    Done,
    /// A newer release, or another server's work, came in between.
    Overtaken,
}

/// Which lines of the map are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// What came after the release that was applied last.
    News,
    /// All of them, also what should be right already.
    Everything,
}

/// A target that must be written, and what was read to decide so.
struct Pending {
    node: NodeName,
    record: KeyValue,
    before: Option<KeyValue>,
    target: StoredTarget,
}

impl Releases {
    /// Brings every target to what the newest release says.
    pub async fn apply(
        &self,
        environment: &EnvironmentName,
        extent: Extent,
    ) -> Result<Outcome, ServiceError> {
        let head = self.head(environment).await?;
        let (Some(release), map) = self.newest_map(environment, &head).await? else {
            return Ok(Outcome::Done);
        };
        let head = head.expect("a release that was read has a head");
        let number = release.summary.number;
        let applied = self.applied(environment).await?;
        if applied == Some(number) && extent == Extent::News {
            return Ok(Outcome::Done);
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
                None => return Ok(Outcome::Overtaken),
            }
        }
        let noted = self.note_applied(environment, &head.entry, number).await?;
        tracing::info!(%environment, release = %number, written, "a release is applied");
        Ok(match noted {
            true => Outcome::Done,
            false => Outcome::Overtaken,
        })
    }

    /// How many were written; nothing if the head is not what it was.
    pub(super) async fn apply_batch(
        &self,
        environment: &EnvironmentName,
        head: &KeyValue,
        batch: &[(NodeName, Entry)],
    ) -> Result<Option<usize>, ServiceError> {
        loop {
            let pending: Vec<Option<Pending>> = stream::iter(batch.to_vec())
                .map(|(node, entry)| self.pending(environment, node, entry))
                .buffered(AT_ONCE)
                .try_collect()
                .await?;
            let pending: Vec<Pending> = pending.into_iter().flatten().collect();
            if pending.is_empty() {
                return Ok(Some(0));
            }
            match self.store.commit(transaction(head, &pending)).await {
                Ok(TransactionOutcome::Committed(_)) => return Ok(Some(pending.len())),
                Ok(TransactionOutcome::Refused(reads)) => {
                    let now = reads.into_iter().next().flatten();
                    if now.map(|now| now.modified) != Some(head.modified) {
                        return Ok(None);
                    }
                }
                // Look again: what was written needs no second time.
                Err(StoreError::OutcomeUnknown(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What must be written for a node; nothing if its target is right, if it
    /// is gone, or if it belongs to another environment now.
    async fn pending(
        &self,
        environment: &EnvironmentName,
        node: NodeName,
        entry: Entry,
    ) -> Result<Option<Pending>, ServiceError> {
        let Some(record) = self.store.get(&keys::node_record(&node)).await? else {
            return Ok(None);
        };
        if nodes::environment_in(&record)? != *environment {
            return Ok(None);
        }
        let known: Option<Stored<StoredTarget>> =
            document::read(&*self.store, &keys::target(&node)).await?;
        let target = Target {
            environment: environment.clone(),
            release: entry.since,
            catalog: entry.catalog,
            code_id: entry.code_id,
            mode: entry.mode,
        };
        if known
            .as_ref()
            .is_some_and(|known| known.document.target == target)
        {
            return Ok(None);
        }
        let Some(catalog) = self.catalogs.record(entry.catalog).await? else {
            // Held while a release names it, so somebody took it by force.
            tracing::error!(%node, catalog = %entry.catalog, "a released catalog is gone; the node keeps what it has");
            return Ok(None);
        };
        let previous = known
            .as_ref()
            .map(|known| &known.document)
            .and_then(|known| match known.target.catalog == target.catalog {
                true => known.previous,
                false => Some(known.target.catalog),
            });
        Ok(Some(Pending {
            node,
            record,
            before: known.map(|known| known.entry),
            target: StoredTarget {
                target,
                content: catalog.content,
                previous,
            },
        }))
    }

    async fn note_applied(
        &self,
        environment: &EnvironmentName,
        head: &KeyValue,
        number: ReleaseNumber,
    ) -> Result<bool, ServiceError> {
        let key = keys::release_applied(environment);
        let transaction = Transaction::new()
            .when_unchanged(&head.key, Some(head))
            .put(key, document::encode(&Applied { number }));
        Ok(self.store.commit(transaction).await?.is_committed())
    }
}

fn lines_since(map: &ReleaseMap, since: ReleaseNumber) -> Vec<(NodeName, Entry)> {
    let news = map.iter().filter(|(_, entry)| entry.since > since);
    news.map(|(node, entry)| (node.clone(), entry.clone()))
        .collect()
}

fn transaction(head: &KeyValue, pending: &[Pending]) -> Transaction {
    let mut transaction = Transaction::new()
        .when_unchanged(&head.key, Some(head))
        .read_on_failure(head.key.clone());
    for one in pending {
        let key = keys::target(&one.node);
        transaction = transaction
            .when_unchanged(&one.record.key, Some(&one.record))
            .when_unchanged(&key, one.before.as_ref())
            .put(key, document::encode(&one.target));
    }
    transaction
}
