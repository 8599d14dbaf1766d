//! Running resources for real, in tests.

use bunraku_model::Catalog;
use serde_json::{Value, json};

use crate::{Cancellation, CarryOut, Plan, PlanOptions, Registry, Summary, carry_out};

/// A catalog of these resources.
pub(crate) fn catalog(resources: Value) -> Catalog {
    serde_json::from_value(json!({"name": "test", "resources": resources})).expect("a catalog")
}

/// Carries out resources; backups and state go below `state`.
pub(crate) fn apply(state: &std::path::Path, resources: Value) -> Summary {
    run(state, resources, false)
}

/// The same without hands.
pub(crate) fn noop(state: &std::path::Path, resources: Value) -> Summary {
    run(state, resources, true)
}

fn run(state: &std::path::Path, resources: Value, noop: bool) -> Summary {
    let plan = Plan::new(
        &catalog(resources),
        &Registry::standard(),
        PlanOptions::default(),
    )
    .unwrap_or_else(|error| panic!("{error}"));
    let cancellation = Cancellation::new().expect("a pipe");
    let how = CarryOut {
        noop,
        ..CarryOut::new(state, cancellation, &())
    };
    carry_out(&plan, how).expect("a record of the run")
}

/// One line for each resource, sorted: `Exec[x] failed: why`.
pub(crate) fn lines(summary: &Summary) -> String {
    let mut lines: Vec<String> = (summary.finished.iter())
        .map(|one| {
            let mut line = format!("{} {}", one.reference, one.outcome.status.as_str());
            for reason in &one.outcome.reasons {
                line.push_str(&format!(" ({reason})"));
            }
            if one.outcome.status == crate::Status::Failed {
                line.push_str(&format!(
                    ": {}",
                    one.outcome.message.as_deref().unwrap_or("")
                ));
            }
            line
        })
        .collect();
    lines.sort();
    lines.join("\n")
}
