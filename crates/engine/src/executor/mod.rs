//! Carrying out a plan: who may start, what comes of it, who is next.
//!
//! The [`board`] counts what each node still waits for, so a node starts when
//! its count reaches zero; a bounded number of workers take from it. There is
//! no recursion and memory is linear in resources and edges.

mod board;
mod gate;
mod group;
mod guard;
mod listen;
mod outcome;
mod probe;
mod salt_gate;
mod step;
mod transaction;
mod worker;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value};

use crate::last_applied::{LastApplied, LastAppliedError};
use crate::secrets::RunSecrets;
use crate::sight::{Licence, LocalSources, RunContext, Sources};
use crate::{
    Cancellation, Coordinator, Event, EventSink, Mode, NoCoordinator, OtherNodes, Plan, Summary,
};
use board::Board;

/// How a plan is to be carried out.
pub struct CarryOut<'a> {
    /// Only look and say what would change.
    pub noop: bool,
    /// How many resources may be at work at once; by default what the mode suggests.
    pub parallel: Option<usize>,
    /// The first failure ends the run.
    pub failhard: bool,
    pub cancellation: Cancellation,
    pub sink: &'a dyn EventSink,
    /// Where the managed machine lies, if not at `/`.
    pub root: Option<PathBuf>,
    /// Where the engine keeps backups and the last applied state.
    pub state_directory: PathBuf,
    pub sources: Arc<dyn Sources>,
    /// For templates.
    pub facts: Arc<Map<String, Value>>,
    pub other_nodes: Arc<OtherNodes>,
    /// Fires triggers and holds locks; by default, nobody does.
    pub coordinator: Arc<dyn Coordinator>,
}

/// Why a run could not be recorded. What it did is in the summary all the same.
#[derive(Debug, thiserror::Error)]
pub enum CarryOutError {
    #[error("the state of the last run cannot be used")]
    LastApplied(#[from] LastAppliedError),
}

impl<'a> CarryOut<'a> {
    /// The usual settings: a real run on this machine.
    pub fn new(
        state_directory: impl Into<PathBuf>,
        cancellation: Cancellation,
        sink: &'a dyn EventSink,
    ) -> Self {
        Self {
            noop: false,
            parallel: None,
            failhard: false,
            cancellation,
            sink,
            root: None,
            state_directory: state_directory.into(),
            sources: Arc::new(LocalSources::default()),
            facts: Arc::new(Map::new()),
            other_nodes: Arc::default(),
            coordinator: Arc::new(NoCoordinator),
        }
    }

    fn workers(&self, mode: Mode, cores: usize) -> usize {
        let suggested = match mode {
            Mode::Ansible => 1,
            Mode::Genius => (cores * 4).clamp(4, 32),
            Mode::JustDoIt => 64,
        };
        match mode {
            Mode::Ansible => 1,
            _ => self.parallel.unwrap_or(suggested).max(1),
        }
    }
}

/// One run in the making: what its workers share.
struct Run<'a> {
    plan: &'a Plan,
    context: RunContext<'a>,
    /// `None` in a noop run: nobody gets hands.
    licence: Option<Licence>,
    failhard: bool,
    other_nodes: Arc<OtherNodes>,
    cores: usize,
    /// The most that may be at work at once.
    workers: usize,
    last_applied: LastApplied,
    board: Mutex<Board<'a>>,
    more: std::sync::Condvar,
    started: std::sync::atomic::AtomicUsize,
}

/// Carries out a plan, to its end or until it is cancelled.
pub fn carry_out(plan: &Plan, how: CarryOut<'_>) -> Result<Summary, CarryOutError> {
    let begun = Instant::now();
    how.sink.tell(Event::Begun {
        resources: plan.len(),
        noop: how.noop,
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let run = Run {
        cores,
        workers: how.workers(plan.mode, cores),
        plan,
        licence: Licence::of_run(how.noop),
        failhard: how.failhard,
        other_nodes: how.other_nodes,
        last_applied: LastApplied::load(&how.state_directory)?,
        board: Mutex::new(Board::new(plan)),
        more: std::sync::Condvar::new(),
        started: std::sync::atomic::AtomicUsize::new(0),
        context: RunContext {
            cancellation: how.cancellation,
            sink: how.sink,
            secrets: RunSecrets::new(&plan.secrets),
            root: how.root,
            state_directory: how.state_directory,
            sources: how.sources,
            facts: how.facts,
            managed: Some(plan),
            coordinator: how.coordinator,
            users: Mutex::default(),
            groups: Mutex::default(),
            once: Mutex::new(HashMap::new()),
            dirty_directories: Mutex::default(),
        },
    };
    run.work();
    run.listen();
    run.end(begun, how.noop)
}

impl<'a> Run<'a> {
    fn board(&self) -> std::sync::MutexGuard<'_, Board<'a>> {
        // A worker that panicked has its panic passed on by the scope; until
        // then the board is whole, as every change to it is one call.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(self, begun: Instant, noop: bool) -> Result<Summary, CarryOutError> {
        let dirty =
            (self.context.dirty_directories.into_inner()).unwrap_or_else(PoisonError::into_inner);
        for directory in dirty {
            // A directory that a later step removed needs no sync.
            if let Ok(directory) = std::fs::File::open(directory) {
                let _ = directory.sync_all();
            }
        }
        let board = self
            .board
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let (finished, ended_early) = board.into_parts();
        if !noop {
            self.last_applied
                .save(&self.context.state_directory, self.plan, &finished)?;
        }
        Ok(Summary {
            finished,
            ended_early,
            noop,
            duration: begun.elapsed(),
        })
    }
}

#[cfg(test)]
mod group_tests;
#[cfg(test)]
mod quick_tests;
#[cfg(test)]
mod tag_tests;
#[cfg(test)]
mod tests;
