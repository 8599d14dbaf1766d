//! What compiling asks of the outside. The crate itself reads no file, no
//! clock and no machine.

use serde_json::{Map, Value};

/// Which tree of files is meant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Tree {
    /// State files and what they import.
    States,
    /// Data files ("pillar").
    Pillar,
}

/// Files, data and functions for one compilation.
pub trait World: Send + Sync {
    /// The text of a file by its path below the tree's root, with slashes;
    /// nothing if there is none.
    fn source(&self, tree: Tree, path: &str) -> Result<Option<String>, WorldError>;

    /// The paths of all files below the tree's root that end in `.sls`, for
    /// wildcards in top files and includes.
    fn state_files(&self, tree: Tree) -> Result<Vec<String>, WorldError>;

    /// What a state function (`file.managed`) means to the engine.
    fn function(&self, name: &str) -> Lookup;

    /// Names of all known state functions, to suggest near ones.
    fn functions(&self) -> Vec<String> {
        Vec::new()
    }

    /// An execution function (`cmd.run`) that a template calls and that this
    /// crate does not answer itself. A world that must stay pure refuses.
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

/// Whether a state function is known, and how it is said to the engine.
#[derive(Clone, PartialEq, Debug)]
pub enum Lookup {
    Known(Function),
    /// The module has no such function.
    UnknownFunction,
    UnknownModule,
}

/// How one state function is said with a resource type.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Function {
    /// The resource type.
    pub type_name: String,
    /// Parameters that the function implies; an argument of the state wins.
    pub implies: Vec<(String, String)>,
    /// Arguments whose name differs: Salt's and ours. All others keep their name.
    pub arguments: Vec<(String, String)>,
    /// The parameter that names the thing.
    pub name_parameter: String,
    /// The parameters of the type.
    pub parameters: Vec<String>,
}

/// Why the outside gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WorldError(String);

impl WorldError {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}
