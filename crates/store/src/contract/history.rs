//! The contract of every backend of history.
//!
//! A backend's test file names a function that creates a new, empty history:
//!
//! ```ignore
//! async fn make_history() -> bunraku_store::contract::history::HistorySubject { … }
//! bunraku_store::history_contract_suite!(make_history);
//! ```

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use crate::history::{
    Appended, EventChunk, HistoryAppend, HistoryFilter, HistoryPage, HistoryPart, HistoryPosition,
    HistoryRecord, RecordId, SharedHistory,
};
use crate::{SharedStore, Transaction, settle};

/// A history to test.
#[derive(Clone)]
pub struct HistorySubject {
    pub history: SharedHistory,
    /// The store in which appends are acknowledged.
    pub store: SharedStore,
    /// Adds the head of a record to the transaction that acknowledges an append, and returns the
    /// bytes of the head. The number is that of the event after the last one.
    pub acknowledge: fn(Transaction, &HistoryRecord, u64) -> (Transaction, Bytes),
    /// `true` if events can be deleted before their record.
    pub drops_events: bool,
    /// A value that must live as long as the history.
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// The acknowledgement of a backend for which heads are bytes.
pub fn opaque_head(
    transaction: Transaction,
    record: &HistoryRecord,
    end: u64,
) -> (Transaction, Bytes) {
    // Every byte: heads contain what nodes send.
    let mut head: Vec<u8> = (0..=255).collect();
    head.extend(format!("{} {end}", record.version).bytes());
    (transaction, head.into())
}

/// Creates one test per case.
#[macro_export]
macro_rules! history_contract_suite {
    ($make:path) => {
        $crate::history_contract_suite!(@cases $make:
            an_append_is_read_back
            the_same_append_again_changes_nothing
            overlapping_appends_are_read_once_and_in_order
            an_older_version_never_replaces_a_newer_one
            an_append_that_nobody_acknowledged_can_be_repeated_later
            appends_of_one_new_record_at_once_make_one_record
            a_closed_record_is_not_appended_to
            lists_are_newest_first_and_filtered
            pages_join_without_gap_or_overlap
            records_are_found_by_the_beginning_of_an_id
            one_id_of_two_owners_is_two_records
            removing_a_record_or_an_owner_leaves_the_others
            dropping_removes_old_periods_and_nothing_else
            an_append_to_a_dropped_period_is_accepted
            times_far_apart_are_kept_in_order
            a_record_of_another_backend_can_be_imported_again_and_again
            a_report_of_many_chunks_is_read_from_any_number
            checking_changes_nothing
        );
    };
    (@cases $make:path: $($case:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::contract::history::$case($make().await).await;
            }
        )*
        /// The names of all cases, for backends that run them one after the other.
        #[allow(dead_code)]
        const CASES: &[&str] = &[$(stringify!($case)),*];
    };
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn noon() -> Timestamp {
    time("2026-03-05T12:00:00.123456Z")
}

fn minutes_later(minutes: i64) -> Timestamp {
    noon()
        .checked_add(SignedDuration::from_mins(minutes))
        .expect("a time")
}

/// An id in the form of those of runs.
fn id(number: u64) -> String {
    format!("{number:08x}-0000-7000-8000-000000000000")
}

fn record(owner: &str, number: u64, at: Timestamp, version: u64) -> HistoryRecord {
    HistoryRecord {
        id: RecordId::new(owner, id(number)),
        at,
        version,
        status: "unfinished".to_owned(),
        is_problem: true,
        is_closed: false,
        head: Bytes::new(),
    }
}

fn finished(record: HistoryRecord, status: &str) -> HistoryRecord {
    HistoryRecord {
        status: status.to_owned(),
        is_problem: status != "succeeded",
        ..record
    }
}

/// Content that no text column can hold.
fn chunk(first: u64, end: u64) -> EventChunk {
    let mut content: Vec<u8> = vec![0, 0xff, b'\\', b'\'', b'"', 0xf0, 0x9f];
    content.extend(format!("{first}..{end}").bytes());
    EventChunk {
        first,
        end,
        content: content.into(),
    }
}

fn appended(record: HistoryRecord, first: u64, end: u64) -> HistoryAppend {
    HistoryAppend {
        is_new: first == 0,
        record: HistoryRecord {
            version: end,
            ..record
        },
        also: Vec::new(),
        events: Some(chunk(first, end)),
    }
}

impl HistorySubject {
    /// Fills in the head as the backend's services write it.
    fn with_head(&self, record: HistoryRecord, end: u64) -> HistoryRecord {
        let (_, head) = (self.acknowledge)(Transaction::new(), &record, end);
        HistoryRecord { head, ..record }
    }

    /// Appends, without the transaction that acknowledges it.
    async fn append_only(&self, mut append: HistoryAppend) -> (Transaction, Appended) {
        let end = append.events.as_ref().map_or(0, |chunk| chunk.end);
        append.record = self.with_head(append.record, end);
        let appended = self.history.append(Transaction::new(), append).await;
        appended.expect("appended")
    }

    async fn append(&self, append: HistoryAppend) -> Appended {
        let end = append.events.as_ref().map_or(0, |chunk| chunk.end);
        let mut record = append.record.clone();
        let (transaction, appended) = self.append_only(append).await;
        if let Appended::Stored { at } = appended {
            record.at = at;
            let (transaction, _) = (self.acknowledge)(transaction, &record, end);
            if !transaction.operations.is_empty() {
                settle(&*self.store, transaction).await.expect("committed");
            }
        }
        appended
    }

    async fn shown(&self, record: &HistoryRecord) -> Option<HistoryRecord> {
        self.history.record(&record.id).await.expect("readable")
    }

    async fn ranges(&self, record: &HistoryRecord, from: u64) -> Vec<(u64, u64)> {
        let chunks = self.history.events(&record.id, record.at, from).await;
        let chunks = chunks.expect("readable");
        for it in &chunks {
            assert_eq!(*it, chunk(it.first, it.end), "the bytes are the same");
        }
        chunks.iter().map(|it| (it.first, it.end)).collect()
    }

    async fn list(&self, filter: HistoryFilter) -> HistoryPage {
        let limit = filter.limit.max(1_000);
        let filter = match filter.limit {
            0 => HistoryFilter { limit, ..filter },
            _ => filter,
        };
        self.history.list(&filter).await.expect("readable")
    }

    async fn names(&self, filter: HistoryFilter) -> Vec<String> {
        let page = self.list(filter).await;
        let names = page.records.iter().map(|record| {
            let number = u64::from_str_radix(&record.id.id[..8], 16).expect("a number");
            format!("{}/{number}", record.id.owner)
        });
        names.collect()
    }

    async fn found(&self, prefix: &str) -> Vec<String> {
        let found = self.history.find(prefix, 10).await.expect("readable");
        let owners = found.iter().map(|found| found.record.owner.clone());
        owners.collect()
    }
}

pub async fn an_append_is_read_back(subject: HistorySubject) {
    let run = record("web-1", 1, noon(), 3);
    let stored = subject.append(appended(run.clone(), 0, 3)).await;
    assert_eq!(stored, Appended::Stored { at: noon() });
    let shown = subject.shown(&run).await.expect("it is there");
    let expected = subject.with_head(run.clone(), 3);
    assert_eq!(shown, expected);
    assert_eq!(subject.ranges(&run, 0).await, [(0, 3)]);
    assert_eq!(subject.ranges(&run, 3).await, []);
    let other = record("web-1", 2, noon(), 1);
    assert_eq!(subject.shown(&other).await, None);
    assert_eq!(subject.ranges(&other, 0).await, []);
    assert_eq!(subject.names(HistoryFilter::default()).await, ["web-1/1"]);
}

pub async fn the_same_append_again_changes_nothing(subject: HistorySubject) {
    let run = record("web-1", 1, noon(), 0);
    for _ in 0..3 {
        subject.append(appended(run.clone(), 0, 3)).await;
    }
    for _ in 0..3 {
        subject.append(appended(run.clone(), 3, 7)).await;
    }
    assert_eq!(subject.ranges(&run, 0).await, [(0, 3), (3, 7)]);
    assert_eq!(subject.shown(&run).await.expect("it is there").version, 7);
    assert_eq!(subject.names(HistoryFilter::default()).await, ["web-1/1"]);
}

pub async fn overlapping_appends_are_read_once_and_in_order(subject: HistorySubject) {
    let run = record("web-1", 1, noon(), 0);
    for (first, end) in [(0, 2), (0, 5), (0, 3), (3, 6), (5, 9), (6, 8), (9, 10)] {
        subject.append(appended(run.clone(), first, end)).await;
    }
    assert_eq!(subject.ranges(&run, 0).await, [(0, 5), (5, 9), (9, 10)]);
    assert_eq!(subject.ranges(&run, 6).await, [(5, 9), (9, 10)]);
}

pub async fn an_older_version_never_replaces_a_newer_one(subject: HistorySubject) {
    let run = record("web-1", 1, noon(), 0);
    subject.append(appended(run.clone(), 0, 1)).await;
    let end = finished(run.clone(), "failed");
    subject.append(appended(end, 1, 5)).await;
    // A server that was slow: its transaction is refused, but its append came.
    subject.append_only(appended(run.clone(), 1, 3)).await;
    let shown = subject.shown(&run).await.expect("it is there");
    assert_eq!((shown.version, shown.status.as_str()), (5, "failed"));
    assert_eq!(subject.ranges(&run, 0).await, [(0, 1), (1, 5)]);
}

pub async fn an_append_that_nobody_acknowledged_can_be_repeated_later(subject: HistorySubject) {
    let run = record("web-1", 1, noon(), 0);
    subject.append_only(appended(run.clone(), 0, 2)).await;
    // The server died. Another one accepts the same events days later, cut differently.
    let later = record("web-1", 1, minutes_later(30 * 24 * 60), 0);
    let stored = subject.append(appended(later, 0, 3)).await;
    let Appended::Stored { at } = stored else {
        panic!("not stored: {stored:?}")
    };
    let shown = subject.shown(&run).await.expect("it is there");
    assert_eq!(shown.at, at);
    assert_eq!(subject.ranges(&shown, 0).await, [(0, 3)]);
    assert_eq!(subject.names(HistoryFilter::default()).await, ["web-1/1"]);
}

pub async fn appends_of_one_new_record_at_once_make_one_record(subject: HistorySubject) {
    let tasks = (0..8).map(|number| {
        let subject = subject.clone();
        tokio::spawn(async move {
            let run = record("web-1", 1, minutes_later(number * 24 * 60), 0);
            subject.append(appended(run, 0, 3)).await
        })
    });
    let mut times = BTreeSet::new();
    for task in tasks.collect::<Vec<_>>() {
        match task.await.expect("no panic") {
            Appended::Stored { at } => times.insert(at),
            closed => panic!("not stored: {closed:?}"),
        };
    }
    let names = subject.names(HistoryFilter::default()).await;
    assert_eq!(names.len(), 1, "{times:?}");
}

pub async fn a_closed_record_is_not_appended_to(subject: HistorySubject) {
    let run = finished(record("web-1", 1, noon(), 0), "succeeded");
    subject.append(appended(run.clone(), 0, 3)).await;
    let last = subject.with_head(
        HistoryRecord {
            version: 4,
            ..run.clone()
        },
        3,
    );
    subject.history.close(last).await.expect("closed");
    let shown = subject.shown(&run).await.expect("it is there");
    assert!(shown.is_closed);
    let later = finished(record("web-1", 1, minutes_later(60), 0), "succeeded");
    let again = subject.append(appended(later, 0, 3)).await;
    assert!(matches!(again, Appended::Closed(_)), "{again:?}");
    assert_eq!(subject.ranges(&run, 0).await, [(0, 3)]);
}

async fn append_finished(subject: &HistorySubject, owner: &str, number: u64, status: &str) {
    let at = minutes_later(i64::try_from(number).expect("small"));
    let run = record(owner, number, at, 0);
    let run = match status {
        "unfinished" => run,
        status => finished(run, status),
    };
    subject.append(appended(run, 0, 2)).await;
}

pub async fn lists_are_newest_first_and_filtered(subject: HistorySubject) {
    for (owner, number, status) in [
        ("web-1", 1, "succeeded"),
        ("web-2", 2, "failed"),
        ("web-1", 3, "failed"),
        ("web-2", 4, "succeeded"),
        ("web-1", 5, "unfinished"),
    ] {
        append_finished(&subject, owner, number, status).await;
    }
    let all = HistoryFilter::default();
    let newest = ["web-1/5", "web-2/4", "web-1/3", "web-2/2", "web-1/1"];
    assert_eq!(subject.names(all.clone()).await, newest);
    let owner = HistoryFilter {
        owner: Some("web-2".to_owned()),
        ..all.clone()
    };
    assert_eq!(subject.names(owner).await, ["web-2/4", "web-2/2"]);
    let problems = HistoryFilter {
        problems: true,
        ..all.clone()
    };
    assert_eq!(
        subject.names(problems).await,
        ["web-1/5", "web-1/3", "web-2/2"]
    );
    let failed = HistoryFilter {
        status: Some("failed".to_owned()),
        ..all.clone()
    };
    assert_eq!(subject.names(failed.clone()).await, ["web-1/3", "web-2/2"]);
    let recent = HistoryFilter {
        since: Some(minutes_later(3)),
        ..failed
    };
    assert_eq!(subject.names(recent).await, ["web-1/3"]);
    let nobody = HistoryFilter {
        owner: Some("web".to_owned()),
        ..all
    };
    assert_eq!(subject.names(nobody).await, [""; 0]);
}

pub async fn pages_join_without_gap_or_overlap(subject: HistorySubject) {
    // Three at each moment, over many periods.
    for number in 0..57 {
        let at = minutes_later(i64::try_from(number / 3).expect("small") * 17 * 60);
        let run = record("web-1", number, at, 0);
        subject.append(appended(run, 0, 1)).await;
    }
    let expected = subject.names(HistoryFilter::default()).await;
    assert_eq!(expected.len(), 57);
    for limit in [1, 7, 57, 100] {
        let mut names = Vec::new();
        let mut after = None;
        loop {
            let page = HistoryFilter {
                limit,
                after,
                ..HistoryFilter::default()
            };
            names.extend(subject.names(page.clone()).await);
            let page = subject.list(page).await;
            after = page.records.last().map(HistoryPosition::of);
            if !page.more {
                break;
            }
        }
        assert_eq!(names, expected, "pages of {limit}");
    }
}

pub async fn records_are_found_by_the_beginning_of_an_id(subject: HistorySubject) {
    let one = HistoryAppend {
        also: vec![id(0x7700_0000), id(0x8800_0000)],
        ..appended(record("web-1", 0xa100_0000, noon(), 0), 0, 1)
    };
    subject.append(one.clone()).await;
    let two = appended(record("web-2", 0xa200_0000, minutes_later(1), 0), 0, 1);
    subject.append(two).await;
    assert_eq!(subject.found("a1").await, ["web-1"]);
    assert_eq!(subject.found(&id(0xa100_0000)).await, ["web-1"]);
    assert_eq!(subject.found("77").await, ["web-1"]);
    assert_eq!(subject.found("a").await, ["web-1", "web-2"]);
    assert_eq!(subject.found("b").await, [""; 0]);
    assert_eq!(
        subject.history.find("a", 1).await.expect("readable").len(),
        1
    );
    let shown = subject.shown(&one.record).await.expect("it is there");
    let also = subject.history.aliases(&shown).await.expect("readable");
    assert_eq!(also, one.also);
}

pub async fn one_id_of_two_owners_is_two_records(subject: HistorySubject) {
    for owner in ["web-1", "web-2"] {
        subject
            .append(appended(record(owner, 1, noon(), 0), 0, 2))
            .await;
    }
    let two = record("web-2", 1, noon(), 0);
    assert_eq!(subject.ranges(&two, 0).await, [(0, 2)]);
    let mut found = subject.found(&id(1)).await;
    found.sort();
    assert_eq!(found, ["web-1", "web-2"]);
    subject.history.remove(&two.id).await.expect("removed");
    assert_eq!(subject.names(HistoryFilter::default()).await, ["web-1/1"]);
    let one = record("web-1", 1, noon(), 0);
    assert_eq!(subject.ranges(&one, 0).await, [(0, 2)]);
}

pub async fn removing_a_record_or_an_owner_leaves_the_others(subject: HistorySubject) {
    for (owner, number) in [("web-1", 1), ("web-1", 2), ("web-10", 3), ("web-2", 4)] {
        append_finished(&subject, owner, number, "succeeded").await;
    }
    let first = record("web-1", 1, minutes_later(1), 0);
    subject.history.remove(&first.id).await.expect("removed");
    subject
        .history
        .remove(&first.id)
        .await
        .expect("removed again");
    assert_eq!(subject.shown(&first).await, None);
    assert_eq!(subject.ranges(&first, 0).await, []);
    assert_eq!(subject.found(&id(1)).await, [""; 0]);
    let names = subject.names(HistoryFilter::default()).await;
    assert_eq!(names, ["web-2/4", "web-10/3", "web-1/2"]);
    subject
        .history
        .remove_owner("web-1")
        .await
        .expect("removed");
    let names = subject.names(HistoryFilter::default()).await;
    assert_eq!(names, ["web-2/4", "web-10/3"]);
    assert_eq!(subject.found(&id(2)).await, [""; 0]);
}

pub async fn dropping_removes_old_periods_and_nothing_else(subject: HistorySubject) {
    for day in 0..40 {
        let run = record(
            "web-1",
            day,
            minutes_later(i64::try_from(day).expect("small") * 1_440),
            0,
        );
        subject
            .append(appended(finished(run, "succeeded"), 0, 2))
            .await;
    }
    let days = |day: i64| minutes_later(day * 1_440);
    if subject.drops_events {
        let dropped = subject
            .history
            .drop_before(HistoryPart::Events, days(26))
            .await;
        assert!(dropped.expect("dropped") > 0);
        let since = subject.history.events_since().await.expect("readable");
        let since = since.expect("something was dropped");
        assert!(since <= days(26) && since > days(18), "{since}");
        assert_eq!(
            subject.ranges(&record("web-1", 10, days(10), 0), 0).await,
            []
        );
    }
    assert_eq!(
        subject.ranges(&record("web-1", 26, days(26), 0), 0).await,
        [(0, 2)]
    );
    assert_eq!(subject.names(HistoryFilter::default()).await.len(), 40);
    let dropped = subject
        .history
        .drop_before(HistoryPart::Records, days(20))
        .await;
    assert!(dropped.expect("dropped") > 0);
    let left = subject.names(HistoryFilter::default()).await;
    assert!((20..28).contains(&left.len()), "{left:?}");
    assert!(left.contains(&"web-1/20".to_owned()), "{left:?}");
    assert_eq!(subject.shown(&record("web-1", 2, days(2), 0)).await, None);
    assert_eq!(subject.found(&id(2)).await, [""; 0]);
    assert_eq!(subject.ranges(&record("web-1", 2, days(2), 0), 0).await, []);
    let again = subject
        .history
        .drop_before(HistoryPart::Records, days(20))
        .await;
    assert_eq!(again.expect("dropped"), 0);
}

pub async fn an_append_to_a_dropped_period_is_accepted(subject: HistorySubject) {
    let old = record("web-1", 1, noon(), 0);
    subject.append(appended(old.clone(), 0, 2)).await;
    for part in [HistoryPart::Events, HistoryPart::Records] {
        let dropped = subject
            .history
            .drop_before(part, minutes_later(60 * 1_440))
            .await;
        dropped.expect("dropped");
    }
    // The run never ended, and its node was switched off for months.
    let end = finished(old, "interrupted");
    let stored = subject.append(appended(end.clone(), 2, 4)).await;
    assert_eq!(stored, Appended::Stored { at: noon() });
    let new = record("web-1", 2, minutes_later(61 * 1_440), 0);
    subject.append(appended(new.clone(), 0, 2)).await;
    assert_eq!(subject.ranges(&new, 0).await, [(0, 2)]);
}

pub async fn times_far_apart_are_kept_in_order(subject: HistorySubject) {
    // A server whose clock was wrong, in both directions.
    let times = [
        "1999-12-31T23:59:59.999999Z",
        "2026-03-05T00:00:00Z",
        "2026-03-05T23:59:59.999999Z",
        "2026-03-06T00:00:00Z",
        "2038-01-19T03:14:08Z",
        "2499-01-01T00:00:00Z",
    ];
    for (number, at) in (0..).zip(times) {
        let run = record("web-1", number, time(at), 0);
        subject.append(appended(run.clone(), 0, 1)).await;
        assert_eq!(subject.ranges(&run, 0).await, [(0, 1)]);
    }
    let names = subject.names(HistoryFilter::default()).await;
    let newest = [
        "web-1/5", "web-1/4", "web-1/3", "web-1/2", "web-1/1", "web-1/0",
    ];
    assert_eq!(names, newest);
}

pub async fn a_record_of_another_backend_can_be_imported_again_and_again(subject: HistorySubject) {
    let run = record("web-1", 1, noon(), 2);
    let old = subject.with_head(run.clone(), 2);
    let chunks = vec![chunk(0, 1), chunk(1, 2)];
    // The report goes on while it is moved.
    let end = finished(run.clone(), "succeeded");
    let mut more = appended(end, 2, 5);
    more.is_new = false;
    subject.append(more).await;
    for _ in 0..3 {
        let also = vec![id(0x9900_0000)];
        let imported = subject.history.import(old.clone(), also, chunks.clone());
        imported.await.expect("imported");
    }
    let shown = subject.shown(&run).await.expect("it is there");
    assert_eq!((shown.version, shown.status.as_str()), (5, "succeeded"));
    assert_eq!(subject.ranges(&run, 0).await.last(), Some(&(2, 5)));
    assert_eq!(subject.names(HistoryFilter::default()).await, ["web-1/1"]);
    assert_eq!(subject.found("99").await, ["web-1"]);
}

pub async fn a_report_of_many_chunks_is_read_from_any_number(subject: HistorySubject) {
    let run = record("web-1", 1, noon(), 0);
    for first in 0..200 {
        subject
            .append(appended(run.clone(), first, first + 1))
            .await;
    }
    assert_eq!(subject.ranges(&run, 0).await.len(), 200);
    assert_eq!(subject.ranges(&run, 150).await.len(), 50);
    let large = EventChunk {
        first: 200,
        end: 201,
        content: vec![7; 900 << 10].into(),
    };
    let mut append = appended(run.clone(), 200, 201);
    append.events = Some(large.clone());
    subject.append(append).await;
    let read = subject.history.events(&run.id, run.at, 200).await;
    assert_eq!(read.expect("readable"), [large]);
}

pub async fn checking_changes_nothing(subject: HistorySubject) {
    for _ in 0..2 {
        subject.history.check(noon()).await.expect("it works");
    }
    assert_eq!(subject.history.outage(), None);
    assert_eq!(subject.names(HistoryFilter::default()).await, [""; 0]);
    subject
        .append(appended(record("web-1", 1, noon(), 0), 0, 1))
        .await;
    subject.history.check(noon()).await.expect("it works");
    assert_eq!(subject.names(HistoryFilter::default()).await, ["web-1/1"]);
}
