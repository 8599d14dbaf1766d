//! The single thread that writes.
//!
//! It takes all waiting requests as one group (see `group`), commits the group with one fsync, and
//! only then answers. While the disk works, the next group gathers: the more concurrent writers,
//! the fewer syncs per write.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::clock::Clock;
use super::failure::Failure;
use super::file;
use super::group::{CommitGroup, StagedChanges};
use super::hub::Hub;
use super::job::Job;
use super::leases::{Boot, Leases};
use super::lock::DirectoryLock;
use super::readers::Readers;
use super::retention::Retention;
use super::rows;
use super::witness::Witness;
use crate::StoreError;

/// A group ends when it reaches one of these limits. In a large burst, the first requests are
/// durable and answered while the last are still being written.
const GROUP_JOBS: usize = 1024;
const GROUP_BYTES: usize = 256 << 10;
/// The number of leases ended at once.
const GROUP_LEASES: usize = 256;
/// The operating system's timers stop while the machine sleeps. With active leases, check the clock
/// at least this often.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT_WITH_LEASES: Duration = Duration::from_secs(1);
/// The number of rows of compacted history, and of pages, freed between two groups.
const TRIM_ROWS: usize = 2000;
const TRIM_PAGES: i64 = 500;
/// The pause before failed housekeeping is tried again (most failures are a full disk).
const REST: Duration = Duration::from_secs(1);

/// The requester of the store's close.
pub(super) type CloseReply = oneshot::Sender<Result<(), StoreError>>;

pub(super) enum WriterMessage {
    Job(Box<dyn Job>),
    Close(CloseReply),
}

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) witness: Witness,
    pub(super) revision: u64,
    pub(super) oldest: u64,
    pub(super) leases: Leases,
    pub(super) boot: Boot,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) hub: Arc<Hub>,
    pub(super) readers: Arc<Readers>,
    pub(super) retention: Retention,
    pub(super) messages: Receiver<WriterMessage>,
    /// Rows of compacted history remain, or pages to free.
    pub(super) trimming: bool,
    pub(super) rest_until: Option<Instant>,
    /// The quota in bytes. When it is reached, only requests that free space are accepted.
    pub(super) quota_bytes: i64,
    /// The bytes that are used, for readers.
    pub(super) used_bytes: Arc<AtomicI64>,
    /// The disk did not confirm a write, so nothing can be guaranteed any more.
    pub(super) failed: bool,
    /// Released last.
    pub(super) lock: DirectoryLock,
}

/// The reason why a group stopped, for its requests.
enum GroupStop {
    NotDone(Failure),
    Unknown(Failure),
}

impl Writer {
    pub(super) fn run(mut self) {
        let closing = loop {
            match self.messages.recv_timeout(self.wait()) {
                Ok(WriterMessage::Job(job)) => {
                    let (jobs, closing) = self.gather(job);
                    self.perform(jobs);
                    if closing.is_some() {
                        break closing;
                    }
                }
                Ok(WriterMessage::Close(reply)) => break Some(reply),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break None,
            }
            self.run_upkeep();
        };
        let result = self.shut_down();
        if let Err(error) = &result {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "the store did not close cleanly"
            );
        }
        if let Some(reply) = closing {
            // The receiver may be gone.
            let _ = reply.send(result);
        }
    }

    fn wait(&self) -> Duration {
        if self.failed {
            return LONGEST_WAIT;
        }
        if let Some(until) = self.rest_until {
            return until.saturating_duration_since(Instant::now());
        }
        if self.trimming {
            return Duration::ZERO;
        }
        let now = self.clock.since_boot();
        let wait = self.retention.next().saturating_sub(now).min(LONGEST_WAIT);
        match self.leases.next_end() {
            None => wait,
            Some(end) => wait
                .min(end.saturating_sub(now))
                .min(LONGEST_WAIT_WITH_LEASES),
        }
    }

    fn gather(&self, first: Box<dyn Job>) -> (Vec<Box<dyn Job>>, Option<CloseReply>) {
        let mut bytes = first.bytes();
        let mut jobs = vec![first];
        while jobs.len() < GROUP_JOBS && bytes < GROUP_BYTES {
            match self.messages.try_recv() {
                Ok(WriterMessage::Job(job)) => {
                    bytes += job.bytes();
                    jobs.push(job);
                }
                Ok(WriterMessage::Close(reply)) => return (jobs, Some(reply)),
                Err(_) => break,
            }
        }
        (jobs, None)
    }

    /// Performs all jobs with one fsync. If that fails, performs each job separately, so that one
    /// impossible job does not fail the others.
    fn perform(&mut self, mut jobs: Vec<Box<dyn Job>>) {
        if jobs.len() > 1 && !self.failed {
            match self.attempt(|group| jobs.iter_mut().try_for_each(|job| job.perform(group))) {
                Ok(()) => return jobs.into_iter().for_each(Job::finish),
                Err(GroupStop::Unknown(failure)) => {
                    tracing::error!(?failure, "the disk did not confirm a write");
                    return jobs.into_iter().for_each(|job| job.fail(unknown()));
                }
                Err(GroupStop::NotDone(failure)) => {
                    tracing::debug!(
                        ?failure,
                        "a group of writes failed; retrying them one by one"
                    );
                }
            }
        }
        for mut job in jobs {
            if self.failed {
                job.fail(failed());
                continue;
            }
            match self.attempt(|group| job.perform(group)) {
                Ok(()) => job.finish(),
                Err(GroupStop::Unknown(failure)) => {
                    tracing::error!(?failure, "the disk did not confirm a write");
                    job.fail(unknown());
                }
                Err(GroupStop::NotDone(failure)) => {
                    job.fail(failure.into_store_error(&self.path, "write to the store"));
                }
            }
        }
    }

    /// Runs one SQLite transaction. The state in memory changes only once it is durable.
    fn attempt(
        &mut self,
        work: impl FnOnce(&mut CommitGroup<'_>) -> Result<(), Failure>,
    ) -> Result<(), GroupStop> {
        let not_done = |error: rusqlite::Error| GroupStop::NotDone(error.into());
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(not_done)?;
        let mut group = CommitGroup::new(&transaction, &self.leases, self.revision, self.oldest);
        let used = used_bytes(&transaction).map_err(not_done)?;
        self.used_bytes.store(used, Ordering::Relaxed);
        group.room_bytes = self.quota_bytes - used;
        work(&mut group).map_err(GroupStop::NotDone)?;
        let staged = group.staged;
        if let Err(error) = transaction.commit() {
            let failure = Failure::from(error);
            if failure.leaves_outcome_unknown() {
                self.fail();
                return Err(GroupStop::Unknown(failure));
            }
            return Err(GroupStop::NotDone(failure));
        }
        self.adopt(staged);
        Ok(())
    }

    fn adopt(&mut self, staged: StagedChanges) {
        for (id, lease) in staged.leases {
            self.leases.set(id, lease);
        }
        if let Some(oldest) = staged.oldest {
            self.oldest = oldest;
            self.trimming = true;
            self.hub.set_oldest(oldest);
        }
        if let Some(last) = staged.batches.last() {
            self.revision = last.revision.0;
            if let Err(error) = self.witness.record(self.revision) {
                tracing::warn!(%error, "cannot record the acknowledged revision");
            }
            self.hub.publish(staged.batches);
        }
    }

    /// Stops the writer. After a failed fsync the kernel may have dropped unwritten data, so
    /// readers may see something else than a restart finds. Only reopening the file shows the
    /// actual state.
    fn fail(&mut self) {
        self.failed = true;
        self.hub.close();
        self.readers.close();
    }

    fn run_upkeep(&mut self) {
        if self.failed || self.rest_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.rest_until = None;
        for step in [
            Self::end_leases,
            Self::follow_wall_clock,
            Self::forget_history,
            Self::trim,
        ] {
            if let Err(GroupStop::NotDone(failure) | GroupStop::Unknown(failure)) = step(self) {
                tracing::warn!(?failure, "the store's maintenance failed; retrying");
                self.rest_until = Some(Instant::now() + REST);
                return;
            }
        }
    }

    fn end_leases(&mut self) -> Result<(), GroupStop> {
        let ended = self.leases.ended(self.clock.since_boot(), GROUP_LEASES);
        if ended.is_empty() {
            return Ok(());
        }
        self.attempt(|group| ended.iter().try_for_each(|lease| group.end_lease(*lease)))
    }

    fn follow_wall_clock(&mut self) -> Result<(), GroupStop> {
        if self.leases.next_end().is_none() || !self.boot.was_set(&*self.clock) {
            return Ok(());
        }
        let boot = self.boot.with_wall_of(&*self.clock);
        boot.write(&self.connection).map_err(GroupStop::NotDone)?;
        self.boot = boot;
        Ok(())
    }

    fn forget_history(&mut self) -> Result<(), GroupStop> {
        let now = self.clock.since_boot();
        if now < self.retention.next() {
            return Ok(());
        }
        let oldest = self.retention.oldest(now, self.revision);
        if oldest <= self.oldest {
            return Ok(());
        }
        self.attempt(|group| group.compact(oldest).map(drop))
    }

    /// Does a bounded amount of work, so that writers never wait for long.
    fn trim(&mut self) -> Result<(), GroupStop> {
        if !self.trimming {
            return Ok(());
        }
        let deleted = trim_rows(&self.connection, self.oldest).map_err(GroupStop::NotDone)?;
        if deleted < TRIM_ROWS {
            let left = trim_pages(&self.connection).map_err(GroupStop::NotDone)?;
            self.trimming = left > 0;
        }
        Ok(())
    }

    fn shut_down(self) -> Result<(), StoreError> {
        self.hub.close();
        self.readers.close();
        if self.failed {
            return Err(failed());
        }
        let fail = |error: rusqlite::Error| {
            Failure::from(error).into_store_error(&self.path, "close the store")
        };
        self.connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .map_err(fail)?;
        self.connection.close().map_err(|(_, error)| fail(error))?;
        self.witness.sync().map_err(|source| StoreError::Io {
            doing: "close the store".to_owned(),
            source,
        })?;
        drop(self.lock);
        Ok(())
    }
}

fn trim_rows(connection: &Connection, oldest: u64) -> Result<usize, Failure> {
    let deleted = connection
        .prepare_cached(
            "DELETE FROM history WHERE id IN
             (SELECT id FROM history WHERE id < ?1 ORDER BY id LIMIT ?2)",
        )?
        .execute((rows::history_id(oldest, 0), TRIM_ROWS as i64))?;
    Ok(deleted)
}

/// Returns free pages to the file system. The result is the number of pages left.
fn trim_pages(connection: &Connection) -> Result<i64, Failure> {
    if free_pages(connection)? == 0 {
        return Ok(0);
    }
    let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({TRIM_PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    drop(rows);
    Ok(free_pages(connection)?)
}

fn free_pages(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("PRAGMA freelist_count")?;
    statement.query_row([], |row| row.get(0))
}

fn used_bytes(connection: &Connection) -> rusqlite::Result<i64> {
    let mut statement = connection.prepare_cached("PRAGMA page_count")?;
    let pages: i64 = statement.query_row([], |row| row.get(0))?;
    Ok((pages - free_pages(connection)?) * file::PAGE_BYTES)
}

fn unknown() -> StoreError {
    StoreError::OutcomeUnknown("the disk did not confirm the write".into())
}

fn failed() -> StoreError {
    StoreError::Unavailable("the disk failed to confirm a write; open the store again".into())
}
