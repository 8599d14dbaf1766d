//! News of given node runs, for callers that wait for them.
//!
//! One watch serves all runs of a subscription. Existing state is read after the
//! watch is open, so nothing is missed in between. Each run's start and end are
//! reported once, whatever happens to the watch.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bunraku_model::{CatalogId, NodeName, NodeRunId};
use bunraku_store::{Change, WatchBatch, WatchStart, WatchStream};
use bunraku_wire::api::{EventCounts, FailedResource, RunFinished, RunStarted};
use futures::StreamExt;

use super::Reports;
use super::head::ReportHead;
use crate::{ServiceError, document, keys};

/// The delay before a retry after the store was unavailable.
const RETRY: Duration = Duration::from_millis(200);

/// A change of a node run.
#[derive(Clone, PartialEq, Debug)]
pub enum NodeRunNews {
    Started {
        node: NodeName,
        run: NodeRunId,
        started: Box<RunStarted>,
    },
    /// More events arrived.
    Progress {
        node: NodeName,
        run: NodeRunId,
        counts: EventCounts,
    },
    /// The last news. Comes right after `Started` if both were found at once.
    Finished {
        node: NodeName,
        run: NodeRunId,
        finished: Box<RunFinished>,
        /// The catalog that the run applied, if it applied one.
        catalog: Option<CatalogId>,
        /// The first resources that failed.
        failures: Vec<FailedResource>,
    },
}

/// The reported part of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DeliveredPart {
    Nothing,
    UpTo(u64),
    Everything,
}

/// News of a set of node runs.
pub struct ReportSubscription {
    reports: Reports,
    wanted: HashMap<(NodeName, NodeRunId), DeliveredPart>,
    /// Runs whose newest state has not been read since the watch was opened.
    unread: VecDeque<(NodeName, NodeRunId)>,
    changes: Option<WatchStream>,
    ready: VecDeque<NodeRunNews>,
}

impl Reports {
    /// Subscribes to these node runs from their start, whether it is past or future.
    pub fn subscribe(
        &self,
        runs: impl IntoIterator<Item = (NodeName, NodeRunId)>,
    ) -> ReportSubscription {
        let mut subscription = ReportSubscription {
            reports: self.clone(),
            wanted: HashMap::new(),
            unread: VecDeque::new(),
            changes: None,
            ready: VecDeque::new(),
        };
        for (node, run) in runs {
            subscription.add(node, run);
        }
        subscription
    }
}

impl ReportSubscription {
    /// Adds a run.
    pub fn add(&mut self, node: NodeName, run: NodeRunId) {
        let place = (node, run);
        if !self.wanted.contains_key(&place) {
            self.unread.push_back(place.clone());
            self.wanted.insert(place, DeliveredPart::Nothing);
        }
    }

    /// Returns the next news. Waits as long as needed, forever if every run is
    /// finished. Safe to cancel at any time: nothing is lost.
    pub async fn next(&mut self) -> Result<NodeRunNews, ServiceError> {
        loop {
            if let Some(news) = self.ready.pop_front() {
                return Ok(news);
            }
            match self.step().await {
                Ok(()) => {}
                Err(error) if error.is_lost_watch() => {
                    self.changes = None;
                    tokio::time::sleep(RETRY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn step(&mut self) -> Result<(), ServiceError> {
        if self.changes.is_none() {
            let changes = self
                .reports
                .store
                .watch(keys::REPORTS, WatchStart::Now)
                .await?;
            self.changes = Some(changes);
            let unfinished = |delivered: &&DeliveredPart| **delivered != DeliveredPart::Everything;
            self.unread = (self.wanted.iter())
                .filter(|(_, delivered)| unfinished(delivered))
                .map(|(place, _)| place.clone())
                .collect();
        }
        if let Some((node, run)) = self.unread.front().cloned() {
            let head = self.reports.head_of(&node, run).await?;
            self.unread.pop_front();
            if let Some(head) = head {
                self.note(&head);
            }
            return Ok(());
        }
        let changes = self.changes.as_mut().expect("opened above");
        match changes.next().await {
            Some(batch) => self.take(&batch?),
            None => {
                self.changes = None;
                Ok(())
            }
        }
    }

    fn take(&mut self, batch: &WatchBatch) -> Result<(), ServiceError> {
        for change in &batch.changes {
            if let Change::Put(entry) = change
                && let Some(place) = keys::parse_report(&entry.key)
                && self.wanted.contains_key(&place)
            {
                self.note(&document::decode(entry)?);
            }
        }
        Ok(())
    }

    fn note(&mut self, head: &ReportHead) {
        let (node, run) = (head.node.clone(), head.run);
        let Some(delivered) = self.wanted.get_mut(&(node.clone(), run)) else {
            return;
        };
        let before = *delivered;
        // This state is older than the one read after the watch was opened.
        if before == DeliveredPart::Everything
            || matches!(before, DeliveredPart::UpTo(next) if next >= head.next)
        {
            return;
        }
        *delivered = DeliveredPart::UpTo(head.next);
        if before == DeliveredPart::Nothing {
            self.ready.push_back(NodeRunNews::Started {
                node: node.clone(),
                run,
                started: Box::new(head.started.clone()),
            });
        }
        if let Some(finished) = &head.finished {
            *delivered = DeliveredPart::Everything;
            let finished = Box::new(finished.clone());
            self.ready.push_back(NodeRunNews::Finished {
                node,
                run,
                finished,
                catalog: head.started.catalog,
                failures: head.failures.clone(),
            });
        } else if before != DeliveredPart::Nothing {
            let counts = head.counts;
            self.ready
                .push_back(NodeRunNews::Progress { node, run, counts });
        }
    }
}
