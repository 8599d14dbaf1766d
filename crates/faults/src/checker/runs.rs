//! Ordered runs: each node once, after those it waits for, and every run ends.

use std::collections::BTreeMap;

use super::at;
use crate::history::{Call, History, NodeRun};

pub(super) fn check(history: &History) -> Vec<String> {
    let mut wrong = twice(history);
    for operation in history.acknowledged() {
        if let Call::StartRun { run: Some(run) } = &operation.call {
            wrong.extend(one(history, run));
        }
    }
    wrong
}

/// No node run takes place twice.
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
        return vec![format!("run {run} was acknowledged, and never ended")];
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
            // That no node run took place twice is seen above, by its id.
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
