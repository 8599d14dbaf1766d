//! The peer: watchers of a real etcd. Either all watch one key and one put wakes them, or each
//! watches its own key, as triggers through etcd do (`<prefix>/hosts/<host>`). The keys are written
//! in as few transactions as etcd accepts.

use std::time::{Duration, Instant};

use bunraku_store::testing::EtcdCluster;
use etcd_client::{Txn, TxnOp};
use tokio::sync::mpsc;

/// The most operations per transaction that etcd accepts by default.
#[allow(dead_code, reason = "not every bench has a key for each")]
const PER_TRANSACTION: usize = 128;

/// A message as small as the one that triggers write through etcd.
#[allow(dead_code, reason = "not every bench has a key for each")]
const MESSAGE: &str = r#"{"hostname":"web1","tags":[],"hosts":[],"timestamp":1762999999,"uuid":"0193e0a8-7d56-7b1c-a5b5-6f0e2f1f5a3d"}"#;

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

    /// Measures the time from a put until each watcher of the one key has it.
    pub(crate) async fn measure(&self, rounds: usize) -> Vec<Duration> {
        let mut arrivals = self.watch(|_| "bench/wake".to_owned()).await;
        let mut writer = self.cluster.client(0).await;
        let mut samples = Vec::new();
        for round in 0..=rounds {
            let started = Instant::now();
            writer
                .put("bench/wake", round.to_string(), None)
                .await
                .expect("a put");
            let round_samples = self.collect(&mut arrivals, started).await;
            if round > 0 {
                samples.extend(round_samples);
            }
        }
        samples
    }

    /// Measures the time from putting a key for each watcher until each watcher has its own.
    #[allow(dead_code, reason = "not every bench has a key for each")]
    pub(crate) async fn measure_a_key_each(&self, rounds: usize) -> Vec<Duration> {
        let key = |number: usize| format!("bench/hosts/node-{number}.bench");
        let mut arrivals = self.watch(key).await;
        let writer = self.cluster.client(0).await;
        let keys: Vec<String> = (0..self.watchers).map(key).collect();
        let mut samples = Vec::new();
        for round in 0..=rounds {
            let started = Instant::now();
            let puts = keys.chunks(PER_TRANSACTION).map(|keys| {
                let mut writer = writer.clone();
                let puts: Vec<TxnOp> = keys
                    .iter()
                    .map(|key| TxnOp::put(key.as_str(), MESSAGE, None))
                    .collect();
                async move { writer.txn(Txn::new().and_then(puts)).await }
            });
            let writing = futures::future::join_all(puts);
            let (written, round_samples) =
                tokio::join!(writing, self.collect(&mut arrivals, started));
            for written in written {
                written.expect("written");
            }
            if round > 0 {
                samples.extend(round_samples);
            }
        }
        samples
    }

    /// Opens the watches, each on its own connection, as agents do.
    async fn watch(&self, key: impl Fn(usize) -> String) -> mpsc::UnboundedReceiver<Instant> {
        let (sender, arrivals) = mpsc::unbounded_channel();
        for number in 0..self.watchers {
            let mut client = self.cluster.client(0).await;
            let mut stream = client.watch(key(number), None).await.expect("a watch");
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
        arrivals
    }

    async fn collect(
        &self,
        arrivals: &mut mpsc::UnboundedReceiver<Instant>,
        started: Instant,
    ) -> Vec<Duration> {
        let mut samples = Vec::with_capacity(self.watchers);
        while samples.len() < self.watchers {
            let arrived = arrivals.recv().await.expect("watchers are connected");
            samples.push(arrived.duration_since(started));
        }
        samples
    }
}
