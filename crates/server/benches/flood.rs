//! How much a node that floods its server slows other nodes.
//!
//! Run it with `cargo bench -p bunraku-server --bench flood`. Ten nodes submit changed facts and
//! wait for each reply, over real TLS on loopback. Rounds with and without a flood alternate, so
//! that other load on the machine hits both. The flood is one node with 32 writers that ignore
//! every refusal. The result is the ratio of the median latencies; `--no-budgets` shows what it is
//! without the budgets.

#[allow(dead_code, unused_imports, reason = "shared with the tests")]
#[path = "../tests/api/support.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bunraku_server::RateOptions;
use bunraku_wire::Client;
use serde_json::{Value, json};
use support::TestServer;

const NODES: usize = 10;
const WRITERS: usize = 32;
const ROUNDS: usize = 12;
const ROUND: Duration = Duration::from_secs(5);

/// What one round measured, in milliseconds.
#[derive(Default)]
struct Latencies(Vec<f64>);

impl Latencies {
    fn percentile(&mut self, percent: usize) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

/// Submits changed facts until the time is up. Each node pauses, as agents do.
async fn behave(node: Client, name: String, numbers: Arc<AtomicU64>) -> Vec<f64> {
    let (begun, mut took) = (Instant::now(), Vec::new());
    while begun.elapsed() < ROUND {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        let facts = json!({"number": number, "text": "x".repeat(20_000)});
        let sent = Instant::now();
        let path = format!("/v1/nodes/{name}/facts");
        node.put::<_, Value>(&path, &facts)
            .await
            .expect("within its budget");
        took.push(sent.elapsed().as_secs_f64() * 1_000.0);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    took
}

/// Submits as much as it can, whatever the server says.
async fn flood(node: Client, stop: Arc<AtomicBool>, accepted: Arc<AtomicU64>) {
    let mut number = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let facts = json!({"number": number, "text": "x".repeat(200_000)});
        let sent = node.put::<_, Value>("/v1/nodes/flood/facts", &facts).await;
        accepted.fetch_add(u64::from(sent.is_ok()), Ordering::Relaxed);
    }
}

#[tokio::main]
async fn main() {
    let without = std::env::args().any(|word| word == "--no-budgets");
    let mut server = TestServer::start_with(|options| {
        options.services.compiles.concurrency = 0;
        options.services.rates = RateOptions {
            // Behaving nodes here send about ten requests a second each.
            requests_per_second: if without { u64::MAX >> 12 } else { 20 },
            request_burst: if without { u64::MAX >> 12 } else { 100 },
            bytes_per_second: if without { u64::MAX >> 12 } else { 1 << 20 },
            byte_burst: if without { u64::MAX >> 12 } else { 4 << 20 },
        };
    })
    .await;
    let mut nodes = Vec::new();
    for number in 0..NODES {
        let name = format!("web-{number}");
        nodes.push((server.node(&name).await, name));
    }
    let flooder = server.node("flood").await;
    let (numbers, accepted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut results = [Latencies::default(), Latencies::default()];
    for round in 0..=ROUNDS {
        let floods = round % 2 == 1;
        let stop = Arc::new(AtomicBool::new(!floods));
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| tokio::spawn(flood(flooder.clone(), stop.clone(), accepted.clone())))
            .collect();
        let behaving = nodes
            .iter()
            .map(|(node, name)| tokio::spawn(behave(node.clone(), name.clone(), numbers.clone())));
        for took in futures::future::join_all(behaving).await {
            // The first round warms up.
            if round > 0 {
                results[usize::from(floods)]
                    .0
                    .extend(took.expect("no panic"));
            }
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.expect("no panic");
        }
    }
    let [quiet, flooded] = &mut results;
    let (before, after) = (quiet.percentile(50), flooded.percentile(50));
    println!("{NODES} nodes, {} requests each way", quiet.0.len());
    println!(
        "quiet:   median {before:.2} ms, 95 % within {:.2} ms",
        quiet.percentile(95)
    );
    println!(
        "flooded: median {after:.2} ms, 95 % within {:.2} ms",
        flooded.percentile(95)
    );
    println!(
        "requests of the flood that were accepted: {}",
        accepted.load(Ordering::Relaxed)
    );
    println!("ratio of the medians: {:.2}", after / before);
    server.shutdown().await;
}
