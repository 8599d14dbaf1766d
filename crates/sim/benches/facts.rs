//! Measures the cost of submitting unchanged facts, compared with changed facts:
//! durable, on the embedded store, one node after the other.
//!
//!     cargo bench -p bunraku-sim --bench facts -- [--nodes 1000] [--rounds 10]

#[path = "support/processor.rs"]
mod processor;
#[path = "support/settings.rs"]
mod settings;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bunraku_control::{Clock, FactHooks, FactOptions, Facts, Nodes};
use bunraku_model::{FactSet, NodeName};
use bunraku_store::blobs::{BlobOptions, DirectoryBlobs};
use bunraku_store::{EmbeddedOptions, EmbeddedStore, SharedStore};
use processor::processor_time;
use serde_json::{Value, json};
use settings::setting;

/// Returns the total size of the files below a directory.
fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).expect("readable");
    entries
        .map(|entry| {
            let entry = entry.expect("readable");
            let about = entry.metadata().expect("readable");
            if about.is_dir() {
                bytes_below(&entry.path())
            } else {
                about.len()
            }
        })
        .sum()
}

/// Facts of about the size of a real machine's facts.
fn facts(version: u64, uptime: u64) -> FactSet {
    let filler: Vec<Value> = (0..400)
        .map(|number| json!({"name": format!("fact {number}"), "value": number * 7919}))
        .collect();
    let facts = json!({"version": version, "filler": filler, "system_uptime": {"seconds": uptime}});
    facts.try_into().expect("an object")
}

#[tokio::main]
async fn main() {
    let (nodes, rounds) = (setting("--nodes", 1_000), setting("--rounds", 10));
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("store");
    let store = EmbeddedStore::open(&place, EmbeddedOptions::default()).await;
    let store: SharedStore = Arc::new(store.expect("the store opens"));
    let place = directory.path().join("blobs");
    let blobs = DirectoryBlobs::in_directory(place, store.clone(), BlobOptions::default()).await;
    let blobs = Arc::new(blobs.expect("the blobs open"));
    let (options, hooks) = (FactOptions::default(), FactHooks::default());
    let service = Facts::new(store.clone(), blobs, Clock::system(), options, hooks);
    let registry = Nodes::new(store, Clock::system());
    let mut names = Vec::new();
    for number in 0..nodes {
        let name = NodeName::new(format!("node-{number}")).expect("a name");
        registry.register(&name).await.expect("registered");
        names.push(name);
    }
    let mut changed = (Duration::ZERO, Duration::ZERO);
    for name in &names {
        let started = Instant::now();
        let facts = facts(1, 0);
        service.submit(name, &facts, None).await.expect("taken");
        changed.0 += started.elapsed();
        service.persist(name).await.expect("persisted");
        changed.1 += started.elapsed();
    }
    let size = bytes_below(directory.path());
    let (processor, started) = (processor_time(), Instant::now());
    for round in 1..=rounds {
        let facts = facts(1, round);
        for name in &names {
            let receipt = service.submit(name, &facts, None).await.expect("taken");
            assert!(!receipt.changed, "only what does not count changed");
        }
    }
    let submissions = u32::try_from(nodes * rounds).expect("few enough");
    let each = started.elapsed() / submissions;
    let processor = (processor_time() - processor) / submissions;
    let (before, after) = (size, bytes_below(directory.path()));
    let count = u32::try_from(nodes).expect("few enough");
    let (taken, persisted) = (changed.0 / count, changed.1 / count);
    println!("changed, until acknowledged   {taken:>10.1?} each");
    println!("changed, until persisted      {persisted:>10.1?} each");
    println!("unchanged                     {each:>10.1?} each");
    println!("unchanged, CPU                {processor:>10.1?} each");
    println!(
        "store and blobs on disk       {before} bytes before, {after} after {submissions} unchanged: {:+.1} bytes each",
        (after as f64 - before as f64) / f64::from(submissions)
    );
}
