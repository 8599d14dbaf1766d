//! Collecting facts beside `facter --json`, in one run on one machine.
//!
//! `cargo bench -p bunraku-agent --bench facts`

use std::process::Command;
use std::time::{Duration, Instant};

use bunraku_agent::facts::{FactOptions, collect};

const OURS: usize = 50;
const FACTER: usize = 5;

fn main() {
    let ours = median(OURS, || {
        collect(&FactOptions::default());
    });
    let facter = median(FACTER, || {
        let ran = Command::new("facter").arg("--json").output();
        let ran = ran.expect("facter is installed: see scripts/setup");
        assert!(ran.stdout.starts_with(b"{"), "facter printed no JSON");
    });
    println!(
        "bunraku facts   {:>10.3} ms  (median of {OURS})",
        milliseconds(ours)
    );
    println!(
        "facter --json   {:>10.3} ms  (median of {FACTER})",
        milliseconds(facter)
    );
    println!(
        "ratio           {:>10.0} ×",
        facter.as_secs_f64() / ours.as_secs_f64()
    );
    let mut slowest = collect(&FactOptions::default()).durations;
    slowest.sort_by_key(|(_, duration)| std::cmp::Reverse(*duration));
    for (group, duration) in slowest.iter().take(5) {
        println!("  {group:<14}{:>9.3} ms", milliseconds(*duration));
    }
}

fn median(times: usize, mut work: impl FnMut()) -> Duration {
    let mut durations: Vec<Duration> = (0..times)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect();
    durations.sort();
    durations[times / 2]
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
