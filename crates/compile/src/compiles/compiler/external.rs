//! Runs a program as an environment's compiler.
//!
//! The program gets one JSON request per line and answers each with one JSON
//! line, as a warm worker ([`WorkerPool`]). Its standard error output becomes
//! part of the error.
//!
//! The program comes from a repository. It runs only where an operator allows
//! it, as a user of its own, and without sight of the server's data.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use bunraku_model::{ContentId, EnvironmentName};
use bunraku_process::Isolation;
use bunraku_wire::api::CompileProblem;
use serde::Serialize;
use serde_json::Value;

use super::code_worker::AnswerWorker;
use super::settings::ExternalSettings;
use super::worker_pool::{WorkerLimits, WorkerPool};
use super::worker_process::{WorkerCommand, WorkerEnvironment, below};
use super::{Compilation, CompileRequest, Compiler};
use crate::compile_failure::CompileFailure;
use crate::compiles::slots::EnvironmentSlots;

/// The lowest user id of programs without a configured user. The range is above the ids of people,
/// services and `nobody`, and below those that are usually given to containers.
const FIRST_USER: u32 = 70_000;
/// The number of such user ids.
const USERS: u32 = 20_000;

/// The compiler's name in `bunraku.yaml`.
pub(crate) const EXTERNAL: &str = "external";

/// How the programs of repositories run.
#[derive(Clone, Debug, Default)]
pub enum ExternalPrograms {
    /// Not at all.
    #[default]
    Refused,
    /// As the server's user: for tests, whose programs are their own.
    Trusted,
    Isolated(ProgramIsolation),
}

/// The isolation of programs from the server.
#[derive(Clone, Debug)]
pub struct ProgramIsolation {
    /// The program that isolates and then becomes another one, and the words that make it do so.
    pub helper: Vec<OsString>,
    /// Directories that programs do not see.
    pub hidden: Vec<PathBuf>,
    /// The user and the group of all programs. If absent, each environment has its own.
    pub user: Option<(u32, u32)>,
}

impl ProgramIsolation {
    fn command(
        &self,
        tree: &Path,
        environment: &EnvironmentName,
        words: &[String],
    ) -> Result<WorkerCommand, CompileFailure> {
        if !rustix::process::geteuid().is_root() {
            return Err(CompileFailure::problem(CompileProblem {
                message: "an external compiler runs as another user, and this server cannot \
                          change its user"
                    .to_owned(),
                hint: Some("Run the server as root, or use another compiler.".to_owned()),
                ..CompileProblem::default()
            }));
        }
        let (uid, gid) = self.user.unwrap_or_else(|| own_user(environment));
        let mut helper = self.helper.clone();
        helper.extend(["--uid".into(), uid.to_string().into()]);
        helper.extend(["--gid".into(), gid.to_string().into()]);
        for path in &self.hidden {
            helper.extend(["--hide".into(), path.clone().into_os_string()]);
        }
        helper.extend([
            "--show".into(),
            tree.to_owned().into_os_string(),
            "--".into(),
        ]);
        helper.extend(below(tree, words));
        Ok(WorkerCommand {
            words: Isolation::wrap(helper),
            environment: WorkerEnvironment::Isolated,
            ..WorkerCommand::in_tree(tree, words)
        })
    }
}

/// Returns the user and the group of an environment's programs.
fn own_user(environment: &EnvironmentName) -> (u32, u32) {
    let digest = ContentId::of(environment.as_str().as_bytes());
    let mut number = [0; 4];
    number.copy_from_slice(&digest.as_bytes()[..4]);
    let id = FIRST_USER + u32::from_be_bytes(number) % USERS;
    (id, id)
}

/// The problem of code that needs an operator's permission.
pub(crate) fn not_allowed(environment: &EnvironmentName) -> CompileProblem {
    CompileProblem {
        message: format!(
            "the code selects `compiler: external`, which environment `{environment}` does not allow"
        ),
        file: Some(super::settings::FILE.to_owned()),
        hint: Some(format!(
            "Run `bunraku environment set {environment} --allow-external-compiler` to let the \
             repository run programs on the servers."
        )),
        ..CompileProblem::default()
    }
}

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
    pub(crate) fn new(
        tree: &Path,
        environment: &EnvironmentName,
        settings: ExternalSettings,
        programs: &ExternalPrograms,
        longest_answer: u64,
    ) -> Result<Self, CompileFailure> {
        let words = &settings.command;
        let command = match programs {
            ExternalPrograms::Refused => {
                let message = "this server runs no programs of repositories";
                return Err(CompileFailure::message(message));
            }
            ExternalPrograms::Trusted => WorkerCommand::in_tree(tree, words),
            ExternalPrograms::Isolated(isolation) => isolation.command(tree, environment, words)?,
        };
        let limits = WorkerLimits {
            workers: settings.workers,
            time_limit: settings.time_limit,
            recycle_after: settings.recycle_after,
            memory_limit: settings.memory_limit,
            hard_memory_limit: None,
            longest_answer,
        };
        Ok(Self {
            tree: tree.to_owned(),
            pool: WorkerPool::new(tree, command, limits, Vec::new()),
        })
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
        EXTERNAL
    }

    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        if !request.allows_external {
            return Err(CompileFailure::problem(not_allowed(&request.environment)));
        }
        let question = |id| self.question(request, id);
        let answers = request.questions.as_ref();
        let answers = answers.map(|session| session as &dyn AnswerWorker);
        self.pool.compile(slots, answers, question).await
    }
}
