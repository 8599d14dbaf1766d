//! A node that floods one server with writes, and ignores every refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bunraku_wire::{Client, ClientError};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::history::Micros;
use crate::incident::Flood;
use crate::own_node::OwnNode;
use crate::setup::{FLOOD_BURST, FLOOD_RATE, SiteError};
use crate::workload::Recorder;

/// The number of requests that are underway at the same time.
const WRITERS: usize = 16;

#[derive(Default)]
struct Counts {
    sent: AtomicU64,
    accepted: AtomicU64,
    refused: AtomicU64,
}

/// A flood that is underway.
pub(super) struct RunningFlood {
    counts: Arc<Counts>,
    begun: Micros,
    alone: bool,
    stop: CancellationToken,
    writers: JoinSet<()>,
}

impl RunningFlood {
    pub(super) fn start(
        node: &OwnNode,
        server: &str,
        recorder: &Recorder,
        alone: bool,
    ) -> Result<Self, SiteError> {
        let flood = Self {
            counts: Arc::default(),
            begun: recorder.now(),
            alone,
            stop: CancellationToken::new(),
            writers: JoinSet::new(),
        };
        let mut flood = flood;
        let path = format!("/v1/nodes/{}/facts", node.name);
        for writer in 0..WRITERS {
            let (client, path) = (node.client(server)?, path.clone());
            let (counts, stop) = (Arc::clone(&flood.counts), flood.stop.clone());
            flood
                .writers
                .spawn(write(client, path, writer, counts, stop));
        }
        Ok(flood)
    }

    pub(super) async fn end(mut self, recorder: &Recorder) -> Flood {
        self.stop.cancel();
        while self.writers.join_next().await.is_some() {}
        let ended = recorder.now();
        let seconds = (ended - self.begun) / 1_000_000 + 1;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Flood {
            begun: self.begun,
            ended,
            alone: self.alone,
            sent: count(&self.counts.sent),
            accepted: count(&self.counts.accepted),
            refused: count(&self.counts.refused),
            // A server that was restarted meanwhile has a full budget again.
            allowed: 2 * FLOOD_BURST + seconds * FLOOD_RATE,
        }
    }
}

async fn write(
    client: Client,
    path: String,
    writer: usize,
    counts: Arc<Counts>,
    stop: CancellationToken,
) {
    let mut number = 0_u64;
    while !stop.is_cancelled() {
        number += 1;
        let facts = json!({"writer": writer, "number": number, "text": "x".repeat(2_000)});
        counts.sent.fetch_add(1, Ordering::Relaxed);
        match client.put::<_, Value>(&path, &facts).await {
            Ok(_) => counts.accepted.fetch_add(1, Ordering::Relaxed),
            Err(ClientError::Api { status: 429, .. }) => {
                counts.refused.fetch_add(1, Ordering::Relaxed)
            }
            Err(_) => 0,
        };
    }
}
