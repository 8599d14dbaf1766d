//! The command line as a process, compared with others.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bunraku_store::testing::EtcdCluster;

use crate::print_samples;
use crate::server::BenchServer;

fn timed(mut command: Command, wanted: i32) -> Duration {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let started = Instant::now();
    let status = command.status().expect("it runs");
    let took = started.elapsed();
    assert_eq!(status.code(), Some(wanted));
    took
}

fn bunraku(server: &BenchServer, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bunraku"));
    command
        .args(["--server", &server.address.to_string(), "--credentials"])
        .arg(server.credentials())
        .args(words);
    command
}

/// Alternates the two commands one by one, so that both see the same load.
pub(crate) async fn stat_beside_true(server: &BenchServer, calls: usize) {
    let (mut ours, mut nothing) = (Vec::new(), Vec::new());
    for _ in 0..calls {
        ours.push(timed(bunraku(server, &["stat", "app_1"]), 0));
        nothing.push(timed(Command::new("/bin/true"), 0));
    }
    println!("\n## the command line, {calls} calls");
    print_samples("bunraku stat", &ours);
    print_samples("/bin/true", &nothing);
}

/// Runs two waiting processes: measures from the end of the first to the start of the second.
pub(crate) async fn locks_beside_etcdctl(server: &BenchServer, rounds: usize) {
    let etcd = EtcdCluster::start(1).await;
    let endpoint = etcd.endpoints()[0].clone();
    let etcdctl = |script: &str| {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").args([
            "--endpoints",
            &endpoint,
            "lock",
            "bench",
            "--",
            "sh",
            "-c",
            script,
        ]);
        command
    };
    let own = |script: &str| {
        let words = [
            "lock", "exec", "cli", "--wait", "60s", "--", "sh", "-c", script,
        ];
        bunraku(server, &words)
    };
    let ours: Vec<Duration> = (0..rounds).map(|_| hand_over(&own)).collect();
    let theirs: Vec<Duration> = (0..rounds).map(|_| hand_over(&etcdctl)).collect();
    println!("\n## a lock passes from process to process, {rounds} rounds");
    print_samples("bunraku lock exec", &ours);
    print_samples("etcdctl lock", &theirs);
}

fn hand_over(lock: &dyn Fn(&str) -> Command) -> Duration {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let first = format!(
        "touch {}; while [ ! -e {} ]; do sleep 0.01; done; date +%s%N > {}",
        at("held"),
        at("go"),
        at("ended")
    );
    let second = format!("date +%s%N > {}", at("started"));
    let mut first = lock(&first)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    while !directory.path().join("held").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut second = lock(&second)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    // Long enough to be queued.
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(directory.path().join("go"), "").expect("written");
    first.wait().expect("it ends");
    second.wait().expect("it ends");
    let read = |name: &str| -> u64 {
        let text = std::fs::read_to_string(directory.path().join(name)).expect("a time");
        text.trim().parse().expect("a time")
    };
    Duration::from_nanos(read("started").saturating_sub(read("ended")))
}
