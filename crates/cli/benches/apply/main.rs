//! Applies files and commands, compared with Puppet, Salt and Ansible.
//!
//! `cargo bench -p bunraku --bench apply` installs the peers that pip can install, runs everything
//! and prints one table with ratios. Words after `--` select parts: `files`, `bare`, `growth`,
//! `commands`. `peers-10000` also runs Puppet and Salt with ten thousand files.

mod bare;
mod catalogs;
mod measure;
mod peers;

use std::path::Path;
use std::process::Command;

use measure::{Measured, fastest, median, middle, run, timed};

/// The number of runs of each side in a close comparison.
const ROUNDS: usize = 51;

fn main() {
    if let Some((place, count)) = bare::asked_for() {
        return bare::run(&place, count);
    }
    let chosen: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let wanted = |part: &str| chosen.is_empty() || chosen.iter().any(|word| word == part);
    if wanted("files") {
        let most = if chosen.iter().any(|word| word == "peers-10000") {
            10_000
        } else {
            1_000
        };
        files(most);
    }
    if wanted("bare") {
        against_bare();
    }
    if wanted("growth") {
        growth();
    }
    if wanted("commands") {
        commands();
    }
}

/// Creates a directory on the disk of the build, so that fsync has its real cost.
fn workspace() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

fn our_command(catalog: &Path, state: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bunraku"));
    command
        .arg("apply")
        .arg(catalog)
        .env("BUNRAKU_STATE_DIR", state);
    command
}

fn ours(catalog: &Path, state: &Path, arguments: &[&str]) -> Measured {
    let measured = run(our_command(catalog, state).args(arguments));
    assert!(measured.succeeded, "bunraku apply failed");
    measured
}

fn files(most_for_peers: usize) {
    println!("files: wall time of whole processes; `ratio` is the idempotent run against ours");
    println!(
        "{:>7}  {:<10} {:>11} {:>11} {:>9} {:>8}",
        "files", "program", "first", "idempotent", "memory", "ratio"
    );
    for count in [1, 100, 1_000, 10_000] {
        let directory = workspace();
        let place = directory.path().join("ours");
        let (first, ours) = our_files(directory.path(), &place, count);
        row(count, "bunraku", first, ours, ours);
        for peer in peers::all(count, most_for_peers) {
            let (first, again) = peer.files(directory.path(), count);
            row(count, peer.name(), first, again, ours);
        }
    }
}

fn our_files(root: &Path, place: &Path, count: usize) -> (Measured, Measured) {
    std::fs::create_dir(place).expect("a directory");
    let catalog = root.join("catalog.json");
    std::fs::write(&catalog, catalogs::files(place, count)).expect("a file");
    let first = ours(&catalog, &root.join("state"), &[]);
    (first, median(|| ours(&catalog, &root.join("state"), &[])))
}

fn row(count: usize, name: &str, first: Measured, again: Measured, ours: Measured) {
    let milliseconds = |measured: Measured| format!("{:.1} ms", measured.seconds * 1e3);
    let memory = if again.peak_kib == 0 {
        String::new()
    } else {
        format!("{} MiB", again.peak_kib / 1024)
    };
    let ratio = again.seconds / ours.seconds;
    println!(
        "{count:>7}  {name:<10} {:>11} {:>11} {memory:>9} {ratio:>8.2}",
        milliseconds(first),
        milliseconds(again)
    );
}

/// Compares with the lower bound. The two alternate, so that both see the same load on the machine.
fn against_bare() {
    println!(
        "bare: an idempotent run beside a process that only looks at, reads and hashes the same files, {ROUNDS} times in turns"
    );
    for count in [1_000, 10_000] {
        let directory = workspace();
        let place = directory.path().join("ours");
        our_files(directory.path(), &place, count);
        let catalog = directory.path().join("catalog.json");
        let (mut apply, mut bare) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            bare.push(timed(&mut bare::command(&place, count)));
            apply.push(timed(&mut our_command(
                &catalog,
                &directory.path().join("state"),
            )));
        }
        for (which, of) in [
            ("median", middle as fn(&[f64]) -> f64),
            ("fastest", fastest),
        ] {
            let (apply, bare) = (of(&apply), of(&bare));
            println!(
                "{count:>7}  {which:<8} bare {:>7.2} ms  bunraku {:>7.2} ms  ratio {:.2}",
                bare * 1e3,
                apply * 1e3,
                apply / bare
            );
        }
    }
}

fn growth() {
    println!("growth: idempotent run in memory (tmpfs), per resource");
    for count in [1_000, 10_000, 100_000] {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
        let (_, again) = our_files(directory.path(), &directory.path().join("ours"), count);
        let per = again.seconds * 1e6 / count as f64;
        let kib = again.peak_kib as f64 / count as f64;
        println!(
            "{count:>7}  {:>9.1} ms  {per:>6.2} µs each  {:>6} MiB  {kib:>6.2} KiB each",
            again.seconds * 1e3,
            again.peak_kib / 1024
        );
    }
}

fn commands() {
    println!("commands: 100 independent commands of 0.1 s");
    let directory = workspace();
    let catalog = directory.path().join("catalog.json");
    std::fs::write(&catalog, catalogs::sleeps(100)).expect("a file");
    for mode in ["ansible", "genius", "justdoit"] {
        let measured = ours(
            &catalog,
            &directory.path().join("state"),
            &["--order", mode],
        );
        println!(
            "  {mode:<9} {:>6.2} s  {:>4} MiB",
            measured.seconds,
            measured.peak_kib / 1024
        );
    }
}
