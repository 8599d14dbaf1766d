//! State files as an environment's compiler.
//!
//! Templates see the commit's files, facts and data. Of the server, they see
//! only who holds a lock: an execution function that would inspect a machine is
//! refused.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bunraku_model::LockName;
use bunraku_module::Verified;
use bunraku_states::{Input, Lookup, OtherNodes, Tree, World, WorldError, compile};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::{Compilation, CompileRequest, Compiler, LockReader, slot};
use crate::code::is_below;
use crate::compile_failure::CompileFailure;
use bunraku_control::ServiceError;
use bunraku_control::code_problems::problem_of_states;

/// The meaning of state functions to the engine. This crate does not know the
/// engine: the caller that starts the server provides them.
pub trait StateFunctions: Send + Sync + std::fmt::Debug {
    fn function(&self, name: &str) -> Lookup;
    fn functions(&self) -> Vec<String>;

    /// Adds the state functions of modules. Returns an error that describes any conflict.
    fn with_modules(&self, modules: &[Verified]) -> Result<Arc<dyn StateFunctions>, String>;
}

/// An empty set of state functions: every state is unknown.
#[derive(Debug)]
pub(crate) struct NoStateFunctions;

impl StateFunctions for NoStateFunctions {
    fn function(&self, _: &str) -> Lookup {
        Lookup::UnknownModule
    }

    fn functions(&self) -> Vec<String> {
        Vec::new()
    }

    fn with_modules(&self, _: &[Verified]) -> Result<Arc<dyn StateFunctions>, String> {
        Ok(Arc::new(Self))
    }
}

/// The compiler for Salt-style states.
pub(crate) struct StatesCompiler {
    world: Arc<dyn World>,
    /// Prefix of the names of state files, so that places start at the root.
    prefix: String,
}

impl StatesCompiler {
    pub(crate) fn new(
        tree: &Path,
        root: &str,
        pillar: Option<&str>,
        functions: Arc<dyn StateFunctions>,
    ) -> Self {
        let files = Files {
            states: tree.join(root),
            pillar: pillar.map(|pillar| tree.join(pillar)),
            functions,
        };
        Self {
            world: Arc::new(files),
            prefix: match root {
                "." => String::new(),
                root => format!("{}/", root.trim_end_matches('/')),
            },
        }
    }
}

#[async_trait]
impl Compiler for StatesCompiler {
    fn name(&self) -> &'static str {
        "states"
    }

    async fn compile(
        &self,
        request: &CompileRequest,
        slots: &Semaphore,
    ) -> Result<Compilation, CompileFailure> {
        let _slot = slot(slots).await?;
        let asking = Arc::new(Asking {
            files: Arc::clone(&self.world),
            locks: request.locks.clone(),
            unanswered: Mutex::default(),
        });
        let world: Arc<dyn World> = asking.clone();
        let input = Input {
            node: request.node.to_string(),
            facts: request.facts.as_map().clone(),
            other_nodes: OtherNodes::Keep,
            ..Input::default()
        };
        // Use a separate thread: rendering takes long, and a panic in it
        // affects only one node.
        let outcome = tokio::task::spawn_blocking(move || compile(&world, &input)).await;
        let outcome = outcome.map_err(CompileFailure::temporary)?;
        if let Some(error) = asking.unanswered() {
            return Err(CompileFailure::temporary(error));
        }
        match outcome {
            Ok(compiled) => {
                let mut catalog = compiled.catalog;
                for resource in &mut catalog.resources {
                    if let Some(file) = &mut resource.file {
                        file.insert_str(0, &self.prefix);
                    }
                }
                Ok(catalog.into())
            }
            Err(error) => Err(CompileFailure::Problems(
                error
                    .0
                    .iter()
                    .map(|problem| {
                        let mut problem = problem_of_states(problem);
                        if let Some(file) = &mut problem.file {
                            file.insert_str(0, &self.prefix);
                        }
                        problem
                    })
                    .collect(),
            )),
        }
    }
}

/// A commit's files.
struct Files {
    states: PathBuf,
    pillar: Option<PathBuf>,
    functions: Arc<dyn StateFunctions>,
}

impl Files {
    fn root(&self, tree: Tree) -> Option<&Path> {
        match tree {
            Tree::States => Some(&self.states),
            Tree::Pillar => self.pillar.as_deref(),
        }
    }
}

impl World for Files {
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
        let Some(root) = self.root(tree).filter(|_| is_below(Path::new(path))) else {
            return Ok(None);
        };
        match std::fs::read_to_string(root.join(path)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if matches!(error.kind(), NotFound | NotADirectory | IsADirectory) => {
                Ok(None)
            }
            Err(error) => Err(WorldError::new(format!("cannot read {path}: {error}"))),
        }
    }

    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError> {
        let Some(root) = self.root(tree) else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        let mut open = vec![root.to_owned()];
        while let Some(directory) = open.pop() {
            let entries = std::fs::read_dir(&directory).map_err(|error| {
                let below = directory.strip_prefix(root).unwrap_or(&directory);
                WorldError::new(format!("cannot read {}: {error}", below.display()))
            })?;
            for entry in entries.flatten() {
                let path = entry.path();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(path);
                } else if path.extension().is_some_and(|extension| extension == "sls")
                    && let Ok(below) = path.strip_prefix(root)
                {
                    found.push(below.to_string_lossy().into_owned());
                }
            }
        }
        found.sort();
        Ok(found)
    }

    fn function(&self, name: &str) -> Lookup {
        self.functions.function(name)
    }

    fn functions(&self) -> Vec<String> {
        self.functions.functions()
    }
}

/// The files for one compile, which may look up who holds a lock.
struct Asking {
    files: Arc<dyn World>,
    locks: Option<LockReader>,
    /// The reason for a missing answer, which is not the code's fault.
    unanswered: Mutex<Option<ServiceError>>,
}

impl Asking {
    fn unanswered(&self) -> Option<ServiceError> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn holders(&self, locks: &LockReader, lock: &LockName) -> Result<Vec<String>, WorldError> {
        locks.holders(lock).map_err(|error| {
            let told = WorldError::new(format!("`{lock}` cannot be looked at: {error}"));
            *self
                .unanswered
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(error);
            told
        })
    }
}

impl World for Asking {
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError> {
        self.files.source(tree, path)
    }

    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError> {
        self.files.state_files(tree)
    }

    fn function(&self, name: &str) -> Lookup {
        self.files.function(name)
    }

    fn functions(&self) -> Vec<String> {
        self.files.functions()
    }

    fn call(
        &self,
        function: &str,
        positional: &[Value],
        named: &Map<String, Value>,
    ) -> Result<Value, WorldError> {
        let Some(locks) = self
            .locks
            .as_ref()
            .filter(|_| matches!(function, "lock.holder" | "lock.holders"))
        else {
            return self.files.call(function, positional, named);
        };
        let name = positional.first().or_else(|| named.get("name"));
        let name = name
            .and_then(Value::as_str)
            .ok_or_else(|| WorldError::new(format!("`{function}` needs the argument `name`")))?;
        let lock = LockName::new(name).map_err(|error| WorldError::new(error.to_string()))?;
        let holders = self.holders(locks, &lock)?;
        Ok(match function {
            "lock.holders" => json!(holders),
            _ => holders.first().map_or(Value::Null, |first| json!(first)),
        })
    }
}
