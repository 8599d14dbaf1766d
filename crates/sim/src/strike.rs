//! Death at a chosen moment: what is counted, and where the count ends.
//!
//! Chance finds most moments; a test that tries every one of them finds all.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::Notify;

/// What becomes of the step at which somebody is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// It is not done.
    Before,
    /// It is done, and he who did it never hears of it.
    After,
}

/// A place in somebody's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Counted from 0.
    pub step: u64,
    pub when: When,
}

/// Counts steps, and strikes once.
#[derive(Default, Debug)]
pub(crate) struct Strike {
    at: Option<Moment>,
    steps: AtomicU64,
    disarmed: AtomicBool,
    struck: Notify,
}

impl Strike {
    pub(crate) fn new(at: Option<Moment>) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// Steps so far.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    pub(crate) fn disarm(&self) {
        self.disarmed.store(true, Ordering::SeqCst);
    }

    /// One more step. What is to become of it, if it is the one.
    pub(crate) fn count(&self) -> Option<When> {
        let step = self.steps.fetch_add(1, Ordering::SeqCst);
        let moment = self.at.filter(|moment| moment.step == step)?;
        (!self.disarmed.load(Ordering::SeqCst)).then_some(moment.when)
    }

    /// Has whoever is at this step killed, and goes no further.
    pub(crate) async fn die(&self) {
        self.struck.notify_one();
        pending().await
    }

    /// A step of one that nothing else can stop.
    pub(crate) async fn step(&self) {
        if self.count().is_some() {
            self.die().await;
        }
    }

    /// Resolves when it strikes.
    pub(crate) async fn struck(&self) {
        self.struck.notified().await;
    }
}
