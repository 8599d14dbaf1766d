//! Maintenance of a store that does not maintain itself: compaction, and space.
//!
//! It runs on every server, in its own task, and waits for nothing else. Compaction is harmless to
//! repeat. One server at a time reclaims space: it claims that in the store first.
//!
//! When the store is full, all history is dropped and space is reclaimed at once, without waiting
//! for anyone. If etcd raised its alarm, the claim cannot even be written; then each server does
//! it, because nothing else works until one of them succeeds.

use std::sync::Mutex;
use std::time::Duration;

use bunraku_store::{Range, Revision, SharedStore, SpaceLevel, StoreError, StoreSpace};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use bunraku_control::clock::Clock;
use bunraku_control::document::{self, Decision};
use bunraku_control::{ServiceError, keys};

use crate::history_window::HistoryWindow;

/// A server that reclaims space for longer than this is presumed dead.
const LONGEST_RECLAIM: Duration = Duration::from_secs(3 * 3_600);

/// Intervals of the maintenance, and the amount of history to keep.
#[derive(Clone, Debug)]
pub struct StoreUpkeepOptions {
    /// History that a watch can still go back to. `None` if the store maintains itself, as the
    /// embedded one does.
    pub history: Option<Duration>,
    /// Interval between observations of the store.
    pub look_every: Duration,
    /// Shortest time between two defragmentations.
    pub reclaim_pause: Duration,
    /// The same while the store is full.
    pub reclaim_pause_when_full: Duration,
}

impl Default for StoreUpkeepOptions {
    fn default() -> Self {
        Self {
            history: None,
            look_every: Duration::from_secs(10),
            reclaim_pause: Duration::from_secs(3_600),
            reclaim_pause_when_full: Duration::from_secs(30),
        }
    }
}

/// The shared record of the maintenance.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
struct UpkeepRecord {
    #[serde(default)]
    history: HistoryWindow,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reclaim: Option<ReclaimClaim>,
}

/// The newest time that a server reclaimed space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct ReclaimClaim {
    by: String,
    since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Timestamp>,
}

impl ReclaimClaim {
    /// Returns whether another attempt may start.
    fn is_over(&self, now: Timestamp, pause: Duration) -> bool {
        let (since, pause) = match self.ended {
            Some(ended) => (ended, pause),
            None => (self.since, LONGEST_RECLAIM),
        };
        let passed = Duration::try_from(now.duration_since(since));
        // A time in the future comes from a clock that was wrong.
        passed.is_err() || passed.is_ok_and(|passed| passed >= pause)
    }
}

pub(crate) struct StoreUpkeep {
    store: SharedStore,
    clock: Clock,
    server: String,
    options: StoreUpkeepOptions,
    /// The level that was logged last.
    level: Mutex<SpaceLevel>,
}

impl StoreUpkeep {
    pub(crate) fn new(
        store: SharedStore,
        clock: Clock,
        server: String,
        options: StoreUpkeepOptions,
    ) -> Self {
        Self {
            store,
            clock,
            server,
            options,
            level: Mutex::new(SpaceLevel::Normal),
        }
    }

    /// Runs until cancelled. Returns at once if the store maintains itself.
    pub(crate) async fn run(&self, shutdown: CancellationToken) {
        let Some(kept) = self.options.history else {
            return;
        };
        let mut looks = tokio::time::interval(self.options.look_every);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = looks.tick() => {}
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                looked = self.look(kept) => if let Err(error) = looked {
                    let error = bunraku_control::error::chain(&error);
                    tracing::warn!(%error, "maintenance of the store failed; retrying");
                },
            }
        }
    }

    /// Makes room if the store refuses writes, so that a server can start.
    pub(crate) async fn make_room(&self) -> Result<(), ServiceError> {
        if self.options.history.is_none() {
            return Ok(());
        }
        let space = self.store.observe_space().await?.unwrap_or_default();
        if space.is_alarm_raised {
            let (newest, _) = self.read().await?;
            self.note_level(&space);
            self.store.compact(newest).await?;
            self.reclaim(&space).await?;
        }
        Ok(())
    }

    async fn look(&self, kept: Duration) -> Result<(), ServiceError> {
        let space = self.store.observe_space().await?.unwrap_or_default();
        self.note_level(&space);
        let (newest, record) = self.read().await?;
        if space.is_full() {
            self.store.compact(newest).await?;
        } else if let Some(old) = record.history.outdated(self.clock.now(), kept) {
            self.store.compact(old).await?;
        }
        self.advance_history(newest, &record, kept).await?;
        if space.is_worth_reclaiming() {
            self.reclaim(&space).await?;
        }
        Ok(())
    }

    /// Returns the newest revision, and the record. The range contains no other key.
    async fn read(&self) -> Result<(Revision, UpkeepRecord), ServiceError> {
        let page = self.store.range(Range::prefix(keys::STORE_UPKEEP)).await?;
        let entry = page.items.iter().find(|it| it.key == keys::STORE_UPKEEP);
        let record = entry.map(document::decode).transpose()?;
        Ok((page.revision, record.unwrap_or_default()))
    }

    async fn advance_history(
        &self,
        newest: Revision,
        known: &UpkeepRecord,
        kept: Duration,
    ) -> Result<(), ServiceError> {
        let now = self.clock.now();
        if known.history.advanced(now, newest, kept).is_none() {
            return Ok(());
        }
        let advanced = self.update(|record| {
            let history = record.history.advanced(now, newest, kept)?;
            Some(UpkeepRecord { history, ..record })
        });
        match advanced.await {
            // Compaction goes on without it.
            Err(ServiceError::Store(StoreError::Full(_))) => Ok(()),
            advanced => advanced.map(drop),
        }
    }

    async fn update(
        &self,
        change: impl Fn(UpkeepRecord) -> Option<UpkeepRecord>,
    ) -> Result<UpkeepRecord, ServiceError> {
        let written = document::update(&*self.store, keys::STORE_UPKEEP, |known| {
            let changed = change(known.unwrap_or_default());
            Ok(changed.map_or(Decision::Keep, Decision::Write))
        });
        Ok(written.await?.unwrap_or_default())
    }

    /// Reclaims space, unless another server does or just did.
    async fn reclaim(&self, space: &StoreSpace) -> Result<(), ServiceError> {
        let is_claimed = match self.claim(space).await {
            // Nothing can be written, not even a claim.
            Err(ServiceError::Store(StoreError::Full(_))) => false,
            Err(error) => return Err(error),
            Ok(false) => return Ok(()),
            Ok(true) => true,
        };
        let outcome = self.store.reclaim_space().await;
        if is_claimed {
            let ended = Some(self.clock.now());
            self.update(|mut record| {
                let claim = record.reclaim.as_mut();
                claim.filter(|claim| claim.by == self.server)?.ended = ended;
                Some(record)
            })
            .await?;
        }
        Ok(outcome?)
    }

    async fn claim(&self, space: &StoreSpace) -> Result<bool, ServiceError> {
        let pause = if space.is_full() {
            self.options.reclaim_pause_when_full
        } else {
            self.options.reclaim_pause
        };
        let claim = ReclaimClaim {
            by: self.server.clone(),
            since: self.clock.now(),
            ended: None,
        };
        let record = self.update(|record| {
            let earlier = record.reclaim.as_ref();
            let is_free = earlier.is_none_or(|earlier| earlier.is_over(claim.since, pause));
            is_free.then(|| UpkeepRecord {
                reclaim: Some(claim.clone()),
                ..record
            })
        });
        Ok(record.await?.reclaim.as_ref() == Some(&claim))
    }

    /// Logs when the level changes.
    fn note_level(&self, space: &StoreSpace) {
        let level = space.level();
        let mut logged = self
            .level
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if std::mem::replace(&mut *logged, level) == level {
            return;
        }
        match level {
            SpaceLevel::Normal => tracing::info!(%space, "the datastore has room again"),
            SpaceLevel::Low => tracing::warn!(%space, "the datastore is filling up"),
            SpaceLevel::Full => tracing::error!(
                %space,
                alarm = space.is_alarm_raised,
                "the datastore is full: new data is refused"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn one_server_reclaims_at_a_time_and_a_dead_one_is_replaced() {
        let pause = Duration::from_secs(30);
        let claim = |ended: Option<i64>| ReclaimClaim {
            by: "s1".to_owned(),
            since: second(1_000),
            ended: ended.map(second),
        };
        assert!(!claim(None).is_over(second(1_500), pause), "it is running");
        assert!(claim(None).is_over(second(1_000 + 3 * 3_600), pause));
        assert!(!claim(Some(1_100)).is_over(second(1_129), pause));
        assert!(claim(Some(1_100)).is_over(second(1_130), pause));
        assert!(
            claim(Some(1_100)).is_over(second(10), pause),
            "a wrong clock"
        );
    }
}
