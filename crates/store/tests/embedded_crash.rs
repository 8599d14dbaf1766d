//! Kills the writer at any moment; no acknowledged write is lost.

use crate::killed::was_killed;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bunraku_store::contract::Random;
use bunraku_store::{
    Change, EmbeddedOptions, EmbeddedStore, LeaseId, Range, Revision, Store, StoreError,
    WatchBatch, WatchStart,
};
use futures::StreamExt;

const ROUNDS: u64 = 300;
const TASKS: u64 = 6;
/// A new directory now and then, so that its creation is interrupted too.
const ROUNDS_PER_DIRECTORY: u64 = 60;

/// The acknowledged writes of one directory over all rounds.
#[derive(Default)]
struct Acknowledged {
    numbers: HashMap<u64, u64>,
    leases: Vec<LeaseId>,
    revision: u64,
    count: u64,
}

impl Acknowledged {
    /// Takes a complete line of the writer's output.
    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |place: usize| words[place].parse::<u64>().expect("a number");
        match words[0] {
            "open" => assert!(number(1) >= self.revision, "a revision went back: {line}"),
            "lease" => self
                .leases
                .push(LeaseId(words[1].parse().expect("a number"))),
            "ack" => {
                let before = self.numbers.insert(number(1), number(2)).unwrap_or(0);
                assert!(number(2) > before, "a number went back: {line}");
                self.revision = self.revision.max(number(3));
                self.count += 1;
            }
            _ => panic!("the writer said {line:?}"),
        }
    }
}

fn run_and_kill(directory: &Path, delay: Duration, acknowledged: &mut Acknowledged) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bunraku-store-writer"))
        .arg(directory)
        .args([TASKS.to_string(), "100".to_owned()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the writer starts");
    let output = child.stdout.take().expect("it is piped");
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(output).split(b'\n');
        lines
            .map(|line| line.expect("readable"))
            .collect::<Vec<_>>()
    });
    std::thread::sleep(delay);
    child.kill().expect("it is ours to kill");
    was_killed(child);
    for line in reader.join().expect("the reader ends") {
        acknowledged.take(std::str::from_utf8(&line).expect("text"));
    }
}

fn number_of(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("text");
    text.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .expect("a number")
}

/// Opens the store after the kill, and compares.
async fn check(directory: &Path, acknowledged: &mut Acknowledged) {
    let store = EmbeddedStore::open(directory, EmbeddedOptions::default())
        .await
        .expect("it opens after a kill");
    let page = store.range(Range::prefix("log/")).await.expect("an answer");
    assert!(
        page.revision.0 >= acknowledged.revision,
        "revisions were lost"
    );
    for task in 0..TASKS {
        let read = async |name: &str| {
            let key = format!("count/{task}/{name}");
            let found = store.get(&key).await.expect("an answer");
            found.map_or(0, |found| number_of(&found.value))
        };
        let (one, other) = (read("one").await, read("other").await);
        assert_eq!(one, other, "half a transaction of task {task}");
        let last = acknowledged.numbers.get(&task).copied().unwrap_or(0);
        assert!(
            one >= last,
            "task {task}: {last} was acknowledged, {one} is there"
        );
        assert!(
            one <= last + 1,
            "task {task}: {last} was acknowledged, {one} is there"
        );
        acknowledged.numbers.insert(task, one);
        if one > 0 {
            let key = format!("log/{task}/{:04}", one % 1000);
            let log = store.get(&key).await.expect("an answer");
            assert_eq!(number_of(&log.expect("the log goes with it").value), one);
        }
    }
    for lease in acknowledged.leases.drain(..) {
        let status = store.lease_status(lease).await.expect("an answer");
        assert!(status.is_some(), "lease {lease} was lost");
        store.lease_revoke(lease).await.expect("it is alive");
    }
    acknowledged.revision = page.revision.0;
    check_history(&store, page.revision).await;
    store.close().await.expect("it closes");
}

/// Checks that the remaining history has no gap and no partial revision.
async fn check_history(store: &EmbeddedStore, newest: Revision) {
    let start = Revision(newest.0.saturating_sub(100).max(1));
    let mut stream = match store.watch("", WatchStart::At(start)).await {
        Ok(stream) => stream,
        // The writers keep little history.
        Err(StoreError::Compacted { .. }) => return,
        Err(error) => panic!("history cannot be read: {error:?}"),
    };
    for expected in start.0..=newest.0 {
        let batch = stream.next().await.expect("a batch").expect("no error");
        assert_eq!(batch.revision.0, expected, "a gap in history");
        assert!(is_whole(&batch), "half a revision: {batch:?}");
    }
}

fn is_whole(batch: &WatchBatch) -> bool {
    batch.changes.len() == 3
        && batch
            .changes
            .iter()
            .all(|change| matches!(change, Change::Put(_)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_acknowledged_write_survives_a_kill_at_any_moment() {
    let seed = Random::seed();
    println!("BUNRAKU_TEST_SEED={seed}");
    let mut random = Random(seed);
    let mut total = 0;
    for _ in 0..ROUNDS / ROUNDS_PER_DIRECTORY {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("store");
        let mut acknowledged = Acknowledged::default();
        for round in 0..ROUNDS_PER_DIRECTORY {
            // Some are killed while they open the store.
            let longest = if round % 4 == 0 { 15_000 } else { 150_000 };
            let delay = Duration::from_micros(random.below(longest));
            let (path, mut taken) = (path.clone(), std::mem::take(&mut acknowledged));
            acknowledged = tokio::task::spawn_blocking(move || {
                run_and_kill(&path, delay, &mut taken);
                taken
            })
            .await
            .expect("the round ends");
            check(&directory.path().join("store"), &mut acknowledged).await;
        }
        total += acknowledged.count;
    }
    println!("{total} acknowledged writes in {ROUNDS} rounds");
    assert!(
        total > ROUNDS,
        "seed {seed}: only {total} writes were acknowledged"
    );
}
