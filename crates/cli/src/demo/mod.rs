//! The parts of the demo: its processes and its output.

mod cluster;
mod code;
mod fleet;
mod panel;
mod process;
mod stage;
mod takeover;

pub(crate) use fleet::DemoFleet;
pub(crate) use stage::{Stage, StageOptions};
