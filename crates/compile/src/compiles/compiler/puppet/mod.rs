//! Puppet code, compiled by the Puppet that is installed on the server.
//!
//! A Ruby program in this binary loads Puppet into a warm worker, confined to
//! the commit it compiles (`sandbox.rb`). One compiler serves one
//! environment at one commit, with its own directories.
//!
//! Absent on purpose: Puppet's semantics. Catalogs are Puppet's own; the server
//! makes them static and gives them ids, as for every compiler.

mod classifier;
mod config_version;
mod functions;
mod legacy_facts;
mod modulepath;
mod plugins;
mod settings;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bunraku_model::Catalog;
use bunraku_wire::api::{CompileNote, CompileProblem};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

use super::code_worker::AnswerWorker;
use super::worker_pool::{WorkerLimits, WorkerPool};
use super::worker_process::WorkerCommand;
use super::{Compilation, CompileRequest, Compiler};
use crate::compile_failure::CompileFailure;
use crate::compiles::slots::EnvironmentSlots;

pub use functions::{FunctionCallError, PuppetFunctions};
pub(crate) use modulepath::module_directories;
pub(crate) use plugins::ModulePlugins;
pub use settings::PuppetOptions;
pub(crate) use settings::{HttpSources, PuppetSettings};

/// The parts of the worker, in the order of their dependencies.
const WORKER: [&str; 8] = [
    include_str!("sandbox.rb"),
    include_str!("server_view.rb"),
    include_str!("other_nodes.rb"),
    include_str!("application_syntax.rb"),
    include_str!("applications.rb"),
    include_str!("function_calls.rb"),
    include_str!("worker.rb"),
    include_str!("start.rb"),
];

/// The parts of the program that runs plain Puppet for one request.
const PLAIN: [&str; 4] = [
    include_str!("sandbox.rb"),
    include_str!("server_view.rb"),
    include_str!("other_nodes.rb"),
    include_str!("plain.rb"),
];

/// The parts of the program that runs `config_version`.
const VERSION: [&str; 2] = [
    include_str!("sandbox.rb"),
    include_str!("version_program.rb"),
];

/// The Ruby of the Puppet and OpenVox packages, then the system's Ruby.
const RUBIES: [&str; 3] = [
    "/opt/puppetlabs/puppet/bin/ruby",
    "/usr/bin/ruby",
    "/usr/local/bin/ruby",
];

/// Paths of Ruby, Puppet and gems. They contain no secrets, and code must load them.
const SYSTEM_PATHS: [&str; 14] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/share",
    "/usr/local/lib",
    "/usr/local/share",
    "/lib",
    "/lib64",
    "/opt/puppetlabs/puppet",
    "/var/lib/gems",
    "/etc/localtime",
    "/etc/ssl/openssl.cnf",
    "/dev/null",
    "/dev/urandom",
    "/proc/1/comm",
];

/// One request line to the worker.
#[derive(Serialize)]
struct WorkerRequest<'a> {
    id: u64,
    node: &'a str,
    code_id: &'a str,
    facts: &'a Map<String, Value>,
    trusted: TrustedFacts<'a>,
    classification: Value,
}

#[derive(Serialize)]
struct TrustedFacts<'a> {
    authenticated: &'static str,
    certname: &'a str,
    extensions: &'a BTreeMap<String, String>,
}

/// The Puppet compiler for one environment at one commit.
pub(crate) struct PuppetCompiler {
    pool: WorkerPool,
    /// The classifier's command; empty if the classifier is not used.
    classifier: Vec<String>,
    inputs: Inputs,
    /// The result of `config_version`, if the environment has one.
    version: OnceCell<Option<Result<String, String>>>,
    /// Holds the worker and Puppet's directories.
    directory: TempDir,
}

/// The inputs of a Puppet process.
struct Inputs {
    tree: PathBuf,
    ruby: PathBuf,
    /// Puppet's name for the environment.
    environment: String,
    settings: PuppetSettings,
    options: Arc<PuppetOptions>,
    longest_answer: u64,
}

impl PuppetCompiler {
    /// Creates the compiler. Blocks.
    pub(crate) fn new(
        tree: &Path,
        environment: &str,
        settings: PuppetSettings,
        options: &Arc<PuppetOptions>,
        longest_answer: u64,
    ) -> Result<Self, CompileFailure> {
        let classifier = if settings.enc {
            options.enc.clone()
        } else {
            Vec::new()
        };
        let inputs = Inputs {
            tree: tree.to_owned(),
            ruby: find_ruby(options)?,
            environment: puppet_name(environment),
            settings,
            options: Arc::clone(options),
            longest_answer,
        };
        let workers = inputs.settings.workers;
        let (pool, directory) = inputs.pool(&WORKER, workers)?;
        Ok(Self {
            pool,
            classifier,
            inputs,
            version: OnceCell::new(),
            directory,
        })
    }

    /// Runs `config_version` for the first catalog.
    async fn version(&self) -> Option<Result<String, String>> {
        let run = || async {
            let (inputs, root) = (&self.inputs, self.directory.path());
            let environments = root.join("environments");
            let tree = &inputs.tree;
            let command = config_version::command(tree, &environments, &inputs.environment)?;
            let program = root.join("version.rb");
            if let Err(error) = std::fs::write(&program, VERSION.join("\n")) {
                return Some(Err(error.to_string()));
            }
            let config = root.join("config.json");
            let ruby = &inputs.ruby;
            Some(config_version::run(ruby, &program, &config, tree, &command).await)
        };
        self.version.get_or_init(run).await.clone()
    }

    /// Sends a request to one of the pool's processes.
    async fn ask(
        &self,
        pool: &WorkerPool,
        request: &CompileRequest,
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        let node = request.node.as_str();
        let classification = classifier::classify(&self.classifier, node).await?;
        let facts = with_local_facts(request);
        let question = |id| {
            let question = WorkerRequest {
                id,
                node,
                code_id: &request.code_id.0,
                facts: &facts,
                trusted: TrustedFacts {
                    authenticated: "remote",
                    certname: node,
                    extensions: &request.extensions,
                },
                classification,
            };
            serde_json::to_string(&question).expect("a question is plain data")
        };
        let answers = request.questions.as_ref();
        let answers = answers.map(|session| session as &dyn AnswerWorker);
        pool.compile(slots, answers, question).await
    }
}

impl Inputs {
    /// Creates a pool of processes of one program, with a separate directory. Blocks.
    fn pool(
        &self,
        program: &[&str],
        workers: usize,
    ) -> Result<(WorkerPool, TempDir), CompileFailure> {
        let directory = TempDir::with_prefix("bunraku-puppet-");
        let directory = directory.map_err(CompileFailure::temporary)?;
        let places = WorkerPaths {
            tree: &self.tree,
            root: directory.path(),
            environment: &self.environment,
        };
        let command = places.lay_out(program, self);
        let command = command.map_err(CompileFailure::temporary)?;
        let limits = WorkerLimits {
            workers,
            time_limit: self.settings.time_limit,
            recycle_after: self.settings.recycle_after,
            memory_limit: Some(self.settings.memory_limit / 4 * 3),
            hard_memory_limit: Some(self.settings.memory_limit),
            longest_answer: self.longest_answer,
        };
        let roots = vec![places.environment_link()];
        let command = WorkerCommand::in_tree(&self.tree, &command);
        Ok((
            WorkerPool::new(&self.tree, command, limits, roots),
            directory,
        ))
    }
}

/// Returns Puppet's name for an environment. Puppet does not allow dashes in
/// the names of environments; r10k replaces them in the same way.
fn puppet_name(environment: &str) -> String {
    environment.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
}

fn find_ruby(options: &PuppetOptions) -> Result<PathBuf, CompileFailure> {
    if let Some(given) = &options.ruby {
        return Ok(given.clone());
    }
    let found = RUBIES.iter().map(PathBuf::from).find(|path| path.is_file());
    found.ok_or_else(|| {
        CompileFailure::problem(CompileProblem {
            message: "Puppet is not installed on this server".to_owned(),
            hint: Some(
                "Install `puppet-agent` (Debian, Puppet) or `openvox-agent` on every server that \
                 compiles."
                    .to_owned(),
            ),
            ..CompileProblem::default()
        })
    })
}

/// The paths that one compiler's workers use.
struct WorkerPaths<'a> {
    tree: &'a Path,
    root: &'a Path,
    environment: &'a str,
}

impl WorkerPaths<'_> {
    fn environment_link(&self) -> PathBuf {
        self.root.join("environments").join(self.environment)
    }

    /// Writes a program and its configuration, and returns the command.
    fn lay_out(&self, parts: &[&str], inputs: &Inputs) -> std::io::Result<Vec<String>> {
        for name in ["environments", "yaml"] {
            std::fs::create_dir(self.root.join(name))?;
        }
        std::os::unix::fs::symlink(self.tree, self.environment_link())?;
        let (program, config) = (self.root.join("worker.rb"), self.root.join("config.json"));
        std::fs::write(&program, parts.join("\n"))?;
        let configuration = self.config(&inputs.settings, &inputs.options);
        std::fs::write(&config, configuration.to_string())?;
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let ruby = inputs.ruby.clone();
        Ok([ruby, program, config].into_iter().map(text).collect())
    }

    fn config(&self, settings: &PuppetSettings, options: &PuppetOptions) -> Value {
        let mut read: Vec<PathBuf> = SYSTEM_PATHS.iter().map(PathBuf::from).collect();
        read.extend([self.tree.to_owned(), self.root.to_owned()]);
        read.extend(options.base_modules.iter().cloned());
        read.extend(options.read_paths.iter().cloned());
        read.extend(options.hiera_config.clone());
        let mut puppet = settings.settings.clone();
        if let Some(path) = &options.hiera_config {
            puppet.insert("hiera_config".to_owned(), json!(path));
        }
        json!({
            "read": read,
            "memory": settings.memory_limit,
            "environment": self.environment,
            "environmentpath": self.root.join("environments"),
            // Code sees these as `$settings::confdir` and so on: they must not differ
            // between two compiles. Nothing exists at these paths.
            "confdir": "/var/lib/bunraku/puppet/conf",
            "vardir": "/var/lib/bunraku/puppet/var",
            "codedir": "/var/lib/bunraku/puppet/code",
            "yamldir": self.root.join("yaml"),
            "base_modules": options.base_modules,
            "settings": puppet,
            "server_facts": {"servername": options.server_name},
        })
    }
}

#[async_trait]
impl Compiler for PuppetCompiler {
    fn name(&self) -> &'static str {
        "puppet"
    }

    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        let mut done = self.ask(&self.pool, request, slots).await?;
        match self.version().await {
            None => {}
            Some(Ok(version)) => done.version = Some(version),
            Some(Err(reason)) => done.notes.push(CompileNote {
                level: "warning".to_owned(),
                message: format!("config_version has no result: {reason}"),
                file: Some("environment.conf".to_owned()),
                column: None,
                line: None,
            }),
        }
        Ok(done)
    }

    async fn compile_plainly(
        &self,
        request: &CompileRequest,
        slots: &EnvironmentSlots<'_>,
    ) -> Option<Result<Catalog, CompileFailure>> {
        let (pool, _directory) = match self.inputs.pool(&PLAIN, 1) {
            Ok(made) => made,
            Err(failure) => return Some(Err(failure)),
        };
        let done = self.ask(&pool, request, slots).await;
        Some(done.map(|done| done.catalog))
    }
}

/// Adds the facts that Puppet's agent adds before it sends them.
fn with_local_facts(request: &CompileRequest) -> Map<String, Value> {
    let mut facts = request.facts.as_map().clone();
    facts.entry("clientcert").or_insert(json!(request.node));
    facts.entry("clientnoop").or_insert(json!(false));
    legacy_facts::add(&mut facts);
    facts
}
