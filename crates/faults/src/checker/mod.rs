//! Finds everything in a history that must not happen.
//!
//! All checks are pure. Every finding names the operation and its time, so that it
//! can be found in the logs.

mod audit;
mod incidents;
mod locks;
mod once;
mod register;
mod runs;
mod sides;
mod triggers;

use crate::history::History;

/// Returns all violations, one sentence each.
pub fn check(history: &History) -> Vec<String> {
    let mut wrong = register::check(history);
    wrong.extend(locks::check(history));
    wrong.extend(once::check(history));
    wrong.extend(triggers::check(history));
    wrong.extend(runs::check(history));
    wrong.extend(sides::check(history));
    wrong.extend(incidents::check(history));
    wrong.extend(audit::check(history));
    wrong.extend(one_history(history));
    wrong
}

/// Returns acknowledged work that is still outstanding.
pub fn outstanding(history: &History) -> Vec<String> {
    let mut outstanding = triggers::check(history);
    outstanding.extend(runs::without_end(history));
    outstanding
}

/// Returns acknowledged work that the audit log does not contain yet.
pub fn unrecorded(history: &History) -> Vec<String> {
    audit::missing(history)
}

/// Checks that all datastores hold the same data.
fn one_history(history: &History) -> Vec<String> {
    let hashes = &history.end.hashes;
    let mut distinct: Vec<u64> = hashes.values().copied().collect();
    distinct.sort_unstable();
    distinct.dedup();
    match distinct.len() {
        0 | 1 => Vec::new(),
        _ => vec![format!("the datastores hold different data: {hashes:?}")],
    }
}

/// Formats a time in seconds, for people.
fn at(time: crate::history::Micros) -> String {
    format!("{}.{:03} s", time / 1_000_000, time / 1_000 % 1_000)
}
