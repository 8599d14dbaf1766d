//! Epochs: what a restored backup may not repeat.
//!
//! A backup forgets what happened after it: tokens of locks and once tasks that were handed out,
//! certificates that were signed, and certificates that were revoked. A restore therefore starts
//! a new epoch:
//!
//! - tokens start above every token of the epochs before, and so do the numbers of revocation
//!   lists;
//! - a certificate that is not in the inventory is refused, because it may have been signed, or
//!   even revoked, after the backup;
//! - operators are refused, except a server's own, until somebody has reviewed the restore;
//! - revocations that the backup lacks come back from the signer, and from clients that have a
//!   newer list.
//!
//! The embedded store knows that its files were copied, and a cluster counts its recoveries. For
//! another etcd, an operator says it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bunraku_store::SharedStore;
use bunraku_wire::PeerIdentity;
use bunraku_wire::api::UnknownCertificate;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::document::{self, Decision};
use crate::{ServiceError, keys};

/// The number of tokens in one epoch. The largest token of 8,000 epochs still fits into the
/// numbers of JSON.
const PER_EPOCH: u64 = 1 << 40;

/// The most unknown certificates that are remembered for the review.
const MOST_UNKNOWN: usize = 1_000;

/// The epoch as stored.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StoredEpoch {
    /// 0 until the first restore.
    pub(crate) number: u64,
    /// When the restore was noticed.
    pub(crate) since: Option<Timestamp>,
    /// Why it is a restore.
    pub(crate) because: Option<String>,
    /// Who reviewed it.
    pub(crate) reviewed_by: Option<String>,
    /// The number of recoveries of the cluster, when this was written.
    #[serde(default)]
    pub(crate) recoveries: u64,
}

impl StoredEpoch {
    pub(crate) fn is_reviewed(&self) -> bool {
        self.number == 0 || self.reviewed_by.is_some()
    }
}

/// The signs of a restore that a server sees when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoreSigns {
    /// The files of the embedded store were copied.
    pub was_copied: bool,
    /// The number of recoveries of the cluster.
    pub recoveries: u64,
}

/// The current epoch. Cloning shares it.
#[derive(Clone, Debug, Default)]
pub struct Epoch {
    known: Arc<Mutex<StoredEpoch>>,
    number: Arc<AtomicU64>,
    unknown: Arc<Mutex<Vec<UnknownCertificate>>>,
}

impl Epoch {
    /// Reads the epoch, and starts a new one if the data was restored.
    pub async fn open(
        store: &SharedStore,
        clock: &Clock,
        signs: RestoreSigns,
    ) -> Result<Self, ServiceError> {
        let read = document::read::<StoredEpoch>(&**store, keys::EPOCH).await?;
        let known = read.map(|read| read.document);
        let recovered = known
            .as_ref()
            .is_some_and(|known| signs.recoveries > known.recoveries);
        let because = match (signs.was_copied, recovered) {
            (true, _) => Some("the files of the store were copied"),
            (_, true) => Some("the cluster was recovered"),
            _ => None,
        };
        let epoch = Self::default();
        match (because, &known) {
            (Some(because), _) => epoch.begin(store, clock, because, signs.recoveries).await?,
            // The first start of a member: later recoveries are counted from here.
            (None, None) if signs.recoveries > 0 => {
                let first = StoredEpoch {
                    recoveries: signs.recoveries,
                    ..StoredEpoch::default()
                };
                document::update(&**store, keys::EPOCH, |stored: Option<StoredEpoch>| {
                    Ok::<_, ServiceError>(match stored {
                        None => Decision::Write(first.clone()),
                        Some(_) => Decision::Keep,
                    })
                })
                .await?;
            }
            (None, _) => epoch.learn(known.unwrap_or_default()),
        }
        Ok(epoch)
    }

    /// Starts a new epoch. Several servers that notice the same recovery start one together.
    pub(crate) async fn begin(
        &self,
        store: &SharedStore,
        clock: &Clock,
        because: &str,
        recoveries: u64,
    ) -> Result<(), ServiceError> {
        let now = clock.now();
        document::update(&**store, keys::EPOCH, |stored: Option<StoredEpoch>| {
            let before = stored.unwrap_or_default();
            if recoveries > 0 && before.recoveries >= recoveries {
                return Ok::<_, ServiceError>(Decision::Keep);
            }
            Ok(Decision::Write(StoredEpoch {
                number: before.number + 1,
                since: Some(now),
                because: Some(because.to_owned()),
                reviewed_by: None,
                recoveries: recoveries.max(before.recoveries),
            }))
        })
        .await?;
        self.reread(store).await?;
        tracing::error!(
            because,
            epoch = self.number(),
            "this server works on restored data; review it with `bunraku backup check`"
        );
        Ok(())
    }

    pub(crate) async fn reread(&self, store: &SharedStore) -> Result<(), ServiceError> {
        let read = document::read::<StoredEpoch>(&**store, keys::EPOCH).await?;
        self.learn(read.map(|read| read.document).unwrap_or_default());
        Ok(())
    }

    fn learn(&self, stored: StoredEpoch) {
        self.number.store(stored.number, Ordering::SeqCst);
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = stored;
    }

    pub(crate) fn stored(&self) -> StoredEpoch {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the number of restores so far.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::SeqCst)
    }

    /// Returns the number above which all tokens of this epoch are.
    pub fn floor(&self) -> u64 {
        self.number().saturating_mul(PER_EPOCH)
    }

    /// Returns `true` if nobody has looked at the restored data yet.
    pub fn needs_review(&self) -> bool {
        self.number() > 0 && !self.stored().is_reviewed()
    }

    /// Notes that somebody came with a certificate that is not in the inventory.
    pub fn note_unknown(&self, peer: &PeerIdentity, now: Timestamp) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let serial = peer.serial.to_string();
        if unknown.len() < MOST_UNKNOWN && !unknown.iter().any(|known| known.serial == serial) {
            unknown.push(UnknownCertificate {
                name: peer.name.clone(),
                role: peer.role,
                serial,
                not_before: peer.not_before,
                first_seen: now,
            });
        }
    }

    pub(crate) fn unknown(&self) -> Vec<UnknownCertificate> {
        self.unknown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use bunraku_store::testing::MemoryStore;

    use super::*;

    async fn opened(store: &SharedStore, was_copied: bool, recoveries: u64) -> Epoch {
        let signs = RestoreSigns {
            was_copied,
            recoveries,
        };
        Epoch::open(store, &Clock::system(), signs).await.unwrap()
    }

    #[tokio::test]
    async fn each_restore_starts_one_epoch_and_tokens_only_grow() {
        let store: SharedStore = Arc::new(MemoryStore::new());
        assert_eq!(opened(&store, false, 0).await.floor(), 0);
        assert!(!opened(&store, false, 0).await.needs_review());
        let first = opened(&store, true, 0).await;
        assert!(first.floor() >= PER_EPOCH && first.needs_review());
        let restarted = opened(&store, false, 0).await;
        assert_eq!(restarted.floor(), first.floor());
        assert!(restarted.needs_review());
        assert!(opened(&store, true, 0).await.floor() > first.floor());
    }

    #[tokio::test]
    async fn servers_that_notice_the_same_recovery_start_one_epoch_together() {
        let store: SharedStore = Arc::new(MemoryStore::new());
        assert_eq!(
            opened(&store, false, 1).await.number(),
            0,
            "nothing to compare"
        );
        assert_eq!(opened(&store, false, 1).await.number(), 0);
        assert_eq!(opened(&store, false, 2).await.number(), 1);
        assert_eq!(opened(&store, false, 2).await.number(), 1);
        assert_eq!(opened(&store, false, 3).await.number(), 2);
    }
}
