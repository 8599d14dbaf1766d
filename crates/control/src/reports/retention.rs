//! Compaction of finished reports, and deletion of old ones.
//!
//! The events of a small report become one value, those of a large one a blob.
//!
//! Both are safe to skip and to repeat, on any number of servers: the head is
//! compared, and [`Reports::upkeep`] finds leftovers.

use std::io::Write;

use bunraku_model::{ContentId, NodeName, NodeRunId};
use bunraku_store::blobs::Pins;
use bunraku_store::{Range, Swap, Transaction, compare_and_swap, settle};
use bunraku_wire::api::NumberedEvent;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::head::ReportHead;
use super::{ReportPlace, Reports, blob_error, indexed_ids};
use crate::document::{self, Versioned};
use crate::{ServiceError, keys};

/// The number of reports read at a time when looking for old ones.
const PAGE: usize = 200;
/// The most bytes of compressed events that become a value in the store. A blob of this size costs
/// seven writes and four more keys.
const LARGEST_PACKED: usize = 16 << 10;

impl Reports {
    /// Runs after the last event: moves the events into one blob, and deletes the
    /// reports beyond the node's limit.
    pub async fn settle(&self, node: &NodeName, run: NodeRunId) -> Result<(), ServiceError> {
        self.compact(node, run).await?;
        self.keep_newest(node).await
    }

    /// Settles leftovers and deletes reports that are too old. Returns how many it deleted.
    pub async fn upkeep(&self) -> Result<usize, ServiceError> {
        for key in document::keys_under(&*self.store, keys::OPEN_REPORTS).await? {
            if let Some((node, run)) = keys::parse_open_report(&key) {
                self.compact(&node, run).await?;
            }
        }
        let kept_for = jiff::SignedDuration::try_from(self.options.kept_for)
            .unwrap_or(jiff::SignedDuration::MAX);
        let Ok(oldest) = self.clock.now().checked_sub(kept_for) else {
            return Ok(0);
        };
        let mut deleted = 0;
        loop {
            let range = Range {
                after: Some(keys::report_times_from(oldest)),
                limit: PAGE,
                ..Range::prefix(keys::REPORT_TIMES)
            };
            let page = self.store.range(range).await?;
            for entry in &page.items {
                let place: ReportPlace = document::decode(entry)?;
                self.delete(&place.node, place.run).await?;
                // Delete pointers to deleted reports too.
                let pointer = Transaction::new().delete(entry.key.clone());
                settle(&*self.store, pointer).await?;
                deleted += 1;
            }
            if !page.more {
                return Ok(deleted);
            }
        }
    }

    /// Deletes every report of a node.
    pub async fn forget(&self, node: &NodeName) -> Result<(), ServiceError> {
        for key in document::keys_under(&*self.store, &keys::reports_of(node)).await? {
            if let Some((node, run)) = keys::parse_report(&key) {
                self.delete(&node, run).await?;
            }
        }
        let outputs = Transaction::new().delete_prefix(keys::node_outputs(node));
        settle(&*self.store, outputs).await?;
        Ok(())
    }

    /// Does nothing for a run that is in progress or already compacted.
    async fn compact(&self, node: &NodeName, run: NodeRunId) -> Result<(), ServiceError> {
        let held = Pins::default();
        let pins = &held;
        let outcome = compare_and_swap(&*self.store, |_| async move {
            let Some(known) = self.head(node, run).await? else {
                let leftover = Transaction::new().delete(keys::open_report(node, run));
                return Ok(Swap::Write(leftover, ()));
            };
            if known.document.finished.is_none() || known.document.is_settled() {
                return Ok(Swap::Done(()));
            }
            let zipped = zip(&self.chunks(node, run, 0).await?);
            if zipped.len() <= LARGEST_PACKED {
                return Ok(Swap::Write(settled_small(&known, zipped), ()));
            }
            let written =
                (self.blobs.put(&mut zipped.as_slice(), None).await).map_err(blob_error)?;
            pins.add(written.pin);
            let transaction = self.point_to(&known, written.info.id).await?;
            Ok(Swap::Write(transaction, ()))
        })
        .await;
        held.release().await.map_err(blob_error)?;
        outcome
    }

    async fn point_to(
        &self,
        known: &Versioned<ReportHead>,
        content: ContentId,
    ) -> Result<Transaction, ServiceError> {
        let (node, run) = (&known.document.node, known.document.run);
        let head = ReportHead {
            content: Some(content),
            ..known.document.clone()
        };
        self.blobs
            .reference_in(settled(known, &head), content, &referrer(node, run))
            .await
            .map_err(blob_error)
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

    pub(super) async fn delete(&self, node: &NodeName, run: NodeRunId) -> Result<(), ServiceError> {
        compare_and_swap(&*self.store, |_| async {
            let Some(known) = self.head(node, run).await? else {
                return Ok(Swap::Done(()));
            };
            let head = &known.document;
            let key = keys::report(node, run);
            let mut transaction = Transaction::new()
                .when_unchanged(&key, Some(&known.entry))
                .delete(key)
                .delete(keys::report_time(head.first_received, run))
                .delete(keys::open_report(node, run))
                .delete(keys::report_packed(node, run))
                .delete_prefix(keys::report_events_of(node, run));
            for id in indexed_ids(head) {
                let key = keys::report_id(id);
                let place = document::read::<ReportPlace>(&*self.store, &key).await?;
                // An entry of another node stays, whatever this report claims.
                if let Some(place) = place
                    && place.document.node == *node
                {
                    transaction = transaction
                        .when_unchanged(&key, Some(&place.entry))
                        .delete(key);
                }
            }
            if let Some(content) = head.content {
                transaction = self
                    .blobs
                    .unreference_in(transaction, content, &referrer(node, run))
                    .map_err(blob_error)?;
            }
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }
}

/// Replaces the head of a finished report, and removes the events in their batches.
fn settled(known: &Versioned<ReportHead>, head: &ReportHead) -> Transaction {
    let key = keys::report(&head.node, head.run);
    Transaction::new()
        .when_unchanged(&key, Some(&known.entry))
        .put(key, document::encode(head))
        .delete(keys::open_report(&head.node, head.run))
        .delete_prefix(keys::report_events_of(&head.node, head.run))
}

/// Stores the events of a small report as one value.
fn settled_small(known: &Versioned<ReportHead>, zipped: Vec<u8>) -> Transaction {
    let head = ReportHead {
        packed: true,
        ..known.document.clone()
    };
    let key = keys::report_packed(&head.node, head.run);
    settled(known, &head).put(key, zipped)
}

fn referrer(node: &NodeName, run: NodeRunId) -> String {
    format!("report/{node}/{run}")
}

/// Compresses events, one line each.
fn zip(events: &[NumberedEvent]) -> Vec<u8> {
    let mut zipped = GzEncoder::new(Vec::new(), Compression::default());
    for event in events {
        serde_json::to_writer(&mut zipped, event)
            .expect("events are plain data that JSON can hold");
        zipped.write_all(b"\n").expect("a Vec takes everything");
    }
    zipped.finish().expect("a Vec takes everything")
}
