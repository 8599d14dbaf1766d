//! The actions that result from the events of a run, for others to perform.

use bunraku_model::NodeRunId;
use bunraku_wire::api::ordered_runs::StepIndex;

/// An action to perform after its event is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Start {
        step: StepIndex,
        node_run: NodeRunId,
    },
    /// Perform a check of a gate, until it passes.
    Check { gate: u32, check: u32 },
    Cancel {
        step: StepIndex,
        node_run: NodeRunId,
        reason: String,
    },
}
