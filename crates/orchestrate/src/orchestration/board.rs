//! The status of a run's nodes: connected or not, enabled or not.

use std::collections::HashMap;

use bunraku_model::{Administration, Connection, NodeName};
use bunraku_plan::run::UnavailableReason;
use bunraku_store::{Change, Follow, FollowEvent, KeyValue, SharedStore};
use serde::Deserialize;

use bunraku_control::presence::StoredConnection;
use bunraku_control::{ServiceError, document, keys};

/// The part of a node's record that is needed here.
#[derive(Deserialize)]
struct Record {
    administration: Administration,
}

#[derive(Clone, Default, Debug)]
pub(super) struct NodeState {
    pub(super) known: bool,
    pub(super) disabled: Option<String>,
    pub(super) away: Option<String>,
    pub(super) connected: bool,
}

impl NodeState {
    /// Returns the reason why the node cannot run now, if there is one.
    pub(super) fn unavailable_reason(&self) -> Option<UnavailableReason> {
        let away = || {
            self.away
                .clone()
                .unwrap_or_else(|| "it has never connected".to_owned())
        };
        match (self.known, self.connected, &self.disabled) {
            (false, _, _) => Some(UnavailableReason::Unknown),
            (_, false, _) => Some(UnavailableReason::Lost { reason: away() }),
            (_, _, Some(reason)) => Some(UnavailableReason::Disabled {
                reason: reason.clone(),
            }),
            _ => None,
        }
    }
}

/// The nodes of one run, kept up to date.
pub(super) struct NodeBoard {
    follow: Follow,
    nodes: HashMap<NodeName, NodeState>,
}

impl NodeBoard {
    /// Reads the status of these nodes.
    pub(super) async fn open(
        store: SharedStore,
        nodes: impl IntoIterator<Item = NodeName>,
    ) -> Result<Self, ServiceError> {
        let mut board = Self {
            follow: Follow::new(store, keys::NODES),
            nodes: nodes
                .into_iter()
                .map(|node| (node, NodeState::default()))
                .collect(),
        };
        board.next().await?;
        Ok(board)
    }

    pub(super) fn node_state(&self, node: &NodeName) -> NodeState {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    /// Applies the next changes, and returns the nodes they affect. Safe to
    /// cancel at any time: nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Vec<NodeName>, ServiceError> {
        let followed = self.follow.next().await?;
        let mut changed = Vec::new();
        match followed {
            FollowEvent::Snapshot { items, .. } => {
                for item in &items {
                    changed.extend(self.take(item)?);
                }
            }
            FollowEvent::Changes(batch) => {
                for change in &batch.changes {
                    match change {
                        Change::Put(item) => changed.extend(self.take(item)?),
                        Change::Delete { key } => changed.extend(self.forget(key)),
                    }
                }
            }
        }
        Ok(changed)
    }

    fn take(&mut self, entry: &KeyValue) -> Result<Option<NodeName>, ServiceError> {
        let Some((node, which)) = keys::parse_node_key(&entry.key) else {
            return Ok(None);
        };
        let Some(standing) = self.nodes.get_mut(&node) else {
            return Ok(None);
        };
        match which {
            "record" => {
                standing.known = true;
                let record: Record = document::decode(entry)?;
                standing.disabled = match record.administration {
                    Administration::Enabled { .. } => None,
                    Administration::Disabled { reason, by, .. } => {
                        Some(format!("by {by}: {reason}"))
                    }
                };
            }
            "connection" => {
                let stored: StoredConnection = document::decode(entry)?;
                standing.connected = matches!(stored.connection, Connection::Connected { .. });
                standing.away = match stored.connection {
                    Connection::Lost { reason, .. } => Some(reason),
                    _ => None,
                };
            }
            _ => return Ok(None),
        }
        Ok(Some(node))
    }

    fn forget(&mut self, key: &str) -> Option<NodeName> {
        let (node, which) = keys::parse_node_key(key)?;
        let standing = self.nodes.get_mut(&node)?;
        match which {
            "record" => standing.known = false,
            "connection" => standing.connected = false,
            _ => return None,
        }
        Some(node)
    }
}
