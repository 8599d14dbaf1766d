//! Checks triggers: every acknowledged firing got a run or a reported failure.
//!
//! A run names the firings that it serves up to a limit, and counts those beyond
//! it. A firing that no run names counts as one of those, up to the run's count, if
//! the run began after it was fired.

use crate::history::{Call, History, Operation};

pub(super) fn check(history: &History) -> Vec<String> {
    let mut unnamed: Vec<(&Operation, &str, &str)> = Vec::new();
    for operation in history.acknowledged() {
        let Call::Fire {
            trigger,
            firing,
            hosts,
        } = &operation.call
        else {
            continue;
        };
        for host in hosts {
            let mut runs = history.node_runs.iter();
            let ran = runs.any(|run| run.node == *host && run.firings.contains(firing));
            let reported = (trigger.clone(), host.clone());
            if !ran && !history.end.reported.contains(&reported) {
                unnamed.push((operation, trigger, host));
            }
        }
    }
    take_out_counted(history, &mut unnamed);
    let wrong = unnamed.into_iter().map(|(operation, trigger, host)| {
        format!(
            "trigger {trigger}: acknowledged at {}, and {host} neither ran nor was reported",
            super::at(operation.ended)
        )
    });
    wrong.collect()
}

/// Removes counted firings in order of time: a later run may have counted every
/// firing that an earlier one may have counted.
fn take_out_counted(history: &History, unnamed: &mut Vec<(&Operation, &str, &str)>) {
    let mut runs: Vec<_> = history.node_runs.iter().collect();
    runs.sort_by_key(|run| run.begun);
    for run in runs {
        let mut left = run.more;
        unnamed.retain(|(operation, _, host)| {
            let counted = left > 0 && run.node == **host && operation.begun <= run.begun;
            left -= u64::from(counted);
            !counted
        });
    }
}
