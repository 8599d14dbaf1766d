//! `bunraku-faults --minutes 60 --seed 1`: runs faults against real servers for a
//! long time, with a new cluster and the next seed every time.
//!
//! The same program is also the servers and agents that it starts, selected by
//! another first argument: the test covers the code that this program was built
//! with.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bunraku_faults::fault::Faults;
use bunraku_faults::plant::Plant;
use bunraku_faults::run::{self, Options, Size};
use bunraku_faults::stage::{Asked, Stage, StageError};
use bunraku_faults::{checker, history::History};
use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Faults from a seed against real servers, and a checker over what clients saw")]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    how: How,
}

#[derive(Args, Clone)]
struct How {
    /// The first seed; the next ones follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Go on with new seeds for so long
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// Go on for so many seeds, if that takes longer
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// How long things break under each seed
    #[arg(long, default_value_t = 45)]
    seconds: u64,
    #[arg(long, default_value_t = 5)]
    servers: usize,
    /// How many keep the data [default: 3 or 5, as the seed says]
    #[arg(long)]
    datastores: Option<usize>,
    /// Take a guard away from the servers: the checker has to find out
    #[arg(long, value_enum, default_value_t)]
    plant: Plant,
    /// Go on after a seed that failed
    #[arg(long)]
    keep_going: bool,
    /// Where logs and histories of failed seeds are kept
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Command {
    /// Check a history that was kept
    Check { file: PathBuf },
    /// Say what a seed leads to, and do nothing
    Plan,
    /// One seed, inside the stage
    #[command(hide = true)]
    Inside {
        #[arg(long)]
        prefix: String,
        #[arg(long)]
        place: PathBuf,
    },
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let own = words.next().unwrap_or_default();
    if let Some(plant) = words
        .next()
        .and_then(|word| Plant::by_word(&word.to_string_lossy()))
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
        None => runtime.block_on(outside(&arguments.how)),
    }
}

fn check_file(file: &PathBuf) -> ExitCode {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    match serde_json::from_str::<History>(&text) {
        Ok(history) => tell(&checker::check(&history)),
        Err(error) => {
            eprintln!("error: {} is no history: {error}", file.display());
            ExitCode::FAILURE
        }
    }
}

fn plan(how: &How) -> ExitCode {
    let mut time = Duration::ZERO;
    for step in Faults::new(how.seed, how.servers) {
        println!("{:>6.1?}  {:?} for {:?}", time, step.faults, step.hold);
        time += step.hold + step.calm;
        if time > Duration::from_secs(how.seconds) {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn tell(wrong: &[String]) -> ExitCode {
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
async fn outside(how: &How) -> ExitCode {
    let until = Instant::now() + Duration::from_secs(how.minutes * 60);
    let (mut done, mut failed) = (0, Vec::new());
    // Lives as long as the process: signals between two seeds are handled, too.
    let mut asked = match Asked::listen() {
        Ok(asked) => asked,
        Err(error) => return complain(&error),
    };
    while done < how.seeds || Instant::now() < until {
        let seed = how.seed + done;
        match on_stage(how, seed, &mut asked).await {
            Err(error) => return complain(&error),
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

fn complain(error: &StageError) -> ExitCode {
    eprintln!("error: {error}");
    if let Some(source) = std::error::Error::source(error) {
        eprintln!("  {source}");
    }
    ExitCode::FAILURE
}

/// Returns true if the seed passed, or `None` if it was interrupted.
async fn on_stage(how: &How, seed: u64, asked: &mut Asked) -> Result<Option<bool>, StageError> {
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
        format!(
            "--plant={}",
            if how.plant == Plant::Nothing {
                "nothing"
            } else {
                "compares"
            }
        ),
    ];
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
        keep(how, seed, place);
    }
    Ok(fine)
}

fn keep(how: &How, seed: u64, place: tempfile::TempDir) {
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
    match moved.is_ok_and(|status| status.success()) {
        true => println!("  logs and history: {}", target.display()),
        false => println!("  logs and history: {}", kept.display()),
    }
}

/// Runs one seed.
async fn inside(how: &How, prefix: String, place: PathBuf) -> ExitCode {
    let options = Options {
        seed: how.seed,
        size: Size {
            servers: how.servers,
            datastores: how.datastores.unwrap_or(if how.seed.is_multiple_of(3) {
                5.min(how.servers)
            } else {
                3.min(how.servers)
            }),
            plant: how.plant,
        },
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
        "seed {}: {} servers, {} datastores, {} faults ({} links), {} of {} operations acknowledged, {} node runs, {} cuts, {} changes of datastores, {:.0?}: {}",
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
        begun.elapsed(),
        if wrong.is_empty() {
            "fine".to_owned()
        } else {
            format!("{} wrong", wrong.len())
        },
    );
    tell(&wrong)
}
