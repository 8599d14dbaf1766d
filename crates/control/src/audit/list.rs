//! Records, newest first, by who, what, when and outcome.

use std::collections::HashSet;

use bunraku_model::Glob;
use bunraku_wire::api::{AuditEntry, AuditHead, AuditOutcome, AuditPage, AuditRecord};
use jiff::{SignedDuration, Timestamp};

use super::AuditLog;
use super::lines::AuditLines;
use super::stored::read_head;
use crate::{ServiceError, document, keys};

/// The records that are read at a time.
const WINDOW: u64 = 1_000;
/// The most records that one request examines. The caller gets a cursor for the rest.
const EXAMINED: u64 = 50_000;
/// The longest time by which a record is later in the chain than one that began after it.
const DISORDER: SignedDuration = SignedDuration::from_hours(1);

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Patterns with `*` and `?`.
    pub who: Option<String>,
    pub action: Option<String>,
    /// Matches the whole object, or its name without the kind.
    pub object: Option<String>,
    pub outcome: Option<AuditOutcome>,
    pub request_id: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    pub limit: usize,
    /// Only records before this number.
    pub before: Option<u64>,
}

impl AuditFilter {
    fn matches(&self, entry: &AuditEntry) -> bool {
        let fits = |pattern: &Option<String>, text: &str| {
            pattern
                .as_ref()
                .is_none_or(|pattern| Glob::with_wildcards(pattern).matches(text))
        };
        let object = || {
            let object = entry.object.as_deref().unwrap_or_default();
            let name = object.split_once('/').map_or(object, |(_, name)| name);
            fits(&self.object, object) || fits(&self.object, name)
        };
        fits(&self.who, &entry.who)
            && fits(&self.action, &entry.action)
            && object()
            && self.outcome.is_none_or(|outcome| outcome == entry.outcome)
            && (self.request_id.is_none() || self.request_id == entry.request_id)
            && self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until)
    }
}

impl AuditLog {
    /// Returns the newest record's number and hash.
    pub async fn head(&self) -> Result<AuditHead, ServiceError> {
        let head = read_head(&*self.store).await?;
        let head = head.map(|head| head.document).unwrap_or_default();
        Ok(AuditHead {
            number: head.newest.number,
            hash: head.newest.hash,
            first: head.first,
        })
    }

    /// Lists records, newest first.
    pub async fn list(&self, filter: &AuditFilter) -> Result<AuditPage, ServiceError> {
        let mut page = AuditPage {
            records: Vec::new(),
            next: None,
        };
        let mut shown = HashSet::new();
        if filter.before.is_none() {
            // Before the head is read, so that no record is missed between the two.
            for record in self.waiting().await? {
                shown.insert(record.entry.id);
                if filter.matches(&record.entry) {
                    page.records.push(record);
                }
            }
        }
        let head = self.head().await?;
        let newest = head.number + 1;
        let mut upper = filter.before.unwrap_or(newest).min(newest);
        let lowest = upper.saturating_sub(EXAMINED).max(head.first);
        while upper > lowest {
            let lower = upper.saturating_sub(WINDOW).max(lowest);
            let records = self.read(lower, upper - 1).await?;
            let is_over = filter.since.is_some_and(|since| {
                let newest = records.iter().map(|record| record.entry.at).max();
                newest.is_some_and(|newest| newest < since - DISORDER)
            });
            if is_over {
                return Ok(page);
            }
            for record in records.into_iter().rev() {
                if page.records.len() >= filter.limit {
                    page.next = record.number.map(|number| number + 1);
                    return Ok(page);
                }
                if filter.matches(&record.entry) && !shown.contains(&record.entry.id) {
                    page.records.push(record);
                }
            }
            upper = lower;
        }
        if lowest > head.first {
            page.next = Some(lowest);
        }
        Ok(page)
    }

    /// Returns the records that are not yet in the chain, newest first.
    async fn waiting(&self) -> Result<Vec<AuditRecord>, ServiceError> {
        let mut waiting = document::read_all(&*self.store, keys::AUDIT_INBOX).await?;
        waiting.sort_by_key(|entry| std::cmp::Reverse(entry.created));
        let records = waiting.iter().filter_map(|found| {
            let entry = document::decode(found).ok()?;
            Some(AuditRecord {
                number: None,
                previous: None,
                entry,
            })
        });
        Ok(records.collect())
    }

    /// Reads records by number, oldest first.
    async fn read(&self, first: u64, last: u64) -> Result<Vec<AuditRecord>, ServiceError> {
        let mut lines = AuditLines::new(self.store.clone(), first - 1, last);
        let mut records = Vec::new();
        while let Some(some) = lines.next().await? {
            for line in some {
                let record = serde_json::from_slice(&line).map_err(|source| {
                    ServiceError::internal("an audit record cannot be read", source)
                })?;
                records.push(record);
            }
        }
        Ok(records)
    }
}
