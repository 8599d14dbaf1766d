//! What evaluating asks of the outside. The crate itself reads no file.
//!
//! Only definitions are required. Everything else has an answer of "not known", and code that needs
//! it gets `undef` and a note.

use serde_json::{Map, Value};

/// Sources of definitions and data that the given files do not hold.
pub trait World {
    /// The file that defines this class, define, application, function or type
    /// (`lamp::mysql`), with its name for messages; nothing if there is none.
    fn autoload(&self, name: &str) -> Result<Option<(String, String)>, WorldError>;

    /// The environment that is evaluated.
    fn environment(&self) -> &str {
        "production"
    }

    /// The facts of a node, by its certificate name.
    fn facts(&self, _node: &str) -> Option<Map<String, Value>> {
        None
    }

    /// The parameters of a resource type that is written in Ruby (`sql`).
    fn type_parameters(&self, _type_name: &str) -> Option<Vec<String>> {
        None
    }

    /// The content of a YAML or JSON file that code reads by its path.
    fn data_file(&self, _path: &str) -> Result<Option<Value>, WorldError> {
        Ok(None)
    }

    /// The rows that a query finds.
    fn query(&self, _query: &str) -> Result<Option<Value>, WorldError> {
        Ok(None)
    }
}

/// Why the outside gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorldError(pub String);

/// A world without modules: everything is in the files that were given.
pub struct NoModules;

impl World for NoModules {
    fn autoload(&self, _name: &str) -> Result<Option<(String, String)>, WorldError> {
        Ok(None)
    }
}
