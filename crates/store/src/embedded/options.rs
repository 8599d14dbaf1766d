//! The options of an embedded store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, SystemClock};

/// Options for opening a store. The defaults suit a server.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// The maximum age of history. Ages restart from zero at each start.
    pub keep_history_for: Duration,
    /// The maximum number of revisions in history, regardless of their age.
    pub keep_revisions: u64,
    /// The quota in bytes. When it is reached, writes that add data are refused; deletes still
    /// work. The write-ahead log and a reserve of 4 MiB are not included.
    pub quota_bytes: u64,
    /// Files up to this size are verified completely when opened (about 300 MB per second). Larger
    /// ones are verified row by row as they are read.
    pub verify_up_to_bytes: u64,
    /// The amount of recent revisions kept in memory for watches, in bytes.
    pub recent_bytes: usize,
    /// The time to wait for another owner to release the lock before reporting it.
    pub lock_wait: Duration,
    pub clock: Arc<dyn Clock>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            keep_history_for: Duration::from_secs(3600),
            keep_revisions: 500_000,
            quota_bytes: 8 << 30,
            verify_up_to_bytes: 256 << 20,
            recent_bytes: 16 << 20,
            lock_wait: Duration::from_secs(1),
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for EmbeddedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedOptions")
            .field("keep_history_for", &self.keep_history_for)
            .field("keep_revisions", &self.keep_revisions)
            .field("quota_bytes", &self.quota_bytes)
            .field("verify_up_to_bytes", &self.verify_up_to_bytes)
            .field("recent_bytes", &self.recent_bytes)
            .field("lock_wait", &self.lock_wait)
            .finish_non_exhaustive()
    }
}
