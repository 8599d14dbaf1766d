//! Checks ordered runs: each node runs once, after those it waits for, and every run ends.

use std::collections::BTreeMap;

use super::at;
use crate::history::{Call, History, NodeRun};

pub(super) fn check(history: &History) -> Vec<String> {
    let mut wrong = twice(history);
    wrong.extend(without_end(history));
    wrong.extend(acknowledged(history).flat_map(|run| one(history, run)));
    wrong
}

/// Returns the acknowledged runs that have not ended.
pub(super) fn without_end(history: &History) -> Vec<String> {
    let runs = acknowledged(history);
    let open = runs.filter(|run| !history.end.runs.contains_key(*run));
    open.map(|run| format!("run {run} was acknowledged, and never ended"))
        .collect()
}

fn acknowledged(history: &History) -> impl Iterator<Item = &str> {
    history
        .acknowledged()
        .filter_map(|operation| match &operation.call {
            Call::StartRun { run } => run.as_deref(),
            _ => None,
        })
}

/// Checks that no node run happens twice.
fn twice(history: &History) -> Vec<String> {
    let mut times: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for run in &history.node_runs {
        *times.entry((&run.node, &run.id)).or_default() += 1;
    }
    let twice = times.into_iter().filter(|(_, times)| *times > 1);
    twice
        .map(|((node, id), times)| format!("node run {id} took place {times} times on {node}"))
        .collect()
}

fn one(history: &History, run: &str) -> Vec<String> {
    let Some(end) = history.end.runs.get(run) else {
        return Vec::new();
    };
    let of = |node: &str| -> Vec<&NodeRun> {
        let runs = history.node_runs.iter();
        runs.filter(|it| it.node == node && it.run.as_deref() == Some(run))
            .collect()
    };
    let mut wrong = Vec::new();
    for (first, second) in &history.order {
        let (before, after) = (of(first), of(second));
        for (node, found) in [(first, &before), (second, &after)] {
            // The check above finds node runs that happened twice, by their id.
            if end.succeeded && found.is_empty() {
                wrong.push(format!("run {run} succeeded, and {node} never ran in it"));
            }
        }
        for late in &after {
            if !before.iter().any(|it| it.ended <= late.begun) {
                wrong.push(format!(
                    "run {run}: {second} ran at {}, before {first} had ended",
                    at(late.begun)
                ));
            }
        }
    }
    wrong.dedup();
    wrong
}
