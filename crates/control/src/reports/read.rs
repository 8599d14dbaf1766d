//! Reading reports: lists, single reports, events.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bunraku_model::{Connection, NodeName, NodeRunId};
use bunraku_store::history::{
    FoundRecord, HistoryFilter, HistoryPosition, HistoryRecord, RecordId, cover,
};
use bunraku_wire::api::{NumberedEvent, ReportEvent, ReportPage, ReportSummary, RunMode};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::event_code::{self, end_of};
use super::head::ReportHead;
use super::{Reports, decode_record};
use crate::presence::StoredConnection;
use crate::{ServiceError, document, keys};

/// The most reports examined for one page.
const LOOKED_AT: usize = 5_000;
/// The records read at a time for readers who see only some of them.
const PAGE_FOR_SOME: usize = 1_000;
/// The number of heads read concurrently.
const AT_ONCE: usize = 16;
/// The number of matches that tell whether an id is ambiguous.
const FOUND: usize = 10;
/// The most reports read from history at a time.
const PAGE: usize = 200;

fn no_such_report(node: &NodeName, run: NodeRunId) -> ServiceError {
    ServiceError::NotFound {
        what: format!("a report of run {run} of `{node}`"),
        hint: Some("list reports with `bunraku report list`".to_owned()),
    }
}

/// The filter of a report list.
#[derive(Clone, Debug)]
pub struct ReportFilter {
    pub node: Option<NodeName>,
    /// Only reports of these nodes.
    pub within: Option<BTreeSet<NodeName>>,
    /// Only runs that did not succeed, or whose node is lost.
    pub failed: bool,
    pub unfinished: bool,
    pub limit: usize,
    /// The cursor from the previous page.
    pub after: Option<String>,
}

impl ReportFilter {
    fn may_see(&self, node: &str) -> bool {
        let mut within = self.within.iter();
        within.all(|within| within.iter().any(|it| it.as_str() == node))
    }
}

impl Reports {
    /// Returns reports, newest first.
    pub async fn list(&self, filter: &ReportFilter) -> Result<ReportPage, ServiceError> {
        let limit = filter.limit.max(1);
        // The state store has every unfinished report.
        let heads = match (&filter.node, filter.unfinished) {
            (Some(node), true) => self.heads_of(node).await?,
            (None, true) => self.open_heads().await?,
            (_, false) => return self.newest(filter, limit).await,
        };
        let mut reports = self.summaries(heads).await?;
        reports.retain(|report| matches_filter(filter, report));
        reports.sort_by_key(|report| std::cmp::Reverse((report.first_received, report.run)));
        reports.truncate(limit);
        Ok(ReportPage {
            reports,
            next: None,
        })
    }

    /// Reads from newest to oldest until the page is full.
    async fn newest(
        &self,
        filter: &ReportFilter,
        limit: usize,
    ) -> Result<ReportPage, ServiceError> {
        let mut after = match &filter.after {
            Some(after) => Some(checked_position(after)?),
            None => None,
        };
        let at_once = limit.min(PAGE);
        let mut found = FoundReports::default();
        loop {
            let size = match filter.within {
                None => at_once,
                Some(_) => PAGE_FOR_SOME,
            };
            let (records, more) = self.page_of_records(filter, after.clone(), size).await?;
            after = records.last().map(HistoryPosition::of).or(after);
            let seen: Vec<HistoryRecord> = (records.into_iter())
                .filter(|record| filter.may_see(&record.id.owner))
                .collect();
            for some in seen.chunks(at_once) {
                let heads = futures::stream::iter(some.to_vec())
                    .map(async |record| self.newest_version(&record).await)
                    .buffered(AT_ONCE);
                let heads: Vec<ReportHead> = heads.try_collect().await?;
                let summaries = self.summaries(heads).await?;
                if found.add(some, summaries, filter, limit) {
                    return Ok(ReportPage {
                        reports: found.reports,
                        next: found.last.map(|last| position_text(&last)),
                    });
                }
            }
            if !more {
                let (reports, next) = (found.reports, None);
                return Ok(ReportPage { reports, next });
            }
        }
    }

    /// Returns the next records of all places of history, newest first.
    async fn page_of_records(
        &self,
        filter: &ReportFilter,
        after: Option<HistoryPosition>,
        limit: usize,
    ) -> Result<(Vec<HistoryRecord>, bool), ServiceError> {
        let history = self.histories.current().await?;
        let wanted = HistoryFilter {
            owner: filter.node.as_ref().map(NodeName::to_string),
            // The state store has no index of problems: its records are all looked at.
            problems: filter.failed && !history.is_in_store() && history.from.is_none(),
            after,
            limit,
            ..HistoryFilter::default()
        };
        let (mut all, mut more) = (BTreeMap::new(), false);
        for source in history.sources()? {
            let page = source.list(&wanted).await?;
            more |= page.more;
            for record in page.records {
                let place = std::cmp::Reverse((record.at, record.id.id.clone()));
                all.insert((place, record.id.owner.clone()), record);
            }
        }
        more |= all.len() > limit;
        Ok((all.into_values().take(limit).collect(), more))
    }

    /// Returns the head in the state store if there is one. It is newer than its copy in history.
    async fn newest_version(&self, record: &HistoryRecord) -> Result<ReportHead, ServiceError> {
        let head = decode_record(record)?;
        let known = self.head(&head.node, head.run).await?;
        Ok(known.map_or(head, |known| known.document))
    }

    /// Finds one report by the id of its run, by that of a request that it
    /// served, or by a prefix of either.
    pub async fn find(&self, text: &str) -> Result<ReportSummary, ServiceError> {
        let text = text.to_ascii_lowercase();
        let not_found = || ServiceError::NotFound {
            what: format!("a report of run `{text}`"),
            hint: Some("list reports with `bunraku report list`".to_owned()),
        };
        let plausible = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        if text.is_empty() || !text.bytes().all(plausible) {
            return Err(not_found());
        }
        let mut found: BTreeSet<FoundRecord> = BTreeSet::new();
        for source in self.histories.current().await?.sources()? {
            found.extend(source.find(&text, FOUND).await?);
        }
        let first = found.first().ok_or_else(not_found)?;
        let is_same_id = |other: &&FoundRecord| other.alias == first.alias;
        if let Some(other) = found
            .iter()
            .find(|it| is_same_id(it) && it.record.owner != first.record.owner)
        {
            return Err(ServiceError::Conflict {
                message: format!(
                    "`{}` and `{}` both report run `{text}`",
                    first.record.owner, other.record.owner
                ),
                hint: Some("a node may claim a run of another one: list the reports of each with `bunraku report list --node`".to_owned()),
            });
        }
        if found.iter().any(|other| other.record != first.record) {
            return Err(ServiceError::Invalid {
                message: format!("more than one run begins with `{text}`"),
                hint: Some("give more characters of its id".to_owned()),
            });
        }
        let (node, run) = place_of(&first.record).ok_or_else(not_found)?;
        self.show(&node, run).await
    }

    /// Returns one report.
    pub async fn show(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<ReportSummary, ServiceError> {
        let head = self.existing(node, run).await?;
        let mut summaries = self.summaries(vec![head]).await?;
        Ok(summaries.remove(0))
    }

    /// Returns the report's events from this number on, as far as they exist.
    pub async fn events(
        &self,
        node: &NodeName,
        run: NodeRunId,
        from: u64,
    ) -> Result<Vec<NumberedEvent>, ServiceError> {
        let head = self.existing(node, run).await?;
        self.events_of(&head, from).await
    }

    /// Returns the current report, with its events from this number on. The
    /// events are not read if a finished run had no differences. Returns `None`
    /// if the report is gone.
    pub async fn differences_from(
        &self,
        node: &NodeName,
        run: NodeRunId,
        from: u64,
    ) -> Result<Option<(ReportHead, Vec<NumberedEvent>)>, ServiceError> {
        let Some(known) = self.head(node, run).await? else {
            return Ok(None);
        };
        let head = known.document;
        if head.finished.is_some() && head.counts.total() == head.counts.unchanged {
            return Ok(Some((head, Vec::new())));
        }
        let mut events = match self.events_of(&head, from).await {
            Err(ServiceError::NotFound { .. }) => return Ok(None),
            events => events?,
        };
        // More events may have arrived since the head was read; leave them to the next reader.
        events.retain(|event| end_of(event) <= head.next);
        Ok(Some((head, events)))
    }

    /// Returns the outputs of resources under the names they registered.
    pub async fn outputs(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<Map<String, Value>, ServiceError> {
        let mut outputs = Map::new();
        for event in self.events(node, run, 0).await? {
            if let ReportEvent::Resource(resource) = event.event
                && let Some(name) = resource.register
            {
                outputs.insert(name, Value::Object(resource.outputs));
            }
        }
        Ok(outputs)
    }

    pub(super) async fn events_of(
        &self,
        head: &ReportHead,
        from: u64,
    ) -> Result<Vec<NumberedEvent>, ServiceError> {
        let id = RecordId::new(head.node.as_str(), head.run.to_string());
        let mut is_first = true;
        loop {
            let history = if is_first {
                self.histories.current().await?
            } else {
                // It may have been moved to a place that is not known here yet.
                self.histories.refresh().await?
            };
            let mut chunks = Vec::new();
            for source in history.sources()? {
                let at = bunraku_store::history::in_microseconds(head.first_received);
                chunks.extend(source.events(&id, at, from).await?);
            }
            let events = event_code::assemble(&cover(chunks, from), from, head.next)?;
            let reached = events.last().map_or(from, end_of);
            if reached >= head.next || self.are_deleted(head).await? {
                return Ok(events);
            }
            if !is_first {
                // Without a head, the report was deleted meanwhile.
                self.existing(&head.node, head.run).await?;
                let what = format!("events from {reached} on are missing in history");
                return Err(ServiceError::internal(what, std::io::Error::other(id.id)));
            }
            is_first = false;
        }
    }

    /// Returns whether a report is older than the events that are kept.
    async fn are_deleted(&self, head: &ReportHead) -> Result<bool, ServiceError> {
        let since = self.events_since().await?;
        Ok(since.is_some_and(|since| head.first_received < since))
    }

    /// Returns the time before which events were deleted.
    async fn events_since(&self) -> Result<Option<Timestamp>, ServiceError> {
        let history = self.histories.current().await?;
        Ok(history.active()?.events_since().await?)
    }

    async fn existing(&self, node: &NodeName, run: NodeRunId) -> Result<ReportHead, ServiceError> {
        let head = self.head_of(node, run).await?;
        head.ok_or_else(|| no_such_report(node, run))
    }

    /// Returns one run's report, without its events.
    pub async fn head_of(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<Option<ReportHead>, ServiceError> {
        if let Some(known) = self.head(node, run).await? {
            return Ok(Some(known.document));
        }
        let record = self.histories.record(node, run).await?;
        record.as_ref().map(decode_record).transpose()
    }

    /// Returns a node's newest report, without its events.
    pub async fn newest_of(&self, node: &NodeName) -> Result<Option<ReportHead>, ServiceError> {
        let heads = self.heads_of(node).await?;
        let newest = heads
            .into_iter()
            .max_by_key(|head| (head.first_received, head.run));
        Ok(newest)
    }

    /// Returns the newest report of a run that applied a catalog to the node, without its events.
    pub async fn newest_applied(
        &self,
        node: &NodeName,
    ) -> Result<Option<ReportHead>, ServiceError> {
        let heads = self.heads_of(node).await?;
        let applied = heads
            .into_iter()
            .filter(|head| head.started.catalog.is_some() && head.started.mode == RunMode::Enforce);
        Ok(applied.max_by_key(|head| (head.first_received, head.run)))
    }

    async fn heads_of(&self, node: &NodeName) -> Result<Vec<ReportHead>, ServiceError> {
        let entries = document::read_all(&*self.store, &keys::reports_of(node)).await?;
        entries.iter().map(document::decode).collect()
    }

    async fn open_heads(&self) -> Result<Vec<ReportHead>, ServiceError> {
        let open = document::keys_under(&*self.store, keys::OPEN_REPORTS).await?;
        let places = open.iter().filter_map(|key| keys::parse_open_report(key));
        self.heads_at(places.collect()).await
    }

    /// Reads the heads that exist.
    async fn heads_at(
        &self,
        places: Vec<(NodeName, NodeRunId)>,
    ) -> Result<Vec<ReportHead>, ServiceError> {
        let heads: Vec<_> = futures::stream::iter(places)
            .map(async |(node, run)| self.head(&node, run).await)
            .buffered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(heads
            .into_iter()
            .flatten()
            .map(|known| known.document)
            .collect())
    }

    /// Returns the summaries, with the connection state of nodes whose run is unfinished.
    async fn summaries(&self, heads: Vec<ReportHead>) -> Result<Vec<ReportSummary>, ServiceError> {
        // A report can be shown while history does not answer.
        let since = if heads.iter().any(|head| head.elsewhere) {
            self.events_since().await.unwrap_or(None)
        } else {
            None
        };
        let mut connected: HashMap<NodeName, bool> = HashMap::new();
        let mut summaries = Vec::with_capacity(heads.len());
        for head in heads {
            if head.finished.is_some() {
                summaries.push(head.summary(false, since));
                continue;
            }
            let there = match connected.get(&head.node) {
                Some(there) => *there,
                None => {
                    let there = self.is_connected(&head.node).await?;
                    connected.insert(head.node.clone(), there);
                    there
                }
            };
            summaries.push(head.summary(!there, since));
        }
        Ok(summaries)
    }

    pub(super) async fn is_connected(&self, node: &NodeName) -> Result<bool, ServiceError> {
        let key = keys::node_connection(node);
        let stored = document::read::<StoredConnection>(&*self.store, &key).await?;
        Ok(stored.is_some_and(|stored| {
            matches!(stored.document.connection, Connection::Connected { .. })
        }))
    }
}

/// Names that never were written are in no record.
fn place_of(id: &RecordId) -> Option<(NodeName, NodeRunId)> {
    Some((NodeName::new(&id.owner).ok()?, id.id.parse().ok()?))
}

/// A page of a list, as far as it is read.
#[derive(Default)]
struct FoundReports {
    reports: Vec<ReportSummary>,
    /// The position of the last report that was examined. The reader may see it: the position of
    /// a hidden one would reveal that it exists.
    last: Option<HistoryPosition>,
    looked_at: usize,
}

impl FoundReports {
    /// Adds what matches, in the order of the records. Returns whether the page is complete.
    fn add(
        &mut self,
        some: &[HistoryRecord],
        summaries: Vec<ReportSummary>,
        filter: &ReportFilter,
        limit: usize,
    ) -> bool {
        for (record, report) in some.iter().zip(summaries) {
            self.last = Some(HistoryPosition::of(record));
            self.looked_at += 1;
            if matches_filter(filter, &report) {
                self.reports.push(report);
            }
            if self.reports.len() == limit {
                return true;
            }
        }
        self.looked_at >= LOOKED_AT
    }
}

fn matches_filter(filter: &ReportFilter, report: &ReportSummary) -> bool {
    let is_within = |within: &BTreeSet<NodeName>| within.contains(&report.node);
    (!filter.failed || report.is_failure())
        && (!filter.unfinished || report.finished.is_none())
        && filter.within.as_ref().is_none_or(is_within)
}

/// The cursor of a page, in the form of the keys by which the state store orders reports.
fn position_text(position: &HistoryPosition) -> String {
    format!("{}/{}", keys::report_times_from(position.at), position.id)
}

fn checked_position(after: &str) -> Result<HistoryPosition, ServiceError> {
    let parsed = keys::parse_report_time(after).filter(|_| after.len() < 200);
    let (at, run) = parsed
        .ok_or_else(|| ServiceError::invalid("`after` does not belong to a page of reports"))?;
    Ok(HistoryPosition {
        at,
        id: run.to_string(),
    })
}
