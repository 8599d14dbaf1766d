//! Detects that the shared connection has been idle for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Counts the requests and replies in progress.
#[derive(Clone, Debug, Default)]
pub(super) struct UseCounter(Arc<watch::Sender<usize>>);

/// One request or reply in progress, until dropped.
#[derive(Debug)]
pub(super) struct UseGuard(Arc<watch::Sender<usize>>);

impl UseCounter {
    pub(super) fn begin(&self) -> UseGuard {
        self.0.send_modify(|count| *count += 1);
        UseGuard(Arc::clone(&self.0))
    }

    pub(super) fn is_empty(&self) -> bool {
        *self.0.borrow() == 0
    }

    pub(super) fn watch(&self) -> UseWatch {
        UseWatch(self.0.subscribe())
    }
}

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Watches uses begin and end, without keeping the connection open.
pub(super) struct UseWatch(watch::Receiver<usize>);

impl UseWatch {
    /// Waits until the connection has been unused for `span`. Returns `false` if it was
    /// dropped before that.
    pub(super) async fn unused_for(&mut self, span: Duration) -> bool {
        loop {
            if self.0.wait_for(|count| *count == 0).await.is_err() {
                return false;
            }
            match tokio::time::timeout(span, self.0.changed()).await {
                Err(_) => return true,
                Ok(Ok(())) => {}
                Ok(Err(_)) => return false,
            }
        }
    }
}
