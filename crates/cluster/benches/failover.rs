//! How long it takes until a lost datastore is noticed, until writes succeed
//! again, and until the cluster is whole; beside a hand-made etcd.
//!
//! `cargo bench -p bunraku-cluster --bench failover -- --repeats 20 --megabytes 0`

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use bunraku_store::etcd::EtcdStore;
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{SharedStore, Transaction};
use support::Cluster;
use tokio_util::sync::CancellationToken;

fn number(name: &str, default: usize) -> usize {
    let arguments: Vec<String> = std::env::args().collect();
    let given = arguments.windows(2).find(|pair| pair[0] == name);
    given
        .and_then(|pair| pair[1].parse().ok())
        .unwrap_or(default)
}

/// The longest time between two writes that were acknowledged.
async fn longest_gap(store: SharedStore, stop: CancellationToken) -> Duration {
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    while !stop.is_cancelled() {
        let put = Transaction::new().put("bench/beat", "x");
        if store.commit(put).await.is_ok() {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    longest
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let median = times[times.len() / 2];
    let worst = times[times.len() - 1];
    println!(
        "| {what} | {:.2} s | {:.2} s |",
        median.as_secs_f64(),
        worst.as_secs_f64()
    );
}

async fn fill(store: &SharedStore, megabytes: usize) {
    for number in 0..megabytes * 2 {
        let put = Transaction::new().put(format!("bench/filler-{number}"), vec![42; 500_000]);
        store.commit(put).await.expect("the filler is written");
    }
}

#[derive(Default)]
struct Times {
    noticed: Vec<Duration>,
    gap: Vec<Duration>,
    whole: Vec<Duration>,
}

async fn lose_one(cluster: &mut Cluster, leader: bool, times: &mut Times) {
    let (leads, follows) = cluster.leader_and_follower().await;
    let victim = if leader { leads } else { follows };
    let name = cluster.servers[victim].name.clone();
    let stop = CancellationToken::new();
    let beat = tokio::spawn(longest_gap(cluster.store().await, stop.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let killed = Instant::now();
    cluster.servers[victim].kill();
    cluster
        .wait("it is noticed", |records| {
            records
                .iter()
                .any(|it| it.name.as_ref() == Some(&name) && !it.healthy)
                || records.iter().all(|it| it.name.as_ref() != Some(&name))
        })
        .await;
    times.noticed.push(killed.elapsed());
    cluster
        .wait("it is whole", |records| {
            let fine = records
                .iter()
                .filter(|it| it.healthy && !it.learner && it.name.as_ref() != Some(&name));
            fine.count() == 3 && records.len() == 3
        })
        .await;
    times.whole.push(killed.elapsed());
    stop.cancel();
    times.gap.push(beat.await.expect("the beat does not panic"));
    cluster.servers[victim].start();
    tokio::time::sleep(Duration::from_secs(6)).await;
}

async fn by_hand() -> Duration {
    let mut cluster = EtcdCluster::start(3).await;
    let mut options = cluster.options("/bench/");
    options.request_timeout = Duration::from_secs(1);
    let store: SharedStore =
        std::sync::Arc::new(EtcdStore::connect(options).await.expect("it answers"));
    let stop = CancellationToken::new();
    let beat = tokio::spawn(longest_gap(store, stop.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    let leader = cluster.leader().await;
    cluster.kill(leader);
    tokio::time::sleep(Duration::from_secs(8)).await;
    stop.cancel();
    beat.await.expect("the beat does not panic")
}

#[tokio::main]
async fn main() {
    let repeats = number("--repeats", 20);
    let megabytes = number("--megabytes", 0);
    let mut cluster = Cluster::start(4, 3).await;
    fill(&cluster.store().await, megabytes).await;
    let (mut of_leader, mut of_follower) = (Times::default(), Times::default());
    let mut hand_made = Vec::new();
    for _ in 0..repeats {
        lose_one(&mut cluster, true, &mut of_leader).await;
        lose_one(&mut cluster, false, &mut of_follower).await;
        hand_made.push(by_hand().await);
    }
    println!("{repeats} repeats, {megabytes} MB of data\n\n| | median | worst |\n|---|---|---|");
    tell("leader killed: writes succeed again", of_leader.gap);
    tell("the same, etcd by hand", hand_made);
    tell("leader killed: noticed", of_leader.noticed);
    tell("leader killed: whole again", of_leader.whole);
    tell("follower killed: writes succeed again", of_follower.gap);
    tell("follower killed: noticed", of_follower.noticed);
    tell("follower killed: whole again", of_follower.whole);
}
