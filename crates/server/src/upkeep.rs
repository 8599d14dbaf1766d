//! Periodic maintenance, done by any server.
//!
//! Each task is safe to run on any number of servers at once, and harmless to skip.

use std::collections::VecDeque;
use std::time::Duration;

use bunraku_store::blobs::SharedBlobs;
use bunraku_store::{Range, Revision, SharedStore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use bunraku_compile::catalogs::Catalogs;
use bunraku_compile::environments::Environments;
use bunraku_control::clock::Clock;
use bunraku_control::{Certificates, Commands, Reports, ServiceError};

/// Intervals, and the amount of history to keep.
#[derive(Clone, Debug)]
pub struct UpkeepOptions {
    /// Interval between checks for expired commands.
    pub sweep_every: Duration,
    /// Interval between collections of unreferenced content.
    pub collect_every: Duration,
    /// History that a watch can still go back to. `None` if the store compacts automatically,
    /// as the embedded one does.
    pub history: Option<Duration>,
}

impl Default for UpkeepOptions {
    fn default() -> Self {
        Self {
            sweep_every: Duration::from_secs(30),
            collect_every: Duration::from_secs(3_600),
            history: None,
        }
    }
}

pub(crate) struct Upkeep {
    pub(crate) store: SharedStore,
    pub(crate) blobs: SharedBlobs,
    pub(crate) commands: Commands,
    pub(crate) certificates: Certificates,
    pub(crate) catalogs: Catalogs,
    pub(crate) reports: Reports,
    pub(crate) environments: Environments,
    pub(crate) clock: Clock,
    pub(crate) options: UpkeepOptions,
}

impl Upkeep {
    /// Runs until cancelled.
    pub(crate) async fn run(&self, shutdown: CancellationToken) {
        let mut sweep = interval(self.options.sweep_every);
        let mut collect = interval(self.options.collect_every);
        let mut history = History::default();
        loop {
            let (what, outcome) = tokio::select! {
                () = shutdown.cancelled() => return,
                _ = sweep.tick() => ("expired commands", self.sweep(&mut history).await),
                _ = collect.tick() => ("unreferenced content", self.collect().await),
            };
            if let Err(error) = outcome {
                tracing::warn!(error = %error, what, "maintenance failed; retrying");
            }
        }
    }

    async fn sweep(&self, history: &mut History) -> Result<(), ServiceError> {
        self.commands.expire_overdue().await?;
        self.certificates.expire_requests().await?;
        let Some(kept) = self.options.history else {
            return Ok(());
        };
        let page = self
            .store
            .range(Range {
                limit: 1,
                ..Range::prefix("")
            })
            .await?;
        if let Some(old) = history.note(Instant::now(), page.revision, kept) {
            self.store.compact(old).await?;
        }
        Ok(())
    }

    async fn collect(&self) -> Result<(), ServiceError> {
        // Collect everything that references content before the content itself.
        let catalogs = self.catalogs.collect().await?;
        let old = self.reports.upkeep().await?;
        tracing::debug!(old, "deleted old reports");
        let code = self.environments.prune().await?;
        tracing::debug!(?catalogs, code, "deleted unused catalogs and code");
        let collected = self.blobs.collect(self.clock.now()).await;
        let collected = collected
            .map_err(|error| ServiceError::internal("cannot delete unused content", error))?;
        tracing::debug!(?collected, "deleted unreferenced content");
        Ok(())
    }
}

fn interval(every: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(every);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    interval
}

/// The newest revision at each point in time. Uses the monotonic clock, because a clock that
/// jumps must not discard history.
#[derive(Default)]
struct History {
    seen: VecDeque<(Instant, Revision)>,
}

impl History {
    /// Records the newest revision. Returns the revision before which everything is old
    /// enough to delete.
    fn note(&mut self, now: Instant, newest: Revision, kept: Duration) -> Option<Revision> {
        self.seen.push_back((now, newest));
        let mut old = None;
        while let Some((at, revision)) = self.seen.front() {
            if now.duration_since(*at) < kept {
                break;
            }
            old = Some(*revision);
            self.seen.pop_front();
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_older_than_the_history_goes() {
        let mut history = History::default();
        let start = Instant::now();
        let kept = Duration::from_secs(100);
        let mut note = |second: u64, revision: u64| {
            history.note(
                start + Duration::from_secs(second),
                Revision(revision),
                kept,
            )
        };
        assert_eq!(note(0, 5), None);
        assert_eq!(note(60, 9), None);
        assert_eq!(note(110, 12), Some(Revision(5)));
        assert_eq!(note(120, 12), None);
        assert_eq!(note(500, 20), Some(Revision(12)));
    }
}
