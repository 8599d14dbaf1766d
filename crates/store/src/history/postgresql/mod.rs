//! History in PostgreSQL, for clusters.
//!
//! Tables are partitioned by time, and old partitions are dropped whole. Several servers share
//! them; the tables are created by the first one that starts. All bytes of nodes are in `bytea`
//! columns: `text` cannot hold every string.
//!
//! A server starts without PostgreSQL. Everything that needs history fails until it answers.

mod options;
mod partitions;
mod pool;
mod schema;
mod statements;
mod tls;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio_postgres::Client;

use self::pool::Pool;
use self::statements::{KeptParts, RecordWrite};
use super::period::Period;
use super::{
    Appended, EventChunk, FoundRecord, History, HistoryAppend, HistoryError, HistoryFilter,
    HistoryOutage, HistoryPage, HistoryPart, HistoryRecord, RecordId, cover,
};
use crate::Transaction;

pub use options::{PostgresqlOptions, PostgresqlTls};

/// The history in a database. This is a handle: clones share their connections.
#[derive(Clone)]
pub struct PostgresqlHistory {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Pool,
    /// `true` once the tables are known to have the right version.
    is_prepared: AtomicBool,
    /// The periods that are known to have partitions.
    known: Mutex<HashSet<Period>>,
}

impl PostgresqlHistory {
    /// Connects when it is first needed.
    pub fn new(options: PostgresqlOptions) -> Result<Self, HistoryError> {
        Ok(Self {
            inner: Arc::new(Inner {
                pool: Pool::new(options)?,
                is_prepared: AtomicBool::new(false),
                known: Mutex::default(),
            }),
        })
    }

    /// Runs `work` on a connection, once the tables are there.
    async fn run<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, tokio_postgres::Error>,
    ) -> Result<T, HistoryError> {
        if !self.inner.is_prepared.load(Ordering::Acquire) {
            self.prepare().await?;
        }
        self.inner.pool.run(work).await
    }

    async fn prepare(&self) -> Result<(), HistoryError> {
        let pool = &self.inner.pool;
        let found = pool
            .run(async |client| schema::migrate(client).await)
            .await?;
        if found > schema::VERSION {
            return pool.outage.note(Err(HistoryError::NewerSchema {
                backend: pool.place().to_owned(),
                found,
                supported: schema::VERSION,
            }));
        }
        self.inner.is_prepared.store(true, Ordering::Release);
        Ok(())
    }

    /// Returns whether a part of this time is kept, and creates its partition if it is.
    async fn ensure(&self, part: HistoryPart, at: Timestamp) -> Result<bool, HistoryError> {
        let period = Period::of(part, at);
        if self.known().contains(&period) {
            return Ok(true);
        }
        let is_kept = self
            .run(async |client| {
                let floor = partitions::floor(client, part).await?;
                let is_kept = floor.is_none_or(|floor| period.end() > floor);
                if is_kept {
                    partitions::create(client, period).await?;
                }
                Ok(is_kept)
            })
            .await?;
        if is_kept {
            self.known().insert(period);
        }
        Ok(is_kept)
    }

    /// Writes a record. If another server dropped a partition meanwhile, tries again.
    async fn write(&self, wanted: RecordWrite<'_>) -> Result<Appended, HistoryError> {
        let mut at = wanted.record.at;
        if wanted.may_be_stored
            && let Some(known) = self.record(&wanted.record.id).await?
        {
            // An earlier append that nobody acknowledged gave the record another time.
            at = known.at;
        }
        let mut is_first = true;
        loop {
            let kept = KeptParts {
                record: self.ensure(HistoryPart::Records, at).await?,
                events: self.ensure(HistoryPart::Events, at).await?,
            };
            let wanted = &wanted;
            let done = self.run(async |client| statements::write(client, wanted, kept).await);
            match done.await {
                Err(error) if is_first && is_missing_partition(&error) => self.known().clear(),
                done => return done,
            }
            is_first = false;
        }
    }

    fn known(&self) -> MutexGuard<'_, HashSet<Period>> {
        // Nothing panics with it.
        self.inner
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a row has no partition.
fn is_missing_partition(error: &HistoryError) -> bool {
    let HistoryError::Failed { source, .. } = error else {
        return false;
    };
    let error = source.downcast_ref::<tokio_postgres::Error>();
    error.and_then(tokio_postgres::Error::code)
        == Some(&tokio_postgres::error::SqlState::CHECK_VIOLATION)
}

#[async_trait]
impl History for PostgresqlHistory {
    fn kind(&self) -> &'static str {
        "postgresql"
    }

    async fn append(
        &self,
        transaction: Transaction,
        append: HistoryAppend,
    ) -> Result<(Transaction, Appended), HistoryError> {
        let appended = self
            .write(RecordWrite {
                record: &append.record,
                also: &append.also,
                events: append.events.as_slice(),
                may_be_stored: append.is_new,
                refuse_closed: true,
            })
            .await?;
        Ok((transaction, appended))
    }

    async fn import(
        &self,
        record: HistoryRecord,
        also: Vec<String>,
        events: Vec<EventChunk>,
    ) -> Result<(), HistoryError> {
        self.write(RecordWrite {
            record: &record,
            also: &also,
            events: &events,
            may_be_stored: true,
            refuse_closed: false,
        })
        .await
        .map(drop)
    }

    async fn close(&self, record: HistoryRecord) -> Result<(), HistoryError> {
        let record = HistoryRecord {
            is_closed: true,
            ..record
        };
        self.import(record, Vec::new(), Vec::new()).await
    }

    async fn record(&self, id: &RecordId) -> Result<Option<HistoryRecord>, HistoryError> {
        self.run(async |client| statements::record(client, id).await)
            .await
    }

    async fn aliases(&self, record: &HistoryRecord) -> Result<Vec<String>, HistoryError> {
        self.run(async |client| statements::aliases(client, &record.id).await)
            .await
    }

    async fn events(
        &self,
        id: &RecordId,
        at: Timestamp,
        from: u64,
    ) -> Result<Vec<EventChunk>, HistoryError> {
        let chunks = self
            .run(async |client| statements::events(client, id, at, from).await)
            .await?;
        Ok(cover(chunks, from))
    }

    async fn list(&self, filter: &HistoryFilter) -> Result<HistoryPage, HistoryError> {
        self.run(async |client| statements::list(client, filter).await)
            .await
    }

    async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<FoundRecord>, HistoryError> {
        self.run(async |client| statements::find(client, prefix, limit).await)
            .await
    }

    async fn remove(&self, id: &RecordId) -> Result<(), HistoryError> {
        self.run(async |client| statements::remove(client, &id.owner, Some(&id.id)).await)
            .await
    }

    async fn remove_owner(&self, owner: &str) -> Result<(), HistoryError> {
        self.run(async |client| statements::remove(client, owner, None).await)
            .await
    }

    async fn drop_before(
        &self,
        part: HistoryPart,
        before: Timestamp,
    ) -> Result<usize, HistoryError> {
        let dropped = self
            .run(async |client| {
                let dropped = partitions::drop_before(client, part, before).await?;
                // Events never outlive their record.
                if part == HistoryPart::Records {
                    partitions::drop_before(client, HistoryPart::Events, before).await?;
                }
                Ok(dropped)
            })
            .await?;
        self.known().clear();
        Ok(dropped)
    }

    async fn events_since(&self) -> Result<Option<Timestamp>, HistoryError> {
        let floor = self
            .run(async |client| partitions::floor(client, HistoryPart::Events).await)
            .await?;
        Ok(floor.and_then(|floor| Timestamp::from_microsecond(floor).ok()))
    }

    async fn check(&self, now: Timestamp) -> Result<(), HistoryError> {
        for part in [HistoryPart::Events, HistoryPart::Records] {
            let next = Period::of(part, now).next();
            self.ensure(part, now).await?;
            if let Ok(soon) = Timestamp::from_microsecond(next.start()) {
                self.ensure(part, soon).await?;
            }
        }
        self.run(async |client| {
            client
                .execute(
                    "INSERT INTO bunraku.settings(name, value) VALUES('checks', 1) \
                     ON CONFLICT(name) DO UPDATE SET value = settings.value + 1",
                    &[],
                )
                .await
                .map(drop)
        })
        .await
    }

    fn outage(&self) -> Option<HistoryOutage> {
        self.inner.pool.outage.current()
    }
}
