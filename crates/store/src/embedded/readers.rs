//! Connections for reading, outside the async threads.
//!
//! A reader sees only whole and durable commits: SQLite shows a commit to readers after its log is
//! synced.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::failure::Failure;
use super::file;
use crate::StoreError;

const CONNECTIONS: usize = 8;

pub(super) struct Readers {
    path: PathBuf,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            permits: Arc::new(Semaphore::new(CONNECTIONS)),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Runs `work` on one snapshot of the database.
    pub(super) async fn read<T, W>(self: &Arc<Self>, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || {
            let result = readers.read_blocking(work);
            drop(permit);
            result
        });
        match read.await {
            Ok(result) => result,
            Err(error) => Err(StoreError::Unavailable(Box::new(error))),
        }
    }

    fn read_blocking<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let fail = |failure: Failure| failure.into_store_error(&self.path, "read the store");
        let pooled = self.lock().pop();
        let connection = match pooled {
            Some(connection) => connection,
            None => file::connect_reader(&self.path).map_err(fail)?,
        };
        let result = connection
            .unchecked_transaction()
            .map_err(Failure::from)
            .and_then(|snapshot| work(&snapshot));
        // A failed connection is not used again.
        let value = result.map_err(fail)?;
        if !self.permits.is_closed() {
            self.lock().push(connection);
        }
        Ok(value)
    }

    /// Refuses new reads and waits for those in progress.
    pub(super) fn close(&self) {
        self.permits.close();
        let mut waited = 0;
        // This is the end of the writer's thread: it may block, but not for ever.
        while self.permits.available_permits() < CONNECTIONS && waited < 1000 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            waited += 1;
        }
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A panic of the lock's holder cannot leave the list of connections incomplete.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
