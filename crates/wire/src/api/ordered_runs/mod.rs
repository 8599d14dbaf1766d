//! Ordered runs over several nodes: plans, options, records and logs.
//!
//! The `plan` crate creates plans and executes runs. These types only describe them.

mod event;
mod options;
mod outcome;
mod plan;
mod record;
mod review;
mod rollout;
mod work;

pub use event::{Event, RunLogEntry, UnavailableNode, UnavailableReason};
pub use options::{NodeLimit, OnFailure, RunOptions};
pub use outcome::{RunOutcome, StepCounts};
pub use plan::{
    DependencyReason, PlanId, PlanStep, PlannedComponent, RunPlan, StepDependency, StepIndex,
};
pub use record::{
    HookTrigger, NewRun, OrderedRunSubject, RunDetail, RunEnd, RunHooks, RunLog, RunLogReply,
    RunRecord, RunStart, RunSummary,
};
pub use review::{PlanReview, ReviewPlan, StaleNode};
pub use rollout::{CheckError, CheckResult, RolloutCheck, RunWait};
pub use work::{PlannedCatalog, PlannedWork};
