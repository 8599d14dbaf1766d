//! The ready compilers, one per environment and commit.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bunraku_model::{CodeId, EnvironmentName};
use bunraku_wire::api::CompileProblem;
use bunraku_wire::api::reactors::Reactor;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::code_worker::{CodeWorkers, WorkerOptions};
use super::external::ExternalCompiler;
use super::puppet::{
    ModulePlugins, PuppetCompiler, PuppetOptions, PuppetSettings, module_directories,
};
use super::settings::Settings;
use super::sources::Sources;
use super::states::StatesCompiler;
use super::static_files::StaticCompiler;
use super::{Compiler, StateFunctions};
use crate::code::{Code, CodeError};
use crate::compile_failure::CompileFailure;
use crate::compiles::CompileOptions;
use crate::modules::{ModuleReach, Modules, PinnedModules};

/// A compiler that is unused for this long is dropped, with its workers.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// Maximum number of ready commits per environment.
const MOST_PER_ENVIRONMENT: usize = 4;

/// A compiler with the files of its commit.
pub(crate) struct ReadyCompiler {
    pub compiler: Box<dyn Compiler>,
    pub sources: Sources,
    pub modules: PinnedModules,
    /// The plugins of Puppet modules, for nodes.
    pub plugins: ModulePlugins,
    /// The reactor rules in the code, or the reason why there are none.
    pub reactors: Result<Vec<Reactor>, CompileProblem>,
}

type Key = (EnvironmentName, CodeId);

struct CompilerSlot {
    ready: Arc<OnceCell<Arc<ReadyCompiler>>>,
    used: Instant,
}

/// All compilers of a server.
#[derive(Clone)]
pub(crate) struct Compilers {
    code: Code,
    modules: Modules,
    functions: Arc<dyn StateFunctions>,
    puppet: Arc<PuppetOptions>,
    workers: Arc<WorkerOptions>,
    /// Maximum number of workers per commit.
    concurrency: usize,
    longest_answer: u64,
    slots: Arc<Mutex<HashMap<Key, CompilerSlot>>>,
    /// The only compiler, if there is just one.
    one: Option<Arc<ReadyCompiler>>,
}

impl Compilers {
    /// Creates a registry with one compiler and no code on disk, for simulations.
    pub(crate) fn one(code: Code, modules: Modules, compiler: Box<dyn Compiler>) -> Self {
        let ready = ReadyCompiler {
            compiler,
            sources: Sources::new(std::path::Path::new("/nonexistent"), None, &[]),
            modules: PinnedModules::default(),
            plugins: ModulePlugins::default(),
            reactors: Ok(Vec::new()),
        };
        Self {
            one: Some(Arc::new(ready)),
            ..Self::new(code, modules, &CompileOptions::default(), u64::MAX)
        }
    }

    pub(crate) fn new(
        code: Code,
        modules: Modules,
        options: &CompileOptions,
        longest_answer: u64,
    ) -> Self {
        Self {
            code,
            modules,
            functions: Arc::clone(&options.functions),
            puppet: Arc::clone(&options.puppet),
            workers: Arc::clone(&options.workers),
            concurrency: options.concurrency.max(1),
            longest_answer,
            slots: Arc::default(),
            one: None,
        }
    }

    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// Returns the compiler of a commit. It is created once, on first use.
    pub(crate) async fn get(
        &self,
        environment: &EnvironmentName,
        code_id: &CodeId,
    ) -> Result<Arc<ReadyCompiler>, CompileFailure> {
        if let Some(one) = &self.one {
            return Ok(Arc::clone(one));
        }
        let key = (environment.clone(), code_id.clone());
        let cell = self.slot(&key);
        let made = cell.get_or_try_init(|| self.prepare(&key)).await;
        if made.is_err() {
            // The cause may be repaired later, such as a full disk.
            self.slots().remove(&key);
        }
        made.cloned()
    }

    fn slot(&self, key: &Key) -> Arc<OnceCell<Arc<ReadyCompiler>>> {
        let mut slots = self.slots();
        let now = Instant::now();
        let slot = slots.entry(key.clone()).or_insert_with(|| CompilerSlot {
            ready: Arc::default(),
            used: now,
        });
        slot.used = now;
        let cell = Arc::clone(&slot.ready);
        slots.retain(|_, slot| now.duration_since(slot.used) < IDLE);
        let mut same: Vec<_> = slots
            .iter()
            .filter(|((environment, _), _)| *environment == key.0)
            .map(|(key, slot)| (slot.used, key.clone()))
            .collect();
        same.sort();
        let surplus = same.len().saturating_sub(MOST_PER_ENVIRONMENT);
        for (_, old) in same.into_iter().take(surplus) {
            slots.remove(&old);
        }
        cell
    }

    async fn prepare(&self, key: &Key) -> Result<Arc<ReadyCompiler>, CompileFailure> {
        let tree = match self.code.tree(&key.0, &key.1).await {
            Ok(tree) => tree,
            Err(error) if error.is_lasting() => return Err(code_failure(&error)),
            Err(error) => return Err(CompileFailure::temporary(error)),
        };
        let workers = CodeWorkers::new(&tree, &self.workers, self.concurrency, self.longest_answer);
        let inspected = workers.inspect().await?;
        let named = inspected.modules.map_err(CompileFailure::problem)?;
        let repository = self.code.repository_of(&key.0).await;
        let repository = repository.map_err(CompileFailure::temporary)?;
        let reach = match &repository {
            Some(url) => ModuleReach::of_repository(url).await,
            None => ModuleReach::Public,
        };
        let (modules, verified) = self.modules.pin(&tree, named, reach).await?;
        let functions = if verified.is_empty() {
            Arc::clone(&self.functions)
        } else {
            (self.functions.with_modules(&verified)).map_err(CompileFailure::message)?
        };
        let builder = Builder {
            environment: key.0.clone(),
            settings: inspected.settings.map_err(CompileFailure::problem)?,
            reactors: inspected.reactors,
            functions,
            workers,
            options: Arc::clone(&self.workers),
            puppet: Arc::clone(&self.puppet),
            longest_answer: self.longest_answer,
        };
        let build = move || builder.build(&tree, modules);
        let made = tokio::task::spawn_blocking(build).await;
        made.map_err(CompileFailure::temporary)?.map(Arc::new)
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, HashMap<Key, CompilerSlot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops all compilers, so that their workers end.
    pub(crate) fn clear(&self) {
        self.slots().clear();
    }
}

fn code_failure(error: &CodeError) -> CompileFailure {
    CompileFailure::message(bunraku_control::error::chain(error))
}

/// The inputs for building compilers, besides a tree.
struct Builder {
    environment: EnvironmentName,
    settings: Settings,
    reactors: Result<Vec<Reactor>, CompileProblem>,
    functions: Arc<dyn StateFunctions>,
    workers: CodeWorkers,
    options: Arc<WorkerOptions>,
    puppet: Arc<PuppetOptions>,
    longest_answer: u64,
}

impl Builder {
    /// Builds the compiler. Blocks.
    fn build(self, tree: &Path, modules: PinnedModules) -> Result<ReadyCompiler, CompileFailure> {
        let mut plugins = ModulePlugins::default();
        let (compiler, sources): (Box<dyn Compiler>, Sources) = match self.settings.clone() {
            Settings::Static { site } => {
                let workers = self.workers.clone();
                let made = StaticCompiler { workers, site };
                (Box::new(made), Sources::new(tree, None, &[]))
            }
            Settings::States { root, pillar } => {
                let sources = Sources::new(tree, Some(&root), &[]);
                let made = StatesCompiler {
                    workers: self.workers.clone(),
                    functions: Arc::clone(&self.functions),
                    root,
                    pillar,
                };
                (Box::new(made), sources)
            }
            Settings::External(settings) => {
                let sources = Sources::new(tree, None, &settings.modules);
                let limit = self.longest_answer;
                let external = &self.options.external;
                let made =
                    ExternalCompiler::new(tree, &self.environment, settings, external, limit)?;
                (Box::new(made), sources)
            }
            Settings::Puppet(settings) => {
                plugins = ModulePlugins::new(module_directories(tree, &self.puppet.base_modules));
                self.puppet(tree, settings)?
            }
        };
        Ok(ReadyCompiler {
            compiler,
            sources,
            modules,
            plugins,
            reactors: self.reactors,
        })
    }

    fn puppet(
        &self,
        tree: &Path,
        settings: PuppetSettings,
    ) -> Result<(Box<dyn Compiler>, Sources), CompileFailure> {
        let (name, options) = (self.environment.as_str(), &self.puppet);
        let sources = Sources::of_puppet(tree, &settings, options);
        let made = PuppetCompiler::new(tree, name, settings, options, self.longest_answer)?;
        Ok((Box::new(made), sources))
    }
}
