//! What happens to a report after its last event, and how old reports are deleted.
//!
//! In the state store, the events of a small report become one value, those of a large one a blob.
//! With a history of its own, the head of each finished report leaves the state store as soon as a
//! newer one takes its place, and old periods of history are dropped whole.
//!
//! All of it is safe to skip and to repeat, on any number of servers: the head is
//! compared, and [`Reports::upkeep`] finds leftovers.

use bunraku_model::{NodeName, NodeRunId};
use bunraku_store::history::{HistoryPart, RecordId};
use bunraku_store::{Transaction, settle};
use bunraku_wire::api::RunMode;
use jiff::Timestamp;

use super::Reports;
use super::head::ReportHead;
use super::history::HistoryPlace;
use super::last_run::StoredLastRun;
use crate::document::{self, Versioned};
use crate::{ServiceError, keys};

impl Reports {
    /// Runs after the last event.
    pub async fn settle(&self, node: &NodeName, run: NodeRunId) -> Result<(), ServiceError> {
        if self.histories.current().await?.is_in_store() {
            self.histories.in_store.compact(node, run).await?;
            self.keep_newest(node).await
        } else {
            self.remove_superseded(node).await
        }
    }

    /// Settles leftovers and deletes what is too old. Returns the number of deleted reports or
    /// periods.
    pub async fn upkeep(&self) -> Result<usize, ServiceError> {
        let history = self.histories.current().await?;
        if !history.is_in_store() {
            let active = history.active()?;
            let options = &self.options;
            let mut dropped = 0;
            for (part, kept_for) in [
                (HistoryPart::Events, options.events_kept_for),
                (HistoryPart::Records, options.heads_kept_for),
            ] {
                if let Some(before) = self.time_before(kept_for) {
                    dropped += active.drop_before(part, before).await?;
                }
            }
            return Ok(dropped);
        }
        for key in document::keys_under(&*self.store, keys::OPEN_REPORTS).await? {
            if let Some((node, run)) = keys::parse_open_report(&key) {
                self.histories.in_store.compact(&node, run).await?;
            }
        }
        match self.time_before(self.options.kept_for) {
            Some(before) => {
                let active = history.active()?;
                Ok(active.drop_before(HistoryPart::Records, before).await?)
            }
            None => Ok(0),
        }
    }

    fn time_before(&self, kept_for: std::time::Duration) -> Option<Timestamp> {
        let kept_for = jiff::SignedDuration::try_from(kept_for).ok()?;
        self.clock.now().checked_sub(kept_for).ok()
    }

    /// Deletes every report of a node.
    pub async fn forget(&self, node: &NodeName) -> Result<(), ServiceError> {
        for source in self.histories.current().await?.sources()? {
            source.remove_owner(node.as_str()).await?;
        }
        let heads = Transaction::new()
            .delete_prefix(keys::reports_of(node))
            .delete_prefix(keys::open_reports_of(node));
        settle(&*self.store, heads).await?;
        let outputs = Transaction::new().delete_prefix(keys::node_outputs(node));
        settle(&*self.store, outputs).await?;
        Ok(())
    }

    async fn keep_newest(&self, node: &NodeName) -> Result<(), ServiceError> {
        let mut heads = Vec::new();
        for entry in document::read_all(&*self.store, &keys::reports_of(node)).await? {
            heads.push(document::decode::<ReportHead>(&entry)?);
        }
        // A run in progress never counts as surplus.
        heads.retain(|head| head.finished.is_some());
        heads.sort_by_key(|head| std::cmp::Reverse((head.first_received, head.run)));
        let kept = (self.options.kept_per_node).min(self.count_within_bytes(&heads));
        for head in heads.iter().skip(kept) {
            self.delete(&head.node, head.run).await?;
        }
        Ok(())
    }

    /// Removes the heads that only history needs. History closes each one first, so that a late
    /// message cannot begin the report again.
    pub(super) async fn remove_superseded(&self, node: &NodeName) -> Result<(), ServiceError> {
        let mut heads: Vec<Versioned<ReportHead>> = Vec::new();
        for entry in document::read_all(&*self.store, &keys::reports_of(node)).await? {
            let document = document::decode(&entry)?;
            heads.push(Versioned { document, entry });
        }
        let key = keys::node_last_run(node);
        let last = document::read::<StoredLastRun>(&*self.store, &key).await?;
        let last = last.map(|last| last.document.last_run.run);
        let heads_of = |known: &Versioned<ReportHead>| known.document.clone();
        let all: Vec<ReportHead> = heads.iter().map(heads_of).collect();
        let needed = needed_heads(&all, last);
        for known in heads {
            let head = &known.document;
            if needed.contains(&head.run) || !head.elsewhere {
                continue;
            }
            let history = self.histories.current().await?;
            // Its first events are still to be moved, and the head leads to them.
            if history.from.is_some() && self.histories.in_store.holds(head).await? {
                continue;
            }
            history.active()?.close(head.record()).await?;
            let key = keys::report(node, head.run);
            let transaction = Transaction::new()
                .when_unchanged(&key, Some(&known.entry))
                .delete(key);
            settle(&*self.store, transaction).await?;
        }
        Ok(())
    }

    pub(super) async fn delete(&self, node: &NodeName, run: NodeRunId) -> Result<(), ServiceError> {
        let id = RecordId::new(node.as_str(), run.to_string());
        for source in self.histories.current().await?.sources()? {
            if source.kind() != HistoryPlace::Store.as_str() {
                source.remove(&id).await?;
            }
        }
        self.histories.in_store.delete(node, run, true).await
    }
}

/// Returns the runs whose heads stay in the state store: unfinished ones, the newest finished one,
/// and the newest one that applied a catalog.
fn needed_heads(heads: &[ReportHead], last: Option<NodeRunId>) -> Vec<NodeRunId> {
    let newest = |wanted: &dyn Fn(&&ReportHead) -> bool| {
        let heads = heads.iter().filter(wanted);
        heads
            .max_by_key(|head| (head.first_received, head.run))
            .map(|head| head.run)
    };
    let is_finished = |head: &&ReportHead| head.finished.is_some();
    let is_applied = |head: &&ReportHead| {
        head.finished.is_some()
            && head.started.catalog.is_some()
            && head.started.mode == RunMode::Enforce
    };
    let open = heads.iter().filter(|head| head.finished.is_none());
    let mut needed: Vec<NodeRunId> = open.map(|head| head.run).collect();
    needed.extend(last);
    needed.extend(newest(&is_finished));
    needed.extend(newest(&is_applied));
    needed
}
