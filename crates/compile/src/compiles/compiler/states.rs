//! State files as an environment's compiler.
//!
//! Templates see the commit's files, facts and data. Of the server, they see
//! who holds a lock, and data about other nodes ([`exports`](super::state_exports)).
//! An execution function that would inspect a machine is refused.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bunraku_model::LockName;
use bunraku_module::VerifiedModule;
use bunraku_states::{Input, Lookup, OtherNodePolicy, World, WorldError, compile};
use serde_json::Value;

use super::state_exports::OtherNodesReader;
use super::{Compilation, CompileRequest, Compiler, LockReader};
use crate::compile_failure::CompileFailure;
use crate::compiles::slots::EnvironmentSlots;
use crate::state_world::{
    AnswerTemplates, FindStateFunctions, StateDirectories, StateWorld, TemplateCall,
};
use bunraku_control::ServiceError;
use bunraku_control::code_problems::problem_of_states;

/// The meaning of state functions to the engine. This crate does not know the
/// engine: the caller that starts the server provides them.
pub trait StateFunctions: FindStateFunctions + std::fmt::Debug {
    /// Adds the state functions of modules. Returns an error that describes any conflict.
    fn with_modules(&self, modules: &[VerifiedModule]) -> Result<Arc<dyn StateFunctions>, String>;
}

/// An empty set of state functions: every state is unknown.
#[derive(Debug)]
pub(crate) struct NoStateFunctions;

impl FindStateFunctions for NoStateFunctions {
    fn function(&self, _: &str) -> Lookup {
        Lookup::UnknownModule
    }

    fn functions(&self) -> Vec<String> {
        Vec::new()
    }
}

impl StateFunctions for NoStateFunctions {
    fn with_modules(&self, _: &[VerifiedModule]) -> Result<Arc<dyn StateFunctions>, String> {
        Ok(Arc::new(Self))
    }
}

/// The compiler for Salt-style states.
pub(crate) struct StatesCompiler {
    directories: Arc<StateDirectories>,
    functions: Arc<dyn FindStateFunctions>,
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
        let directories = StateDirectories {
            states: vec![tree.join(root)],
            pillar: pillar.map(|pillar| tree.join(pillar)).into_iter().collect(),
        };
        Self {
            directories: Arc::new(directories),
            functions,
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
        slots: &EnvironmentSlots<'_>,
    ) -> Result<Compilation, CompileFailure> {
        let _slot = slots.take().await?;
        let answers = Arc::new(ServerAnswers {
            locks: request.locks.clone(),
            other_nodes: request.questions.clone().map(OtherNodesReader::new),
            unanswered: Mutex::default(),
        });
        let world: Arc<dyn World> = Arc::new(StateWorld {
            directories: Arc::clone(&self.directories),
            functions: Arc::clone(&self.functions),
            answers: Arc::clone(&answers) as Arc<dyn AnswerTemplates>,
        });
        let input = Input {
            node: request.node.to_string(),
            facts: request.facts.as_map().clone(),
            other_nodes: OtherNodePolicy::Keep,
            ..Input::default()
        };
        // Use a separate thread: rendering takes long, and a panic in it
        // affects only one node.
        let outcome = tokio::task::spawn_blocking(move || compile(&world, &input)).await;
        let outcome = outcome.map_err(CompileFailure::temporary)?;
        if let Some(error) = answers.take_error() {
            return Err(CompileFailure::temporary(error));
        }
        match outcome {
            Ok(compiled) => {
                let mut catalog = compiled.catalog;
                for resource in catalog.resources.iter_mut().chain(&mut catalog.exports) {
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

/// Answers templates during one compile: they may look up who holds a lock, and ask about other
/// nodes.
struct ServerAnswers {
    locks: Option<LockReader>,
    other_nodes: Option<OtherNodesReader>,
    /// The reason for a missing answer, which is not the code's fault.
    unanswered: Mutex<Option<ServiceError>>,
}

impl ServerAnswers {
    fn take_error(&self) -> Option<ServiceError> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl AnswerTemplates for ServerAnswers {
    fn lock_holders(&self, lock: &LockName) -> Result<Vec<String>, WorldError> {
        let Some(locks) = &self.locks else {
            return Err(WorldError::new(
                "locks are not available while states are compiled",
            ));
        };
        locks.holders(lock).map_err(|error| {
            let refusal = WorldError::new(format!("cannot read the lock `{lock}`: {error}"));
            *self
                .unanswered
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(error);
            refusal
        })
    }

    fn call(&self, world: &dyn World, call: &TemplateCall<'_>) -> Result<Value, WorldError> {
        let answer = self.other_nodes.as_ref().and_then(|other_nodes| {
            other_nodes.call(world, call.function, call.positional, call.named)
        });
        answer.unwrap_or_else(|| call.refuse())
    }
}
