//! Measures the cost of `stat`, locks and triggers, compared with `/bin/true`, `etcdctl lock` and a
//! raw etcd watch.
//!
//!     cargo bench -p bunraku --bench once -- [--stats 1000000] [--calls 200] [--rounds 50] [--hosts 1,100,1000]
//!
//! The server is the real binary in its own process.

#[path = "agents/etcd.rs"]
mod etcd;
#[path = "agents/fleet.rs"]
mod fleet;
#[path = "once/processes.rs"]
mod processes;
#[path = "agents/server.rs"]
mod server;

use std::time::{Duration, Instant};

use bunraku_wire::api::locks::{AcquireLock, LockReply, LockToken};
use bunraku_wire::api::once::OnceStatus;
use futures::StreamExt;
use serde_json::json;

use fleet::Fleet;
use server::BenchServer;

/// The number of concurrent requests.
const AT_ONCE: usize = 64;

struct Settings {
    stats: usize,
    calls: usize,
    rounds: usize,
    hosts: Vec<usize>,
}

fn settings() -> Settings {
    let mut settings = Settings {
        stats: 1_000_000,
        calls: 200,
        rounds: 50,
        hosts: vec![1, 100, 1_000],
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut next = || words.next().expect("a value after the flag");
        match word.as_str() {
            "--stats" => settings.stats = next().parse().expect("a number"),
            "--calls" => settings.calls = next().parse().expect("a number"),
            "--rounds" => settings.rounds = next().parse().expect("a number"),
            "--hosts" => {
                let each = next();
                settings.hosts = each
                    .split(',')
                    .map(|count| count.parse().expect("a number"))
                    .collect();
            }
            _ => {}
        }
    }
    settings
}

#[tokio::main]
async fn main() {
    let settings = settings();
    let server = BenchServer::start(&[]).await;
    stats(&server, settings.stats).await;
    processes::stat_beside_true(&server, settings.calls).await;
    locks(&server, settings.rounds).await;
    processes::locks_beside_etcdctl(&server, settings.rounds.min(20)).await;
    server.end().await;
    for hosts in &settings.hosts {
        triggers(*hosts, if *hosts < 100 { 20 } else { 5 }).await;
    }
}

/// Sends many queries and measures how fast they are and whether they leave anything behind.
async fn stats(server: &BenchServer, count: usize) {
    let definition = json!({"definition": {"command": "true"}});
    let defined = server
        .operator
        .put::<_, ()>("/v1/once/app_1/definition", &definition);
    defined.await.expect("defined");
    let ask = || async {
        let standing: OnceStatus = server
            .operator
            .get("/v1/once/app_1/standing?retry=false")
            .await
            .expect("a standing");
        assert_eq!(standing, OnceStatus::Ready);
    };
    let many = |count: usize| {
        let asking = futures::stream::iter(0..count).map(|_| ask());
        asking
            .buffer_unordered(AT_ONCE)
            .for_each(|()| std::future::ready(()))
    };
    // Warm up first, so that connections, caches and buffers exist before counting starts.
    many(count.min(20_000)).await;
    let (memory, stored) = (server.resident_kib(), server.stored_bytes());
    let (busy, started) = (server.cpu_seconds(), Instant::now());
    many(count).await;
    let (cpu, took) = (server.cpu_seconds() - busy, started.elapsed());
    println!("## {count} × stat, {AT_ONCE} at once");
    println!(
        "answered                   {:.0} per s",
        count as f64 / took.as_secs_f64()
    );
    println!("per second of server CPU   {:.0}", count as f64 / cpu);
    println!(
        "server memory              {memory} KiB before, {} KiB after",
        server.resident_kib()
    );
    let asked = server.stored_bytes();
    // The server renews its own records even without requests.
    tokio::time::sleep(took).await;
    println!(
        "stored                     {stored} bytes before, {asked} after; {} after as long without a question",
        server.stored_bytes()
    );
}

/// Measures the time from the release of a lock until the next waiter has it.
async fn locks(server: &BenchServer, rounds: usize) {
    let wish = |session: usize| AcquireLock {
        session: format!("s{session}"),
        lease_seconds: 60,
        wait_seconds: 30,
        only_now: false,
        reason: None,
        slots: None,
    };
    let path = "/v1/locks/bench/acquire";
    let first: LockReply = server.operator.post(path, &wish(0)).await.expect("held");
    let LockReply::Held { mut token, .. } = first else {
        panic!("nobody else is there: {first:?}")
    };
    let mut samples = Vec::new();
    for round in 1..=rounds {
        let (client, wish) = (server.operator.clone(), wish(round));
        let waiting = tokio::spawn(async move {
            let reply: LockReply = client.post(path, &wish).await.expect("held");
            (reply, Instant::now())
        });
        tokio::time::sleep(Duration::from_millis(20)).await;
        let released = Instant::now();
        let release = LockToken { token };
        let done = server
            .operator
            .post::<_, ()>("/v1/locks/bench/release", &release);
        done.await.expect("released");
        let (reply, at) = waiting.await.expect("no panic");
        let LockReply::Held { token: next, .. } = reply else {
            panic!("it was released: {reply:?}")
        };
        token = next;
        samples.push(at.duration_since(released));
    }
    println!("\n## a lock changes hands, {rounds} rounds");
    print_samples("bunraku, over the API", &samples);
}

/// Measures the time from firing until each host has its run command, compared with a raw watch.
async fn triggers(hosts: usize, fleets: usize) {
    let mut ours = Vec::new();
    for _ in 0..fleets {
        let server = BenchServer::start(&[]).await;
        let mut fleet = Fleet::connect(&server, hosts).await;
        // Warms up connections, as the raw watch's first round does.
        fleet.wake_all(&server, Instant::now()).await;
        ours.extend(fleet.fire_at_all(&server).await);
        drop(fleet);
        server.end().await;
    }
    let one_key = etcd::RawWatch::start(hosts).await.measure(fleets).await;
    let raw = etcd::RawWatch::start(hosts).await;
    let key_each = raw.measure_a_key_each(fleets).await;
    println!("\n## from firing to each of {hosts} hosts, {fleets} times");
    print_samples("bunraku", &ours);
    print_samples("raw etcd, a key for each", &key_each);
    print_samples("raw etcd, one key for all", &one_key);
    for (what, raw) in [("a key for each", key_each), ("one key for all", one_key)] {
        println!(
            "p50 to raw, {what:<16} {:.2}",
            quantile(&ours, 0.5).as_secs_f64() / quantile(&raw, 0.5).as_secs_f64()
        );
    }
}

pub(crate) fn print_samples(what: &str, samples: &[Duration]) {
    println!(
        "{what:<26} p50 {:>8.2?}   p99 {:>8.2?}",
        quantile(samples, 0.5),
        quantile(samples, 0.99)
    );
}

fn quantile(samples: &[Duration], at: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * at) as usize]
}
