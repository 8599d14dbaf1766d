//! An ordered run has this node for itself: nothing else starts meanwhile.
//!
//! A server says so, and says it again while it holds. What it says is good
//! for some seconds by this machine's monotonic clock, so that neither a dead
//! orchestrator, nor a network that is cut, nor a clock that is set can keep a
//! node from its own runs for longer.
//!
//! The hold outlives the agent: after a restart it is good for its seconds
//! once more, as nobody knows how much of them passed.

use std::time::Duration;

use bunraku_model::RunId;
use bunraku_wire::api::NodeHold;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Runs;

/// Whatever a server says, a hold ends after this unless it is said again.
const LONGEST: Duration = Duration::from_secs(600);

/// What is on disk of a hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct KeptHold {
    pub(crate) run: RunId,
    pub(crate) seconds: u64,
}

/// A hold with its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    run: RunId,
    until: Instant,
}

impl Held {
    pub(super) fn from_now(run: RunId, seconds: u64) -> Self {
        Self {
            run,
            until: Instant::now() + Duration::from_secs(seconds).min(LONGEST),
        }
    }
}

impl Runs {
    /// A server says which run has this node for itself, if any.
    pub(crate) fn hold(&self, hold: Option<NodeHold>) {
        let before = self.held_by();
        *self.held() = hold.map(|hold| Held::from_now(hold.run, hold.seconds));
        let kept = hold.map(|NodeHold { run, seconds }| KeptHold { run, seconds });
        self.file().change_anyway(|queue| queue.held = kept);
        match (before, hold) {
            (known, Some(hold)) if known != Some(hold.run) => {
                tracing::info!(run = %hold.run, "a run has this node for itself: other runs wait");
            }
            (Some(run), None) => {
                tracing::info!(%run, "the run that had this node for itself is over");
            }
            _ => {}
        }
        self.wake();
    }

    /// The run that has this node for itself now.
    pub(super) fn held_by(&self) -> Option<RunId> {
        let held = (*self.held())?;
        (held.until > Instant::now()).then_some(held.run)
    }

    /// Resolves when a hold that is on now has run out.
    pub(super) async fn hold_runs_out(&self) {
        let until = self.held().map(|held| held.until);
        match until {
            None => std::future::pending().await,
            Some(until) => {
                tokio::time::sleep_until(until).await;
                let run = self.held().take_if(|held| held.until <= Instant::now());
                if let Some(Held { run, .. }) = run {
                    tracing::warn!(%run, "nobody says any more that a run has this node: other runs go on");
                    self.file().change_anyway(|queue| queue.held = None);
                }
            }
        }
    }
}
