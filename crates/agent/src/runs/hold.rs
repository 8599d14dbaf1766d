//! The hold: an ordered run reserves this node, and nothing else starts in the meantime.
//!
//! A server announces the hold and repeats the announcement while the hold lasts. Each announcement
//! is valid for some seconds on this machine's monotonic clock. So a dead orchestrator, a network
//! outage or a changed clock cannot block a node's own runs for longer.
//!
//! The hold outlives the agent. After a restart, it is valid for its full time again, because
//! nobody knows how much of it has passed.

use std::time::Duration;

use bunraku_model::RunId;
use bunraku_wire::api::NodeHold;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Runs;

/// A hold ends after this time unless it is renewed, whatever the server says.
const LONGEST: Duration = Duration::from_secs(600);

/// The part of a hold that is stored on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct StoredHold {
    pub(crate) run: RunId,
    pub(crate) seconds: u64,
}

/// A hold with its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveHold {
    run: RunId,
    until: Instant,
}

impl ActiveHold {
    pub(super) fn from_now(run: RunId, seconds: u64) -> Self {
        Self {
            run,
            until: Instant::now() + Duration::from_secs(seconds).min(LONGEST),
        }
    }
}

impl Runs {
    /// Records which run has reserved this node, if any, as a server reports it.
    pub(crate) fn hold(&self, hold: Option<NodeHold>) {
        let before = self.held_by();
        *self.held() = hold.map(|hold| ActiveHold::from_now(hold.run, hold.seconds));
        let kept = hold.map(|NodeHold { run, seconds }| StoredHold { run, seconds });
        self.file().change_anyway(|queue| queue.held = kept);
        match (before, hold) {
            (known, Some(hold)) if known != Some(hold.run) => {
                tracing::info!(run = %hold.run, "an ordered run holds this node; other runs wait");
            }
            (Some(run), None) => {
                tracing::info!(%run, "the ordered run released this node");
            }
            _ => {}
        }
        self.wake();
    }

    /// Returns the run that has reserved this node now.
    pub(super) fn held_by(&self) -> Option<RunId> {
        let held = (*self.held())?;
        (held.until > Instant::now()).then_some(held.run)
    }

    /// Resolves when the current hold has expired.
    pub(super) async fn hold_runs_out(&self) {
        let until = self.held().map(|held| held.until);
        match until {
            None => std::future::pending().await,
            Some(until) => {
                tokio::time::sleep_until(until).await;
                let run = self.held().take_if(|held| held.until <= Instant::now());
                if let Some(ActiveHold { run, .. }) = run {
                    tracing::warn!(%run, "the hold of this node was not renewed; other runs continue");
                    self.file().change_anyway(|queue| queue.held = None);
                }
            }
        }
    }
}
