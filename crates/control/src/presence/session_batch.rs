//! Changes to the connections of many nodes, in few transactions.

use bunraku_model::{Connection, NodeName, ServerId};
use bunraku_store::{
    Compare, KeyValue, Swap, Transaction, compare_and_swap, limits::MAX_OPERATIONS, read_each,
};
use jiff::Timestamp;

use super::{Presence, Session, StoredConnection};
use crate::node_events::NodeLoss;
use crate::{ServiceError, document, keys};

/// The number of nodes in one transaction. A lost node takes up to three operations:
/// its connection, its place in the index, and an event for reactors.
pub(super) const BATCH: usize = (MAX_OPERATIONS - 1) / 3;

/// What happens to the connection of one node.
pub(super) enum SessionChange {
    Keep,
    Connect(Session),
    Lose {
        since: Timestamp,
        reason: String,
    },
    /// The node is not connected to this server: remove it from the server's list.
    Unlist(ServerId),
}

/// A state of a server on which a change depends.
#[derive(Clone, Copy)]
pub(super) enum ServerState {
    Registered(ServerId),
    Dead(ServerId),
}

impl ServerState {
    /// Adds the compare. The registration is the only read on failure.
    fn require(self, transaction: Transaction) -> Transaction {
        let (key, compare): (_, fn(String) -> Compare) = match self {
            Self::Registered(server) => (keys::server(server), Compare::Exists),
            Self::Dead(server) => (keys::server(server), Compare::Absent),
        };
        transaction.when(compare(key.clone())).read_on_failure(key)
    }

    /// Returns false if a transaction was refused because the server is in another state.
    fn held(self, refused: &[Option<KeyValue>]) -> bool {
        match (self, refused.first()) {
            (_, None) => true,
            (Self::Registered(_), Some(found)) => found.is_some(),
            (Self::Dead(_), Some(found)) => found.is_none(),
        }
    }
}

impl Presence {
    /// Decides on each node's connection and writes the changes, a batch at a time.
    /// Returns false as soon as `condition` does not hold.
    pub(super) async fn change_sessions(
        &self,
        nodes: &[NodeName],
        condition: Option<ServerState>,
        decide: impl Fn(&NodeName, Option<&StoredConnection>) -> SessionChange,
    ) -> Result<bool, ServiceError> {
        let store = &*self.inner.store;
        let decide = &decide;
        for batch in nodes.chunks(BATCH) {
            let keys: Vec<String> = batch.iter().map(keys::node_connection).collect();
            let keys = &keys;
            let held = compare_and_swap::<_, ServiceError, _>(store, |refused| async move {
                if condition.is_some_and(|condition| !condition.held(&refused)) {
                    return Ok(Swap::Done(false));
                }
                let mut transaction = Transaction::new();
                let found = read_each(store, keys).await?;
                for ((node, key), entry) in batch.iter().zip(keys).zip(&found) {
                    let stored = entry.as_ref().map(document::decode).transpose()?;
                    let change = decide(node, stored.as_ref());
                    if !matches!(change, SessionChange::Keep) {
                        transaction = transaction.when_unchanged(key, entry.as_ref());
                        transaction = self.add_change(transaction, node, stored, change);
                    }
                }
                if transaction.operations.is_empty() {
                    return Ok(Swap::Done(true));
                }
                let transaction = match condition {
                    Some(condition) => condition.require(transaction),
                    None => transaction,
                };
                Ok(Swap::Write(transaction, true))
            });
            if !held.await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn add_change(
        &self,
        transaction: Transaction,
        node: &NodeName,
        stored: Option<StoredConnection>,
        change: SessionChange,
    ) -> Transaction {
        match change {
            SessionChange::Keep => transaction,
            SessionChange::Connect(session) => {
                self.put_connected(transaction, &session, stored.as_ref())
            }
            SessionChange::Lose { since, reason } => match stored {
                Some(stored) => self.put_lost(transaction, node, stored, since, &reason),
                None => transaction,
            },
            SessionChange::Unlist(server) => transaction.delete(keys::server_session(server, node)),
        }
    }

    /// Adds a session: the node's connection, and its place among those of this server.
    pub(super) fn put_connected(
        &self,
        transaction: Transaction,
        session: &Session,
        before: Option<&StoredConnection>,
    ) -> Transaction {
        let (node, here) = (&session.node, self.inner.server);
        let connected = StoredConnection {
            connection: Connection::Connected {
                since: session.since,
                server: here,
            },
            session: session.id,
            agent_version: session.agent.version.clone(),
            run_method: session.agent.run_method.clone(),
        };
        let transaction = transaction
            .put(keys::node_connection(node), document::encode(&connected))
            .put(keys::server_session(here, node), "");
        match before.map(|before| &before.connection) {
            Some(Connection::Connected { server, .. }) if *server != here => {
                transaction.delete(keys::server_session(*server, node))
            }
            _ => transaction,
        }
    }

    /// Adds the loss of a node. Does nothing if it is not connected.
    fn put_lost(
        &self,
        transaction: Transaction,
        node: &NodeName,
        stored: StoredConnection,
        since: Timestamp,
        reason: &str,
    ) -> Transaction {
        let Connection::Connected { server, .. } = stored.connection else {
            return transaction;
        };
        let connection = Connection::Lost {
            since,
            reason: reason.to_owned(),
        };
        let lost = StoredConnection {
            connection,
            ..stored
        };
        let transaction = transaction
            .put(keys::node_connection(node), document::encode(&lost))
            .delete(keys::server_session(server, node));
        let loss = NodeLoss {
            node,
            since,
            reason,
        };
        self.inner.recorder.node_lost(transaction, &loss)
    }
}
