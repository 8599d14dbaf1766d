//! Measures what nodes cost over weeks: the real services on a real etcd, with simulated agents
//! and a clock that the bench advances.
//!
//!     ./run bench years [--nodes 1000] [--days 30] [--runs-per-day 48] [--executed-runs 1]
//!         [--content etcd|directory]
//!
//! Without `--nodes`, it measures 1,000, 10,000 and 50,000 nodes, one after the other. It starts
//! and stops etcd on loopback.
//!
//! Executed for every node: its join with a certificate, its connection, its facts (2 % of the
//! nodes change them each day), four deploys that change every catalog, the run after each deploy,
//! joins and departures (0.1 % a day), and `--executed-runs` converged runs each day. The remaining
//! converged runs are not executed: their cost is that of the executed ones, times their number.
//! The output says which figures are measured and which are calculated.
//!
//! Exits with 1 if a target is missed.

#[path = "support/code.rs"]
mod code;
#[path = "support/processor.rs"]
mod processor;
#[path = "support/settings.rs"]
mod settings;
#[path = "support/years_fleet.rs"]
mod years_fleet;
#[path = "support/years_report.rs"]
mod years_report;

use std::time::Instant;

use settings::setting;
use years_fleet::{Content, YearsFleet};
use years_report::{RunCost, SizeReport};

/// The days on which code is deployed.
const DEPLOYS: [u64; 4] = [1, 8, 15, 22];

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let sizes = match setting("--nodes", 0) {
        0 => vec![1_000, 10_000, 50_000],
        nodes => vec![nodes],
    };
    let mut reports = Vec::new();
    for nodes in sizes {
        let report = runtime.block_on(measure(nodes));
        report.print();
        reports.push(report);
    }
    if !years_report::judge(&reports) {
        std::process::exit(1);
    }
}

async fn measure(nodes: u64) -> SizeReport {
    let (days, runs_per_day) = (setting("--days", 30), setting("--runs-per-day", 48));
    let executed = setting("--executed-runs", 1).min(runs_per_day);
    let words: Vec<String> = std::env::args().collect();
    let in_directory = words.windows(2).any(|it| it == ["--content", "directory"]);
    let content = if in_directory {
        Content::Directory
    } else {
        Content::Etcd
    };
    let started = Instant::now();
    let mut fleet = YearsFleet::start(nodes, content).await;
    eprintln!("{nodes} nodes: joined after {:.0?}", started.elapsed());
    let mut converged = RunCost::default();
    let mut half = None;
    for day in 1..=days {
        fleet.advance_one_day();
        fleet.change_some_facts(day).await;
        fleet.replace_some_nodes().await;
        if DEPLOYS.contains(&day) {
            fleet.deploy().await;
        }
        for _ in 0..executed {
            let before = fleet.cost().await;
            fleet.run_converged().await;
            converged.add(nodes, &before, &fleet.cost().await);
        }
        fleet.keep_house().await;
        if day == days.div_ceil(2) {
            half = Some(fleet.stored().await);
        }
        eprintln!("{nodes} nodes: day {day} after {:.0?}", started.elapsed());
    }
    let writes = fleet.cost().await.writes;
    let report = SizeReport {
        nodes,
        days,
        runs_per_day,
        executed,
        content,
        converged,
        writes,
        compiles: fleet.compiles(),
        half: half.expect("there is at least one day"),
        end: fleet.stored().await,
        stall: fleet.longest_call(),
        collection: fleet.longest_collection(),
        server_memory: years_fleet::memory_of("self"),
        etcd_memory: fleet.etcd_memory(),
        start: fleet.restart().await,
        elapsed: started.elapsed(),
    };
    fleet.end().await;
    report
}
