//! A program as an environment's compiler.
//!
//! It gets one JSON request per line and answers each with one JSON line. It
//! is started once and kept warm, and replaced when it has answered often
//! enough, holds too much memory, or did anything that makes its next answer
//! doubtful. What it says on standard error goes into the error.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bunraku_model::Catalog;
use bunraku_wire::api::CompileProblem;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::settings::ExternalSettings;
use super::worker_process::WorkerProcess;
use super::{CompileRequest, Compiler, slot};
use crate::compile_failure::CompileFailure;

/// What of an answer that is not understood is shown.
const SHOWN: usize = 200;

/// One line to the program.
#[derive(Serialize)]
struct Question<'a> {
    protocol: u32,
    /// The answer has the same.
    id: u64,
    node: &'a str,
    environment: &'a str,
    code_id: &'a str,
    /// The commit's files; also the working directory.
    directory: &'a Path,
    fact_set: String,
    facts: &'a serde_json::Map<String, Value>,
}

/// One line from it.
#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
    catalog: Option<Value>,
    error: Option<Complaint>,
    errors: Option<Vec<Complaint>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Complaint {
    Text(String),
    Placed {
        message: String,
        file: Option<String>,
        line: Option<u64>,
        column: Option<u64>,
        hint: Option<String>,
    },
}

/// A program that compiles, for one environment at one commit.
pub(crate) struct ExternalCompiler {
    tree: PathBuf,
    settings: ExternalSettings,
    longest_answer: u64,
    places: Semaphore,
    idle: Mutex<Vec<WorkerProcess>>,
    next_id: std::sync::atomic::AtomicU64,
}

impl ExternalCompiler {
    pub(crate) fn new(tree: &Path, settings: ExternalSettings, longest_answer: u64) -> Self {
        Self {
            tree: tree.to_owned(),
            places: Semaphore::new(settings.workers),
            settings,
            longest_answer,
            idle: Mutex::default(),
            next_id: std::sync::atomic::AtomicU64::new(1),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<WorkerProcess>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A warm one that is still in order, or a new one.
    fn worker(&self) -> Result<WorkerProcess, CompileFailure> {
        while let Some(mut worker) = { self.idle().pop() } {
            if !worker.spoke_out_of_turn() && !worker.has_ended() {
                return Ok(worker);
            }
        }
        WorkerProcess::start(&self.tree, &self.settings.command)
            .map_err(|error| CompileFailure::said(error.to_string()))
    }

    /// Back to the warm ones, unless it has served its time.
    fn put_back(&self, worker: WorkerProcess) {
        let leaks = || {
            let held = worker.memory().unwrap_or(0);
            self.settings.memory_limit.is_some_and(|limit| held > limit)
        };
        if worker.answered >= self.settings.recycle_after || leaks() {
            tokio::spawn(worker.dismiss());
        } else {
            self.idle().push(worker);
        }
    }

    fn question(&self, request: &CompileRequest, id: u64) -> String {
        let question = Question {
            protocol: 1,
            id,
            node: request.node.as_str(),
            environment: request.environment.as_str(),
            code_id: &request.code_id.0,
            directory: &self.tree,
            fact_set: request.fact_set.to_string(),
            facts: request.facts.as_map(),
        };
        serde_json::to_string(&question).expect("a question is plain data")
    }

    /// The catalog in an answer. `Err(None)`: the answer makes no sense.
    fn read(&self, answer: &[u8], id: u64) -> Result<Catalog, (bool, CompileFailure)> {
        let nonsense = |why: String| {
            let text = String::from_utf8_lossy(answer);
            let begins: String = text.trim().chars().take(SHOWN).collect();
            let message = format!("the compiler's answer {why}: it begins with `{begins}`");
            (false, CompileFailure::said(message))
        };
        let answered: Answer = serde_json::from_slice(answer)
            .map_err(|error| nonsense(format!("is not a JSON answer ({error})")))?;
        if answered.id != Some(id) {
            return Err(nonsense(format!("is not the one to request {id}")));
        }
        let complaints = answered
            .errors
            .unwrap_or_default()
            .into_iter()
            .chain(answered.error);
        let problems: Vec<_> = complaints.map(|one| self.problem(one)).collect();
        if !problems.is_empty() {
            return Err((true, CompileFailure::Problems(problems)));
        }
        let catalog = answered.catalog.filter(Value::is_object);
        let catalog = catalog.ok_or_else(|| nonsense("has no catalog and no error".to_owned()))?;
        serde_json::from_value(catalog)
            .map_err(|error| nonsense(format!("has no readable catalog ({error})")))
    }

    /// Files are told from the environment's root.
    fn problem(&self, complaint: Complaint) -> CompileProblem {
        let mut problem = match complaint {
            Complaint::Text(message) => CompileProblem {
                message,
                ..CompileProblem::default()
            },
            Complaint::Placed {
                message,
                file,
                line,
                column,
                hint,
            } => CompileProblem {
                message,
                file,
                line,
                column,
                hint,
            },
        };
        problem.file = problem.file.map(|file| self.below(&file));
        problem
    }

    fn below(&self, file: &str) -> String {
        match Path::new(file).strip_prefix(&self.tree) {
            Ok(below) => below.display().to_string(),
            Err(_) => file.to_owned(),
        }
    }
}

#[async_trait]
impl Compiler for ExternalCompiler {
    fn name(&self) -> &'static str {
        "external"
    }

    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &Semaphore,
    ) -> Result<Catalog, CompileFailure> {
        // A worker first, then a slot: waiting for this program costs nobody else one.
        let _place = self.places.acquire().await;
        let _slot = slot(slots).await?;
        let mut worker = self.worker()?;
        let id = self
            .next_id
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let line = self.question(request, id);
        let limit = self.settings.time_limit;
        let answer = worker.exchange(&line, limit, self.longest_answer).await;
        let outcome = match answer {
            Ok(answer) => self.read(&answer, id),
            Err(error) => Err((false, CompileFailure::said(error.to_string()))),
        };
        match outcome {
            Ok(mut catalog) => {
                for resource in &mut catalog.resources {
                    resource.file = resource.file.take().map(|file| self.below(&file));
                }
                self.put_back(worker);
                Ok(catalog)
            }
            Err((true, failure)) => {
                self.put_back(worker);
                Err(failure)
            }
            // Dropped, and so killed with all that it started.
            Err((false, failure)) => Err(with_words(failure, &worker.take_words())),
        }
    }
}

fn with_words(failure: CompileFailure, words: &str) -> CompileFailure {
    match failure {
        CompileFailure::Problems(mut problems) if !words.is_empty() => {
            if let Some(first) = problems.first_mut() {
                first.message = format!("{}; it said: {words}", first.message);
            }
            CompileFailure::Problems(problems)
        }
        other => other,
    }
}
