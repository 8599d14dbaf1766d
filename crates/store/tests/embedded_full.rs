//! No space left: writers get an error, no acknowledged write is lost, and the store continues when
//! there is space again.

use bunraku_testkit::eventually;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use bunraku_store::{
    EmbeddedOptions, EmbeddedStore, Range, Store, StoreError, Transaction, TransactionOutcome,
};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

#[tokio::test]
async fn a_store_at_its_quota_refuses_to_grow_and_still_takes_what_fits() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = EmbeddedOptions {
        quota_bytes: 1 << 20,
        keep_revisions: 1,
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(directory.path(), options)
        .await
        .expect("it opens");
    let mut taken = Vec::new();
    let error = loop {
        let key = format!("k/{:03}", taken.len());
        match store
            .commit(Transaction::new().put(&key, vec![b'x'; 20_000]))
            .await
        {
            Ok(_) => taken.push(key),
            Err(error) => break error,
        }
        assert!(taken.len() < 1000, "the quota is no limit");
    };
    assert!(matches!(error, StoreError::Full(_)), "{error:?}");
    let page = store.range(Range::prefix("k/")).await.expect("reads go on");
    let keys: Vec<_> = page.items.into_iter().map(|item| item.key).collect();
    assert_eq!(keys, taken, "what was acknowledged, and no more");

    // Freeing space is also a write, and small enough to fit.
    let outcome = store.commit(Transaction::new().delete_prefix("k/0")).await;
    assert!(outcome.expect("it fits").is_committed());
    let again = Transaction::new().put("again", vec![b'y'; 20_000]);
    eventually(async || store.commit(again.clone()).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_write_that_does_not_fit_does_not_take_others_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = EmbeddedOptions {
        quota_bytes: 1 << 20,
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(directory.path(), options)
        .await
        .expect("it opens");
    let writes = (0..40).map(|number| {
        let store = store.clone();
        async move {
            let bytes = if number % 10 == 5 { 900_000 } else { 10 };
            let key = format!("k/{number}");
            store
                .commit(Transaction::new().put(key, vec![b'x'; bytes]))
                .await
        }
    });
    let outcomes = futures::future::join_all(writes).await;
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let fits = number % 10 != 5;
        assert_eq!(outcome.is_ok(), fits, "{number}: {outcome:?}");
        if let Ok(outcome) = outcome {
            assert!(matches!(outcome, TransactionOutcome::Committed(_)));
        }
    }
}

/// A writer whose files may grow only to a limit, like on a full disk.
struct Limited {
    child: Child,
    lines: Receiver<String>,
}

impl Limited {
    fn start(directory: &std::path::Path) -> Self {
        // The signal that comes with the limit is ignored, so that the write fails with an error.
        // An ignored signal stays ignored across `exec`.
        let mut child = Command::new("/bin/sh")
            .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
            .arg(env!("CARGO_BIN_EXE_bunraku-store-writer"))
            .arg(directory)
            .args(["4", "2000"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the writer starts");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    fn limit(&self, bytes: Option<u64>) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a small number"))
            .expect("a process");
        let limit = Rlimit {
            current: bytes,
            maximum: None,
        };
        prlimit(Some(pid), Resource::Fsize, limit).expect("it is ours to limit");
    }

    /// Reads lines up to the first that matches.
    fn until(&self, start: &str, acknowledged: &mut [u64]) {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            let line = line.unwrap_or_else(|_| panic!("waited in vain for {start:?}"));
            note(&line, acknowledged);
            if line.starts_with(start) {
                return;
            }
        }
    }
}

fn note(line: &str, acknowledged: &mut [u64]) {
    let words: Vec<&str> = line.split(' ').collect();
    match words[0] {
        "ack" => {
            let task: usize = words[1].parse().expect("a number");
            acknowledged[task] = words[2].parse().expect("a number");
        }
        "error" => assert_eq!(words[3], "io", "{line}"),
        _ => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_system_refuses_to_write_nothing_acknowledged_is_lost() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut acknowledged = vec![0; 4];
    let mut writer = Limited::start(directory.path());
    for _ in 0..3 {
        writer.until("ack", &mut acknowledged);
        let log = directory.path().join("store.sqlite-wal");
        let length = std::fs::metadata(log).expect("a log").len();
        writer.limit(Some(length / 4096 * 4096 + 3000));
        writer.until("error", &mut acknowledged);
        writer.until("error", &mut acknowledged);
        writer.limit(None);
    }
    writer.until("ack", &mut acknowledged);
    writer.child.kill().expect("it is ours to kill");
    writer.child.wait().expect("it ended");
    for line in writer.lines.iter() {
        note(&line, &mut acknowledged);
    }
    let store = EmbeddedStore::open(directory.path(), EmbeddedOptions::default())
        .await
        .expect("it opens");
    for (task, acknowledged) in acknowledged.into_iter().enumerate() {
        let mut numbers = Vec::new();
        for name in ["one", "other"] {
            let found = store.get(&format!("count/{task}/{name}")).await;
            numbers.push(found.expect("an answer").map_or(0, |found| {
                let text = String::from_utf8_lossy(&found.value).into_owned();
                let word = text.split(' ').next().expect("a word");
                word.parse::<u64>().expect("a number")
            }));
        }
        assert_eq!(numbers[0], numbers[1], "half a transaction of task {task}");
        assert!(
            numbers[0] == acknowledged || numbers[0] == acknowledged + 1,
            "task {task}: {acknowledged} was acknowledged, {} is there",
            numbers[0]
        );
    }
}
