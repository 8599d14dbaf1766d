//! Cleaning up after servers that died.
//!
//! Each server keeps the name of every server that may have sessions
//! (`session-servers/`). One survivor claims a dead server under its own lease and
//! marks the nodes on that server's list lost. If it dies too, the claim ends with its
//! lease, and the others see both deaths.
//!
//! Absent here: the nodes that no dead server lists. Only a store from before there
//! were lists is searched, once, and again when a server of such a version dies.

use std::collections::HashSet;
use std::time::Duration;

use bunraku_model::{Connection, NodeName, ServerId};
use bunraku_store::{
    Change, Compare, KeyValue, StoreError, Transaction, TransactionOutcome, WatchStart, settle,
};
use futures::StreamExt;

use super::registration::StoredRegistration;
use super::session_batch::{BATCH, ServerState, SessionChange};
use super::{Presence, StoredConnection};
use crate::{ServiceError, document, keys};

/// The delay before a task retries after the store was unavailable.
const RETRY: Duration = Duration::from_millis(500);
const SERVER_STOPPED: &str = "its server stopped";

impl Presence {
    /// Looks for dead servers at every change, and again whenever the watch was
    /// restarted, so that no death goes unnoticed. Never returns.
    pub(super) async fn watch_servers(&self) {
        loop {
            if let Err(error) = self.clean_up_as_servers_die().await {
                tracing::warn!(error = %crate::error::chain(&error), "watching for dead servers failed; retrying");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    async fn clean_up_as_servers_die(&self) -> Result<(), ServiceError> {
        let watch = self.inner.store.watch(keys::SERVERS, WatchStart::Now);
        let mut changes = watch.await?;
        // Servers of an earlier version, which list no sessions.
        let mut without_list = self.clean_up().await?;
        while let Some(batch) = changes.next().await {
            let (mut died, mut search) = (false, false);
            for change in batch?.changes {
                match change {
                    Change::Put(entry) => without_list.extend(unlisting_server(&entry)),
                    Change::Delete { key } => {
                        died = true;
                        search |= keys::parse_server(&key)
                            .is_some_and(|server| without_list.remove(&server));
                    }
                }
            }
            if search {
                self.search_all_nodes().await?;
            }
            if died {
                self.clean_up().await?;
            }
        }
        Ok(())
    }

    /// Marks the nodes of all dead servers lost. Returns the living servers of an
    /// earlier version.
    pub(super) async fn clean_up(&self) -> Result<HashSet<ServerId>, ServiceError> {
        let store = &*self.inner.store;
        if store.get(keys::SESSIONS_LISTED).await?.is_none() {
            self.search_all_nodes().await?;
            let transaction = Transaction::new().put(keys::SESSIONS_LISTED, "");
            settle(store, transaction).await?;
        }
        // In this order: a server whose name is found was registered when it was written.
        let known = document::keys_under(store, keys::SESSION_SERVERS).await?;
        let alive = document::read_all(store, keys::SERVERS).await?;
        let is_alive: HashSet<ServerId> = alive
            .iter()
            .filter_map(|entry| keys::parse_server(&entry.key))
            .collect();
        let known = known
            .iter()
            .filter_map(|key| keys::parse_session_server(key));
        for dead in known.filter(|server| !is_alive.contains(server)) {
            if self.claim_dead(dead).await? {
                self.close_sessions_of(dead).await?;
            }
        }
        Ok(alive.iter().filter_map(unlisting_server).collect())
    }

    /// Returns whether this server is the one that cleans up after a dead one.
    async fn claim_dead(&self, dead: ServerId) -> Result<bool, ServiceError> {
        self.ensure_registered().await?;
        let Some(lease) = self.lease().await else {
            return Ok(false);
        };
        let (key, here) = (keys::server_cleanup(dead), self.inner.server.to_string());
        let transaction = Transaction::new()
            .when(Compare::Absent(key.clone()))
            .when(Compare::Absent(keys::server(dead)))
            .when(Compare::Exists(keys::session_server(dead)))
            .read_on_failure(key.clone())
            .put_with_lease(key, here.clone(), lease);
        match self.inner.store.commit(transaction).await {
            Ok(TransactionOutcome::Committed(_)) => Ok(true),
            // It may be a claim from before this server's last attempt.
            Ok(TransactionOutcome::Refused(found)) => Ok(found
                .first()
                .and_then(Option::as_ref)
                .is_some_and(|claim| claim.value == here)),
            Err(StoreError::LeaseNotFound(_)) => {
                self.renew().await?;
                Err(StoreError::LeaseNotFound(lease).into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Marks every node on a dead server's list lost, then forgets that server.
    async fn close_sessions_of(&self, dead: ServerId) -> Result<(), ServiceError> {
        let store = &*self.inner.store;
        let now = self.inner.clock.now();
        let listed = document::keys_under(store, &keys::server_sessions(dead)).await?;
        let nodes: Vec<NodeName> = listed
            .iter()
            .filter_map(|key| keys::parse_server_session(key))
            .map(|(_, node)| node)
            .collect();
        let decide = |_: &NodeName, stored: Option<&StoredConnection>| match stored
            .map(|stored| &stored.connection)
        {
            Some(Connection::Connected { server, .. }) if *server == dead => SessionChange::Lose {
                since: now,
                reason: SERVER_STOPPED.to_owned(),
            },
            _ => SessionChange::Unlist(dead),
        };
        let condition = ServerState::Dead(dead);
        if !self
            .change_sessions(&nodes, Some(condition), decide)
            .await?
        {
            // It is back, and claims its sessions itself.
            let transaction = Transaction::new().delete(keys::server_cleanup(dead));
            settle(store, transaction).await?;
            return Ok(());
        }
        let transaction = Transaction::new()
            .when(Compare::Absent(keys::server(dead)))
            .delete(keys::session_server(dead))
            .delete(keys::server_cleanup(dead));
        settle(store, transaction).await?;
        tracing::info!(server = %dead, nodes = nodes.len(), "closed the sessions of a server that stopped");
        Ok(())
    }

    /// Marks every node lost whose server is not registered, whether it is listed or not.
    async fn search_all_nodes(&self) -> Result<(), ServiceError> {
        let store = &*self.inner.store;
        let nodes = document::read_all(store, keys::NODES).await?;
        let alive = document::keys_under(store, keys::SERVERS).await?;
        let alive: HashSet<ServerId> = (alive.iter())
            .filter_map(|key| keys::parse_server(key))
            .collect();
        let now = self.inner.clock.now();
        let mut orphans = Vec::new();
        for entry in &nodes {
            let Some((node, "connection")) = keys::parse_node_key(&entry.key) else {
                continue;
            };
            let stored: StoredConnection = document::decode(entry)?;
            if is_orphan(&stored, &alive) {
                orphans.push((node, stored.session));
            }
        }
        for orphans in orphans.chunks(BATCH) {
            let nodes: Vec<NodeName> = orphans.iter().map(|(node, _)| node.clone()).collect();
            let decide = |node: &NodeName, stored: Option<&StoredConnection>| match stored {
                Some(stored)
                    if is_orphan(stored, &alive)
                        && orphans.contains(&(node.clone(), stored.session)) =>
                {
                    SessionChange::Lose {
                        since: now,
                        reason: SERVER_STOPPED.to_owned(),
                    }
                }
                _ => SessionChange::Keep,
            };
            self.change_sessions(&nodes, None, decide).await?;
        }
        Ok(())
    }
}

fn is_orphan(stored: &StoredConnection, alive: &HashSet<ServerId>) -> bool {
    matches!(&stored.connection, Connection::Connected { server, .. } if !alive.contains(server))
}

/// Returns the server of a registration, if it is of a version that lists no sessions.
fn unlisting_server(entry: &KeyValue) -> Option<ServerId> {
    let registration: StoredRegistration = document::decode(entry).ok()?;
    let server = keys::parse_server(&entry.key)?;
    (!registration.lists_sessions).then_some(server)
}
