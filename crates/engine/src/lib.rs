//! Applies a catalog to a machine. The only crate that changes a machine.
//!
//! A catalog becomes a [`CatalogPlan`]. All of it is checked before anything changes: every
//! type and parameter is known, every reference is resolved, and there is no cycle.
//! [`apply_plan`] applies a plan, reports events to an [`EventSink`] and returns a
//! [`Summary`].
//!
//! Rules: types decide with a pure `changes`, providers only observe and apply, and
//! applying needs [`WriteAccess`], which a noop run does not have. The library never prints.
//! Absent on purpose: compilers, the network, the store.

mod access;
pub mod cancel;
mod change;
mod clock;
mod coordination;
mod declaration;
mod event;
mod executor;
mod last_applied;
mod lock;
pub mod modules;
mod other_nodes;
mod plan;
mod resource_schedule;
mod resource_type;
mod restore;
mod run_needs;
mod secrets;
mod spec;
pub mod types;

pub use access::{CommandSetting, LocalSources, ReadAccess, SourceEntry, Sources, WriteAccess};
pub use bunraku_model::OrderingMode;
pub use cancel::Cancellation;
pub use change::{ApplyResult, Change, DisplayValue, StepError, StepResult};
pub use coordination::{
    Coordinator, CueProvider, EtcdKeys, FireResult, Firing, FleetLocks, LockAttempt, LockRenewal,
    LockRequest, LockState, NoCoordinator,
};
pub use declaration::{Declaration, Refusal};
pub use event::{
    Event, EventSink, FailedAttempt, Reason, ResourceOutcome, ResourceResult, RunEnd, Status,
    Stream, Summary,
};
pub use executor::{ApplyError, ApplyOptions, apply_plan};
pub use last_applied::LastAppliedError;
pub use lock::{ApplyLock, LockError, LockOwner};
pub use other_nodes::OtherNodeOutputs;
pub use plan::{
    CatalogPlan, CycleStep, Explanation, InvalidTag, PlanError, PlanOptions, Problem, ProblemKind,
    UnknownType,
};
pub use resource_schedule::ScheduleRecordError;
pub use resource_type::{Observation, Provider, Relations, ResourceType, SystemObject};
pub use restore::restore;
pub use run_needs::RunNeeds;
pub use secrets::Secrets;
pub use spec::{Argument, EVERYWHERE, ParameterSpec, StateFunction, TypeSpec};
pub use types::Registry;
pub use types::file::{Backup, BackupError, backups};
