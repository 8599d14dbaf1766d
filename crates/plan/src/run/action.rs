//! What follows from the events of a run, for others to do.

use bunraku_model::NodeRunId;
use bunraku_wire::api::ordered_runs::StepIndex;

/// What is to be done, after the event that led to it is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Start {
        step: StepIndex,
        node_run: NodeRunId,
    },
    Cancel {
        step: StepIndex,
        node_run: NodeRunId,
        reason: String,
    },
}
