//! Live events: of one run, or of all nodes.
//!
//! Both follow the heads in the state store, and read the events of each new version from history.
//! Both continue where a reader left off: the events of one run by their number,
//! those of all nodes by the store's revision.

use std::collections::VecDeque;

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::{Change, Revision, StoreError, WatchStart, WatchStream, newest_revision};
use bunraku_wire::api::{NumberedEvent, ReportEvent, ReportStreamMessage};
use futures::StreamExt;

use super::Reports;
use super::head::ReportHead;
use crate::{ServiceError, document, keys};

/// The events of one run, from a number to its end.
pub struct FollowedEvents {
    reports: Reports,
    node: NodeName,
    run: NodeRunId,
    next: u64,
    ready: VecDeque<NumberedEvent>,
    ended: bool,
}

impl Reports {
    /// Follows a run, even if its report does not exist yet.
    pub fn follow(&self, node: &NodeName, run: NodeRunId, from: u64) -> FollowedEvents {
        FollowedEvents {
            reports: self.clone(),
            node: node.clone(),
            run,
            next: from,
            ready: VecDeque::new(),
            ended: false,
        }
    }

    /// Follows the events of all nodes, or of one, after a cursor or from now on.
    pub async fn stream(
        &self,
        node: Option<&NodeName>,
        cursor: Option<&str>,
    ) -> Result<EventStream, ServiceError> {
        let prefix = match node {
            Some(node) => keys::reports_of(node),
            None => keys::REPORTS.to_owned(),
        };
        let mut ready = VecDeque::new();
        let after = match cursor {
            None => {
                let newest = newest_revision(&*self.store).await?;
                let cursor = newest.to_string();
                ready.push_back(ReportStreamMessage::Open { cursor });
                newest
            }
            Some(cursor) => Revision(cursor.parse().map_err(|_| {
                ServiceError::invalid("the cursor does not belong to a report stream")
            })?),
        };
        Ok(EventStream {
            reports: self.clone(),
            prefix,
            after,
            changes: None,
            ready,
        })
    }
}

impl FollowedEvents {
    /// Returns the next event; `None` after the last one of the run, and when its
    /// node is lost in the middle of it.
    pub async fn next(&mut self) -> Result<Option<NumberedEvent>, ServiceError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.next = event.number + event.event.width();
                self.ended = matches!(event.event, ReportEvent::Finished(_));
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(None);
            }
            self.read_or_wait().await?;
        }
    }

    /// Reads new events; if there are none, waits for a change.
    async fn read_or_wait(&mut self) -> Result<(), ServiceError> {
        let key = keys::report(&self.node, self.run);
        // The watch is open before the read, so an event in between wakes it.
        let mut changes = self.reports.store.watch(&key, WatchStart::Now).await?;
        let connection = keys::node_connection(&self.node);
        let mut moves = (self.reports.store.watch(&connection, WatchStart::Now)).await?;
        loop {
            let head = self.reports.head_of(&self.node, self.run).await?;
            if let Some(head) = head {
                if head.next > self.next {
                    let events = self.reports.events_of(&head, self.next).await?;
                    self.ready.extend(events);
                    return Ok(());
                }
                if head.finished.is_some() || !self.reports.is_connected(&self.node).await? {
                    self.ended = true;
                    return Ok(());
                }
            }
            let changed = tokio::select! {
                changed = changes.next() => changed,
                moved = moves.next() => moved,
            };
            match changed {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            }
        }
    }
}

/// The events of all nodes.
pub struct EventStream {
    reports: Reports,
    prefix: String,
    after: Revision,
    changes: Option<WatchStream>,
    ready: VecDeque<ReportStreamMessage>,
}

impl EventStream {
    /// Returns the next message. An error ends the stream; its cursors stay valid.
    pub async fn next(&mut self) -> Result<ReportStreamMessage, ServiceError> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(message);
            }
            match self.take().await {
                Ok(()) => {}
                Err(ServiceError::Store(StoreError::Compacted { .. })) => {
                    self.after = newest_revision(&*self.reports.store).await?;
                    self.changes = None;
                    return Ok(ReportStreamMessage::Gap);
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn take(&mut self) -> Result<(), ServiceError> {
        let changes = match &mut self.changes {
            Some(changes) => changes,
            None => {
                let start = WatchStart::At(Revision(self.after.0 + 1));
                let changes = self.reports.store.watch(&self.prefix, start).await?;
                self.changes.insert(changes)
            }
        };
        let Some(batch) = changes.next().await else {
            self.changes = None;
            return Ok(());
        };
        let batch = batch?;
        for change in &batch.changes {
            let Change::Put(entry) = change else {
                continue;
            };
            if keys::parse_report(&entry.key).is_none() {
                continue;
            }
            let head: ReportHead = match document::decode(entry) {
                Ok(head) => head,
                Err(error) => {
                    tracing::error!(error = %error, "ignoring a report that cannot be read");
                    continue;
                }
            };
            // Versions without new events: a repeat, or events that were moved.
            let Some(first) = head.newest_batch else {
                continue;
            };
            let events = match self.reports.events_of(&head, first).await {
                // The report was deleted meanwhile.
                Err(ServiceError::NotFound { .. }) => continue,
                events => events?,
            };
            self.ready.push_back(ReportStreamMessage::Events {
                cursor: batch.revision.to_string(),
                node: head.node,
                run: head.run,
                events,
            });
        }
        self.after = batch.revision;
        Ok(())
    }
}
