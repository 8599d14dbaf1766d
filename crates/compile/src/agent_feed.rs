//! Follows everything that servers pass on to agents, as one stream in the order of the store.
//!
//! Targets and pending commands have a common prefix, so one watch shows both. A target that
//! was written before a command is on the board, and its agent notified, before the command is
//! passed on. This also holds after a gap in history: a batch of differences is not in order,
//! but its targets are at least as new as its commands (see [`keys::PENDING_COMMANDS`]) and are
//! processed first.
//!
//! Separate watches would be smaller, but nothing tells how far one of them is behind the
//! other: older versions of etcd report progress that does not hold for events that are still
//! on their way.

use std::time::Duration;

use bunraku_store::{Change, Follow, FollowEvent, Revision, SharedStore};
use tokio_util::sync::CancellationToken;

use crate::{CommandHub, TargetBoard};
use bunraku_control::keys;

/// Delay before a store is retried after a permanent failure.
const RETRY: Duration = Duration::from_secs(1);

/// Feeds the board of targets and the streams of one server.
pub struct AgentFeed {
    pub store: SharedStore,
    pub board: TargetBoard,
    pub hub: CommandHub,
}

impl AgentFeed {
    /// Follows the store until cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut follow = Follow::new(self.store.clone(), keys::STREAMS);
        loop {
            let followed = tokio::select! {
                () = shutdown.cancelled() => return,
                followed = follow.next() => followed,
            };
            match followed {
                Ok(FollowEvent::Snapshot { items, .. }) => {
                    for node in self.board.fill(&items) {
                        self.hub.notify_target(&node);
                    }
                    self.hub.request_reread();
                }
                Ok(FollowEvent::Changes(batch)) => self.pass_on(&batch.changes, batch.revision),
                Err(error) => {
                    tracing::error!(error = %error, "cannot watch targets and commands; retrying");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Passes on the changes of one batch: targets first, then commands.
    fn pass_on(&self, changes: &[Change], revision: Revision) {
        for change in changes {
            if let Some(node) = self.board.change(change, revision) {
                self.hub.notify_target(&node);
            }
        }
        for change in changes {
            if let Change::Put(entry) = change {
                self.hub.pass_on_command(entry);
            }
        }
    }
}
