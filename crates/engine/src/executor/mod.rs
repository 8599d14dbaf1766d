//! Applying a plan: which node may start, what its result is, and which one is next.
//!
//! The [`schedule`] counts the nodes that each node still waits for, so a node starts when
//! its count reaches zero. A bounded number of workers take nodes from it. There is no
//! recursion, and memory is linear in resources and edges.

mod gate;
mod group;
mod guard;
mod listen;
mod outcome;
mod probe;
mod salt_gate;
mod schedule;
mod step;
mod transaction;
mod worker;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use serde_json::{Map, Value};

use crate::access::{Licence, LocalSources, RunContext, Sources};
use crate::last_applied::{LastApplied, LastAppliedError};
use crate::resource_schedule::{ScheduleRecord, ScheduleRecordError};
use crate::secrets::RunSecrets;
use crate::{
    Cancellation, CatalogPlan, CommandSetting, Coordinator, Event, EventSink, NoCoordinator,
    OrderingMode, OtherNodeOutputs, Summary,
};
use schedule::Schedule;

/// The options for applying a plan.
pub struct ApplyOptions<'a> {
    /// Only observe, and report the pending changes.
    pub noop: bool,
    /// The maximum number of resources in progress. The default depends on the mode.
    pub parallel: Option<usize>,
    /// The first failure ends the run.
    pub failhard: bool,
    pub cancellation: Cancellation,
    pub sink: &'a dyn EventSink,
    /// The root directory of the managed machine, if not `/`.
    pub root: Option<PathBuf>,
    /// The directory for backups and the last applied state.
    pub state_directory: PathBuf,
    pub sources: Arc<dyn Sources>,
    /// The facts for templates.
    pub facts: Arc<Map<String, Value>>,
    /// The labels of the alert or call that started the run, for templates.
    pub labels: Arc<Map<String, Value>>,
    pub commands: CommandSetting,
    pub other_nodes: Arc<OtherNodeOutputs>,
    /// Fires triggers and holds locks. By default, such requests fail.
    pub coordinator: Arc<dyn Coordinator>,
}

/// The reason why a run could not be recorded. The summary still lists its results.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error("cannot use the state of the last run")]
    LastApplied(#[from] LastAppliedError),
    #[error("cannot keep the times of schedules")]
    Schedules(#[from] ScheduleRecordError),
}

impl<'a> ApplyOptions<'a> {
    /// Creates the default options: a real run on this machine.
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
            labels: Arc::new(Map::new()),
            commands: CommandSetting::default(),
            other_nodes: Arc::default(),
            coordinator: Arc::new(NoCoordinator),
        }
    }

    fn workers(&self, mode: OrderingMode, cores: usize) -> usize {
        let suggested = match mode {
            OrderingMode::Ansible => 1,
            OrderingMode::Genius => (cores * 4).clamp(4, 32),
            OrderingMode::JustDoIt => 64,
        };
        match mode {
            OrderingMode::Ansible => 1,
            _ => self.parallel.unwrap_or(suggested).max(1),
        }
    }
}

/// A run in progress: the state that its workers share.
struct Run<'a> {
    plan: &'a CatalogPlan,
    context: RunContext<'a>,
    /// `None` in a noop run: no provider gets `Hands`.
    licence: Option<Licence>,
    failhard: bool,
    other_nodes: Arc<OtherNodeOutputs>,
    cores: usize,
    /// The maximum number of workers.
    workers: usize,
    last_applied: LastApplied,
    /// When resources with a schedule were last applied.
    schedules: ScheduleRecord,
    board: Mutex<Schedule<'a>>,
    more: std::sync::Condvar,
    started: std::sync::atomic::AtomicUsize,
}

/// Applies a plan, to its end or until it is cancelled.
pub fn apply_plan(plan: &CatalogPlan, how: ApplyOptions<'_>) -> Result<Summary, ApplyError> {
    let begun = Instant::now();
    how.sink.emit(Event::Begun {
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
        last_applied: LastApplied::load(&how.state_directory, how.noop)?,
        schedules: ScheduleRecord::load(&how.state_directory),
        board: Mutex::new(Schedule::new(plan)),
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
            labels: how.labels,
            commands: how.commands,
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
    fn board(&self) -> std::sync::MutexGuard<'_, Schedule<'a>> {
        // The scope passes on the panic of a worker. Until then the board is
        // consistent, as every change to it is one call.
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(self, begun: Instant, noop: bool) -> Result<Summary, ApplyError> {
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
            self.schedules.save(&self.context.state_directory)?;
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
