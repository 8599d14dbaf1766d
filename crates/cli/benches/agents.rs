//! Measures how many idle agents one server holds, the cost of each, and how fast a command wakes a
//! thousand of them. The peer is a raw etcd watch with the same fan-out.
//!
//!     cargo bench -p bunraku --bench agents -- [--agents 50000] [--woken 1000] [--rounds 20]
//!
//! The server is the real binary in its own process. Its memory is the kernel's figure for that
//! process. The agents are connections from many loopback addresses, each with its own certificate,
//! TLS and open command stream.

#[path = "agents/etcd.rs"]
mod etcd;
#[path = "agents/fleet.rs"]
mod fleet;
#[path = "agents/server.rs"]
mod server;

use std::time::{Duration, Instant};

use fleet::Fleet;
use server::BenchServer;

/// Files that are not agents' connections.
const OTHER_FILES: usize = 3_000;

struct Settings {
    agents: usize,
    woken: usize,
    rounds: usize,
}

fn settings() -> Settings {
    let mut settings = Settings {
        agents: 50_000,
        woken: 1_000,
        rounds: 20,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            words
                .next()
                .and_then(|text| text.parse().ok())
                .expect("a number after the flag")
        };
        match word.as_str() {
            "--agents" => settings.agents = number(),
            "--woken" => settings.woken = number(),
            "--rounds" => settings.rounds = number(),
            _ => {}
        }
    }
    settings
}

#[tokio::main]
async fn main() {
    let mut settings = settings();
    let fit = raise_file_limit(settings.agents);
    if fit < settings.agents {
        println!(
            "only {fit} of {} agents fit below this machine's limit on open files",
            settings.agents
        );
        settings.agents = fit;
    }
    println!(
        "## wake-up of {} connected agents, {} rounds",
        settings.woken, settings.rounds
    );
    let embedded = wake_up(BenchServer::start(&[]).await, &settings).await;
    let raw = etcd::RawWatch::start(settings.woken).await;
    let on_etcd = wake_up(
        BenchServer::start(&["--etcd", &raw.endpoint()]).await,
        &settings,
    )
    .await;
    let raw = raw.measure(settings.rounds).await;
    let base = quantile(&raw, 0.5);
    for (what, samples) in [
        ("bunraku, embedded store", &embedded),
        ("bunraku, etcd store", &on_etcd),
        ("raw etcd watch", &raw),
    ] {
        let (half, most) = (quantile(samples, 0.5), quantile(samples, 0.99));
        println!(
            "{what:<26} p50 {:>8.2?}   p99 {:>8.2?}   p50 ratio to raw {:>5.2}",
            half,
            most,
            half.as_secs_f64() / base.as_secs_f64()
        );
    }
    println!("\n## idle agents on one server");
    idle(&settings).await;
}

/// Raises the limit of open files. Each agent is a file descriptor here and in the server. Returns
/// the number of agents that fit, because not every user may exceed the hard limit.
fn raise_file_limit(agents: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let wanted = (agents + OTHER_FILES) as u64;
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(wanted);
    let raised = |limit| Rlimit {
        current: Some(limit),
        maximum: Some(limit),
    };
    if wanted > allowed && setrlimit(Resource::Nofile, raised(wanted)).is_ok() {
        return agents;
    }
    setrlimit(Resource::Nofile, raised(allowed)).expect("the soft limit may be the hard one");
    agents.min((allowed as usize).saturating_sub(OTHER_FILES))
}

/// Measures the time from sending a command to all agents until each agent has it.
async fn wake_up(server: BenchServer, settings: &Settings) -> Vec<Duration> {
    let mut fleet = Fleet::connect(&server, settings.woken).await;
    let mut samples = Vec::new();
    for round in 0..=settings.rounds {
        let started = Instant::now();
        let arrivals = fleet.wake_all(&server, started).await;
        // The first round warms caches and connections.
        if round > 0 {
            samples.extend(arrivals);
        }
    }
    drop(fleet);
    server.end().await;
    samples
}

async fn idle(settings: &Settings) {
    let server = BenchServer::start(&[]).await;
    let before = server.resident_kib();
    let started = Instant::now();
    let fleet = Fleet::connect(&server, settings.agents).await;
    let took = started.elapsed();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let after = server.resident_kib();
    let connected = server.connected().await;
    let each = (after - before) as f64 / connected as f64;
    println!(
        "connected agents           {connected} of {} asked for",
        settings.agents
    );
    println!(
        "time to sign and connect   {took:.1?} ({:.0} per s)",
        connected as f64 / took.as_secs_f64()
    );
    println!("server memory              {before} KiB before, {after} KiB after");
    println!("memory per agent           {each:.1} KiB");
    let busy = server.cpu_seconds();
    tokio::time::sleep(Duration::from_secs(30)).await;
    println!(
        "server CPU while idle      {:.1} % of one core (30 s, keep-alive included)",
        (server.cpu_seconds() - busy) / 0.30
    );
    drop(fleet);
    server.end().await;
}

fn quantile(samples: &[Duration], at: f64) -> Duration {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted[((sorted.len() - 1) as f64 * at) as usize]
}
