//! State files as an environment's compiler.
//!
//! Templates see the commit's files, facts and data. Of the server, they see
//! who holds a lock, and data about other nodes ([`exports`](super::state_exports)).
//! An execution function that would inspect a machine is refused.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bunraku_module::VerifiedModule;
use bunraku_states::Lookup;
use serde::Deserialize;
use serde_json::{Value, json};

use super::code_worker::{AnswerWorker, CodeTask, CodeWorkers, StateQuestion, StatesTask};
use super::{Compilation, CompileRequest, Compiler, LockReader};
use crate::code_questions::CodeSession;
use crate::compile_failure::CompileFailure;
use crate::compiles::slots::EnvironmentSlots;
use crate::state_world::FindStateFunctions;
use bunraku_control::ServiceError;

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
    pub(super) workers: CodeWorkers,
    pub(super) functions: Arc<dyn StateFunctions>,
    pub(super) root: String,
    pub(super) pillar: Option<String>,
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
        let answers = Arc::new(StateAnswers {
            functions: Arc::clone(&self.functions),
            locks: request.locks.clone(),
            session: request.questions.clone(),
            unanswered: Mutex::default(),
        });
        let task = CodeTask::States(StatesTask {
            node: request.node.clone(),
            facts: Cow::Borrowed(&request.facts),
            root: Cow::Borrowed(&self.root),
            pillar: self.pillar.as_deref().map(Cow::Borrowed),
            fact_targeting: request.fact_targeting,
        });
        let answering = Arc::clone(&answers) as Arc<dyn AnswerWorker>;
        let done = self.workers.compile(task, answering, slots).await;
        if let Some(error) = answers.take_error() {
            return Err(CompileFailure::temporary(error));
        }
        done
    }
}

/// Answers a worker during one compile.
struct StateAnswers {
    functions: Arc<dyn StateFunctions>,
    locks: Option<LockReader>,
    session: Option<CodeSession>,
    /// The reason for a missing answer, which is not the code's fault.
    unanswered: Mutex<Option<ServiceError>>,
}

impl StateAnswers {
    fn take_error(&self) -> Option<ServiceError> {
        self.unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    async fn about_states(&self, question: StateQuestion) -> Result<Value, String> {
        match question {
            StateQuestion::StateFunction(name) => Ok(json!(self.functions.function(&name))),
            StateQuestion::StateFunctions => Ok(json!(self.functions.functions())),
            StateQuestion::LockHolders(lock) => {
                let Some(locks) = &self.locks else {
                    return Err("locks are not available while states are compiled".to_owned());
                };
                match locks.holders(&lock).await {
                    Ok(holders) => Ok(json!(holders)),
                    Err(error) => {
                        let refusal = format!("cannot read the lock `{lock}`: {error}");
                        *self
                            .unanswered
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner) = Some(error);
                        Err(refusal)
                    }
                }
            }
        }
    }
}

#[async_trait]
impl AnswerWorker for StateAnswers {
    async fn answer(&self, question: Value) -> Result<Value, String> {
        match (StateQuestion::deserialize(&question), &self.session) {
            (Ok(question), _) => self.about_states(question).await,
            (Err(_), Some(session)) => session.answer(question).await,
            (Err(_), None) => Err("there is no index to query".to_owned()),
        }
    }
}
