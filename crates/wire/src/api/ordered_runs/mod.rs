//! Ordered runs over many nodes: plans, options, records and logs.
//!
//! Plans are made, and runs are executed, in the `plan` crate. These values
//! only describe them.

mod event;
mod options;
mod outcome;
mod plan;
mod record;

pub use event::{Ending, Entry, Event, Unfit, UnfitReason};
pub use options::{OnFailure, RunOptions, Share};
pub use outcome::{RunOutcome, Tally};
pub use plan::{Plan, PlanId, PlannedComponent, Reason, Step, StepIndex, Wait};
pub use record::{
    Due, HookTrigger, NewRun, RunDetail, RunEnd, RunHooks, RunLog, RunLogReply, RunRecord,
    RunSummary, Subject,
};
