//! The connections between nodes and servers.
//!
//! A server is a key bound to a lease. Each open command stream is a session:
//! opening one marks its node connected, closing it marks the node lost, but only
//! if no newer session has replaced it. When a server dies, its lease ends and
//! any other server marks its connections lost; when the store is exclusive
//! (embedded), the next start does so at once. A server that starts while the
//! store is not writable registers later, and before its first session.
//!
//! Invariant: a node is `connected` only while a live server holds its stream.
//! The exception is a time when the store is not writable: marking a node lost is
//! then retried.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::{Connection, NodeName, ServerId};
use bunraku_store::{
    Change, LeaseId, SharedStore, StoreError, Swap, Transaction, WatchStart, compare_and_swap,
    settle,
};
use bunraku_wire::api::LostNotice;
use futures::StreamExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::Clock;
use crate::document;
use crate::node_events::{NodeEventRecorder, NodeLoss};
use crate::{ServiceError, keys, node_condition};

/// The lease of a server, and whether the store has only one server.
#[derive(Clone, Debug)]
pub struct PresenceOptions {
    /// The time of silence after which a server counts as dead.
    pub server_ttl: Duration,
    /// No other process can have this store open, so any other server in it is dead.
    pub exclusive: bool,
}

/// The reason why a node whose agent does not answer is lost.
pub const SILENT_AGENT: &str = "its agent did not answer";

/// The delay before a task retries after the store was unavailable.
const RETRY: Duration = Duration::from_millis(500);

/// A connection as stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredConnection {
    #[serde(flatten)]
    pub connection: Connection,
    pub session: Uuid,
    pub agent_version: String,
    /// The configured run method, if the agent is new enough to say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_method: Option<NodeRunMethod>,
}

/// The configured run method of a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRunMethod {
    /// `engine`, `puppet` or `command`.
    pub name: String,
    pub applies_released: bool,
}

/// An agent's description of itself when it connects.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AgentDescription {
    pub version: String,
    pub run_method: Option<NodeRunMethod>,
}

/// An open command stream.
#[derive(Clone, Debug)]
pub struct Session {
    pub node: NodeName,
    id: Uuid,
    since: Timestamp,
    agent: AgentDescription,
    /// The node's connection before this one.
    before: Option<Connection>,
}

impl Session {
    /// Returns since when the node was lost because its agent did not answer, if it was.
    pub fn silent_before(&self) -> Option<LostNotice> {
        match &self.before {
            Some(Connection::Lost { since, reason }) if reason == SILENT_AGENT => {
                Some(LostNotice {
                    since: *since,
                    reason: reason.clone(),
                })
            }
            _ => None,
        }
    }

    /// Returns a session that no store knows.
    pub fn for_test(node: NodeName) -> Self {
        Self {
            node,
            id: Uuid::nil(),
            since: Timestamp::UNIX_EPOCH,
            agent: AgentDescription::default(),
            before: None,
        }
    }
}

/// The time and reason of a session's end.
#[derive(Clone, Debug)]
struct SessionEnd {
    session: Uuid,
    since: Timestamp,
    reason: String,
}

/// The handle on this server's presence.
#[derive(Clone)]
pub struct Presence {
    inner: Arc<Inner>,
}

struct Inner {
    store: SharedStore,
    clock: Clock,
    server: ServerId,
    options: PresenceOptions,
    /// Records nodes that are lost.
    recorder: Arc<dyn NodeEventRecorder>,
    sessions: Mutex<HashMap<Uuid, Session>>,
    /// Nodes whose session has ended, and which may still be marked connected.
    unmarked: Mutex<HashMap<NodeName, SessionEnd>>,
    /// The lease of the registration. Locked while the registration is made or
    /// renewed, so that there is one at a time.
    lease: tokio::sync::Mutex<Option<LeaseId>>,
    /// True if the server is registered. Read for every agent that connects.
    registered: AtomicBool,
}

impl Presence {
    /// Registers the server, if the store is writable. Call [`Presence::run`] right after it.
    pub async fn start(
        store: SharedStore,
        clock: Clock,
        server: ServerId,
        options: PresenceOptions,
        recorder: Arc<dyn NodeEventRecorder>,
    ) -> Result<Self, ServiceError> {
        let presence = Self {
            inner: Arc::new(Inner {
                store,
                clock,
                server,
                options,
                recorder,
                sessions: Mutex::default(),
                unmarked: Mutex::default(),
                lease: tokio::sync::Mutex::default(),
                registered: AtomicBool::new(false),
            }),
        };
        if presence.inner.options.exclusive {
            let transaction = Transaction::new().delete_prefix(keys::SERVERS);
            settle(&*presence.inner.store, transaction).await?;
        }
        match presence.enter().await {
            Err(error) if presence.inner.store.without_majority_for().is_some() => {
                tracing::warn!(error = %crate::error::chain(&error), "this server registers as soon as the datastores have a majority");
            }
            Err(error @ ServiceError::Store(StoreError::Full(_))) => {
                tracing::warn!(error = %crate::error::chain(&error), "this server registers as soon as the datastores have room");
            }
            entered => entered?,
        }
        Ok(presence)
    }

    async fn enter(&self) -> Result<(), ServiceError> {
        self.ensure_registered().await?;
        self.bury_orphans().await
    }

    /// Registers the server if needed. A node must not count as connected to a
    /// server that the others do not know.
    async fn ensure_registered(&self) -> Result<(), ServiceError> {
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

    /// Keeps the registration alive and marks dead servers' connections lost, until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        tokio::join!(self.keep_alive(&shutdown), self.watch_servers(&shutdown));
    }

    /// Marks a node connected to this server. Once started, this must run to its
    /// end: otherwise the node would never be marked lost.
    pub async fn connect(
        &self,
        node: &NodeName,
        agent: &AgentDescription,
    ) -> Result<Session, ServiceError> {
        let mut session = Session {
            node: node.clone(),
            id: Uuid::new_v4(),
            since: self.inner.clock.now(),
            agent: agent.clone(),
            before: None,
        };
        self.ensure_registered().await?;
        // Before the write: a stored session that is not in this map has ended.
        self.sessions().insert(session.id, session.clone());
        let before = Mutex::new(None);
        let connected = self.write_connected(&session, |stored| {
            let stored = stored.map(|stored| stored.connection.clone());
            *before.lock().unwrap_or_else(PoisonError::into_inner) = stored;
            true
        });
        if let Err(error) = connected.await {
            // The write may have succeeded nevertheless, or may still succeed.
            self.note_end(&session, "its server could not record the connection");
            return Err(error);
        }
        session.before = before.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(session)
    }

    /// Marks the session's node lost, unless a newer session has replaced it. A
    /// write that fails now is retried later.
    pub async fn disconnect(&self, session: &Session, reason: &str) -> Result<(), ServiceError> {
        self.note_end(session, reason);
        self.mark_ended(&session.node).await
    }

    fn note_end(&self, session: &Session, reason: &str) {
        let ended = SessionEnd {
            session: session.id,
            since: self.inner.clock.now(),
            reason: reason.to_owned(),
        };
        self.unmarked().insert(session.node.clone(), ended);
        self.sessions().remove(&session.id);
    }

    /// Marks a node lost if its stored session has ended here.
    async fn mark_ended(&self, node: &NodeName) -> Result<(), ServiceError> {
        let ended = self.unmarked().get(node).cloned();
        let Some(SessionEnd {
            session,
            since,
            reason,
        }) = ended
        else {
            return Ok(());
        };
        self.mark_lost(node, since, &reason, |stored| {
            let here = matches!(&stored.connection, Connection::Connected { server, .. } if *server == self.inner.server);
            here && !self.sessions().contains_key(&stored.session)
        })
        .await?;
        let mut unmarked = self.unmarked();
        if unmarked.get(node).is_some_and(|it| it.session == session) {
            unmarked.remove(node);
        }
        Ok(())
    }

    /// The number of streams that this server holds.
    pub fn connected(&self) -> usize {
        self.sessions().len()
    }

    /// Ends the registration, so that others need not wait for the lease to end.
    pub async fn leave(&self) -> Result<(), StoreError> {
        match self.inner.lease.lock().await.take() {
            Some(lease) => self.inner.store.lease_revoke(lease).await,
            None => Ok(()),
        }
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<Uuid, Session>> {
        self.inner
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn unmarked(&self) -> std::sync::MutexGuard<'_, HashMap<NodeName, SessionEnd>> {
        self.inner
            .unmarked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn register(&self) -> Result<LeaseId, ServiceError> {
        let lease = self
            .inner
            .store
            .lease_grant(self.inner.options.server_ttl)
            .await?;
        let started =
            document::encode(&serde_json::json!({ "registered": self.inner.clock.now() }));
        let transaction =
            Transaction::new().put_with_lease(keys::server(self.inner.server), started, lease);
        settle(&*self.inner.store, transaction).await?;
        Ok(lease)
    }

    /// Marks the session's node connected, if `if_now` accepts the stored
    /// connection. Compares that connection, so that a late write, which nobody
    /// waits for any longer, never replaces a newer session.
    async fn write_connected(
        &self,
        session: &Session,
        if_now: impl Fn(Option<&StoredConnection>) -> bool,
    ) -> Result<(), ServiceError> {
        let stored = StoredConnection {
            connection: Connection::Connected {
                since: session.since,
                server: self.inner.server,
            },
            session: session.id,
            agent_version: session.agent.version.clone(),
            run_method: session.agent.run_method.clone(),
        };
        let (node, key) = (&session.node, keys::node_connection(&session.node));
        let (key, stored, if_now) = (&key, &stored, &if_now);
        compare_and_swap(&*self.inner.store, |refused| async move {
            node_condition::check_refusal(&refused, node)?;
            let read = document::read::<StoredConnection>(&*self.inner.store, key).await?;
            if !if_now(read.as_ref().map(|read| &read.document)) {
                return Ok(Swap::Done(()));
            }
            let transaction = node_condition::when_exists(node)
                .when_unchanged(key, read.as_ref().map(|read| &read.entry))
                .put(key, document::encode(stored));
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    async fn mark_lost(
        &self,
        node: &NodeName,
        since: Timestamp,
        reason: &str,
        still: impl Fn(&StoredConnection) -> bool,
    ) -> Result<(), ServiceError> {
        let key = keys::node_connection(node);
        let (key, still) = (&key, &still);
        compare_and_swap(&*self.inner.store, |_| async move {
            let read = document::read::<StoredConnection>(&*self.inner.store, key).await?;
            let Some(read) = read.filter(|read| {
                let connected = matches!(read.document.connection, Connection::Connected { .. });
                connected && still(&read.document)
            }) else {
                return Ok(Swap::Done(()));
            };
            let connection = Connection::Lost {
                since,
                reason: reason.to_owned(),
            };
            let lost = StoredConnection {
                connection,
                ..read.document
            };
            let transaction = Transaction::new()
                .when_unchanged(key, Some(&read.entry))
                .put(key, document::encode(&lost));
            let loss = NodeLoss {
                node,
                since,
                reason,
            };
            let transaction = self.inner.recorder.node_lost(transaction, &loss);
            Ok(Swap::Write(transaction, ()))
        })
        .await
    }

    async fn keep_alive(&self, shutdown: &CancellationToken) {
        let mut tick = tokio::time::interval(self.inner.options.server_ttl / 3);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = tick.tick() => {}
            }
            if let Err(error) = self.renew().await {
                tracing::warn!(error = %crate::error::chain(&error), "cannot keep this server registered");
                continue;
            }
            let unmarked: Vec<NodeName> = self.unmarked().keys().cloned().collect();
            for node in unmarked {
                if let Err(error) = self.mark_ended(&node).await {
                    tracing::warn!(error = %error, "cannot mark lost nodes yet; retrying");
                    break;
                }
            }
        }
    }

    async fn renew(&self) -> Result<(), ServiceError> {
        let mut lease = self.inner.lease.lock().await;
        if let Some(known) = *lease {
            match self.inner.store.lease_keep_alive(known).await {
                Err(StoreError::LeaseNotFound(_)) => {}
                kept => return Ok(kept?),
            }
        }
        *lease = Some(self.come_back().await?);
        self.inner.registered.store(true, Ordering::Release);
        Ok(())
    }

    /// Registers again after this server was presumed dead (a stall, a long
    /// pause), and claims the connections that are still open here.
    async fn come_back(&self) -> Result<LeaseId, ServiceError> {
        tracing::warn!("this server is not registered; registering");
        let lease = self.register().await?;
        let open: Vec<Session> = self.sessions().values().cloned().collect();
        for session in open {
            // A node that has moved to another server in the meantime has another session there.
            let mine = |stored: Option<&StoredConnection>| {
                stored.is_some_and(|stored| stored.session == session.id)
            };
            self.write_connected(&session, mine).await?;
            // It may have ended, and been marked lost, just before that.
            if !self.sessions().contains_key(&session.id) {
                self.note_end(&session, "its connection closed");
            }
        }
        Ok(lease)
    }

    /// Looks for dead servers at every change, and again whenever the watch was
    /// restarted, so that no death goes unnoticed.
    async fn watch_servers(&self, shutdown: &CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                outcome = self.bury_as_servers_die() => {
                    if let Err(error) = outcome {
                        tracing::warn!(error = %error, "watching for dead servers failed; retrying");
                    }
                }
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn bury_as_servers_die(&self) -> Result<(), ServiceError> {
        let mut changes = self
            .inner
            .store
            .watch(keys::SERVERS, WatchStart::Now)
            .await?;
        self.bury_orphans().await?;
        while let Some(batch) = changes.next().await {
            if batch?
                .changes
                .iter()
                .any(|change| matches!(change, Change::Delete { .. }))
            {
                self.bury_orphans().await?;
            }
        }
        Ok(())
    }

    /// Marks every node lost whose server is no longer registered.
    async fn bury_orphans(&self) -> Result<(), ServiceError> {
        let servers = document::read_all(&*self.inner.store, keys::SERVERS).await?;
        let living: Vec<ServerId> = servers
            .iter()
            .filter_map(|entry| entry.key.strip_prefix(keys::SERVERS)?.parse().ok())
            .collect();
        let now = self.inner.clock.now();
        for entry in document::read_all(&*self.inner.store, keys::NODES).await? {
            let Some((node, "connection")) = keys::parse_node_key(&entry.key) else {
                continue;
            };
            let stored: StoredConnection = document::decode(&entry)?;
            let Connection::Connected { server, .. } = stored.connection else {
                continue;
            };
            if !living.contains(&server) {
                self.mark_lost(&node, now, "its server stopped", |current| {
                    current.session == stored.session
                })
                .await?;
            }
        }
        Ok(())
    }
}
