//! The lease that shows that this server is working.
//!
//! All claims of a server are bound to one lease. The server stops its claimed
//! work as soon as it cannot be sure that the lease is still valid. This
//! happens before the store ends the lease, so no other server has started by
//! then.

use std::time::Duration;

use bunraku_store::{LeaseId, SharedStore, StoreError};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A lease, and a signal to stop relying on it.
#[derive(Clone, Debug)]
pub struct WorkLease {
    pub id: LeaseId,
    /// Cancelled when the lease may end.
    pub lost: CancellationToken,
}

/// Keeps a lease for as long as the server works.
pub struct LeaseKeeper {
    store: SharedStore,
    ttl: Duration,
    current: watch::Sender<Option<WorkLease>>,
}

impl LeaseKeeper {
    pub fn new(store: SharedStore, ttl: Duration) -> Self {
        Self {
            store,
            ttl,
            current: watch::channel(None).0,
        }
    }

    pub fn subscribe(&self) -> watch::Receiver<Option<WorkLease>> {
        self.current.subscribe()
    }

    /// Runs until cancelled; then all claims are free at once.
    pub async fn run(&self, shutdown: &CancellationToken) {
        while !shutdown.is_cancelled() {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.hold_one() => {}
            }
            if let Some(lease) = self.current.send_replace(None) {
                lease.lost.cancel();
                let _ = self.store.lease_revoke(lease.id).await;
            }
        }
    }

    /// Holds one lease, from its grant until it may have ended.
    async fn hold_one(&self) {
        let mut confirmed = Instant::now();
        let id = match self.store.lease_grant(self.ttl).await {
            Ok(id) => id,
            Err(error) => {
                tracing::warn!(error = %error, "cannot get a lease for compiles; retrying");
                tokio::time::sleep(self.ttl / 3).await;
                return;
            }
        };
        let lost = CancellationToken::new();
        self.current.send_replace(Some(WorkLease { id, lost }));
        loop {
            tokio::time::sleep(self.ttl / 4).await;
            let asked = Instant::now();
            // Counted from the last confirmed renewal, with time left to stop.
            let doubt = confirmed + self.ttl.mul_f64(0.8);
            match tokio::time::timeout_at(doubt, self.store.lease_keep_alive(id)).await {
                Ok(Ok(())) => confirmed = asked,
                Ok(Err(StoreError::LeaseNotFound(_))) | Err(_) => {
                    tracing::warn!("the lease of this server's compiles was lost; restarting them");
                    return;
                }
                Ok(Err(error)) if Instant::now() >= doubt => {
                    tracing::warn!(error = %error, "the lease of this server's compiles may have expired; restarting them");
                    return;
                }
                Ok(Err(_)) => {}
            }
        }
    }
}
