//! The compiler's interface to the outside. The crate itself reads no file, no clock and no
//! machine.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A tree of files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tree {
    /// State files and their imports.
    States,
    /// Data files ("pillar").
    Pillar,
}

/// Files, data and functions for one compilation.
pub trait World: Send + Sync {
    /// Returns the text of a file by its path below the tree's root, with slashes. Returns nothing
    /// if there is none.
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError>;

    /// Returns the paths of all files below the tree's root that end in `.sls`, for wildcards in
    /// top files and includes.
    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError>;

    /// Returns the engine's equivalent of a state function (`file.managed`).
    fn function(&self, name: &str) -> Lookup;

    /// Returns the names of all known state functions, to suggest similar ones.
    fn functions(&self) -> Vec<String> {
        Vec::new()
    }

    /// Calls an execution function (`cmd.run`) for a template, if this crate does not answer it
    /// itself. A world that must stay pure refuses.
    fn call(
        &self,
        function: &str,
        _positional: &[Value],
        _named: &Map<String, Value>,
    ) -> Result<Value, WorldError> {
        Err(WorldError::new(format!(
            "`{function}` is not available while states are compiled"
        )))
    }
}

/// The result of looking up a state function, with its translation for the engine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup {
    Known(Function),
    /// The module has no such function.
    UnknownFunction,
    UnknownModule,
}

/// The translation of one state function to a resource type.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Function {
    /// The resource type.
    pub type_name: String,
    /// The parameters that the function implies. An argument of the state wins.
    pub implies: Vec<(String, String)>,
    /// The arguments with different names: Salt's and ours. All others keep their name.
    pub arguments: Vec<(String, String)>,
    /// The parameter for the name of the resource.
    pub name_parameter: String,
    /// The parameters of the type.
    pub parameters: Vec<String>,
}

/// The reason why the outside gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorldError(String);

impl WorldError {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}
