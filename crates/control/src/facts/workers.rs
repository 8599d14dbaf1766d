//! The workers of one server: they follow the queue and persist its entries.
//!
//! The server that accepted a submission processes it at once. Another server
//! does so if that one has not finished after a while, since it may be dead. The
//! result does not depend on which server does it, or on whether two try.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bunraku_model::NodeName;
use bunraku_store::{Change, Follow, FollowEvent, KeyValue};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::queue::QueuedFacts;
use super::{Facts, PersistOutcome};
use crate::metrics::Metrics;
use crate::{ServiceError, document, keys};

/// The delay before an entry that failed is processed again.
const RETRY: Duration = Duration::from_secs(1);

type PersistResult = (NodeName, Result<PersistOutcome, ServiceError>);

/// The due time of each node's entry, and the nodes in progress.
#[derive(Default)]
struct DueEntries {
    when: BTreeMap<NodeName, Instant>,
    order: BTreeSet<(Instant, NodeName)>,
    busy: HashSet<NodeName>,
}

impl DueEntries {
    fn add(&mut self, node: NodeName, at: Instant) {
        self.remove(&node);
        self.order.insert((at, node.clone()));
        self.when.insert(node, at);
    }

    fn remove(&mut self, node: &NodeName) {
        if let Some(at) = self.when.remove(node) {
            self.order.remove(&(at, node.clone()));
        }
    }

    /// Removes and returns the first node that is due and not in progress.
    fn take_due(&mut self, now: Instant) -> Option<NodeName> {
        let due = self.order.iter().take_while(|(at, _)| *at <= now);
        let free = due
            .map(|(_, node)| node)
            .find(|node| !self.busy.contains(*node));
        let node = free.cloned()?;
        self.remove(&node);
        self.busy.insert(node.clone());
        Some(node)
    }

    /// The time at which the next entry is due.
    fn next(&self) -> Option<Instant> {
        let free = self
            .order
            .iter()
            .find(|(_, node)| !self.busy.contains(node));
        free.map(|(at, _)| *at)
    }
}

impl Facts {
    /// Runs until cancelled; work in progress is finished.
    pub async fn run_workers(&self, metrics: Arc<Metrics>, shutdown: CancellationToken) {
        let mut follow = Follow::new(self.store.clone(), keys::FACT_QUEUE);
        let mut waiting = DueEntries::default();
        let mut tasks: JoinSet<PersistResult> = JoinSet::new();
        loop {
            self.start_due(&mut waiting, &mut tasks);
            metrics.facts_waiting(waiting.when.len() + waiting.busy.len());
            let full = tasks.len() >= self.options.workers;
            let next = waiting.next().filter(|_| !full);
            tokio::select! {
                () = shutdown.cancelled() => break,
                followed = follow.next() => match followed {
                    Ok(followed) => self.take_in(followed, &mut waiting),
                    Err(error) => {
                        tracing::error!(error = %error, "cannot watch the fact queue; retrying");
                        tokio::time::sleep(RETRY).await;
                    }
                },
                Some(done) = tasks.join_next() => match done {
                    Ok(done) => finished(done, &mut waiting),
                    Err(error) => std::panic::resume_unwind(error.into_panic()),
                },
                () = sleep_until(next) => {}
            }
        }
        tasks.join_all().await;
    }

    fn start_due(&self, waiting: &mut DueEntries, tasks: &mut JoinSet<PersistResult>) {
        while tasks.len() < self.options.workers {
            let Some(node) = waiting.take_due(Instant::now()) else {
                return;
            };
            let facts = self.clone();
            tasks.spawn(async move {
                let outcome = facts.persist(&node).await;
                (node, outcome)
            });
        }
    }

    fn take_in(&self, followed: FollowEvent, waiting: &mut DueEntries) {
        let changes = match followed {
            FollowEvent::Snapshot { items, .. } => items.into_iter().map(Change::Put).collect(),
            FollowEvent::Changes(batch) => batch.changes,
        };
        for change in changes {
            match change {
                Change::Put(entry) => {
                    if let Some(node) = keys::parse_fact_queue(&entry.key) {
                        waiting.add(node, Instant::now() + self.patience_for(&entry));
                    }
                }
                Change::Delete { key } => {
                    if let Some(node) = keys::parse_fact_queue(&key) {
                        waiting.remove(&node);
                    }
                }
            }
        }
    }

    /// The delay before this server processes an entry. Zero for our own entries
    /// and for unreadable ones: processing those reports the reason.
    fn patience_for(&self, entry: &KeyValue) -> Duration {
        match document::decode::<QueuedFacts>(entry) {
            Ok(queued) if queued.server != self.options.server => self.options.adopt_after,
            _ => Duration::ZERO,
        }
    }
}

fn finished((node, outcome): PersistResult, waiting: &mut DueEntries) {
    waiting.busy.remove(&node);
    if let Err(error) = outcome {
        let error = crate::error::chain(&error);
        tracing::warn!(%node, error, "cannot store queued facts; retrying");
        waiting.add(node, Instant::now() + RETRY);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
