//! The room that the reports of one node may take.
//!
//! Everything here is derived from the stored heads, so a restart resets nothing, and all servers
//! agree. Heads are read when a report begins, and then once per mebibyte.

use bunraku_model::NodeName;
use bunraku_wire::api::{OmittedEvents, ReportBatch, ReportEvent};
use jiff::SignedDuration;

use super::Reports;
use super::head::ReportHead;
use crate::{ServiceError, document, keys};

/// The bytes after which the budget is checked again.
const STEP: u64 = 1 << 20;
/// The time after which a node whose unfinished reports are over budget may try again.
const RETRY: std::time::Duration = std::time::Duration::from_secs(60);

impl Reports {
    /// Returns the batch as it may be stored. A report that is too large only counts further
    /// events: to refuse them would keep its end from ever arriving.
    pub(super) fn within_report(&self, batch: ReportBatch, written: u64) -> ReportBatch {
        if written < self.options.bytes_per_report {
            return batch;
        }
        let limit = self.options.bytes_per_report;
        let mut events: Vec<ReportEvent> = Vec::new();
        for event in batch.events {
            let count = match event {
                ReportEvent::Started(_) | ReportEvent::Finished(_) => {
                    events.push(event);
                    continue;
                }
                event => event.width(),
            };
            match events.last_mut() {
                Some(ReportEvent::Omitted(omitted)) => omitted.count += count,
                _ => events.push(ReportEvent::Omitted(OmittedEvents {
                    count,
                    reason: format!("the report exceeds the limit of {limit} bytes"),
                })),
            }
        }
        ReportBatch {
            first: batch.first,
            events,
        }
    }

    /// Refuses events beyond the budget for unfinished reports. The end of a run is always
    /// accepted, because it makes room.
    pub(super) async fn check_budget(
        &self,
        head: &ReportHead,
        written: u64,
        is_new: bool,
    ) -> Result<(), ServiceError> {
        let crosses = written / STEP != head.bytes / STEP;
        if head.finished.is_some() || !(is_new || crosses) {
            return Ok(());
        }
        let node = &head.node;
        let mut others = self.unfinished_of(node).await?;
        others.retain(|other| other.run != head.run);
        let is_over = |others: &[ReportHead]| {
            let bytes: u64 = others.iter().map(|other| other.bytes).sum();
            let (bytes, count) = (bytes + head.bytes, others.len() + 1);
            bytes > self.options.open_bytes_per_node || count > self.options.open_per_node
        };
        // Make room: what a node left behind goes first.
        others.sort_by_key(|other| other.last_received);
        while is_over(&others) && !others.is_empty() && self.is_abandoned(&others[0]) {
            let oldest = others.remove(0);
            tracing::warn!(%node, run = %oldest.run, "deleting an abandoned report: its node is over budget");
            self.delete(node, oldest.run).await?;
        }
        if !is_over(&others) {
            return Ok(());
        }
        let bytes: u64 = others.iter().map(|other| other.bytes).sum();
        Err(ServiceError::OverBudget {
            message: format!(
                "`{node}` has {} unfinished reports with {bytes} bytes, which exceeds its budget",
                others.len()
            ),
            retry_after: RETRY,
        })
    }

    fn is_abandoned(&self, head: &ReportHead) -> bool {
        let silence = self.clock.now().duration_since(head.last_received);
        let limit = SignedDuration::try_from(self.options.abandoned_after);
        silence >= limit.unwrap_or(SignedDuration::MAX)
    }

    async fn unfinished_of(&self, node: &NodeName) -> Result<Vec<ReportHead>, ServiceError> {
        let mut heads = Vec::new();
        for key in document::keys_under(&*self.store, &keys::open_reports_of(node)).await? {
            if let Some((node, run)) = keys::parse_open_report(&key)
                && let Some(head) = self.head(&node, run).await?
                && head.document.finished.is_none()
            {
                heads.push(head.document);
            }
        }
        Ok(heads)
    }

    /// Returns how many of these reports, newest first, are within the budget for bytes.
    pub(super) fn count_within_bytes(&self, heads: &[ReportHead]) -> usize {
        let mut left = self.options.bytes_per_node;
        let fits = heads.iter().take_while(|head| {
            let room = left.checked_sub(head.bytes);
            left = room.unwrap_or(0);
            room.is_some()
        });
        // The newest report is kept, however large it is.
        fits.count().max(1)
    }
}
