//! Warm worker processes of one environment at one commit.
//!
//! A worker gets one JSON request per line and answers each with one JSON line.
//! It is replaced when it has answered often enough, uses too much memory, or
//! did anything that makes its next answer doubtful.
//!
//! Absent on purpose: the content of a request. Each compiler writes its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::Catalog;
use bunraku_wire::api::{CompileNote, CompileProblem};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::Compilation;
use super::code_worker::{AnswerWorker, InspectedCode};
use super::worker_death::worker_death;
use super::worker_process::{WorkerCommand, WorkerEnvironment, WorkerError, WorkerProcess};
use crate::compile_failure::CompileFailure;
use crate::compiles::slots::EnvironmentSlots;

/// Number of characters shown of an invalid answer.
const SHOWN: usize = 200;

/// One answer line from a worker.
#[derive(Deserialize)]
struct WorkerReply {
    id: Option<u64>,
    catalog: Option<Value>,
    error: Option<Complaint>,
    errors: Option<Vec<Complaint>>,
    inspected: Option<Box<InspectedCode>>,
    /// The result of a function call.
    result: Option<Value>,
    #[serde(default)]
    notes: Vec<CompileNote>,
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

/// The number of workers, and the limits of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WorkerLimits {
    pub(crate) workers: usize,
    pub(crate) time_limit: Duration,
    pub(crate) recycle_after: u64,
    /// Memory limit in bytes. A worker that uses more after an answer is replaced.
    pub(crate) memory_limit: Option<u64>,
    /// Memory limit in bytes that the worker sets for itself, for messages.
    pub(crate) hard_memory_limit: Option<u64>,
    pub(crate) longest_answer: u64,
}

/// The workers, and the permits to use them.
pub(crate) struct WorkerPool {
    command: WorkerCommand,
    limits: WorkerLimits,
    /// Directories that are removed from the places in answers, besides the tree.
    roots: Vec<PathBuf>,
    places: Semaphore,
    idle: Mutex<Vec<WorkerProcess>>,
    next_id: AtomicU64,
}

impl WorkerPool {
    pub(crate) fn new(
        tree: &Path,
        command: WorkerCommand,
        limits: WorkerLimits,
        mut roots: Vec<PathBuf>,
    ) -> Self {
        roots.push(tree.to_owned());
        Self {
            command,
            limits,
            roots,
            places: Semaphore::new(limits.workers),
            idle: Mutex::default(),
            next_id: AtomicU64::new(1),
        }
    }

    /// Sends one request to a worker and reads the catalog in its answer.
    /// `question` receives the request's id. The worker may ask in between.
    pub(crate) async fn compile(
        &self,
        slots: &EnvironmentSlots<'_>,
        answers: Option<&dyn AnswerWorker>,
        question: impl FnOnce(u64) -> String,
    ) -> Result<Compilation, CompileFailure> {
        // Wait for a worker first, then for a slot: waiting for this program
        // takes no slot from others.
        let _place = self.places.acquire().await;
        let _slot = slots.take().await?;
        let read = |answer: &[u8], id| self.read(answer, id);
        self.ask(answers, question, read).await
    }

    /// Sends a request to inspect the code, which takes no slot.
    pub(crate) async fn inspect(
        &self,
        question: impl FnOnce(u64) -> String,
    ) -> Result<InspectedCode, CompileFailure> {
        let _place = self.places.acquire().await;
        let read = |answer: &[u8], id| {
            let answered = self.answered(answer, id)?;
            let inspected = answered.inspected.map(|inspected| *inspected);
            inspected.ok_or_else(|| nonsense(answer, "says nothing about the code"))
        };
        self.ask(None, question, read).await
    }

    /// Sends a request to call a function, which takes no slot.
    pub(crate) async fn call(
        &self,
        question: impl FnOnce(u64) -> String,
    ) -> Result<Value, CompileFailure> {
        let _place = self.places.acquire().await;
        let read = |answer: &[u8], id| {
            let answered = self.answered(answer, id)?;
            (answered.result).ok_or_else(|| nonsense(answer, "has no result"))
        };
        self.ask(None, question, read).await
    }

    async fn ask<T>(
        &self,
        answers: Option<&dyn AnswerWorker>,
        question: impl FnOnce(u64) -> String,
        read: impl FnOnce(&[u8], u64) -> Result<T, (bool, CompileFailure)>,
    ) -> Result<T, CompileFailure> {
        let mut worker = self.worker()?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = question(id);
        let (limit, longest) = (self.limits.time_limit, self.limits.longest_answer);
        let answer = match worker.exchange(&line, limit, longest, answers).await {
            Ok(answer) => answer,
            // Dropping the worker kills it with every process that it started.
            Err(error) => return Err(self.failure(&error, &worker.take_words())),
        };
        match read(&answer, id) {
            Ok(done) => {
                self.put_back(worker);
                Ok(done)
            }
            Err((true, failure)) => {
                self.put_back(worker);
                Err(failure)
            }
            Err((false, failure)) => Err(with_words(failure, &worker.take_words())),
        }
    }

    /// Returns the failure of a worker that gave no answer.
    fn failure(&self, error: &WorkerError, words: &str) -> CompileFailure {
        match worker_death(error, words, &self.limits) {
            Some(death) => CompileFailure::WorkerDied(death),
            None => with_words(CompileFailure::message(error.to_string()), words),
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<WorkerProcess>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a warm worker that still works correctly, or a new one.
    fn worker(&self) -> Result<WorkerProcess, CompileFailure> {
        while let Some(mut worker) = { self.idle().pop() } {
            if !worker.has_unexpected_output() && !worker.has_ended() {
                return Ok(worker);
            }
        }
        WorkerProcess::start(&self.command).map_err(|error| {
            if self.command.environment == WorkerEnvironment::Empty {
                // The server's own program exists: the machine is short of something.
                CompileFailure::temporary(error)
            } else {
                CompileFailure::message(error.to_string())
            }
        })
    }

    /// Returns the worker to the pool, unless it must be replaced.
    fn put_back(&self, worker: WorkerProcess) {
        let leaks = || {
            let held = worker.memory().unwrap_or(0);
            self.limits.memory_limit.is_some_and(|limit| held > limit)
        };
        if worker.answered >= self.limits.recycle_after || leaks() {
            tokio::spawn(worker.dismiss());
        } else {
            self.idle().push(worker);
        }
    }

    /// Returns the catalog in an answer. The flag of a failure is true if the
    /// worker still works correctly.
    fn read(&self, answer: &[u8], id: u64) -> Result<Compilation, (bool, CompileFailure)> {
        let answered = self.answered(answer, id)?;
        let catalog = answered.catalog.filter(Value::is_object);
        let catalog = catalog.ok_or_else(|| nonsense(answer, "has no catalog and no error"))?;
        let catalog: Catalog = serde_json::from_value(catalog)
            .map_err(|error| nonsense(answer, &format!("has no readable catalog ({error})")))?;
        Ok(self.with_relative_paths(catalog, answered.notes))
    }

    /// Returns an answer without errors.
    fn answered(&self, answer: &[u8], id: u64) -> Result<WorkerReply, (bool, CompileFailure)> {
        let mut answered: WorkerReply = serde_json::from_slice(answer)
            .map_err(|error| nonsense(answer, &format!("is not a JSON answer ({error})")))?;
        if answered.id != Some(id) {
            let why = format!("does not belong to request {id}");
            return Err(nonsense(answer, &why));
        }
        let errors = answered.errors.take().unwrap_or_default().into_iter();
        let complaints = errors.chain(answered.error.take());
        let problems: Vec<_> = complaints.map(|one| self.problem(one)).collect();
        if !problems.is_empty() {
            return Err((true, CompileFailure::Problems(problems)));
        }
        Ok(answered)
    }

    /// Makes places relative to the environment's root.
    fn with_relative_paths(
        &self,
        mut catalog: Catalog,
        mut notes: Vec<CompileNote>,
    ) -> Compilation {
        for resource in catalog.resources.iter_mut().chain(&mut catalog.exports) {
            resource.file = resource.file.take().map(|file| self.below(&file));
        }
        for note in &mut notes {
            note.file = note.file.take().map(|file| self.below(&file));
        }
        Compilation {
            catalog,
            notes,
            version: None,
        }
    }

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
        let path = Path::new(file);
        let below = self
            .roots
            .iter()
            .find_map(|root| path.strip_prefix(root).ok());
        below.map_or_else(|| file.to_owned(), |below| below.display().to_string())
    }
}

/// An answer that makes no sense. The worker is not used again.
fn nonsense(answer: &[u8], why: &str) -> (bool, CompileFailure) {
    let text = String::from_utf8_lossy(answer);
    let begins: String = text.trim().chars().take(SHOWN).collect();
    let message = format!("the compiler's answer {why}: it begins with `{begins}`");
    (false, CompileFailure::message(message))
}

fn with_words(failure: CompileFailure, words: &str) -> CompileFailure {
    match failure {
        CompileFailure::Problems(mut problems) if !words.is_empty() => {
            if let Some(first) = problems.first_mut() {
                first.message = format!("{}; its output: {words}", first.message);
            }
            CompileFailure::Problems(problems)
        }
        other => other,
    }
}
