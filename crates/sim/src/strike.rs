//! Death at a chosen moment: counts steps, and strikes at one of them.
//!
//! Chance finds most moments; a test that tries every one of them finds all.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// The fate of the step at which a process is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KillPoint {
    /// It is not done.
    Before,
    /// It is done, and its caller never learns that.
    After,
}

/// A moment in the life of a server or an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Counted from 0.
    pub step: u64,
    pub when: KillPoint,
}

/// Counts steps, and strikes once.
#[derive(Default, Debug)]
pub(crate) struct KillSwitch {
    at: Option<Moment>,
    steps: AtomicU64,
    disarmed: AtomicBool,
    struck: Notify,
}

impl KillSwitch {
    pub(crate) fn new(at: Option<Moment>) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// Returns the number of steps so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    pub(crate) fn disarm(&self) {
        self.disarmed.store(true, Ordering::SeqCst);
    }

    /// Counts one more step. Returns the fate of the step if it is the chosen one.
    pub(crate) fn count(&self) -> Option<KillPoint> {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        let moment = self.at.filter(|moment| moment.step == step)?;
        (!self.disarmed.load(Ordering::SeqCst)).then_some(moment.when)
    }

    /// Has the caller of this step killed, and never returns.
    pub(crate) async fn die(&self) {
        self.struck.notify_one();
        pending().await
    }

    /// Counts a step of a caller that nothing else can stop.
    pub(crate) async fn step(&self) {
        if self.count().is_some() {
            self.die().await;
        }
    }

    /// Resolves when it strikes.
    pub(crate) async fn wait_for_strike(&self) {
        self.struck.notified().await;
    }
}
