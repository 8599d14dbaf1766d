//! Triggers: whoever was promised a run got one, or was told why not.

use crate::history::{Call, History};

pub(super) fn check(history: &History) -> Vec<String> {
    let mut wrong = Vec::new();
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
            let reported = history
                .end
                .reported
                .contains(&(trigger.clone(), host.clone()));
            if !ran && !reported {
                wrong.push(format!(
                    "trigger {trigger}: acknowledged at {}, and {host} neither ran nor was reported",
                    super::at(operation.ended)
                ));
            }
        }
    }
    wrong
}
