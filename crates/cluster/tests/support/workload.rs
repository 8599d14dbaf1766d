//! Clients that read, compare-and-swap and lock, and write down what they saw.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bunraku_store::{Compare, SharedStore, StoreError, Transaction, TransactionOutcome};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio_util::sync::CancellationToken;

use super::history::{Event, Held, Seen, Value};

const KEYS: usize = 3;
const LOCK_TTL: Duration = Duration::from_secs(4);

/// What all clients saw.
#[derive(Clone, Default)]
pub(crate) struct Recorder {
    pub(crate) events: Arc<Mutex<Vec<Event>>>,
    pub(crate) held: Arc<Mutex<Vec<Held>>>,
}

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) number: usize,
    pub(crate) store: SharedStore,
    pub(crate) begun: Instant,
    pub(crate) recorder: Recorder,
    /// The planted bug: writes without comparing.
    pub(crate) careless: bool,
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

impl Client {
    fn record(&self, key: &str, begun: Duration, seen: Seen) {
        let event = Event {
            client: self.number,
            key: key.to_owned(),
            begun,
            ended: self.begun.elapsed(),
            seen,
        };
        self.recorder.events.lock().expect("no panic").push(event);
    }

    /// Until it is stopped; then it finishes what it began.
    pub(crate) async fn work(self, seed: u64, stop: CancellationToken) {
        let mut random = StdRng::seed_from_u64(seed ^ (self.number as u64) << 32);
        let mut count = 0;
        while !stop.is_cancelled() {
            count += 1;
            let key = format!("test/key-{}", random.random_range(0..KEYS));
            match random.random_range(0..10) {
                0 => self.hold_lock().await,
                _ => self.swap(&key, count, &mut random).await,
            }
            let pause = Duration::from_millis(random.random_range(1..30));
            tokio::time::sleep(pause).await;
        }
    }

    pub(crate) async fn read(&self, key: &str) -> Result<Value, StoreError> {
        let begun = self.begun.elapsed();
        let entry = self.store.get(key).await?;
        let value = entry.map(|entry| text(&entry.value));
        self.record(key, begun, Seen::Read(value.clone()));
        Ok(value)
    }

    async fn swap(&self, key: &str, count: u64, random: &mut StdRng) {
        let Ok(from) = self.read(key).await else {
            return;
        };
        if self.careless {
            // Somebody else may write in between.
            tokio::time::sleep(Duration::from_millis(random.random_range(0..5))).await;
        }
        let to = format!("{}-{count}", self.number);
        let mut transaction = Transaction::new().put(key, to.clone());
        if !self.careless {
            transaction = transaction.when(match &from {
                None => Compare::Absent(key.to_owned()),
                Some(value) => Compare::Value(key.to_owned(), value.clone().into_bytes().into()),
            });
        }
        let begun = self.begun.elapsed();
        match self.store.commit(transaction).await {
            Ok(TransactionOutcome::Committed(_)) => {
                self.record(key, begun, Seen::Swapped { from, to });
            }
            Ok(TransactionOutcome::Refused(_)) => {}
            Err(StoreError::OutcomeUnknown(_)) => {
                self.record(key, begun, Seen::Perhaps { from, to });
            }
            // Surely not done.
            Err(_) => {}
        }
    }

    /// Takes a lock if it is free, keeps it for a moment, lets it go. It is
    /// sure to hold it until its lease could have ended.
    async fn hold_lock(&self) {
        let lock = "test/lock";
        let granted = self.begun.elapsed();
        let Ok(lease) = self.store.lease_grant(LOCK_TTL).await else {
            return;
        };
        let take = Transaction::new()
            .when(Compare::Absent(lock.to_owned()))
            .put_with_lease(lock, self.number.to_string(), lease);
        let taken = self.store.commit(take).await;
        let from = self.begun.elapsed();
        if let Ok(TransactionOutcome::Committed(_)) = taken {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let until = self.begun.elapsed().min(granted + LOCK_TTL);
            self.recorder.held.lock().expect("no panic").push(Held {
                client: self.number,
                lock: lock.to_owned(),
                from,
                until,
            });
        }
        let _ = self.store.lease_revoke(lease).await;
    }
}
