//! The node holds, reported to the agents that are connected here.
//!
//! Each server has one watch. While a hold exists, its agents are notified
//! repeatedly, each time after a read from the store. A notification is valid for
//! a few seconds, so a server that is cut off from the store, or an orchestrator
//! that is dead, holds no node for longer.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use bunraku_model::{NodeName, RunId};
use bunraku_store::{Change, Follow, FollowEvent, KeyValue};
use bunraku_wire::api::NodeHold;
use tokio_util::sync::CancellationToken;

use super::{Hold, Inner, Orchestration};
use bunraku_compile::CommandHub;
use bunraku_control::{ServiceError, document, keys};

/// The delay before a retry after the store failed permanently.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct HoldBoard {
    entries: RwLock<Entries>,
}

#[derive(Default)]
struct Entries {
    by_node: HashMap<NodeName, RunId>,
    /// True after the first complete read.
    complete: bool,
}

impl Orchestration {
    /// Returns the hold of a node, in the form that its agent needs.
    pub async fn hold_for_agent(&self, node: &NodeName) -> Result<Option<NodeHold>, ServiceError> {
        let inner = &self.inner;
        let hold = |run: RunId| NodeHold {
            run,
            seconds: inner.options.hold_ttl.as_secs().max(1),
        };
        if let Some(known) = inner.holds.hold_of(node) {
            return Ok(known.map(hold));
        }
        let stored = self.hold_of(node).await?;
        Ok(stored.map(|stored| hold(stored.run)))
    }

    /// Notifies agents of holds until cancelled.
    pub async fn notify_holds(&self, hub: CommandHub, shutdown: CancellationToken) {
        let inner = &self.inner;
        let mut follow = Follow::new(inner.store.clone(), keys::NODE_HOLDS);
        let mut again = tokio::time::interval(inner.options.hold_ttl / 3);
        again.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let text = tokio::select! {
                () = shutdown.cancelled() => return,
                followed = follow.next() => match followed {
                    Ok(followed) => inner.holds.take(followed),
                    Err(error) => {
                        tracing::error!(error = %error, "cannot watch the node holds; retrying");
                        tokio::time::sleep(RETRY).await;
                        continue;
                    }
                },
                _ = again.tick() => inner.still_held().await,
            };
            for node in text {
                hub.notify_hold(&node);
            }
        }
    }
}

impl Inner {
    /// Returns the nodes that are held according to the store now.
    async fn still_held(&self) -> Vec<NodeName> {
        if self.holds.is_empty() {
            return Vec::new();
        }
        match document::keys_under(&*self.store, keys::NODE_HOLDS).await {
            Ok(held) => held
                .iter()
                .filter_map(|key| keys::parse_node_hold(key))
                .collect(),
            Err(error) => {
                tracing::warn!(error = %error, "cannot repeat the node holds");
                Vec::new()
            }
        }
    }
}

impl HoldBoard {
    /// Returns the hold of a node. `None` means that the board is not complete yet.
    fn hold_of(&self, node: &NodeName) -> Option<Option<RunId>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.complete.then(|| entries.by_node.get(node).copied())
    }

    fn is_empty(&self) -> bool {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.by_node.is_empty()
    }

    /// Applies changes; returns the nodes whose hold changed.
    fn take(&self, followed: FollowEvent) -> Vec<NodeName> {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        match followed {
            FollowEvent::Snapshot { items, .. } => {
                entries.complete = true;
                items.iter().filter_map(|item| entries.put(item)).collect()
            }
            FollowEvent::Changes(batch) => batch
                .changes
                .iter()
                .filter_map(|change| match change {
                    Change::Put(item) => entries.put(item),
                    Change::Delete { key } => {
                        let node = keys::parse_node_hold(key)?;
                        entries.by_node.remove(&node);
                        Some(node)
                    }
                })
                .collect(),
        }
    }
}

impl Entries {
    fn put(&mut self, item: &KeyValue) -> Option<NodeName> {
        let node = keys::parse_node_hold(&item.key)?;
        match document::decode::<Hold>(item) {
            Ok(hold) => {
                self.by_node.insert(node.clone(), hold.run);
                Some(node)
            }
            Err(error) => {
                tracing::error!(error = %error, "ignoring a node hold that cannot be read");
                None
            }
        }
    }
}
