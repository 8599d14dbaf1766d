//! A store in one directory, without other software.
//!
//! SQLite keeps the data (write-ahead log, synchronous=FULL). One thread writes, in groups
//! (`writer`, `group`); others read snapshots (`readers`). Watches are served from memory and from
//! the history table (`hub`, `watching`).
//!
//! The directory holds `store.sqlite` with its log, `lock` and `acknowledged`.
//!
//! An acknowledged write survives the end of the process at any moment, and a power failure,
//! provided that the disk honours fsync.
//!
//! Leases use a clock that nobody can set. After a restart, a lease has the rest of its time: time
//! continues to count while the store is closed.

mod clock;
mod failure;
mod file;
mod group;
mod hub;
mod job;
mod leases;
mod lock;
mod options;
mod range;
mod readers;
mod retention;
mod rows;
mod watching;
mod witness;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{Semaphore, oneshot};

pub use self::clock::{Clock, SystemClock};
pub use self::options::EmbeddedOptions;

use self::failure::RequestResult;
use self::group::CommitGroup;
use self::hub::Hub;
use self::job::JobOf;
use self::lock::DirectoryLock;
use self::readers::Readers;
use self::retention::Retention;
use self::writer::{Writer, WriterMessage};
use crate::{
    KeyValue, LeaseId, LeaseStatus, MemberSpace, Range, RangePage, Revision, Store, StoreError,
    StoreSpace, Transaction, TransactionOutcome, WatchStart, WatchStream, limits,
};

/// The number of requests that may wait for the writer. Further requests wait for a free slot.
const QUEUE: usize = 4096;
/// The longest lease: a year, more than any client stays silent.
const LONGEST_LEASE: Duration = Duration::from_secs(366 * 24 * 3600);

/// A handle. Cheap to clone. The store closes after the last one is dropped, or with
/// [`EmbeddedStore::close`].
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

struct Inner {
    messages: Mutex<Sender<WriterMessage>>,
    places: Arc<Semaphore>,
    hub: Arc<Hub>,
    readers: Arc<Readers>,
    clock: Arc<dyn Clock>,
    quota_bytes: i64,
    /// As of the last write.
    used_bytes: Arc<AtomicI64>,
}

impl EmbeddedStore {
    /// Opens the store in `directory`, and creates the directory if needed.
    ///
    /// Needs a tokio runtime. The work runs outside its async threads.
    pub async fn open(directory: &Path, options: EmbeddedOptions) -> Result<Self, StoreError> {
        let directory = directory.to_owned();
        let opened = tokio::task::spawn_blocking(move || open(directory, options));
        match opened.await {
            Ok(result) => result,
            Err(error) => Err(StoreError::Unavailable(Box::new(error))),
        }
    }

    /// Finishes waiting requests, flushes and releases the directory.
    ///
    /// This affects all handles: later requests fail with [`StoreError::Closed`], and watches end
    /// with it.
    pub async fn close(&self) -> Result<(), StoreError> {
        let (reply, closed) = oneshot::channel();
        self.send(WriterMessage::Close(reply))?;
        closed.await.unwrap_or(Err(StoreError::Closed))
    }

    fn send(&self, message: WriterMessage) -> Result<(), StoreError> {
        self.inner
            .messages
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send(message)
            .map_err(|_| StoreError::Closed)
    }

    /// Makes the writer perform `work`, and waits until the result is durable.
    async fn write<T, W>(&self, bytes: usize, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnMut(&mut CommitGroup<'_>) -> RequestResult<T> + Send + 'static,
    {
        let place = Arc::clone(&self.inner.places)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        let (reply, answered) = oneshot::channel();
        self.send(WriterMessage::Job(Box::new(JobOf {
            work,
            bytes,
            arrived: self.inner.clock.since_boot(),
            answer: None,
            reply,
            _place: place,
        })))?;
        match answered.await {
            Ok(answer) => answer,
            // The writer ended in order, and never started this request ...
            Err(_) if self.inner.hub.closed_in_order() => Err(StoreError::Closed),
            // ... or it ended otherwise.
            Err(error) => Err(StoreError::OutcomeUnknown(Box::new(error))),
        }
    }
}

fn open(directory: PathBuf, options: EmbeddedOptions) -> Result<EmbeddedStore, StoreError> {
    file::make_directory(&directory)?;
    let lock = DirectoryLock::acquire(&directory, options.lock_wait)?;
    let mut opened = file::open(&directory, &options)?;
    let path = file::database_path(&directory);
    let (leases, boot) = leases::take_over(&mut opened.connection, &*options.clock)
        .map_err(|failure| failure.into_store_error(&path, "open the store"))?;
    let hub = Arc::new(Hub::new(
        opened.revision,
        opened.oldest,
        options.recent_bytes,
    ));
    let readers = Arc::new(Readers::new(path.clone()));
    let (messages, received) = channel();
    let used_bytes = Arc::new(AtomicI64::new(0));
    let quota_bytes = file::quota(&options);
    let writer = Writer {
        connection: opened.connection,
        path,
        witness: opened.witness,
        revision: opened.revision,
        oldest: opened.oldest,
        leases,
        boot,
        clock: Arc::clone(&options.clock),
        hub: Arc::clone(&hub),
        readers: Arc::clone(&readers),
        retention: Retention::new(options.keep_history_for, options.keep_revisions),
        messages: received,
        trimming: true,
        rest_until: None,
        quota_bytes: file::quota(&options),
        used_bytes: Arc::clone(&used_bytes),
        failed: false,
        lock,
    };
    std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || {
            // Applies to a panic too: nobody may wait for a writer that is gone.
            let _ends = EndWatches(Arc::clone(&writer.hub));
            writer.run();
        })
        .map_err(|source| StoreError::Io {
            doing: "start the store's writer".to_owned(),
            source,
        })?;
    Ok(EmbeddedStore {
        inner: Arc::new(Inner {
            messages: Mutex::new(messages),
            places: Arc::new(Semaphore::new(QUEUE)),
            hub,
            readers,
            clock: options.clock,
            quota_bytes,
            used_bytes,
        }),
    })
}

#[async_trait]
impl Store for EmbeddedStore {
    async fn get(&self, key: &str) -> Result<Option<KeyValue>, StoreError> {
        limits::check_key(key)?;
        let key = key.to_owned();
        self.inner
            .readers
            .read(move |connection| rows::get_key(connection, &key))
            .await
    }

    async fn range(&self, range: Range) -> Result<RangePage, StoreError> {
        limits::check_prefix(&range.prefix)?;
        self.inner
            .readers
            .read(move |connection| range::read_page(connection, &range))
            .await
    }

    async fn commit(&self, transaction: Transaction) -> Result<TransactionOutcome, StoreError> {
        limits::check_transaction(&transaction)?;
        let bytes = limits::transaction_bytes(&transaction);
        self.write(bytes, move |group| group.commit(&transaction))
            .await
    }

    async fn watch(&self, prefix: &str, start: WatchStart) -> Result<WatchStream, StoreError> {
        limits::check_prefix(prefix)?;
        let start = match start {
            WatchStart::Now => None,
            WatchStart::At(revision) => Some(revision),
        };
        let registration = self.inner.hub.register(prefix, start)?;
        let readers = Arc::clone(&self.inner.readers);
        Ok(watching::stream(registration, prefix.to_owned(), readers))
    }

    fn space(&self) -> Option<StoreSpace> {
        let bytes = |number: i64| u64::try_from(number).unwrap_or_default();
        let used = bytes(self.inner.used_bytes.load(Ordering::Relaxed));
        Some(StoreSpace {
            members: vec![MemberSpace {
                name: "local".to_owned(),
                // Unused pages are used before the file grows.
                size_bytes: used,
                used_bytes: used,
                quota_bytes: Some(bytes(self.inner.quota_bytes)),
            }],
            is_alarm_raised: false,
        })
    }

    async fn lease_grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        if ttl < Duration::from_millis(1) || ttl > LONGEST_LEASE {
            return Err(StoreError::Invalid(format!(
                "a lease lasts a millisecond to a year, not {ttl:?}"
            )));
        }
        let id = new_lease();
        self.write(0, move |group| group.grant(id, ttl)).await
    }

    async fn lease_keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.write(0, move |group| group.keep_alive(lease)).await
    }

    async fn lease_revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.write(0, move |group| group.revoke(lease)).await
    }

    async fn lease_status(&self, lease: LeaseId) -> Result<Option<LeaseStatus>, StoreError> {
        self.write(0, move |group| group.lease_status(lease)).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.write(0, move |group| group.compact(revision.0)).await
    }
}

struct EndWatches(Arc<Hub>);

impl Drop for EndWatches {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Random, so that no number is issued twice and none needs to be remembered.
fn new_lease() -> LeaseId {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    LeaseId(rows::signed((high >> 1).max(1)))
}
