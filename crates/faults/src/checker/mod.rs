//! Is there anything in a history that must not be?
//!
//! Pure. Every finding names what was seen and when, so that it can be found
//! again in the logs.

mod locks;
mod once;
mod register;
mod runs;
mod sides;
mod triggers;

use crate::history::History;

/// Everything that is wrong, a sentence each.
pub fn check(history: &History) -> Vec<String> {
    let mut wrong = register::check(history);
    wrong.extend(locks::check(history));
    wrong.extend(once::check(history));
    wrong.extend(triggers::check(history));
    wrong.extend(runs::check(history));
    wrong.extend(sides::check(history));
    wrong.extend(one_history(history));
    wrong
}

/// Promises that may yet be kept: what was acknowledged and is still to come.
pub fn unkept(history: &History) -> Vec<String> {
    let mut unkept = triggers::check(history);
    unkept.extend(runs::without_end(history));
    unkept
}

/// All datastores hold the same data.
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

/// Seconds, for people.
fn at(time: crate::history::Micros) -> String {
    format!("{}.{:03} s", time / 1_000_000, time / 1_000 % 1_000)
}
