//! Measures repeated polling for a newer target: `GET /v1/nodes/NODE/target` with
//! `If-None-Match`, answered with 304.
//!
//!     cargo bench -p bunraku-sim --bench newer -- [--connections 64] [--seconds 10] [--nodes 10000]
//!
//! The server is the real one, with mutual TLS and the embedded store. It runs in
//! its own process with one thread, so that it uses one core at most. The polling
//! nodes run in this process, also with one thread: each has a name, a certificate
//! and one connection that it keeps.

#[path = "support/asking_node.rs"]
mod asking_node;
#[path = "support/server_process.rs"]
mod server_process;
#[path = "support/settings.rs"]
mod settings;

use std::time::{Duration, Instant};

use asking_node::AskingNode;
use server_process::ServerProcess;
use settings::setting;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    match server_process::directory_to_serve() {
        Some(directory) => runtime.block_on(server_process::serve(&directory)),
        None => runtime.block_on(ask()),
    }
}

async fn ask() {
    let (connections, nodes) = (setting("--connections", 64), setting("--nodes", 10_000));
    let seconds = Duration::from_secs(setting("--seconds", 10));
    assert!(connections <= nodes, "every connection is another node's");
    let server = ServerProcess::start(nodes).await;
    let mut asking = Vec::new();
    for number in 0..connections {
        asking.push(AskingNode::connect(&server, number).await);
    }
    // First one alone, then all at once: everything is warm by then.
    let alone = vec![asking.remove(0)];
    let alone = measure(&server, alone, seconds / 2).await;
    asking.extend(alone);
    measure(&server, asking, seconds).await;
    server.end();
}

/// All nodes ask, one question after the other, for this long.
async fn measure(
    server: &ServerProcess,
    asking: Vec<AskingNode>,
    length: Duration,
) -> Vec<AskingNode> {
    let connections = asking.len();
    let (before, started) = (server.processor_seconds(), Instant::now());
    let tasks = asking.into_iter().map(|mut node| {
        tokio::spawn(async move {
            let mut samples = Vec::new();
            while started.elapsed() < length {
                let asked = Instant::now();
                node.ask().await;
                samples.push(asked.elapsed());
            }
            (node, samples)
        })
    });
    let (mut nodes, mut samples) = (Vec::new(), Vec::new());
    for ended in futures::future::join_all(tasks).await {
        let (node, its) = ended.expect("all were answered");
        nodes.push(node);
        samples.extend(its);
    }
    let wall = started.elapsed().as_secs_f64();
    let processor = server.processor_seconds() - before;
    samples.sort_unstable();
    let quantile = |at: f64| samples[((samples.len() - 1) as f64 * at) as usize];
    let asked = samples.len() as f64;
    println!(
        "{connections:>4} connections: {:>7.0} requests/s  p50 {:>8.1?}  p99 {:>8.1?}  server {:>3.0} % of a core, {:>7.0} requests per second of it, {:>5.1} µs each",
        asked / wall,
        quantile(0.5),
        quantile(0.99),
        processor / wall * 100.0,
        asked / processor,
        processor / asked * 1e6,
    );
    nodes
}
