//! A process that writes to an embedded store and prints the acknowledged writes, until it is
//! killed. Used by the crash test and by the test of a full disk.
//!
//! `bunraku-store-writer DIRECTORY TASKS VALUE_BYTES`
//!
//! Each task counts: one transaction puts its number under two keys, and under another key that has
//! the number in its name. Each line is written at once: `open REVISION`, `lease ID`, `ack TASK
//! NUMBER REVISION`, `error TASK NUMBER KIND`.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use bunraku_store::{
    Compare, EmbeddedOptions, EmbeddedStore, Range, Store, StoreError, Transaction,
    TransactionOutcome,
};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("a directory");
    let mut number = || -> usize {
        let text = arguments.next().expect("a number");
        text.parse().expect("a number")
    };
    let (tasks, bytes) = (number(), number());
    // Few revisions are kept, so that a kill also meets compaction.
    let options = EmbeddedOptions {
        keep_revisions: 500,
        keep_history_for: Duration::from_secs(1),
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(Path::new(&directory), options)
        .await
        .expect("the store opens");
    let page = store.range(Range::prefix("none")).await.expect("an answer");
    print_line(&format!("open {}", page.revision));
    if let Ok(lease) = store.lease_grant(Duration::from_secs(3600)).await {
        print_line(&format!("lease {}", lease.0));
    }
    let tasks: Vec<_> = (0..tasks)
        .map(|task| tokio::spawn(count(store.clone(), task, bytes)))
        .collect();
    for task in tasks {
        task.await
            .expect("a task goes on until the process is killed");
    }
}

async fn count(store: EmbeddedStore, task: usize, bytes: usize) {
    let (one, other) = (format!("count/{task}/one"), format!("count/{task}/other"));
    let padding = "x".repeat(bytes);
    loop {
        let read = store.get(&one).await.expect("an answer");
        let last: u64 = read.as_ref().map_or(0, |read| number_of(&read.value));
        let next = last + 1;
        let transaction = Transaction::new()
            .when_unchanged(&one, read.as_ref())
            .when(match last {
                0 => Compare::Absent(other.clone()),
                _ => Compare::Exists(other.clone()),
            })
            .put(&one, format!("{next} {padding}"))
            .put(&other, format!("{next} {padding}"))
            .put(format!("log/{task}/{:04}", next % 1000), next.to_string());
        match store.commit(transaction).await {
            Ok(TransactionOutcome::Committed(revision)) => {
                print_line(&format!("ack {task} {next} {revision}"));
            }
            Ok(refused) => panic!("nobody else writes: {refused:?}"),
            Err(error) => {
                print_line(&format!("error {task} {next} {}", kind(&error)));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

fn number_of(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).expect("text");
    let number = text.split(' ').next().expect("a number");
    number.parse().expect("a number")
}

fn kind(error: &StoreError) -> &'static str {
    match error {
        StoreError::Io { .. } => "io",
        StoreError::OutcomeUnknown(_) => "unknown",
        _ => "other",
    }
}

fn print_line(line: &str) {
    let mut out = std::io::stdout().lock();
    // A single write, so that a kill cannot cut a line that counts.
    out.write_all(format!("{line}\n").as_bytes())
        .and_then(|()| out.flush())
        .expect("someone reads");
}
