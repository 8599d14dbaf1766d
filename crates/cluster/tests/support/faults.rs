//! A cluster under faults that a seed decides, with clients that write down
//! what they see.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use tokio_util::sync::CancellationToken;

use super::history;
use super::workload::{Client, Recorder};
use super::{Cluster, PATIENCE};

const CLIENTS: usize = 4;

#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) servers: usize,
    pub(crate) time: Duration,
    pub(crate) careless: bool,
}

/// What a run saw.
pub(crate) struct Outcome {
    pub(crate) wrong: Vec<String>,
    pub(crate) acknowledged: usize,
    pub(crate) faults: Vec<String>,
}

/// Runs it. Panics if the cluster does not become whole again afterwards.
pub(crate) async fn run(options: Options) -> Outcome {
    let mut cluster = Cluster::start(options.servers, 3).await;
    let recorder = Recorder::default();
    let begun = Instant::now();
    let stop = CancellationToken::new();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = Client {
            number,
            store: cluster.store().await,
            begun,
            recorder: recorder.clone(),
            careless: options.careless,
        };
        clients.push(tokio::spawn(client.work(options.seed, stop.clone())));
    }
    let mut faults = Faults {
        random: StdRng::seed_from_u64(options.seed),
        done: Vec::new(),
    };
    while begun.elapsed() < options.time {
        faults.one(&mut cluster).await;
    }
    stop.cancel();
    for client in clients {
        client.await.expect("a client does not panic");
    }
    whole(&cluster).await;
    final_reads(&cluster, &recorder, begun).await;
    let events = recorder.events.lock().expect("no panic").clone();
    let held = recorder.held.lock().expect("no panic").clone();
    let acknowledged = events
        .iter()
        .filter(|event| matches!(event.seen, history::Seen::Swapped { .. }));
    Outcome {
        acknowledged: acknowledged.count(),
        wrong: history::check(&events, &held),
        faults: faults.done,
    }
}

async fn whole(cluster: &Cluster) {
    cluster
        .wait("the cluster is whole again", |records| {
            records.len() == 3 && records.iter().all(|it| it.healthy && !it.learner)
        })
        .await;
}

/// What is there in the end is what the last acknowledged writes left.
async fn final_reads(cluster: &Cluster, recorder: &Recorder, begun: Instant) {
    let client = Client {
        number: CLIENTS,
        store: cluster.store().await,
        begun,
        recorder: recorder.clone(),
        careless: false,
    };
    let deadline = Instant::now() + PATIENCE;
    for key in 0..3 {
        while client.read(&format!("test/key-{key}")).await.is_err() {
            assert!(Instant::now() < deadline, "the store does not answer");
        }
    }
}

struct Faults {
    random: StdRng,
    done: Vec<String>,
}

impl Faults {
    /// One fault, its end, and some calm.
    async fn one(&mut self, cluster: &mut Cluster) {
        let victim = self.random.random_range(0..cluster.servers.len());
        let time = Duration::from_millis(self.random.random_range(500..6000));
        let name = cluster.servers[victim].name.clone();
        match self.random.random_range(0..5) {
            0 | 1 => {
                let damages = self.random.random_bool(0.3);
                if damages {
                    // Two damaged disks of three are a lost majority: nothing heals that.
                    whole(cluster).await;
                }
                self.done.push(format!("kill -9 {name}, for {time:?}"));
                cluster.servers[victim].kill();
                tokio::time::sleep(time).await;
                if damages {
                    self.damage(cluster, victim);
                }
                cluster.servers[victim].start();
                if damages {
                    whole(cluster).await;
                }
            }
            2 => {
                self.done.push(format!("stop {name}, for {time:?}"));
                cluster.servers[victim].signal(Signal::STOP);
                tokio::time::sleep(time).await;
                cluster.servers[victim].signal(Signal::CONT);
            }
            3 => {
                self.done
                    .push(format!("stop the datastore of {name}, for {time:?}"));
                signal_datastore(cluster, victim, Signal::STOP);
                tokio::time::sleep(time).await;
                signal_datastore(cluster, victim, Signal::CONT);
            }
            _ => {
                self.done.push(format!("kill -9 the datastore of {name}"));
                signal_datastore(cluster, victim, Signal::KILL);
            }
        }
        let calm = Duration::from_millis(self.random.random_range(500..5000));
        tokio::time::sleep(calm).await;
        // One that started anew by itself is started again, as a service manager would.
        for server in &mut cluster.servers {
            if server.has_ended() {
                server.start();
            }
        }
    }

    /// The last record that it wrote is cut in half, as by a crash of the machine.
    fn damage(&mut self, cluster: &Cluster, victim: usize) {
        let Some(log) = newest_log(cluster, victim) else {
            return;
        };
        let Ok(data) = std::fs::read(&log) else {
            return;
        };
        let Some(end) = data.iter().rposition(|byte| *byte != 0) else {
            return;
        };
        let mut damaged = data;
        damaged[end.saturating_sub(8)..=end].fill(0);
        if std::fs::write(&log, damaged).is_ok() {
            self.done.push("the end of its log was damaged".to_owned());
        }
    }
}

fn newest_log(cluster: &Cluster, victim: usize) -> Option<PathBuf> {
    let directory = cluster.servers[victim].directory();
    let order = directory.order().ok()??;
    let logs = directory
        .datastores()
        .join(order.generation)
        .join("data/member/wal");
    let entries = std::fs::read_dir(logs).ok()?.flatten();
    let logs = entries.map(|entry| entry.path());
    logs.filter(|path| path.extension().is_some_and(|kind| kind == "wal"))
        .max()
}

fn signal_datastore(cluster: &Cluster, victim: usize, signal: Signal) {
    let directory = cluster.servers[victim].directory();
    let is_ours = matches!(directory.order(), Ok(Some(_)));
    let pid = std::fs::read_to_string(directory.datastore_pid()).ok();
    let pid = pid.and_then(|text| text.trim().parse().ok());
    if let (true, Some(pid)) = (is_ours, pid.and_then(Pid::from_raw)) {
        let _ = kill_process(pid, signal);
    }
}
