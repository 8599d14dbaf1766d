//! The low state: single states in Salt's order, with requisites resolved.

mod chunk;
mod graph;
mod order;
mod resolve;

use serde_json::{Map, Value};

pub(crate) use chunk::{Chunk, chunks};
pub(crate) use resolve::{OrderKind, ResolvedStates, resolve};

use crate::place::Location;

/// One state of the run, for people who inspect a tree.
#[derive(Clone, PartialEq, Debug)]
pub struct LowState {
    pub id: String,
    pub name: String,
    /// The function, such as `file.managed`.
    pub function: String,
    pub sls: String,
    pub at: Location,
    /// The position in the run, from 0.
    pub position: usize,
    pub arguments: Map<String, Value>,
    /// `(requisite, positions)`, in the order of the run.
    pub requisites: Vec<(String, Vec<usize>)>,
}
