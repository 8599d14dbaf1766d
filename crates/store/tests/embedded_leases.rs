//! Tests of leases when clocks jump and processes restart.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bunraku_store::embedded::Clock;
use bunraku_store::{
    EmbeddedOptions, EmbeddedStore, LeaseId, Store, StoreError, Transaction, WatchStart,
};
use futures::StreamExt;

/// Clocks that the test controls.
struct Hands {
    since_boot: Duration,
    wall: Duration,
    boot: String,
}

#[derive(Clone)]
struct TestClock(Arc<Mutex<Hands>>);

impl TestClock {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Hands {
            since_boot: seconds(1000),
            wall: seconds(1_000_000),
            boot: "first".to_owned(),
        })))
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().expect("no test panics with it")
    }

    /// Lets time pass.
    fn pass(&self, time: Duration) {
        let mut hands = self.hands();
        hands.since_boot += time;
        hands.wall += time;
    }

    /// Sets the wall clock.
    fn set_wall(&self, wall: Duration) {
        self.hands().wall = wall;
    }

    fn wall_now(&self) -> Duration {
        self.hands().wall
    }

    /// Reboots the machine after some time off.
    fn reboot(&self, off: Duration) {
        let mut hands = self.hands();
        hands.since_boot = seconds(5);
        hands.wall += off;
        hands.boot = format!("{}, then another", hands.boot);
    }
}

impl Clock for TestClock {
    fn since_boot(&self) -> Duration {
        self.hands().since_boot
    }

    fn wall(&self) -> Duration {
        self.hands().wall
    }

    fn boot(&self) -> String {
        self.hands().boot.clone()
    }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn open(directory: &Path, clock: &TestClock) -> EmbeddedStore {
    let options = EmbeddedOptions {
        clock: Arc::new(clock.clone()),
        ..EmbeddedOptions::default()
    };
    EmbeddedStore::open(directory, options)
        .await
        .expect("the store opens")
}

/// Creates a lease of 100 seconds with one key.
async fn bound_lease(store: &EmbeddedStore) -> LeaseId {
    let lease = store.lease_grant(seconds(100)).await.expect("granted");
    let bind = Transaction::new().put_with_lease("key", "x", lease);
    assert!(store.commit(bind).await.expect("an answer").is_committed());
    lease
}

async fn remaining(store: &EmbeddedStore, lease: LeaseId) -> Option<u64> {
    let status = store.lease_status(lease).await.expect("an answer")?;
    assert_eq!(status.granted, seconds(100));
    assert_eq!(status.keys, ["key"]);
    Some(status.remaining.as_secs())
}

/// Waits until the key is gone, which must happen without a request.
async fn key_goes(store: &EmbeddedStore) {
    let mut stream = store.watch("key", WatchStart::Now).await.expect("accepted");
    let gone = async {
        while store.get("key").await.expect("an answer").is_some() {
            stream.next().await.expect("a batch").expect("no error");
        }
    };
    tokio::time::timeout(seconds(30), gone)
        .await
        .expect("the key goes");
}

#[tokio::test]
async fn setting_the_wall_clock_while_running_changes_no_lease() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = TestClock::new();
    let store = open(directory.path(), &clock).await;
    let lease = bound_lease(&store).await;
    clock.pass(seconds(10));
    for wall in [seconds(5_000_000), seconds(0), seconds(1_000_000)] {
        clock.set_wall(wall);
        assert_eq!(remaining(&store, lease).await, Some(90), "wall at {wall:?}");
    }
    clock.pass(seconds(90));
    key_goes(&store).await;
    assert_eq!(remaining(&store, lease).await, None);
}

#[tokio::test]
async fn a_restart_leaves_a_lease_what_was_left_of_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = TestClock::new();
    let store = open(directory.path(), &clock).await;
    let lease = bound_lease(&store).await;
    clock.pass(seconds(30));
    store.lease_keep_alive(lease).await.expect("alive");
    clock.pass(seconds(10));
    store.close().await.expect("it closes");
    clock.pass(seconds(40));
    // Within one boot, not even a change of the wall clock matters.
    clock.set_wall(seconds(9_000_000));
    let store = open(directory.path(), &clock).await;
    assert_eq!(remaining(&store, lease).await, Some(50));
    clock.pass(seconds(50));
    key_goes(&store).await;
}

#[tokio::test]
async fn a_lease_that_ended_while_the_store_was_closed_goes_when_it_opens() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = TestClock::new();
    let store = open(directory.path(), &clock).await;
    let lease = bound_lease(&store).await;
    let before = store
        .get("key")
        .await
        .expect("an answer")
        .expect("there")
        .modified;
    store.close().await.expect("it closes");
    clock.pass(seconds(101));
    let store = open(directory.path(), &clock).await;
    let mut stream = store
        .watch("", WatchStart::At(bunraku_store::Revision(before.0 + 1)))
        .await
        .expect("accepted");
    let batch = stream.next().await.expect("a batch").expect("no error");
    assert_eq!(batch.revision.0, before.0 + 1, "an ordinary revision");
    assert_eq!(batch.changes.len(), 1);
    let late = store.lease_keep_alive(lease).await;
    assert!(matches!(late, Err(StoreError::LeaseNotFound(_))));
}

#[tokio::test]
async fn across_a_reboot_the_wall_clock_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = TestClock::new();
    let store = open(directory.path(), &clock).await;
    let lease = bound_lease(&store).await;
    clock.pass(seconds(10));
    store.close().await.expect("it closes");
    clock.reboot(seconds(60));
    let store = open(directory.path(), &clock).await;
    assert_eq!(remaining(&store, lease).await, Some(30));
    store.close().await.expect("it closes");
    clock.reboot(seconds(1));
    let store = open(directory.path(), &clock).await;
    assert_eq!(remaining(&store, lease).await, Some(29), "and again");
}

#[tokio::test]
async fn a_wall_clock_that_went_back_across_a_reboot_makes_no_lease_longer_than_granted() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = TestClock::new();
    let store = open(directory.path(), &clock).await;
    let lease = bound_lease(&store).await;
    store.close().await.expect("it closes");
    clock.reboot(seconds(20));
    clock.set_wall(seconds(100));
    let store = open(directory.path(), &clock).await;
    assert_eq!(remaining(&store, lease).await, Some(100));
    clock.pass(seconds(100));
    key_goes(&store).await;
}

#[tokio::test]
async fn a_wall_clock_that_was_set_before_a_reboot_does_not_end_leases_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = TestClock::new();
    let store = open(directory.path(), &clock).await;
    let lease = bound_lease(&store).await;
    // An hour ahead while running; the store notices during housekeeping.
    clock.set_wall(clock.wall_now() + seconds(3600));
    for _ in 0..2 {
        assert_eq!(remaining(&store, lease).await, Some(100));
    }
    store.close().await.expect("it closes");
    clock.reboot(seconds(20));
    let store = open(directory.path(), &clock).await;
    assert_eq!(remaining(&store, lease).await, Some(80));
}

#[tokio::test]
async fn a_keep_alive_counts_from_when_it_was_asked_for_and_a_late_one_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = TestClock::new();
    let store = open(directory.path(), &clock).await;
    let lease = bound_lease(&store).await;
    clock.pass(seconds(99));
    store.lease_keep_alive(lease).await.expect("alive");
    assert_eq!(remaining(&store, lease).await, Some(100));
    // Let the store become idle: it checks the clock again on the next request.
    tokio::time::sleep(Duration::from_millis(100)).await;
    clock.pass(seconds(100));
    let late = store.lease_keep_alive(lease).await;
    assert!(
        matches!(late, Err(StoreError::LeaseNotFound(_))),
        "{late:?}"
    );
    let bind = Transaction::new().put_with_lease("other", "x", lease);
    let late = store.commit(bind).await;
    assert!(
        matches!(late, Err(StoreError::LeaseNotFound(_))),
        "{late:?}"
    );
}

#[tokio::test]
async fn thousands_of_leases_that_end_at_once_all_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let clock = TestClock::new();
    let store = open(directory.path(), &clock).await;
    let bindings = (0..2000).map(|number| {
        let store = store.clone();
        async move {
            let lease = store.lease_grant(seconds(100)).await.expect("granted");
            let bind = Transaction::new().put_with_lease(format!("key/{number}"), "x", lease);
            store.commit(bind).await.expect("an answer")
        }
    });
    futures::future::join_all(bindings).await;
    let mut stream = store
        .watch("key/", WatchStart::Now)
        .await
        .expect("accepted");
    clock.pass(seconds(100));
    let mut last = 0;
    for _ in 0..2000 {
        let batch = tokio::time::timeout(seconds(60), stream.next()).await;
        let batch = batch.expect("in time").expect("a batch").expect("no error");
        assert_eq!(batch.changes.len(), 1, "one revision for each lease");
        assert!(batch.revision.0 > last);
        last = batch.revision.0;
    }
}
