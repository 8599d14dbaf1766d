//! Salt-style states: SLS files (YAML and Jinja) become a catalog.
//!
//! The steps: `pillar` data is rendered and merged. The top file or names select state files.
//! `high` renders them and applies `include`, `extend`, `exclude` and every `_in` form. `low`
//! splits them into single states, resolves each requisite and puts the states in Salt's order.
//! `resource` translates each one for the engine.
//!
//! Pure: files, functions and facts come from a [`World`]; no clock, no randomness, no I/O. Every
//! error has a location in a file. There is no catalog unless everything is valid, so a partly
//! understood tree never runs.

mod compile;
mod data;
mod grains;
mod high;
mod jinja;
mod low;
mod matcher;
mod merge;
mod output_names;
mod pillar;
mod place;
mod problem;
mod resource;
mod sls;
mod top;
mod world;
mod yaml;

pub use compile::{CompiledStates, FactTrust, Input, Target, compile};
pub use data::{read_data, read_document};
pub use grains::grains;
pub use low::LowState;
pub use place::{Location, RenderedLine};
pub use problem::{CompileError, Problem};
pub use resource::OtherNodePolicy;
pub use world::{Function, Lookup, Tree, World, WorldError};
pub use yaml::{Node, Yaml};
