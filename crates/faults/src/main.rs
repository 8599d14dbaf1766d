//! `bunraku-faults --minutes 60 --seed 1`: runs faults against real servers for a
//! long time, with a new cluster and the next seed every time.
//!
//! The same program is also the servers and agents that it starts, selected by
//! another first argument: the test covers the code that this program was built
//! with.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bunraku_faults::fault::{Faults, KINDS};
use bunraku_faults::plant::RemovedGuard;
use bunraku_faults::run::{self, Options, RunSize};
use bunraku_faults::stage::{ExitSignals, Stage, StageError};
use bunraku_faults::{checker, history::History};
use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Runs seeded faults against real servers and checks what clients observed")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    how: RunArguments,
}

#[derive(Args, Clone)]
struct RunArguments {
    /// First seed; later runs use the seeds after it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run new seeds for this many minutes
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// Run at least this many seeds
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Duration of the faults for each seed, in seconds
    #[arg(long, default_value_t = 45)]
    seconds: u64,
    /// Number of servers
    #[arg(long, default_value_t = 5)]
    servers: usize,
    /// Number of datastores [default: 3 or 5, depending on the seed]
    #[arg(long)]
    datastores: Option<usize>,
    /// Remove a guard from the servers, to test that the checker detects it
    #[arg(long, value_enum, default_value_t)]
    plant: RemovedGuard,
    /// Continue after a failed seed
    #[arg(long)]
    keep_going: bool,
    /// Draw only these kinds of faults, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = KINDS)]
    only: Vec<String>,
    /// Directory for logs and histories of failed seeds
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Check a saved history
    Check { file: PathBuf },
    /// Print the faults of a seed without running them
    Plan,
    /// Run one seed inside the network namespaces
    #[command(hide = true)]
    Inside {
        #[arg(long)]
        prefix: String,
        #[arg(long)]
        place: PathBuf,
    },
}

/// The commands with which servers start their own program: they have no guard to remove.
const STARTED_BY_SERVERS: &[&str] = &["bound", "code-worker", "isolated", "signer"];

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let own = words.next().unwrap_or_default();
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| STARTED_BY_SERVERS.iter().any(|one| word == *one))
    {
        bunraku_faults::machine::adopt_clock();
        let plain = RemovedGuard::default().wiring();
        return bunraku::main_with(std::env::args_os(), plain);
    }
    if let Some(plant) = words
        .next()
        .and_then(|word| RemovedGuard::by_word(&word.to_string_lossy()))
    {
        return bunraku::main_with(std::iter::once(own).chain(words), plant.wiring());
    }
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    match arguments.command {
        Some(Command::Check { file }) => check_file(&file),
        Some(Command::Plan) => plan(&arguments.how),
        Some(Command::Inside { prefix, place }) => {
            runtime.block_on(inside(&arguments.how, prefix, place))
        }
        None => runtime.block_on(run_seeds(&arguments.how)),
    }
}

fn check_file(file: &PathBuf) -> ExitCode {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    match serde_json::from_str::<History>(&text) {
        Ok(history) => print_violations(&checker::check(&history)),
        Err(error) => {
            eprintln!("error: {} is not a history: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}

fn plan(how: &RunArguments) -> ExitCode {
    let mut time = Duration::ZERO;
    for step in Faults::only(how.seed, how.servers, &how.only) {
        println!("{:>6.1?}  {:?} for {:?}", time, step.faults, step.hold);
        time += step.hold + step.calm;
        if time > Duration::from_secs(how.seconds) {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn print_violations(wrong: &[String]) -> ExitCode {
    for wrong in wrong {
        println!("  wrong: {wrong}");
    }
    if wrong.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    }
}

/// Runs one seed after the other, each on its own stage.
async fn run_seeds(how: &RunArguments) -> ExitCode {
    let until = Instant::now() + Duration::from_secs(how.minutes * 60);
    let (mut done, mut failed) = (0, Vec::new());
    // Lives as long as the process: signals between two seeds are handled, too.
    let mut asked = match ExitSignals::listen() {
        Ok(asked) => asked,
        Err(error) => return print_error(&error),
    };
    while done < how.seeds || Instant::now() < until {
        let seed = how.seed + done;
        match on_stage(how, seed, &mut asked).await {
            Err(error) => return print_error(&error),
            Ok(None) => return ExitCode::from(130),
            Ok(Some(true)) => {}
            Ok(Some(false)) => failed.push(seed),
        }
        done += 1;
        if !failed.is_empty() && !how.keep_going {
            break;
        }
    }
    println!("{done} seeds, {} failed: {failed:?}", failed.len());
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(3)
    }
}

fn print_error(error: &StageError) -> ExitCode {
    eprintln!("error: {error}");
    if let Some(source) = std::error::Error::source(error) {
        eprintln!("  {source}");
    }
    ExitCode::FAILURE
}

/// Returns true if the seed passed, or `None` if it was interrupted.
async fn on_stage(
    how: &RunArguments,
    seed: u64,
    asked: &mut ExitSignals,
) -> Result<Option<bool>, StageError> {
    let place = tempfile::Builder::new()
        .prefix("bunraku-faults-")
        .tempdir()
        .map_err(StageError::Inside)?;
    let program = std::env::current_exe().map_err(StageError::Inside)?;
    let stage = Stage::build(how.servers).await?;
    let mut arguments = vec![
        format!("--seed={seed}"),
        format!("--seconds={}", how.seconds),
        format!("--servers={}", how.servers),
        format!("--plant={}", how.plant.as_value()),
    ];
    if !how.only.is_empty() {
        arguments.push(format!("--only={}", how.only.join(",")));
    }
    arguments.extend(how.datastores.map(|count| format!("--datastores={count}")));
    arguments.extend([
        "inside".to_owned(),
        format!("--prefix={}", stage.prefix()),
        format!("--place={}", place.path().display()),
    ]);
    let ended = stage.inside(&program, &arguments, asked).await;
    stage.remove().await;
    let fine = ended?.map(|status| status.success());
    if fine == Some(false) {
        keep_logs(how, seed, place);
    }
    Ok(fine)
}

fn keep_logs(how: &RunArguments, seed: u64, place: tempfile::TempDir) {
    let kept = place.keep();
    let Some(directory) = &how.keep else {
        println!("  logs and history: {}", kept.display());
        return;
    };
    let target = directory.join(format!("seed-{seed}"));
    let moved = std::process::Command::new("mv")
        .arg("-T")
        .arg(&kept)
        .arg(&target)
        .status();
    if moved.is_ok_and(|status| status.success()) {
        println!("  logs and history: {}", target.display())
    } else {
        println!("  logs and history: {}", kept.display())
    }
}

/// Runs one seed.
async fn inside(how: &RunArguments, prefix: String, place: PathBuf) -> ExitCode {
    let options = Options {
        seed: how.seed,
        size: RunSize {
            servers: how.servers,
            datastores: how.datastores.unwrap_or(if how.seed.is_multiple_of(3) {
                5.min(how.servers)
            } else {
                3.min(how.servers)
            }),
            plant: how.plant,
        },
        only: how.only.clone(),
        time: Duration::from_secs(how.seconds),
        prefix,
        place: place.clone(),
    };
    let begun = Instant::now();
    let outcome = match run::run(&options).await {
        Ok(outcome) => outcome,
        Err(error) => {
            println!("seed {}: {error}", how.seed);
            if let Some(source) = std::error::Error::source(&error) {
                println!("  {source}");
            }
            return ExitCode::FAILURE;
        }
    };
    let text = serde_json::to_string(&outcome.history).unwrap_or_default();
    let _ = std::fs::write(place.join("history.json"), text);
    let wrong = checker::check(&outcome.history);
    println!(
        "seed {}: {} servers, {} datastores, {} faults ({} links), {} of {} operations acknowledged, {} node runs, {} cuts, {} changes of datastores, {}, {:.0?}: {}",
        how.seed,
        options.size.servers,
        options.size.datastores,
        outcome
            .steps
            .iter()
            .map(|step| step.faults.len())
            .sum::<usize>(),
        if outcome.netem { "netem" } else { "narrow" },
        outcome.history.acknowledged().count(),
        outcome.history.operations.len(),
        outcome.history.node_runs.len(),
        outcome.history.cuts.len(),
        outcome.history.end.changes.len(),
        outcome.history.incidents,
        begun.elapsed(),
        if wrong.is_empty() {
            "fine".to_owned()
        } else {
            format!("{} wrong", wrong.len())
        },
    );
    print_violations(&wrong)
}
