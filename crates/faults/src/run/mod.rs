//! One run: a cluster, clients, faults, repairs, and the recorded history.

mod auditing;
mod breaking;
mod ending;
mod flood;
mod theft;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::fault::{Faults, Step};
use crate::history::{History, Server};
use crate::network::Names;
pub use crate::setup::SiteError;
pub use crate::site::RunSize;
use crate::site::Site;
use crate::workload::{AloneWorker, CLIENTS, Recorder, Worker};

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    pub seed: u64,
    pub size: RunSize,
    /// The kinds of faults; all if empty.
    pub only: Vec<String>,
    /// The duration of the faults.
    pub time: Duration,
    /// The prefix of the names of the stage's namespaces.
    pub prefix: String,
    /// The directory for all files.
    pub place: PathBuf,
}

/// The result of a run.
#[derive(Debug)]
pub struct RunResult {
    pub history: History,
    pub steps: Vec<Step>,
    /// True if slow links used the kernel's `netem`.
    pub netem: bool,
}

/// Runs one seed inside the stage's hub.
pub async fn run(options: &Options) -> Result<RunResult, SiteError> {
    if !crate::machine::has_fake_clock() {
        return Err(SiteError::Setup(
            "there is no libfaketime: `scripts/setup test` installs it".to_owned(),
        ));
    }
    let names = Names {
        prefix: options.prefix.clone(),
    };
    let mut site = Site::start(&options.place, names, &options.size).await?;
    let outcome = work_and_break(options, &mut site).await;
    site.save_logs();
    outcome
}

async fn work_and_break(options: &Options, site: &mut Site) -> Result<RunResult, SiteError> {
    let recorder = Recorder::new();
    let stop = CancellationToken::new();
    let mut workers = Vec::new();
    for number in 0..CLIENTS {
        let worker = worker(number, options.seed, site, &recorder).await?;
        workers.push(tokio::spawn(worker.work(stop.clone())));
    }
    let alone = AloneWorker::new(site.alone.client(), recorder.clone());
    let alone = tokio::spawn(alone.work(stop.clone()));
    let mut breaking = breaking::FaultInjector::new(recorder.clone(), options.time);
    let mut audit = auditing::AuditWitness::default();
    let mut faults = Faults::only(options.seed, options.size.servers, &options.only);
    let end = Instant::now() + options.time;
    let mut steps = Vec::new();
    while Instant::now() < end {
        let step = faults.next().expect("there is always one more");
        let step = breaking::aim_at_data(site, step).await;
        note(&options.place, &recorder, &step);
        breaking.step(site, &step).await?;
        audit.look(site).await;
        steps.push(step);
    }
    stop.cancel();
    for worker in workers {
        worker
            .await
            .map_err(|error| SiteError::Setup(format!("a client: {error}")))?;
    }
    let ended = |error| SiteError::Setup(format!("a client: {error}"));
    alone.await.map_err(ended)?.last_words().await?;
    site.wait_until_healthy().await?;
    let incidents = breaking.incidents(site).await?;
    let shifted: Vec<Server> = breaking.shifted().to_vec();
    let mut history = ending::collect(options.seed, site, &recorder, &shifted, &audit).await?;
    history.incidents = incidents;
    Ok(RunResult {
        history,
        steps,
        netem: site.network.delays(),
    })
}

async fn worker(
    number: usize,
    seed: u64,
    site: &Site,
    recorder: &Recorder,
) -> Result<Worker, SiteError> {
    let servers = (0..site.machines.len()).map(|server| site.client(server));
    Ok(Worker::new(
        number,
        seed,
        servers.collect(),
        site.store().await?,
        recorder.clone(),
    ))
}

/// Records the next step, for people who read the logs afterwards.
fn note(place: &Path, recorder: &Recorder, step: &Step) {
    use std::io::Write;
    let file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(place.join("faults.log"));
    if let Ok(mut file) = file {
        let _ = writeln!(
            file,
            "{} {:>9} ms: {:?} for {:?}",
            jiff::Timestamp::now(),
            recorder.now() / 1_000,
            step.faults,
            step.hold
        );
    }
}
