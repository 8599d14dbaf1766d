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
use bunraku_control::leader::Leadership;
use bunraku_control::{ServiceError, keys};

use crate::history_window::HistoryWindow;

/// The silence after which a server that reclaims space is presumed dead.
const CLAIM_TTL: Duration = Duration::from_secs(60);

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
    reclaim: Option<LastReclaim>,
}

/// The newest time that a server reclaimed space.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct LastReclaim {
    by: String,
    since: Timestamp,
    /// Absent in records of earlier versions, which wrote them before the work, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Timestamp>,
}

impl LastReclaim {
    /// Returns whether another attempt may start.
    fn is_long_ago(&self, now: Timestamp, pause: Duration) -> bool {
        let Some(ended) = self.ended else {
            return true;
        };
        let passed = Duration::try_from(now.duration_since(ended));
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
        let claim = match self.claim(space).await {
            // Nothing can be written, not even a claim.
            Err(ServiceError::Store(StoreError::Full(_))) => None,
            Err(error) => return Err(error),
            Ok(None) => return Ok(()),
            Ok(claim) => claim,
        };
        let since = self.clock.now();
        let Some(claim) = claim else {
            return Ok(self.store.reclaim_space().await?);
        };
        let keep = async {
            claim.keep_alive().await;
            // A member that pauses may cost the claim. The work goes on.
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            outcome = self.store.reclaim_space() => outcome,
            () = keep => Ok(()),
        };
        let last = LastReclaim {
            by: self.server.clone(),
            since,
            ended: Some(self.clock.now()),
        };
        let noted = self.update(|record| {
            Some(UpkeepRecord {
                reclaim: Some(last.clone()),
                ..record
            })
        });
        let noted = noted.await;
        claim.resign().await;
        outcome?;
        noted.map(drop)
    }

    /// Claims the work for this server. The claim ends with its lease, so a server that dies
    /// leaves the work to others.
    async fn claim(&self, space: &StoreSpace) -> Result<Option<Leadership>, ServiceError> {
        let pause = if space.is_full() {
            self.options.reclaim_pause_when_full
        } else {
            self.options.reclaim_pause
        };
        let store = self.store.clone();
        let claim = Leadership::seize(store, keys::STORE_RECLAIM, &self.server, CLAIM_TTL).await?;
        let Some(claim) = claim else {
            return Ok(None);
        };
        // Read after the claim, so that the end of the claim before is known.
        let (_, record) = self.read().await?;
        let last = record.reclaim.as_ref();
        if last.is_none_or(|last| last.is_long_ago(self.clock.now(), pause)) {
            return Ok(Some(claim));
        }
        claim.resign().await;
        Ok(None)
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
    use std::sync::Arc;

    use super::*;

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn space_is_reclaimed_again_after_a_pause() {
        let pause = Duration::from_secs(30);
        let last = |ended: Option<i64>| LastReclaim {
            by: "s1".to_owned(),
            since: second(1_000),
            ended: ended.map(second),
        };
        assert!(
            last(None).is_long_ago(second(1_500), pause),
            "it never ended"
        );
        assert!(!last(Some(1_100)).is_long_ago(second(1_129), pause));
        assert!(last(Some(1_100)).is_long_ago(second(1_130), pause));
        assert!(
            last(Some(1_100)).is_long_ago(second(10), pause),
            "a wrong clock"
        );
    }

    /// One server claims the work. While it lives, nobody else does it; when it died, others do.
    #[tokio::test]
    async fn a_server_that_died_while_it_reclaimed_space_does_not_block_others() {
        let store: SharedStore = Arc::new(bunraku_store::testing::MemoryStore::new());
        let upkeep = |name: &str| {
            let options = StoreUpkeepOptions::default();
            StoreUpkeep::new(store.clone(), Clock::system(), name.to_owned(), options)
        };
        let (first, second) = (upkeep("s1"), upkeep("s2"));
        let space = StoreSpace::default();
        let claim = first.claim(&space).await.expect("a store");
        assert!(claim.is_some());
        assert!(second.claim(&space).await.expect("a store").is_none());
        // Its lease ends, as that of a dead server does.
        claim.expect("claimed").resign().await;
        second.reclaim(&space).await.expect("it is free");
        let again = first.claim(&space).await.expect("a store");
        assert!(again.is_none(), "the next attempt waits for the pause");
    }
}
