//! The workers of one commit, as the server sees them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::Handle;

use super::super::external::ExternalPrograms;
use super::super::worker_pool::{WorkerLimits, WorkerPool};
use super::super::worker_process::{WorkerCommand, WorkerEnvironment};
use super::super::{Compilation, EnvironmentSlots};
use super::perform::CodeTasks;
use super::{
    AnswerWorker, AskServer, CodeTask, InspectedCode, StatesTask, TaskLine, TaskResult, WorkerSetup,
};
use crate::compile_failure::CompileFailure;

/// Catalogs after which a worker is replaced.
const RECYCLE_AFTER: u64 = 10_000;

/// How a server runs its workers.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The program that serves as a worker ([`run_code_worker`](super::run_code_worker)), and the
    /// words that make it one. Without it, states and static sites are compiled inside this
    /// process: for tests and simulations, whose code is their own.
    pub program: Option<Vec<OsString>>,
    /// How the programs of repositories run.
    pub external: ExternalPrograms,
    /// Bytes of memory of one worker.
    pub memory: u64,
    /// Time limit for one catalog, by the clock and on the processor.
    pub time_limit: Duration,
    /// Refuse to compile if the kernel cannot confine access to files.
    pub needs_landlock: bool,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        Self {
            program: None,
            external: ExternalPrograms::default(),
            memory: 1 << 30,
            time_limit: Duration::from_secs(60),
            needs_landlock: true,
        }
    }
}

/// The workers of one environment at one commit.
#[derive(Clone)]
pub(crate) enum CodeWorkers {
    Inside(Arc<CodeTasks>),
    Processes(Arc<WorkerPool>),
}

impl CodeWorkers {
    pub(crate) fn new(
        tree: &Path,
        options: &WorkerOptions,
        workers: usize,
        longest_answer: u64,
    ) -> Self {
        let Some(words) = options.program.clone() else {
            return Self::Inside(Arc::new(CodeTasks::new(tree)));
        };
        let setup = WorkerSetup {
            tree: tree.to_owned(),
            memory: options.memory,
            cpu_seconds: options.time_limit.as_secs().max(1),
            needs_landlock: options.needs_landlock,
        };
        let command = WorkerCommand {
            name: "bunraku".to_owned(),
            words,
            // Not the tree: the sandbox opens it.
            directory: PathBuf::from("/"),
            environment: WorkerEnvironment::Empty,
            greeting: Some(serde_json::to_string(&setup).expect("a setup is plain data")),
        };
        let limits = WorkerLimits {
            workers,
            time_limit: options.time_limit,
            recycle_after: RECYCLE_AFTER,
            memory_limit: Some(options.memory / 4 * 3),
            hard_memory_limit: Some(options.memory),
            longest_answer,
        };
        Self::Processes(Arc::new(WorkerPool::new(tree, command, limits, Vec::new())))
    }

    /// Reads the files that say what the code is.
    pub(crate) async fn inspect(&self) -> Result<InspectedCode, CompileFailure> {
        match self {
            Self::Inside(tasks) => {
                let done = inside(tasks, CodeTask::Inspect, Arc::new(NoAnswers)).await?;
                match done {
                    TaskResult::Inspected(inspected) => Ok(*inspected),
                    _ => Err(CompileFailure::message("the code could not be inspected")),
                }
            }
            Self::Processes(pool) => pool.inspect(|id| line(id, CodeTask::Inspect)).await,
        }
    }

    /// Performs a task that makes a catalog.
    pub(in super::super) async fn compile(
        &self,
        task: CodeTask<'_>,
        answers: Arc<dyn AnswerWorker>,
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        match self {
            Self::Inside(tasks) => {
                let _slot = slots.take().await?;
                match inside(tasks, task.into_owned(), answers).await? {
                    TaskResult::Catalog(catalog) => Ok((*catalog).into()),
                    TaskResult::Errors(problems) => Err(CompileFailure::Problems(problems)),
                    TaskResult::Inspected(_) => Err(CompileFailure::message("there is no catalog")),
                }
            }
            Self::Processes(pool) => {
                let question = |id| line(id, task);
                pool.compile(slots, Some(&*answers), question).await
            }
        }
    }
}

impl CodeTask<'_> {
    fn into_owned(self) -> CodeTask<'static> {
        use std::borrow::Cow;
        match self {
            CodeTask::Inspect => CodeTask::Inspect,
            CodeTask::States(task) => CodeTask::States(StatesTask {
                node: task.node,
                facts: Cow::Owned(task.facts.into_owned()),
                root: Cow::Owned(task.root.into_owned()),
                pillar: task.pillar.map(|pillar| Cow::Owned(pillar.into_owned())),
                fact_targeting: task.fact_targeting,
            }),
            CodeTask::Static { node, facts, site } => CodeTask::Static {
                node,
                facts: Cow::Owned(facts.into_owned()),
                site: Cow::Owned(site.into_owned()),
            },
        }
    }
}

fn line(id: u64, task: CodeTask<'_>) -> String {
    serde_json::to_string(&TaskLine { id, task }).expect("a task is plain data")
}

/// Performs a task in a thread of this process. A panic affects only one node.
async fn inside(
    tasks: &Arc<CodeTasks>,
    task: CodeTask<'static>,
    answers: Arc<dyn AnswerWorker>,
) -> Result<TaskResult, CompileFailure> {
    let tasks = Arc::clone(tasks);
    let server = Arc::new(RuntimeAsker {
        answers,
        runtime: Handle::current(),
    });
    let work = move || tasks.perform(&task, server);
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(CompileFailure::temporary)
}

struct RuntimeAsker {
    answers: Arc<dyn AnswerWorker>,
    runtime: Handle,
}

impl AskServer for RuntimeAsker {
    fn ask(&self, question: Value) -> Result<Value, String> {
        self.runtime.block_on(self.answers.answer(question))
    }
}

/// There is nothing to ask while files are read.
struct NoAnswers;

#[async_trait::async_trait]
impl AnswerWorker for NoAnswers {
    async fn answer(&self, _: Value) -> Result<Value, String> {
        Err("there is no answer while files are read".to_owned())
    }
}
