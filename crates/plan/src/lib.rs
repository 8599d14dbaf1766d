//! Plans of ordered runs over many nodes, and such runs as a pure state machine.
//!
//! A [`Site`] describes applications, their components, what these produce and consume, and
//! where they run. [`plan_site`] turns it into ordered steps, and leaves no meaningful choice
//! to the execution. [`run::Run`] executes a plan: events in, actions out.
//!
//! Absent: I/O, clocks, randomness. Files, nodes and times are arguments.

mod build;
mod compare;
mod filter;
mod inventory;
mod picture;
mod problem;
mod read;
pub mod run;
mod site;

pub use build::{PlanOptions, plan_site};
pub use bunraku_wire::api::ordered_runs::{
    DependencyReason, PlanId, PlanReview, PlanStep, PlannedCatalog, PlannedComponent, PlannedWork,
    ReviewPlan, RunPlan, StaleNode, StepDependency, StepIndex,
};
pub use compare::{PlanDifference, plan_differences, unchanged_steps};
pub use filter::Filter;
pub use inventory::{Inventory, NodePattern};
pub use picture::{dot, plan_svg};
pub use problem::{PlanError, SiteProblem};
pub use read::{ReadError, environment_graph, site_file, site_manifest, site_queries};
pub use site::{Application, Component, LocatedName, NodeRead, Site, Values};
