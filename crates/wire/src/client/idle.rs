//! When nobody has used the shared connection for a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// Counts the requests and replies under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Uses(Arc<watch::Sender<usize>>);

/// One of them, until dropped.
#[derive(Debug)]
pub(super) struct InUse(Arc<watch::Sender<usize>>);

impl Uses {
    pub(super) fn begin(&self) -> InUse {
        self.0.send_modify(|count| *count += 1);
        InUse(Arc::clone(&self.0))
    }

    pub(super) fn none(&self) -> bool {
        *self.0.borrow() == 0
    }

    pub(super) fn watch(&self) -> UseWatch {
        UseWatch(self.0.subscribe())
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Sees uses begin and end, without keeping the connection.
pub(super) struct UseWatch(watch::Receiver<usize>);

impl UseWatch {
    /// Waits until there was no use for `span`; `false` when the connection
    /// went away before.
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
