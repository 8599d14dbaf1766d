//! Outputs of other nodes that a run receives: `${ node("db1").token.stdout }`.
//!
//! The caller that starts a run over several nodes knows them. The engine only inserts
//! them. A missing output has a reason, and fails the state that reads it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The outputs of other nodes, by node and registered name.
#[derive(Clone, Debug, Default)]
pub struct OtherNodeOutputs {
    given: BTreeMap<(String, String), Result<Map<String, Value>, String>>,
    /// The reason why all other outputs are missing.
    otherwise: Option<String>,
}

impl OtherNodeOutputs {
    /// Adds an output, or the reason why it is missing.
    pub fn give(&mut self, node: &str, name: &str, output: Result<Map<String, Value>, String>) {
        let key = (node.to_owned(), name.to_owned());
        self.given.insert(key, output);
    }

    /// Sets the reason why there are no outputs.
    pub fn give_nothing(&mut self, why: String) {
        self.otherwise = Some(why);
    }

    pub(crate) fn get(&self, node: &str, name: &str) -> Result<&Map<String, Value>, String> {
        match self.given.get(&(node.to_owned(), name.to_owned())) {
            Some(Ok(outputs)) => Ok(outputs),
            Some(Err(why)) => Err(why.clone()),
            None => {
                let why = self.otherwise.as_deref();
                let why = why.unwrap_or("this run has no outputs of other nodes");
                Err(format!("node {node} has not registered `{name}`: {why}"))
            }
        }
    }
}
