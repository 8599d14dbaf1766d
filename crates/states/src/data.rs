//! A data file for a run, outside the tree: YAML or JSON.

use serde_json::{Map, Value};

use crate::place::Location;
use crate::problem::Problem;
use crate::yaml::{Node, Yaml, parse};

/// Reads one document of YAML or JSON, with the position of every value.
pub fn read_document(name: &str, text: &str) -> Result<Node, Problem> {
    let at = |line, column| Location {
        file: name.to_owned(),
        line,
        column,
        rendered: None,
    };
    parse(text).map_err(|error| {
        let problem = Problem::new(error.message.clone(), at(error.line, error.column));
        match error.first {
            Some((line, column)) => problem.also("first defined here", at(line, column)),
            None => problem,
        }
    })
}

/// Reads a map of data. JSON works as well, because it is YAML.
pub fn read_data(name: &str, text: &str) -> Result<Map<String, Value>, Problem> {
    let node = read_document(name, text)?;
    match (&node.value, node.to_json()) {
        (Yaml::Null, _) => Ok(Map::new()),
        (_, Value::Object(members)) => Ok(members),
        _ => Err(Problem::new(
            format!("data must be a map, not {}", node.kind()),
            Location {
                file: name.to_owned(),
                line: node.line,
                column: node.column,
                rendered: None,
            },
        )),
    }
}
