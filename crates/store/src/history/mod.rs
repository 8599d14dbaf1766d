//! History: records that are appended to, listed by time, and deleted by age.
//!
//! A [`Store`](crate::Store) holds the present: small, changing, watched. History holds the past:
//! reports and their events. It grows with time and not with the fleet, so it has engines of its
//! own: SQLite files for one server, PostgreSQL for a cluster. A small cluster keeps it in its
//! state store; that backend is above this crate, because it uses the keys of services.
//!
//! A record belongs to an owner (a node), has an id (a run), a time that never changes, and a head
//! that is replaced by newer versions. Its events come in chunks with the numbers of their first
//! event and of the event after the last one.
//!
//! Rules of every backend, checked by one suite (`contract`):
//! - An append can be repeated, and can overlap earlier ones: reading returns every event once.
//! - An older version of a head never replaces a newer one.
//! - An append is acknowledged by a transaction in the state store that follows it. Until then the
//!   caller may repeat it, on any server, and nothing is doubled.
//! - Deleting by age removes whole periods, and costs the same whatever they contain.
//!
//! Absent here: the meaning of heads and events. Both are bytes.

mod cover;
mod error;
mod outage;
mod period;
pub mod postgresql;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;

use crate::Transaction;

pub use cover::cover;
pub use error::HistoryError;
pub use sqlite::SqliteHistory;

/// A history shared by everything in a process.
pub type SharedHistory = Arc<dyn History>;

/// The owner of a record, and the id of the record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecordId {
    pub owner: String,
    pub id: String,
}

impl RecordId {
    pub fn new(owner: impl Into<String>, id: impl Into<String>) -> Self {
        Self {
            owner: owner.into(),
            id: id.into(),
        }
    }
}

/// A record without its events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryRecord {
    pub id: RecordId,
    /// The time by which records are listed and deleted, in microseconds. Never changes.
    pub at: Timestamp,
    /// Of two versions of a head, the higher one is kept.
    pub version: u64,
    pub status: String,
    /// `true` if lists of problems contain the record.
    pub is_problem: bool,
    /// `true` once the record is complete and acknowledged: nothing may be appended any more.
    pub is_closed: bool,
    pub head: Bytes,
}

/// Consecutive events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventChunk {
    /// The number of the first event.
    pub first: u64,
    /// The number after the last event.
    pub end: u64,
    pub content: Bytes,
}

/// A new version of a record, with the events that led to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryAppend {
    pub record: HistoryRecord,
    /// Other ids by which [`History::find`] finds the record.
    pub also: Vec<String>,
    /// `true` if nothing of the record was acknowledged, as far as the caller knows.
    pub is_new: bool,
    pub events: Option<EventChunk>,
}

/// The outcome of an append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Appended {
    /// The record has this time. It differs from the given one if an earlier append of the same
    /// record was not acknowledged.
    Stored { at: Timestamp },
    /// The record was closed before, and did not change.
    Closed(HistoryRecord),
}

/// The filter of a list.
#[derive(Clone, Debug, Default)]
pub struct HistoryFilter {
    pub owner: Option<String>,
    pub status: Option<String>,
    /// Only records that are problems.
    pub problems: bool,
    /// Only records of this time or later.
    pub since: Option<Timestamp>,
    /// Only records after this one, in the order of the list.
    pub after: Option<HistoryPosition>,
    pub limit: usize,
}

/// The place of a record in a list: newest first, then by id in descending order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryPosition {
    pub at: Timestamp,
    pub id: String,
}

impl HistoryPosition {
    pub fn of(record: &HistoryRecord) -> Self {
        Self {
            at: record.at,
            id: record.id.id.clone(),
        }
    }
}

/// A page of records, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HistoryPage {
    pub records: Vec<HistoryRecord>,
    pub more: bool,
}

/// A record that was found by an id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FoundRecord {
    /// The id that matched: the record's own, or one under which it is known, too.
    pub alias: String,
    pub record: RecordId,
}

/// A part of history with a retention of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HistoryPart {
    Events,
    /// Records, with their events.
    Records,
}

/// A failure of the backend that has not ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HistoryOutage {
    /// The time since the first failure.
    pub lasting: Duration,
    /// The newest failure.
    pub message: String,
}

/// Records and events. See the module documentation for the rules.
#[async_trait]
pub trait History: Send + Sync + 'static {
    /// The name of the backend: `embedded`, `postgresql` or `store`.
    fn kind(&self) -> &'static str;

    /// Appends to a record. Returns the transaction that the caller commits next, extended by
    /// what the backend keeps in the state store itself.
    async fn append(
        &self,
        transaction: Transaction,
        append: HistoryAppend,
    ) -> Result<(Transaction, Appended), HistoryError>;

    /// Stores a record of another backend with all its events. Safe to repeat, and while others
    /// append to the record.
    async fn import(
        &self,
        record: HistoryRecord,
        also: Vec<String>,
        events: Vec<EventChunk>,
    ) -> Result<(), HistoryError>;

    /// Stores the last version of a record, and closes it. The record may be new.
    async fn close(&self, record: HistoryRecord) -> Result<(), HistoryError>;

    async fn record(&self, id: &RecordId) -> Result<Option<HistoryRecord>, HistoryError>;

    /// Returns the ids under which [`History::find`] finds the record, except its own.
    async fn aliases(&self, record: &HistoryRecord) -> Result<Vec<String>, HistoryError>;

    /// Returns the events of a record from the chunk that contains `from`: in order, without a
    /// chunk that others contain. `at` is the record's time.
    async fn events(
        &self,
        id: &RecordId,
        at: Timestamp,
        from: u64,
    ) -> Result<Vec<EventChunk>, HistoryError>;

    async fn list(&self, filter: &HistoryFilter) -> Result<HistoryPage, HistoryError>;

    /// Returns the first records with an id that begins with `prefix`.
    async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<FoundRecord>, HistoryError>;

    async fn remove(&self, id: &RecordId) -> Result<(), HistoryError>;

    /// Deletes every record of an owner.
    async fn remove_owner(&self, owner: &str) -> Result<(), HistoryError>;

    /// Deletes the periods that end before a time. Returns their number.
    async fn drop_before(
        &self,
        part: HistoryPart,
        before: Timestamp,
    ) -> Result<usize, HistoryError>;

    /// Returns the time before which events were deleted.
    async fn events_since(&self) -> Result<Option<Timestamp>, HistoryError>;

    /// Checks that the backend answers and accepts writes, and prepares the next periods.
    async fn check(&self, now: Timestamp) -> Result<(), HistoryError>;

    /// Returns the outage that lasts, as far as is known here.
    fn outage(&self) -> Option<HistoryOutage> {
        None
    }
}

/// Returns a time without its part below a microsecond, which no backend keeps.
pub fn in_microseconds(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}
