//! Salt-style states: SLS files (YAML and Jinja) become a catalog.
//!
//! The way: `pillar` data is rendered and merged, the top file or names
//! choose state files, `high` renders them and applies `include`, `extend`,
//! `exclude` and every `_in` form, `low` cuts them into single states, finds
//! what each requisite means and puts them in Salt's order, and `resource`
//! says each in the engine's words.
//!
//! Pure: files, functions and facts come from a [`World`]; no clock, no
//! randomness, no I/O. Every error has a place in a file, and there is no
//! catalog unless everything is right: so nothing runs that was half read.

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

pub use compile::{Compiled, Input, Target, compile};
pub use data::{read_data, read_document};
pub use grains::grains;
pub use low::LowState;
pub use place::{Location, Rendered};
pub use problem::{CompileError, Problem};
pub use resource::OtherNodes;
pub use world::{Function, Lookup, Tree, World, WorldError};
pub use yaml::{Node, Yaml};
