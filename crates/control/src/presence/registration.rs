//! The registration of this server, and what follows after it was lost.
//!
//! The lease is kept alive by a task that does nothing else, so no amount of other
//! work lets it end.

use std::sync::atomic::Ordering;

use bunraku_model::{Connection, ContentPlace, NodeName};
use bunraku_store::{LeaseId, StoreError, Transaction, settle};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::{Interval, MissedTickBehavior};

use super::session_batch::{BATCH, ServerState, SessionChange};
use super::{Presence, Session, StoredConnection};
use crate::{ServiceError, document, keys};

/// A registered server as stored.
#[derive(Serialize, Deserialize)]
pub(crate) struct StoredRegistration {
    registered: Timestamp,
    /// The places of content that it can use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) places: Vec<ContentPlace>,
    /// True if the server lists its sessions. Earlier versions do not.
    #[serde(default)]
    pub(super) lists_sessions: bool,
}

impl Presence {
    /// Registers the server if needed. A node must not count as connected to a
    /// server that the others do not know.
    pub(super) async fn ensure_registered(&self) -> Result<(), ServiceError> {
        if self.inner.registered.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut lease = self.inner.lease.lock().await;
        if lease.is_none() {
            *lease = Some(self.register().await?);
            self.inner.registered.store(true, Ordering::Release);
        }
        Ok(())
    }

    async fn register(&self) -> Result<LeaseId, ServiceError> {
        let lease = self
            .inner
            .store
            .lease_grant(self.inner.options.server_ttl)
            .await?;
        let registration = StoredRegistration {
            registered: self.inner.clock.now(),
            places: self.inner.options.places.clone(),
            lists_sessions: true,
        };
        let server = self.inner.server;
        let transaction = Transaction::new()
            .put_with_lease(keys::server(server), document::encode(&registration), lease)
            .put(keys::session_server(server), "");
        settle(&*self.inner.store, transaction).await?;
        Ok(lease)
    }

    /// Keeps the lease alive. Never returns.
    pub(super) async fn keep_registered(&self) {
        let mut tick = self.interval();
        loop {
            tick.tick().await;
            if let Err(error) = self.renew().await {
                tracing::warn!(error = %crate::error::chain(&error), "cannot keep this server registered");
            }
        }
    }

    fn interval(&self) -> Interval {
        let mut tick = tokio::time::interval(self.inner.options.server_ttl / 3);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick
    }

    /// Keeps the lease alive, or registers again if the lease has ended (a stall, a
    /// long pause). The sessions that are still open here are claimed afterwards.
    pub(super) async fn renew(&self) -> Result<(), ServiceError> {
        let mut lease = self.inner.lease.lock().await;
        if let Some(known) = *lease {
            match self.inner.store.lease_keep_alive(known).await {
                Err(StoreError::LeaseNotFound(_)) => {}
                kept => return Ok(kept?),
            }
        }
        tracing::warn!("this server is not registered; registering");
        *lease = Some(self.register().await?);
        self.inner.registered.store(true, Ordering::Release);
        self.inner.registered_again.notify_one();
        Ok(())
    }

    /// Returns the lease of the registration, if the server is registered.
    pub(super) async fn lease(&self) -> Option<LeaseId> {
        *self.inner.lease.lock().await
    }

    /// Makes the stored connections match the sessions of this server whenever they
    /// may differ. Never returns.
    pub(super) async fn repair_sessions(&self) {
        let mut tick = self.interval();
        let mut unclaimed = false;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = self.inner.registered_again.notified() => unclaimed = true,
            }
            if unclaimed {
                match self.claim_sessions().await {
                    Ok(()) => unclaimed = false,
                    Err(error) => {
                        tracing::warn!(error = %crate::error::chain(&error), "cannot mark connected nodes yet; retrying");
                    }
                }
            }
            self.mark_all_ended().await;
        }
    }

    async fn mark_all_ended(&self) {
        loop {
            let first = self.unmarked().keys().next().cloned();
            let Some(node) = first else {
                return;
            };
            if let Err(error) = self.mark_ended(&node).await {
                tracing::warn!(error = %error, "cannot mark lost nodes yet; retrying");
                return;
            }
            if self.unmarked().contains_key(&node) {
                // Another attempt failed meanwhile.
                return;
            }
        }
    }

    /// Marks connected what another server marked lost while this one was presumed dead.
    async fn claim_sessions(&self) -> Result<(), ServiceError> {
        let open: Vec<Session> = self.sessions().values().cloned().collect();
        for sessions in open.chunks(BATCH) {
            let nodes: Vec<NodeName> = sessions.iter().map(|it| it.node.clone()).collect();
            let decide = |_: &NodeName, stored: Option<&StoredConnection>| {
                // A node that has moved to another server in the meantime has another session there.
                let Some(stored) = stored else {
                    return SessionChange::Keep;
                };
                let mine = sessions.iter().find(|it| it.id == stored.session);
                match (mine, &stored.connection) {
                    (Some(session), Connection::Lost { .. }) => {
                        SessionChange::Connect(session.clone())
                    }
                    _ => SessionChange::Keep,
                }
            };
            let condition = ServerState::Registered(self.inner.server);
            if !self
                .change_sessions(&nodes, Some(condition), decide)
                .await?
            {
                // It was lost again: the next registration starts over.
                return Ok(());
            }
            // Some may have ended, and been marked lost, just before that.
            for session in sessions {
                if !self.sessions().contains_key(&session.id) {
                    self.note_end(session, "its connection closed");
                }
            }
        }
        Ok(())
    }
}
