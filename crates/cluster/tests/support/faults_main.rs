//! `bunraku-cluster-faults --minutes 60 --seed 1`: faults against real servers
//! for a long time, a new cluster with the next seed every minute.

#[path = "mod.rs"]
mod support;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use support::faults::{self, Options};

fn number(name: &str, default: u64) -> u64 {
    let arguments: Vec<String> = std::env::args().collect();
    let given = arguments.windows(2).find(|pair| pair[0] == name);
    given
        .and_then(|pair| pair[1].parse().ok())
        .unwrap_or(default)
}

#[tokio::main]
async fn main() -> ExitCode {
    let end = Instant::now() + Duration::from_secs(number("--minutes", 1) * 60);
    let mut seed = number("--seed", 1);
    loop {
        let outcome = faults::run(Options {
            seed,
            servers: 5,
            time: Duration::from_secs(number("--seconds", 40)),
            careless: false,
        })
        .await;
        println!(
            "seed {seed}: {} faults, {} acknowledged writes, {} wrong",
            outcome.faults.len(),
            outcome.acknowledged,
            outcome.wrong.len()
        );
        for wrong in &outcome.wrong {
            println!("  {wrong}");
        }
        if !outcome.wrong.is_empty() {
            return ExitCode::FAILURE;
        }
        seed += 1;
        if Instant::now() >= end {
            return ExitCode::SUCCESS;
        }
    }
}
