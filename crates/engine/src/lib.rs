//! Applies a catalog to a machine. The only crate that changes a machine.
//!
//! A catalog becomes a [`Plan`]. All of it is checked before anything changes: every
//! type and parameter is known, every reference is resolved, and there is no cycle.
//! [`carry_out`] applies a plan, reports events to an [`EventSink`] and returns a
//! [`Summary`].
//!
//! Rules: types decide with a pure `changes`, providers only observe and apply, and
//! applying needs [`Hands`], which a noop run does not have. The library never prints.
//! Absent on purpose: compilers, the network, the store.

pub mod cancel;
mod change;
mod coordination;
mod declaration;
mod event;
mod executor;
mod last_applied;
mod lock;
pub mod modules;
mod other_nodes;
mod plan;
mod resource_type;
mod restore;
mod secrets;
mod sight;
mod spec;
pub mod types;

pub use cancel::Cancellation;
pub use change::{Applied, Change, Shown, StepError};
pub use coordination::{
    Coordinator, CueProvider, EtcdKeys, Fired, Firing, LockAttempt, LockRenewal, LockRequest,
    LockStanding, NoCoordinator,
};
pub use declaration::{Declaration, Refusal};
pub use event::{Event, EventSink, Finished, Outcome, Reason, RunEnd, Status, Stream, Summary};
pub use executor::{CarryOut, CarryOutError, carry_out};
pub use last_applied::LastAppliedError;
pub use lock::{ApplyLock, LockError, LockOwner};
pub use other_nodes::OtherNodes;
pub use plan::{
    CycleStep, Explanation, InvalidTag, Mode, Plan, PlanError, PlanOptions, Problem, ProblemKind,
};
pub use resource_type::{Observation, Provider, Relations, ResourceType, Thing};
pub use restore::restore;
pub use secrets::Secrets;
pub use sight::{Hands, LocalSources, Sight, SourceEntry, Sources};
pub use spec::{Argument, EVERYWHERE, ParameterSpec, StateFunction, TypeSpec};
pub use types::Registry;
pub use types::file::{Backup, BackupError, backups};
