//! Functions of an environment that are written in Ruby, called one by one.
//!
//! Plans evaluate Puppet's language without Puppet. They call these functions in a warm worker, in
//! the sandbox of every compile.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::{Inputs, PuppetOptions, PuppetSettings, WORKER, find_ruby, puppet_name};
use crate::compile_failure::CompileFailure;
use crate::compiles::compiler::worker_pool::WorkerPool;

/// Maximum number of bytes of one result.
const LONGEST_RESULT: u64 = 16 << 20;

/// The reason why a function returned nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FunctionCallError(String);

impl From<CompileFailure> for FunctionCallError {
    fn from(failure: CompileFailure) -> Self {
        let problems = match failure {
            CompileFailure::Problems(problems) => problems,
            other => return Self(other.to_string()),
        };
        let shown = problems.into_iter().map(|one| match one.hint {
            Some(hint) => format!("{} ({hint})", one.message),
            None => one.message,
        });
        Self(shown.collect::<Vec<_>>().join("; "))
    }
}

/// A warm Puppet that calls functions of one environment. Calls block.
pub struct PuppetFunctions {
    pool: WorkerPool,
    /// Drives the worker's pipes. Calls may come from a thread that has a runtime of its own.
    runtime: Mutex<tokio::runtime::Runtime>,
    /// Holds the worker and Puppet's directories.
    _directory: TempDir,
}

#[derive(Serialize)]
struct CallRequest<'a> {
    id: u64,
    call: &'a str,
    arguments: &'a [Value],
    node: &'a Map<String, Value>,
}

impl PuppetFunctions {
    /// Prepares a worker for the environment in `tree`. `modules` are further module directories.
    pub fn new(
        tree: &Path,
        environment: &str,
        modules: Vec<PathBuf>,
    ) -> Result<Self, FunctionCallError> {
        let broken = |error: std::io::Error| FunctionCallError(error.to_string());
        let mut options = PuppetOptions::default();
        options.base_modules.splice(0..0, modules);
        let inputs = Inputs {
            tree: tree.canonicalize().map_err(broken)?,
            ruby: find_ruby(&options)?,
            environment: puppet_name(environment),
            settings: PuppetSettings::default(),
            options: Arc::new(options),
            longest_answer: LONGEST_RESULT,
        };
        let (pool, directory) = inputs.pool(&WORKER, 1)?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().map_err(broken)?;
        Ok(Self {
            pool,
            runtime: Mutex::new(runtime),
            _directory: directory,
        })
    }

    /// Calls a function. Returns nothing if there is no such function.
    pub fn call(
        &self,
        name: &str,
        arguments: &[Value],
        node: &Map<String, Value>,
    ) -> Result<Option<Value>, FunctionCallError> {
        let question = |id| {
            let request = CallRequest {
                id,
                call: name,
                arguments,
                node,
            };
            serde_json::to_string(&request).expect("a question is plain data")
        };
        let work = || {
            let runtime = self.runtime.lock();
            let runtime = runtime.unwrap_or_else(PoisonError::into_inner);
            runtime.block_on(self.pool.call(question))
        };
        // A runtime cannot start on a thread that is inside of another one.
        let outcome = std::thread::scope(|scope| scope.spawn(work).join());
        let mut result =
            outcome.map_err(|_| FunctionCallError("the call crashed".to_owned()))??;
        Ok(result.get_mut("value").map(Value::take))
    }
}
