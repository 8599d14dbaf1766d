//! One server's connection to the store: each call is delayed, before and after.
//!
//! So work is interleaved in every way that chance finds, and a killed server stops
//! between any two of its calls. Nothing is faked: the store underneath does the
//! work of each call.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bunraku_store::testing::{Call, CallWork, Overlay};
use bunraku_store::{SharedStore, StoreError};

use crate::Chance;
use crate::strike::{KillPoint, KillSwitch};

const LONGEST: Duration = Duration::from_millis(3);

pub(crate) struct JitterStore {
    inner: SharedStore,
    chance: Chance,
    strike: Arc<KillSwitch>,
    /// The server is killed: none of its calls continue.
    dead: AtomicBool,
}

impl JitterStore {
    pub(crate) fn new(inner: SharedStore, chance: Chance, strike: Arc<KillSwitch>) -> Self {
        Self {
            inner,
            chance,
            strike,
            dead: AtomicBool::new(false),
        }
    }

    /// Kills the server: none of its calls continue.
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    pub(crate) async fn pass<T>(&self, work: impl Future<Output = T>) -> T {
        self.alive().await;
        let struck = self.strike.count();
        tokio::time::sleep(self.chance.up_to(LONGEST)).await;
        self.alive().await;
        if struck == Some(KillPoint::Before) {
            self.die().await;
        }
        let outcome = work.await;
        if struck == Some(KillPoint::After) {
            self.die().await;
        }
        tokio::time::sleep(self.chance.up_to(LONGEST)).await;
        self.alive().await;
        outcome
    }

    async fn die(&self) {
        self.kill();
        self.strike.die().await;
    }

    /// Resolves only if the server is alive.
    async fn alive(&self) {
        if self.dead.load(Ordering::SeqCst) {
            pending().await
        }
    }
}

impl Overlay for JitterStore {
    fn inner(&self) -> &SharedStore {
        &self.inner
    }

    async fn around<T: Send>(&self, _call: Call, work: impl CallWork<T>) -> Result<T, StoreError> {
        self.pass(work).await
    }
}
