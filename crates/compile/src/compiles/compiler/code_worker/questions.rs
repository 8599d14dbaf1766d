//! Questions of a worker to its server, and who answers them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bunraku_model::LockName;
use bunraku_states::{Lookup, World, WorldError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::state_exports;
use crate::code_questions::{CodeQuestion, CodeSession};
use crate::state_world::{AnswerTemplates, FindStateFunctions, TemplateCall};

/// Answers the questions of a worker, in the server.
#[async_trait]
pub(crate) trait AnswerWorker: Send + Sync {
    /// Returns the answer, or the reason why there is none.
    async fn answer(&self, question: Value) -> Result<Value, String>;
}

#[async_trait]
impl AnswerWorker for CodeSession {
    async fn answer(&self, question: Value) -> Result<Value, String> {
        let question: CodeQuestion = serde_json::from_value(question)
            .map_err(|error| format!("invalid query request: {error}"))?;
        let answer = self.ask(question).await;
        answer.map_err(|error| error.to_string())
    }
}

/// A question that only states ask.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in super::super) enum StateQuestion {
    LockHolders(LockName),
    StateFunction(String),
    StateFunctions,
}

/// Asks the server, from inside a worker. Blocks.
pub(in super::super) trait AskServer: Send + Sync {
    fn ask(&self, question: Value) -> Result<Value, String>;
}

/// The meaning of state functions, as the server knows it. Each is asked for once.
pub(super) struct AskedFunctions {
    pub(super) server: Arc<dyn AskServer>,
    pub(super) known: Arc<Mutex<HashMap<String, Lookup>>>,
}

impl AskedFunctions {
    fn ask<T: serde::de::DeserializeOwned>(&self, question: &StateQuestion) -> Option<T> {
        let question = serde_json::to_value(question).ok()?;
        serde_json::from_value(self.server.ask(question).ok()?).ok()
    }
}

impl FindStateFunctions for AskedFunctions {
    fn function(&self, name: &str) -> Lookup {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(name) {
            return found.clone();
        }
        let Some(found) = self.ask::<Lookup>(&StateQuestion::StateFunction(name.to_owned())) else {
            return Lookup::UnknownModule;
        };
        // Unknown names are not worth the memory: the compile fails.
        if let Lookup::Known(_) = &found {
            known().insert(name.to_owned(), found.clone());
        }
        found
    }

    fn functions(&self) -> Vec<String> {
        self.ask(&StateQuestion::StateFunctions).unwrap_or_default()
    }
}

/// Answers templates: they may look up who holds a lock, and ask about other nodes.
pub(super) struct AskedAnswers(pub(super) Arc<dyn AskServer>);

impl AnswerTemplates for AskedAnswers {
    fn lock_holders(&self, lock: &LockName) -> Result<Vec<String>, WorldError> {
        let question = serde_json::to_value(StateQuestion::LockHolders(lock.clone()));
        let question = question.expect("a question is plain data");
        let answer = self.0.ask(question).map_err(WorldError::new)?;
        serde_json::from_value(answer).map_err(|error| WorldError::new(error.to_string()))
    }

    fn call(&self, world: &dyn World, call: &TemplateCall<'_>) -> Result<Value, WorldError> {
        #[cfg(debug_assertions)]
        if let Some(answer) = super::faults::call(call) {
            return Ok(answer);
        }
        let answer = state_exports::call(&*self.0, world, call);
        answer.unwrap_or_else(|| call.refuse())
    }
}
