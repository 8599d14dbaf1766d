//! History in a directory: one SQLite file, with tables for each period of time.
//!
//! Dropping a period drops its tables, and SQLite uses their pages again, so the file stops growing
//! once the oldest periods are dropped. Every append is durable when it returns.
//!
//! For one server: the file is locked for as long as it is open.

mod file;
mod rows;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use jiff::Timestamp;
use rusqlite::{Connection, ErrorCode};
use tokio::sync::Semaphore;

use super::outage::OutageNote;
use super::period::Period;
use super::{
    Appended, EventChunk, FoundRecord, History, HistoryAppend, HistoryError, HistoryFilter,
    HistoryOutage, HistoryPage, HistoryPart, HistoryRecord, RecordId, cover,
};
use crate::{StoreError, Transaction};

/// The number of concurrent reads.
const READERS: usize = 4;

/// The history of one server. This is a handle: clones are the same history.
#[derive(Clone)]
pub struct SqliteHistory {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
    write: Arc<Semaphore>,
    read: Arc<Semaphore>,
    outage: OutageNote,
    /// Locks the directory.
    _lock: std::fs::File,
}

impl SqliteHistory {
    /// Opens the history in a directory, and creates it if needed.
    pub async fn open(directory: impl Into<PathBuf>) -> Result<Self, HistoryError> {
        let directory = directory.into();
        let opened = tokio::task::spawn_blocking(move || file::open(&directory)).await;
        let (path, writer, lock) = match opened {
            Ok(opened) => opened?,
            Err(error) => return Err(StoreError::Unavailable(Box::new(error)).into()),
        };
        Ok(Self {
            inner: Arc::new(Inner {
                path,
                writer: Mutex::new(writer),
                readers: Mutex::default(),
                write: Arc::new(Semaphore::new(1)),
                read: Arc::new(Semaphore::new(READERS)),
                outage: OutageNote::default(),
                _lock: lock,
            }),
        })
    }

    /// Runs `work` in a transaction of its own.
    async fn write<T, W>(&self, work: W) -> Result<T, HistoryError>
    where
        T: Send + 'static,
        W: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = acquire(&self.inner.write).await?;
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            // Each transaction that failed was rolled back.
            let mut writer = inner.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let transaction =
                writer.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
            let written = transaction.and_then(|transaction| {
                let value = work(&transaction)?;
                transaction.commit()?;
                Ok(value)
            });
            written.map_err(|error| translate(&inner.path, error))
        });
        self.inner.outage.note(joined(done.await))
    }

    /// Runs `work` on one snapshot.
    async fn read<T, W>(&self, work: W) -> Result<T, HistoryError>
    where
        T: Send + 'static,
        W: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let permit = acquire(&self.inner.read).await?;
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let idle = inner.lock_readers().pop();
            let read = match idle {
                Some(connection) => Ok(connection),
                None => file::connect_reader(&inner.path),
            };
            let read = read.and_then(|connection| {
                let snapshot = connection.unchecked_transaction()?;
                let value = work(&snapshot)?;
                drop(snapshot);
                inner.lock_readers().push(connection);
                Ok(value)
            });
            read.map_err(|error| translate(&inner.path, error))
        });
        joined(done.await)
    }
}

impl Inner {
    fn lock_readers(&self) -> MutexGuard<'_, Vec<Connection>> {
        // A panic cannot leave the list incomplete.
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn acquire(
    permits: &Arc<Semaphore>,
) -> Result<tokio::sync::OwnedSemaphorePermit, HistoryError> {
    let acquired = Arc::clone(permits).acquire_owned().await;
    acquired.map_err(|_| StoreError::Closed.into())
}

fn joined<T>(
    done: Result<Result<T, HistoryError>, tokio::task::JoinError>,
) -> Result<T, HistoryError> {
    done.unwrap_or_else(|error| Err(StoreError::Unavailable(Box::new(error)).into()))
}

fn translate(path: &Path, error: rusqlite::Error) -> HistoryError {
    let backend = path.display().to_string();
    let source = Box::new(error);
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => HistoryError::Full { backend, source },
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied,
        ) => HistoryError::Unavailable { backend, source },
        _ => HistoryError::Failed { backend, source },
    }
}

#[async_trait]
impl History for SqliteHistory {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    async fn append(
        &self,
        transaction: Transaction,
        append: HistoryAppend,
    ) -> Result<(Transaction, Appended), HistoryError> {
        let appended = self
            .write(move |tables| rows::append(tables, &append))
            .await;
        appended.map(|appended| (transaction, appended))
    }

    async fn import(
        &self,
        record: HistoryRecord,
        also: Vec<String>,
        events: Vec<EventChunk>,
    ) -> Result<(), HistoryError> {
        self.write(move |tables| rows::import(tables, record, &also, &events))
            .await
    }

    async fn close(&self, record: HistoryRecord) -> Result<(), HistoryError> {
        let record = HistoryRecord {
            is_closed: true,
            ..record
        };
        self.write(move |tables| rows::import(tables, record, &[], &[]))
            .await
    }

    async fn record(&self, id: &RecordId) -> Result<Option<HistoryRecord>, HistoryError> {
        let id = id.clone();
        self.read(move |tables| rows::record(tables, &id)).await
    }

    async fn aliases(&self, record: &HistoryRecord) -> Result<Vec<String>, HistoryError> {
        let record = record.clone();
        self.read(move |tables| rows::aliases(tables, &record))
            .await
    }

    async fn events(
        &self,
        id: &RecordId,
        at: Timestamp,
        from: u64,
    ) -> Result<Vec<EventChunk>, HistoryError> {
        let id = id.clone();
        let chunks = self
            .read(move |tables| rows::events(tables, &id, at, from))
            .await?;
        Ok(cover(chunks, from))
    }

    async fn list(&self, filter: &HistoryFilter) -> Result<HistoryPage, HistoryError> {
        let filter = filter.clone();
        self.read(move |tables| rows::list(tables, &filter)).await
    }

    async fn find(&self, prefix: &str, limit: usize) -> Result<Vec<FoundRecord>, HistoryError> {
        let prefix = prefix.to_owned();
        self.read(move |tables| rows::find(tables, &prefix, limit))
            .await
    }

    async fn remove(&self, id: &RecordId) -> Result<(), HistoryError> {
        let id = id.clone();
        self.write(move |tables| rows::remove(tables, &id.owner, Some(&id.id)))
            .await
    }

    async fn remove_owner(&self, owner: &str) -> Result<(), HistoryError> {
        let owner = owner.to_owned();
        self.write(move |tables| rows::remove(tables, &owner, None))
            .await
    }

    async fn drop_before(
        &self,
        part: HistoryPart,
        before: Timestamp,
    ) -> Result<usize, HistoryError> {
        self.write(move |tables| rows::drop_before(tables, part, before))
            .await
    }

    async fn events_since(&self) -> Result<Option<Timestamp>, HistoryError> {
        self.read(|tables| {
            let floor = rows::floor(tables, HistoryPart::Events)?;
            Ok(floor.and_then(|floor| Timestamp::from_microsecond(floor).ok()))
        })
        .await
    }

    async fn check(&self, now: Timestamp) -> Result<(), HistoryError> {
        self.write(move |tables| {
            for part in [HistoryPart::Events, HistoryPart::Records] {
                rows::ensure(tables, Period::of(part, now))?;
            }
            rows::touch(tables)
        })
        .await
    }

    fn outage(&self) -> Option<HistoryOutage> {
        self.inner.outage.current()
    }
}
