//! Durable small transactions per second, beside what the disk can do.
//!
//! `cargo bench -p bunraku-store --bench durable_writes [-- SECONDS]`
//!
//! All in one run, on one disk, in turns: appends of the same bytes with an fsync
//! each, the same over bytes that are already there (a file that does not grow is
//! cheaper to sync, and the store's log mostly does not), then the embedded store with 1 and with 64 writers, each transaction
//! acknowledged before its writer goes on. Then all of it again, three times; the
//! table shows the median of each.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use bunraku_store::{EmbeddedOptions, EmbeddedStore, Store, Transaction};

const VALUE_BYTES: usize = 100;
const TURNS: usize = 3;
const WRITERS: [usize; 2] = [1, 64];

/// What one measurement gave.
#[derive(Clone, Copy)]
struct Measured {
    per_second: f64,
    median: Duration,
    slow: Duration,
}

impl Measured {
    fn of(mut latencies: Vec<Duration>, took: Duration) -> Self {
        latencies.sort_unstable();
        let at = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        Self {
            per_second: latencies.len() as f64 / took.as_secs_f64(),
            median: at(0.5),
            slow: at(0.99),
        }
    }
}

fn main() {
    // Cargo adds `--bench` to the arguments.
    let seconds = std::env::args().skip(1).find_map(|word| word.parse().ok());
    let time = Duration::from_secs(seconds.unwrap_or(3));
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let mut results: Vec<(String, Vec<Measured>)> = vec![
        ("raw append + fsync".into(), vec![]),
        ("raw overwrite + fsync".into(), vec![]),
    ];
    for writers in WRITERS {
        results.push((format!("embedded, {writers} writing"), vec![]));
    }
    for turn in 0..TURNS {
        results[0].1.push(raw_writes(directory.path(), 0, time));
        results[1]
            .1
            .push(raw_writes(directory.path(), 4 << 20, time));
        for (place, writers) in WRITERS.into_iter().enumerate() {
            let path = directory.path().join(format!("store-{turn}-{writers}"));
            let measured = runtime.block_on(transactions(&path, writers, time));
            results[place + 2].1.push(measured);
        }
    }
    print_table(&mut results);
}

/// Writes one after the other, into `there` bytes that are there already.
fn raw_writes(directory: &Path, there: usize, time: Duration) -> Measured {
    let mut file = File::create(directory.join("raw")).expect("a file");
    file.write_all(&vec![b'.'; there]).expect("written");
    file.sync_all().expect("synced");
    file.rewind().expect("at the start");
    let bytes = [b'x'; VALUE_BYTES];
    let (begin, mut latencies) = (Instant::now(), Vec::new());
    while begin.elapsed() < time {
        let before = Instant::now();
        file.write_all(&bytes).expect("written");
        file.sync_data().expect("synced");
        latencies.push(before.elapsed());
    }
    Measured::of(latencies, begin.elapsed())
}

async fn transactions(directory: &Path, writers: usize, time: Duration) -> Measured {
    let store = EmbeddedStore::open(directory, EmbeddedOptions::default())
        .await
        .expect("it opens");
    let begin = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move { write(&store, writer, begin, time).await })
        })
        .collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await.expect("no panic"));
    }
    let measured = Measured::of(latencies, begin.elapsed());
    store.close().await.expect("it closes");
    measured
}

async fn write(
    store: &EmbeddedStore,
    writer: usize,
    begin: Instant,
    time: Duration,
) -> Vec<Duration> {
    let mut latencies = Vec::new();
    while begin.elapsed() < time {
        let key = format!("bench/{writer}/{}", latencies.len() % 100);
        let before = Instant::now();
        let outcome = store
            .commit(Transaction::new().put(key, vec![b'x'; VALUE_BYTES]))
            .await;
        assert!(outcome.expect("an answer").is_committed());
        latencies.push(before.elapsed());
    }
    latencies
}

fn print_table(results: &mut [(String, Vec<Measured>)]) {
    let mut raw = None;
    println!("{VALUE_BYTES} bytes each, median of {TURNS} turns");
    println!(
        "{:<24} {:>10} {:>10} {:>10} {:>8}",
        "", "per second", "p50 ms", "p99 ms", "to raw"
    );
    for (name, measured) in results {
        measured.sort_by(|one, other| one.per_second.total_cmp(&other.per_second));
        let middle = measured[TURNS / 2];
        let raw = *raw.get_or_insert(middle.per_second);
        println!(
            "{name:<24} {:>10.0} {:>10.3} {:>10.3} {:>8.2}",
            middle.per_second,
            middle.median.as_secs_f64() * 1000.0,
            middle.slow.as_secs_f64() * 1000.0,
            middle.per_second / raw
        );
    }
}
