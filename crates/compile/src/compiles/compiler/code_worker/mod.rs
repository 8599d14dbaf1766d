//! The worker for code that this binary compiles itself: states and static sites.
//!
//! The server starts the same binary once more and sends it one task per line. The worker is
//! confined to the files of one commit before it reads any of them ([`process`]). So code that
//! overflows the stack, eats memory or never ends costs a worker, and never the server. The worker
//! asks the server for everything besides files: the meaning of state functions, locks, and other
//! nodes ([`questions`]).
//!
//! Tests and simulations, whose code is their own, can perform the same tasks inside their process.

#[cfg(debug_assertions)]
mod faults;
mod perform;
mod pool;
mod process;
mod questions;

use std::borrow::Cow;
use std::path::PathBuf;

use bunraku_model::{Catalog, FactSet, NodeName};
use bunraku_wire::api::CompileProblem;
use bunraku_wire::api::reactors::Reactor;
use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::modules::NamedModule;

pub(crate) use pool::CodeWorkers;
pub use pool::WorkerOptions;
pub use process::run_code_worker;
pub(crate) use questions::AnswerWorker;
pub(super) use questions::{AskServer, StateQuestion};

/// The first line to a worker.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WorkerSetup {
    /// The directory with the commit's files.
    tree: PathBuf,
    /// Bytes of memory.
    memory: u64,
    /// Seconds on the processor, for one task.
    cpu_seconds: u64,
    needs_landlock: bool,
}

/// A task, as one line.
#[derive(Serialize, Deserialize)]
struct TaskLine<'a> {
    id: u64,
    task: CodeTask<'a>,
}

/// A task.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CodeTask<'a> {
    /// Read the files that say what the code is.
    Inspect,
    States(StatesTask<'a>),
    Static {
        node: NodeName,
        facts: Cow<'a, FactSet>,
        site: Cow<'a, str>,
    },
}

/// Compile the states of one node.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StatesTask<'a> {
    pub(super) node: NodeName,
    pub(super) facts: Cow<'a, FactSet>,
    pub(super) root: Cow<'a, str>,
    pub(super) pillar: Option<Cow<'a, str>>,
    /// Facts may decide which state files and data the node gets.
    pub(super) fact_targeting: bool,
}

/// The result of a task.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum TaskResult {
    Catalog(Box<Catalog>),
    Inspected(Box<InspectedCode>),
    Errors(Vec<CompileProblem>),
}

/// A result, as one line.
#[derive(Serialize)]
struct ResultLine<'a> {
    id: u64,
    #[serde(flatten)]
    result: &'a TaskResult,
}

/// What the files of a commit say about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct InspectedCode {
    pub(crate) settings: Result<Settings, CompileProblem>,
    pub(crate) modules: Result<Vec<NamedModule>, CompileProblem>,
    pub(crate) reactors: Result<Vec<Reactor>, CompileProblem>,
}
