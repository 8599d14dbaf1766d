//! Plans, and runs as a pure state machine.

mod plan;
mod run_behaviour;
mod run_properties;
mod run_rollout;
mod run_simulation;
mod support;
