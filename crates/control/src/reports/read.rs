//! Reading reports: lists, single reports, events.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader};

use bunraku_model::{Connection, ContentId, NodeName, NodeRunId};
use bunraku_store::Range;
use bunraku_wire::api::{NumberedEvent, ReportEvent, ReportPage, ReportSummary, RunMode};
use flate2::read::GzDecoder;
use futures::{StreamExt, TryStreamExt};
use serde_json::{Map, Value};

use super::head::ReportHead;
use super::{ReportPlace, Reports, blob_error};
use crate::presence::StoredConnection;
use crate::{ServiceError, document, keys};

/// The most reports examined for one page.
const LOOKED_AT: usize = 5_000;
/// The index entries read at a time for readers who see only some of them.
const INDEX_PAGE: usize = 1_000;
/// The number of heads read concurrently.
const AT_ONCE: usize = 16;

fn no_such_report(node: &NodeName, run: NodeRunId) -> ServiceError {
    ServiceError::NotFound {
        what: format!("a report of run {run} of `{node}`"),
        hint: Some("list reports with `bunraku report list`".to_owned()),
    }
}

/// Reads compressed events, one line each.
fn unzip(zipped: &[u8]) -> Result<Vec<NumberedEvent>, ServiceError> {
    let unreadable =
        |source: std::io::Error| ServiceError::internal("cannot read a report's events", source);
    let mut events = Vec::new();
    for line in BufReader::new(GzDecoder::new(zipped)).lines() {
        let line = line.map_err(unreadable)?;
        let event = serde_json::from_str(&line).map_err(|error| unreadable(error.into()))?;
        events.push(event);
    }
    Ok(events)
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
    fn may_see(&self, node: &NodeName) -> bool {
        let mut within = self.within.iter();
        within.all(|within| within.contains(node))
    }
}

impl Reports {
    /// Returns reports, newest first.
    pub async fn list(&self, filter: &ReportFilter) -> Result<ReportPage, ServiceError> {
        let limit = filter.limit.max(1);
        let heads = match (&filter.node, filter.unfinished) {
            (Some(node), _) => self.heads_of(node).await?,
            (None, true) => self.open_heads().await?,
            (None, false) => return self.newest(filter, limit).await,
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
        let at_once = limit.min(AT_ONCE * 8);
        let mut found = FoundReports::default();
        loop {
            let range = Range {
                after: after.clone(),
                limit: match filter.within {
                    None => at_once,
                    Some(_) => INDEX_PAGE,
                },
                ..Range::prefix(keys::REPORT_TIMES)
            };
            let page = self.store.range(range).await?;
            after = page.items.last().map(|entry| entry.key.clone());
            let mut seen: Vec<(String, ReportPlace)> = Vec::new();
            for entry in &page.items {
                let place: ReportPlace = document::decode(entry)?;
                if filter.may_see(&place.node) {
                    seen.push((entry.key.clone(), place));
                }
            }
            for some in seen.chunks(at_once) {
                let places = some.iter().map(|(_, place)| place.clone()).collect();
                let summaries = self.summaries(self.heads_at(places).await?).await?;
                if found.add(some, summaries, filter, limit) {
                    return Ok(ReportPage {
                        reports: found.reports,
                        next: found.last,
                    });
                }
            }
            if !page.more {
                let (reports, next) = (found.reports, None);
                return Ok(ReportPage { reports, next });
            }
        }
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
        let range = Range {
            limit: 2,
            ..Range::prefix(format!("{}{text}", keys::REPORT_IDS))
        };
        let page = self.store.range(range).await?;
        let mut places = page.items.iter().map(document::decode::<ReportPlace>);
        let place = places.next().ok_or_else(not_found)??;
        if let Some(other) = places.next()
            && other?.run != place.run
        {
            return Err(ServiceError::Invalid {
                message: format!("more than one run begins with `{text}`"),
                hint: Some("give more characters of its id".to_owned()),
            });
        }
        if let [first, ..] = place.also_claimed_by.as_slice() {
            return Err(ServiceError::Conflict {
                message: format!("`{}` and `{first}` both report run `{text}`", place.node),
                hint: Some("a node may claim a run of another one: list the reports of each with `bunraku report list --node`".to_owned()),
            });
        }
        self.show(&place.node, place.run).await
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
        let (node, run) = (&head.node, head.run);
        let mut current = head.clone();
        loop {
            let mut events = match (current.content, current.packed) {
                (Some(content), _) => self.in_one_piece(content).await?,
                (None, true) => self.packed(node, run).await?,
                (None, false) => self.chunks(node, run, from).await?,
            };
            let end = events.last().map_or(from, end_of);
            if current.is_settled() || end >= head.next {
                events.retain(|event| end_of(event) > from);
                return Ok(events);
            }
            // Compacted between reading the head and reading the chunks.
            current = self.existing(node, run).await?;
        }
    }

    /// Returns the events that are not compacted yet, from the chunk that contains `from`.
    pub(super) async fn chunks(
        &self,
        node: &NodeName,
        run: NodeRunId,
        from: u64,
    ) -> Result<Vec<NumberedEvent>, ServiceError> {
        let prefix = keys::report_events_of(node, run);
        let mut range = Range::prefix(&prefix);
        if from > 0 {
            let keys = document::keys_under(&*self.store, &prefix).await?;
            let wanted = keys::report_events(node, run, from);
            let holding = keys.partition_point(|key| *key <= wanted).saturating_sub(1);
            range.after = holding.checked_sub(1).map(|before| keys[before].clone());
        }
        let mut events = Vec::new();
        loop {
            let page = self.store.range(range.clone()).await?;
            for entry in &page.items {
                events.extend(document::decode::<Vec<NumberedEvent>>(entry)?);
                range.after = Some(entry.key.clone());
            }
            if !page.more {
                return Ok(events);
            }
        }
    }

    async fn in_one_piece(&self, content: ContentId) -> Result<Vec<NumberedEvent>, ServiceError> {
        let zipped = self.blobs.read(content).await.map_err(blob_error)?;
        unzip(&zipped)
    }

    async fn packed(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<Vec<NumberedEvent>, ServiceError> {
        match self.store.get(&keys::report_packed(node, run)).await? {
            Some(entry) => unzip(&entry.value),
            None => Err(no_such_report(node, run)),
        }
    }

    async fn existing(&self, node: &NodeName, run: NodeRunId) -> Result<ReportHead, ServiceError> {
        match self.head(node, run).await? {
            Some(known) => Ok(known.document),
            None => Err(no_such_report(node, run)),
        }
    }

    /// Returns one run's report, without its events.
    pub async fn head_of(
        &self,
        node: &NodeName,
        run: NodeRunId,
    ) -> Result<Option<ReportHead>, ServiceError> {
        Ok(self.head(node, run).await?.map(|head| head.document))
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
        let places = open.iter().filter_map(|key| {
            let (node, run) = keys::parse_open_report(key)?;
            Some(ReportPlace {
                node,
                run,
                also_claimed_by: Vec::new(),
            })
        });
        self.heads_at(places.collect()).await
    }

    /// Reads the heads that exist.
    async fn heads_at(&self, places: Vec<ReportPlace>) -> Result<Vec<ReportHead>, ServiceError> {
        let heads: Vec<_> = futures::stream::iter(places)
            .map(async |place| self.head(&place.node, place.run).await)
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
        let mut connected: HashMap<NodeName, bool> = HashMap::new();
        let mut summaries = Vec::with_capacity(heads.len());
        for head in heads {
            if head.finished.is_some() {
                summaries.push(head.summary(false));
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
            summaries.push(head.summary(!there));
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

fn end_of(event: &NumberedEvent) -> u64 {
    event.number + event.event.width()
}

/// A page of a list, as far as it is read.
#[derive(Default)]
struct FoundReports {
    reports: Vec<ReportSummary>,
    /// The position of the last report that was examined. The reader may see it: the position of
    /// a hidden one would reveal that it exists.
    last: Option<String>,
    looked_at: usize,
}

impl FoundReports {
    /// Adds what matches, in the order of the positions. Returns whether the page is complete.
    fn add(
        &mut self,
        some: &[(String, ReportPlace)],
        summaries: Vec<ReportSummary>,
        filter: &ReportFilter,
        limit: usize,
    ) -> bool {
        let mut by_run: HashMap<NodeRunId, ReportSummary> = summaries
            .into_iter()
            .map(|report| (report.run, report))
            .collect();
        for (key, place) in some {
            self.last = Some(key.clone());
            self.looked_at += 1;
            let report = by_run.remove(&place.run);
            self.reports
                .extend(report.filter(|report| matches_filter(filter, report)));
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

fn checked_position(after: &str) -> Result<String, ServiceError> {
    if after.starts_with(keys::REPORT_TIMES) && after.len() < 200 {
        Ok(after.to_owned())
    } else {
        Err(ServiceError::invalid(
            "`after` does not belong to a page of reports",
        ))
    }
}
