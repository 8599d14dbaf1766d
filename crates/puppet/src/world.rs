//! The evaluator's interface to the outside. The crate itself reads no file.
//!
//! Only definitions are required. Everything else may be "not known"; code that needs it then gets
//! `undef` and a note.

use serde_json::{Map, Value};

/// The source of definitions and data outside of the given files.
pub trait World {
    /// Returns the file that defines this class, define, application, function or type
    /// (`lamp::mysql`), with its name for messages. Returns nothing if there is none.
    fn autoload(&self, name: &str) -> Result<Option<(String, String)>, WorldError>;

    /// Returns the name of the evaluated environment.
    fn environment(&self) -> &str {
        "production"
    }

    /// Returns the facts of a node, by its certificate name.
    fn facts(&self, _node: &str) -> Option<Map<String, Value>> {
        None
    }

    /// Returns the parameters of a resource type that is written in Ruby (`sql`).
    fn type_parameters(&self, _type_name: &str) -> Option<Vec<String>> {
        None
    }

    /// Returns the content of a YAML or JSON file that code reads by its path.
    fn data_file(&self, _path: &str) -> Result<Option<Value>, WorldError> {
        Ok(None)
    }

    /// Calls a function that is written in Ruby, with the facts of the current node. Returns
    /// nothing if there is no such function. Values are in the form of [`crate::Value::to_rich`].
    fn call(&self, _name: &str, _call: &FunctionCall) -> Result<Option<Value>, WorldError> {
        Ok(None)
    }

    /// Returns the rows that match a query.
    fn query(&self, _query: &str) -> Result<Option<Value>, WorldError> {
        Ok(None)
    }
}

/// The arguments of a function that the world calls.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FunctionCall {
    pub arguments: Vec<Value>,
    /// The variables of the top scope that describe the node, such as `facts` and `trusted`.
    pub node: Map<String, Value>,
}

/// The reason why the outside gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorldError(pub String);

/// A world without modules: the given files contain everything.
pub struct NoModules;

impl World for NoModules {
    fn autoload(&self, _name: &str) -> Result<Option<(String, String)>, WorldError> {
        Ok(None)
    }
}
