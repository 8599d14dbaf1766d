//! Functions over the files of the state tree.

use minijinja::{Error, Value};

use super::Scope;
use crate::jinja::filters::invalid;
use crate::jinja::mutable::List;
use crate::world::Tree;

/// Implements `cp.list_states()`: the names of all state files.
pub(super) fn list_states(scope: &Scope) -> Result<Value, Error> {
    let files = scope.world.state_files(Tree::States);
    let files = files.map_err(|error| invalid(error.to_string()))?;
    let mut names: Vec<String> = (files.iter())
        .filter_map(|path| path.strip_suffix(".sls"))
        .map(|path| path.strip_suffix("/init").unwrap_or(path).replace('/', "."))
        .collect();
    names.sort();
    Ok(List::value(names.into_iter().map(Value::from)))
}
