//! Ordered runs: their leaders, the nodes they hold, and the outputs that pass
//! from one node to another.
//!
//! Absent here: plans and the state machine of a run (`plan`, pure), and the API (`server`).

pub mod approvals;
pub mod orchestration;
mod output_reads;
pub mod outputs;
pub mod plans;
mod reactor_runs;

pub use approvals::Approvals;
pub use orchestration::{Hold, Orchestration, OrchestrationLinks, OrchestrationOptions};
pub use outputs::Outputs;
pub use plans::Plans;
pub use reactor_runs::{ReactorRunParts, ReactorRuns};
