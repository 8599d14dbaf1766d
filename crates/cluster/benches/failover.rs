//! Measures the time until a lost datastore is noticed, until writes succeed again,
//! and until the cluster is fully redundant again. Compares it with a manually
//! configured etcd.
//!
//! `cargo bench -p bunraku-cluster --bench failover -- --repeats 20 --data 100`
//!
//! `--data` is in megabytes. The lower bound is what etcd itself allows: the first
//! write that any datastore accepts, sent by plain clients that try every datastore
//! continuously.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bunraku_cluster::operator::Operator;
use bunraku_store::etcd::{EtcdStore, EtcdTls};
use bunraku_store::testing::EtcdCluster;
use bunraku_store::{SharedStore, Transaction};
use bunraku_wire::api::cluster::MemberState;
use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use support::{Cluster, Server};
use tokio_util::sync::CancellationToken;

fn number(name: &str, default: usize) -> usize {
    let arguments: Vec<String> = std::env::args().collect();
    let given = arguments.windows(2).find(|pair| pair[0] == name);
    given
        .and_then(|pair| pair[1].parse().ok())
        .unwrap_or(default)
}

/// The longest time between two acknowledged writes.
#[derive(Clone)]
struct Gap(Arc<Mutex<(Instant, Duration)>>);

impl Gap {
    fn new() -> Self {
        Self(Arc::new(Mutex::new((Instant::now(), Duration::ZERO))))
    }

    fn acknowledged(&self) {
        let mut gap = self.0.lock().expect("nobody panicked");
        gap.1 = gap.1.max(gap.0.elapsed());
        gap.0 = Instant::now();
    }

    fn longest(&self) -> Duration {
        self.0.lock().expect("nobody panicked").1
    }
}

/// Writes like a server does: through the store, one write after the other.
async fn write_through_the_store(store: SharedStore, gap: Gap, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let put = Transaction::new().put("bench/beat", "x");
        if store.commit(put).await.is_ok() {
            gap.acknowledged();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Writes to every datastore, with a short timeout for each.
fn write_everywhere(clients: &[Client], gap: &Gap, stop: &CancellationToken) {
    for (place, client) in clients.iter().enumerate() {
        let (mut client, gap, stop) = (client.clone(), gap.clone(), stop.clone());
        tokio::spawn(async move {
            while !stop.is_cancelled() {
                let put = client.put(format!("limit/{place}"), "x", None);
                let put = tokio::time::timeout(Duration::from_millis(200), put).await;
                if matches!(put, Ok(Ok(_))) {
                    gap.acknowledged();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
}

async fn bare_clients(endpoints: &[String], tls: Option<&EtcdTls>) -> Vec<Client> {
    let mut clients = Vec::new();
    for endpoint in endpoints {
        let mut options = ConnectOptions::new().with_connect_timeout(Duration::from_millis(500));
        if let Some(tls) = tls {
            let mut settings = TlsOptions::new().ca_certificate(Certificate::from_pem(&tls.ca_pem));
            if let Some(identity) = &tls.identity {
                let identity = Identity::from_pem(&identity.cert_pem, &identity.key_pem);
                settings = settings.identity(identity);
            }
            options = options.with_tls(settings);
        }
        let client = Client::connect([endpoint], Some(options)).await;
        clients.push(client.expect("it connects at the first request"));
    }
    clients
}

fn print_times(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let Some(worst) = times.last() else { return };
    let median = times[times.len() / 2];
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
    limit: Vec<Duration>,
    whole: Vec<Duration>,
}

/// Waits until one of the other members reports the victim as dead.
async fn noticed(cluster: &Cluster, victim: usize) {
    let others = cluster.servers.iter().enumerate();
    let others = others.filter(|(number, _)| *number != victim);
    let operators: Vec<Operator> = others
        .map(|(_, server)| Operator::of(&server.directory()).expect("it can ask"))
        .collect();
    let name = &cluster.servers[victim].name;
    loop {
        for operator in &operators {
            let sight = operator.view().await.ok().flatten();
            let members = sight.map(|sight| sight.members).unwrap_or_default();
            let dead = members
                .iter()
                .any(|it| it.name == *name && it.state == MemberState::Dead);
            if dead {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The way in which a datastore is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    LeaderKilled,
    FollowerKilled,
    LeaderSilent,
}

impl Loss {
    fn happens_to(self, server: &mut Server) {
        match self {
            Self::LeaderKilled | Self::FollowerKilled => server.kill(),
            Self::LeaderSilent => server.fall_silent(),
        }
    }
}

async fn lose_one(cluster: &mut Cluster, loss: Loss, times: &mut Times) {
    let (leads, follows) = cluster.leader_and_follower().await;
    let victim = match loss {
        Loss::LeaderKilled | Loss::LeaderSilent => leads,
        Loss::FollowerKilled => follows,
    };
    let name = cluster.servers[victim].name.clone();
    let (stop, gap, limit) = (CancellationToken::new(), Gap::new(), Gap::new());
    let store = cluster.store().await;
    let beat = write_through_the_store(store, gap.clone(), stop.clone());
    let beat = tokio::spawn(beat);
    let options = cluster.options();
    let clients = bare_clients(&options.endpoints, options.tls.as_ref()).await;
    write_everywhere(&clients, &limit, &stop);
    tokio::time::sleep(Duration::from_millis(500)).await;
    let killed = Instant::now();
    loss.happens_to(&mut cluster.servers[victim]);
    noticed(cluster, victim).await;
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
    beat.await.expect("the beat does not panic");
    times.gap.push(gap.longest());
    times.limit.push(limit.longest());
    // A silent server has not been killed yet.
    cluster.servers[victim].kill();
    cluster.servers[victim].start();
    tokio::time::sleep(Duration::from_secs(6)).await;
}

async fn by_hand(cluster: &mut EtcdCluster) -> Duration {
    let (stop, gap) = (CancellationToken::new(), Gap::new());
    let leader = cluster.leader().await;
    let clients = bare_clients(&cluster.endpoints(), None).await;
    write_everywhere(&clients, &gap, &stop);
    tokio::time::sleep(Duration::from_millis(500)).await;
    cluster.kill(leader);
    tokio::time::sleep(Duration::from_secs(5)).await;
    stop.cancel();
    cluster.restart(leader).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    gap.longest()
}

#[tokio::main]
async fn main() {
    let repeats = number("--repeats", 20);
    let megabytes = number("--data", 0);
    // A gigabyte takes longer to transfer than the data of the tests.
    let mut cluster = Cluster::start_with(4, 3, &["start-seconds=120"]).await;
    fill(&cluster.store().await, megabytes).await;
    let mut bare = EtcdCluster::start(3).await;
    let store = EtcdStore::connect(bare.options("/bench/")).await;
    let store: SharedStore = Arc::new(store.expect("it answers"));
    fill(&store, megabytes).await;
    let (mut of_leader, mut of_follower) = (Times::default(), Times::default());
    let mut of_silence = Times::default();
    let mut hand_made = Vec::new();
    for number in 0..repeats {
        lose_one(&mut cluster, Loss::LeaderKilled, &mut of_leader).await;
        lose_one(&mut cluster, Loss::FollowerKilled, &mut of_follower).await;
        lose_one(&mut cluster, Loss::LeaderSilent, &mut of_silence).await;
        hand_made.push(by_hand(&mut bare).await);
        eprintln!(
            "{}: writes {:?} (limit {:?}), by hand {:?}, whole {:?}; silence: writes {:?} (limit {:?}), whole {:?}",
            number + 1,
            of_leader.gap[number],
            of_leader.limit[number],
            hand_made[number],
            of_leader.whole[number],
            of_silence.gap[number],
            of_silence.limit[number],
            of_silence.whole[number]
        );
    }
    println!("{repeats} repeats, {megabytes} MB of data\n\n| | median | worst |\n|---|---|---|");
    print_times("leader killed: writes succeed again", of_leader.gap);
    print_times("the same datastores, bare clients", of_leader.limit);
    print_times("etcd by hand, bare clients", hand_made);
    print_times("leader killed: seen as dead", of_leader.noticed);
    print_times("leader killed: three datastores again", of_leader.whole);
    print_times("follower killed: writes succeed again", of_follower.gap);
    print_times("follower killed: seen as dead", of_follower.noticed);
    print_times("follower killed: three datastores again", of_follower.whole);
    print_times("leader silent: writes succeed again", of_silence.gap);
    print_times("the same datastores, bare clients", of_silence.limit);
    print_times("leader silent: seen as dead", of_silence.noticed);
    print_times("leader silent: three datastores again", of_silence.whole);
}
