//! The connections between nodes and servers.
//!
//! A server is a key bound to a lease. Each open command stream is a session:
//! opening one marks its node connected, closing it marks the node lost, but only
//! if no newer session has replaced it. When a server dies, its lease ends and
//! one of the other servers marks its connections lost; when the store is exclusive
//! (embedded), the next start does so at once. A server that starts while the
//! store is not writable registers later, and before its first session.
//!
//! An index lists the connected nodes of each server. It is written in the
//! transactions that write connections, so the work after a death depends on the
//! sessions of the dead server, not on the number of nodes.
//!
//! Invariant: a node is `connected` only while a live server holds its stream, and
//! a connection is written only while its server is registered.
//! The exception is a time when the store is not writable: marking a node lost is
//! then retried.

mod dead_servers;
mod registration;
mod session_batch;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::{Connection, ContentPlace, NodeName, ServerId};
use bunraku_store::{
    Compare, LeaseId, SharedStore, StoreError, Swap, Transaction, compare_and_swap, settle,
};
use bunraku_wire::api::LostNotice;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::Clock;
use crate::document;
use crate::node_events::NodeEventRecorder;
use crate::{ServiceError, keys, node_condition};
pub(crate) use registration::StoredRegistration;
use session_batch::{BATCH, SessionChange};

/// The lease of a server, and whether the store has only one server.
#[derive(Clone, Debug)]
pub struct PresenceOptions {
    /// The time of silence after which a server counts as dead.
    pub server_ttl: Duration,
    /// No other process can have this store open, so any other server in it is dead.
    pub exclusive: bool,
    /// The places of content that this server can use.
    pub places: Vec<ContentPlace>,
}

/// The reason why a node whose agent does not answer is lost.
pub const SILENT_AGENT: &str = "its agent did not answer";

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
    /// Wakes the task that claims open sessions after the registration was lost.
    registered_again: Notify,
    /// Locked while ended sessions are marked, so that those which end meanwhile
    /// are marked together.
    marking: tokio::sync::Mutex<()>,
    /// The number of attempts to mark ended sessions that failed.
    failed_marks: AtomicU64,
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
                registered_again: Notify::new(),
                marking: tokio::sync::Mutex::default(),
                failed_marks: AtomicU64::new(0),
            }),
        };
        if presence.inner.options.exclusive {
            let transaction = Transaction::new()
                .delete_prefix(keys::SERVERS)
                .delete_prefix(keys::SERVER_CLEANUPS);
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

    /// Registers the server and cleans up after dead ones, under a lease that is kept alive.
    async fn enter(&self) -> Result<(), ServiceError> {
        self.ensure_registered().await?;
        tokio::select! {
            cleaned = self.clean_up() => cleaned.map(drop),
            () = self.keep_registered() => Ok(()),
        }
    }

    /// Keeps the registration alive and marks dead servers' connections lost, until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let work = async {
            tokio::join!(
                self.keep_registered(),
                self.repair_sessions(),
                self.watch_servers()
            );
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = work => {}
        }
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

    /// Marks a node lost if its stored session has ended here, along with other
    /// nodes whose sessions ended meanwhile.
    async fn mark_ended(&self, node: &NodeName) -> Result<(), ServiceError> {
        let failed_before = self.inner.failed_marks.load(Ordering::Acquire);
        let _one_at_a_time = self.inner.marking.lock().await;
        if self.inner.failed_marks.load(Ordering::Acquire) != failed_before {
            // The store did not answer an attempt before this one: do not queue up for it.
            return Ok(());
        }
        let ended: HashMap<NodeName, SessionEnd> = {
            let unmarked = self.unmarked();
            let Some(end) = unmarked.get(node) else {
                return Ok(());
            };
            let others = unmarked.iter().filter(|(other, _)| *other != node);
            let others = others.map(|(other, end)| (other.clone(), end.clone()));
            let first = std::iter::once((node.clone(), end.clone()));
            first.chain(others).take(BATCH).collect()
        };
        let marked = self.mark_batch(&ended).await;
        if marked.is_err() {
            self.inner.failed_marks.fetch_add(1, Ordering::AcqRel);
        }
        marked
    }

    async fn mark_batch(&self, ended: &HashMap<NodeName, SessionEnd>) -> Result<(), ServiceError> {
        let nodes: Vec<NodeName> = ended.keys().cloned().collect();
        let decide = |node: &NodeName, stored: Option<&StoredConnection>| {
            let Some(stored) = stored else {
                // The node was removed.
                return SessionChange::Unlist(self.inner.server);
            };
            let here = matches!(&stored.connection, Connection::Connected { server, .. } if *server == self.inner.server);
            match ended.get(node) {
                Some(end) if here && !self.sessions().contains_key(&stored.session) => {
                    SessionChange::Lose {
                        since: end.since,
                        reason: end.reason.clone(),
                    }
                }
                _ => SessionChange::Keep,
            }
        };
        self.change_sessions(&nodes, None, decide).await?;
        let mut unmarked = self.unmarked();
        for (node, end) in ended {
            if (unmarked.get(node)).is_some_and(|it| it.session == end.session) {
                unmarked.remove(node);
            }
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

    /// Marks the session's node connected, and calls `replaced` with the connection
    /// that was stored. Compares that connection, so that a late write, which nobody
    /// waits for any longer, never replaces a newer session.
    async fn write_connected(
        &self,
        session: &Session,
        replaced: impl Fn(Option<&StoredConnection>),
    ) -> Result<(), ServiceError> {
        let (node, key) = (&session.node, keys::node_connection(&session.node));
        let registration = keys::server(self.inner.server);
        let (key, registration, replaced) = (&key, &registration, &replaced);
        compare_and_swap(&*self.inner.store, |refused| async move {
            node_condition::check_refusal(&refused, node)?;
            if refused.get(1).is_some_and(Option::is_none) {
                self.renew().await?;
            }
            let read = document::read::<StoredConnection>(&*self.inner.store, key).await?;
            replaced(read.as_ref().map(|read| &read.document));
            let transaction = node_condition::when_exists(node)
                .when(Compare::Exists(registration.clone()))
                .read_on_failure(registration)
                .when_unchanged(key, read.as_ref().map(|read| &read.entry));
            let stored = read.as_ref().map(|read| &read.document);
            Ok(Swap::Write(
                self.put_connected(transaction, session, stored),
                (),
            ))
        })
        .await
    }
}
