//! What can be set for an embedded store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::clock::{Clock, SystemClock};

/// The defaults suit a server; change what you need.
#[derive(Clone)]
pub struct EmbeddedOptions {
    /// History older than this is forgotten (counted anew at each start).
    pub keep_history_for: Duration,
    /// At most so many revisions of history are kept, however young.
    pub keep_revisions: u64,
    /// With this many bytes in use, what would add to them is refused; deletes are
    /// done still. The write-ahead log and a reserve of 4 MiB come on top.
    pub quota_bytes: u64,
    /// Files up to this size are verified in whole when opened (some 300 MB per
    /// second); larger ones are verified row by row as they are read.
    pub verify_up_to_bytes: u64,
    /// The newest revisions that are kept in memory for watches, in bytes.
    pub recent_bytes: usize,
    /// How long to wait for another owner to go before saying that it is there.
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
