//! Runs a program as an environment's compiler.
//!
//! The program gets one JSON request per line and answers each with one JSON
//! line, as a warm worker ([`WorkerPool`]). Its standard error output becomes
//! part of the error.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use super::settings::ExternalSettings;
use super::worker_pool::{WorkerLimits, WorkerPool};
use super::{Compilation, CompileRequest, Compiler};
use crate::compile_failure::CompileFailure;
use crate::compiles::slots::EnvironmentSlots;

/// One request line to the program.
#[derive(Serialize)]
struct WorkerRequest<'a> {
    protocol: u32,
    /// The answer has the same id.
    id: u64,
    node: &'a str,
    environment: &'a str,
    code_id: &'a str,
    /// The directory with the commit's files; also the working directory.
    directory: &'a Path,
    fact_set: String,
    facts: &'a serde_json::Map<String, Value>,
}

/// A program that compiles for one environment at one commit.
pub(crate) struct ExternalCompiler {
    tree: PathBuf,
    pool: WorkerPool,
}

impl ExternalCompiler {
    pub(crate) fn new(tree: &Path, settings: ExternalSettings, longest_answer: u64) -> Self {
        let limits = WorkerLimits {
            workers: settings.workers,
            time_limit: settings.time_limit,
            recycle_after: settings.recycle_after,
            memory_limit: settings.memory_limit,
            longest_answer,
        };
        Self {
            tree: tree.to_owned(),
            pool: WorkerPool::new(tree, settings.command, limits, Vec::new()),
        }
    }

    fn question(&self, request: &CompileRequest, id: u64) -> String {
        let question = WorkerRequest {
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
}

#[async_trait]
impl Compiler for ExternalCompiler {
    fn name(&self) -> &'static str {
        "external"
    }

    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        let question = |id| self.question(request, id);
        self.pool
            .compile(slots, request.questions.as_ref(), question)
            .await
    }
}
