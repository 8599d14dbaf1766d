//! Wall time and peak memory of a process.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) seconds: f64,
    pub(crate) peak_kib: u64,
    pub(crate) succeeded: bool,
}

/// Runs a command to its end. The peak memory is polled from /proc, so for a very short process it
/// is a lower bound.
pub(crate) fn run(command: &mut Command) -> Measured {
    let begun = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let status = format!("/proc/{}/status", child.id());
    let mut peak_kib = 0;
    let mut pause = Duration::from_micros(300);
    loop {
        if let Some(ended) = child.try_wait().expect("a child") {
            return Measured {
                seconds: begun.elapsed().as_secs_f64(),
                peak_kib,
                succeeded: ended.success(),
            };
        }
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let high = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let high = high.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        peak_kib = peak_kib.max(high.unwrap_or(0));
        std::thread::sleep(pause);
        // Long runs are polled less often.
        if begun.elapsed() > Duration::from_secs(1) {
            pause = Duration::from_millis(10);
        }
    }
}

/// Returns the median of five measurements.
pub(crate) fn median(mut measure: impl FnMut() -> Measured) -> Measured {
    let mut all: Vec<Measured> = (0..5).map(|_| measure()).collect();
    all.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    all[2]
}

/// Measures wall time only, without polling the process.
pub(crate) fn timed(command: &mut Command) -> f64 {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let ended = command.status().expect("the program starts");
    let seconds = begun.elapsed().as_secs_f64();
    assert!(ended.success(), "{command:?} failed");
    seconds
}

pub(crate) fn middle(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Returns the run that other work on the machine disturbed least.
pub(crate) fn fastest(all: &[f64]) -> f64 {
    all.iter().copied().fold(f64::MAX, f64::min)
}
