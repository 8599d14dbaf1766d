//! The peer: watchers on one key of a real etcd, woken by one put.

use std::time::{Duration, Instant};

use bunraku_store::testing::EtcdCluster;
use tokio::sync::mpsc;

pub(crate) struct RawWatch {
    cluster: EtcdCluster,
    watchers: usize,
}

impl RawWatch {
    pub(crate) async fn start(watchers: usize) -> Self {
        Self {
            cluster: EtcdCluster::start(1).await,
            watchers,
        }
    }

    #[allow(dead_code, reason = "not every bench has a server on it")]
    pub(crate) fn endpoint(&self) -> String {
        self.cluster.endpoints()[0].clone()
    }

    /// Time from a put until each watcher has it.
    pub(crate) async fn measure(&self, rounds: usize) -> Vec<Duration> {
        let (sender, mut arrivals) = mpsc::unbounded_channel();
        for _ in 0..self.watchers {
            // A connection each, as agents have.
            let mut client = self.cluster.client(0).await;
            let mut stream = client.watch("bench/wake", None).await.expect("a watch");
            let sender = sender.clone();
            tokio::spawn(async move {
                let _client = client;
                while let Ok(Some(response)) = stream.message().await {
                    let arrived = Instant::now();
                    for _ in response.events() {
                        let _ = sender.send(arrived);
                    }
                }
            });
        }
        let mut writer = self.cluster.client(0).await;
        let mut samples = Vec::new();
        for round in 0..=rounds {
            let started = Instant::now();
            writer
                .put("bench/wake", round.to_string(), None)
                .await
                .expect("a put");
            for _ in 0..self.watchers {
                let arrived: Instant = arrivals.recv().await.expect("watchers are connected");
                if round > 0 {
                    samples.push(arrived.duration_since(started));
                }
            }
        }
        samples
    }
}
