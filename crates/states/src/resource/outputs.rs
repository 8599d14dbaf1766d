//! `register` and `${ NAME.stdout }`, including across nodes.

use std::collections::HashMap;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::{OtherNodePolicy, TypedParameters, Writer};
use crate::low::Chunk;
use crate::output_names::{each_text, pattern};
use crate::problem::Problem;

/// Collects the nodes and names in `${ node("db1").NAME.stdout }`.
fn reads_of_nodes(value: &Value, found: &mut Vec<(String, String)>) {
    static READ: OnceLock<Regex> = OnceLock::new();
    let pattern = pattern(
        &READ,
        r#"\$\{\s*node\(\s*["']([^"']+)["']\s*\)\.([A-Za-z_][\w-]*)"#,
    );
    each_text(value, &mut |text| {
        if text.contains("${") {
            found.extend(
                pattern
                    .captures_iter(text)
                    .map(|read| (read[1].to_owned(), read[2].to_owned())),
            );
        }
    });
}

/// Collects `${ NAME.part }` with the space, which no shell accepts, so it is certainly a use.
fn certain_uses(value: &Value, names: &mut Vec<String>) {
    static CERTAIN: OnceLock<Regex> = OnceLock::new();
    let pattern = pattern(&CERTAIN, r"\$\{\s+([A-Za-z_][\w-]*)\.[A-Za-z_]");
    each_text(value, &mut |text| {
        if text.contains("${") {
            names.extend(pattern.captures_iter(text).map(|found| found[1].to_owned()));
        }
    });
}

impl Writer<'_> {
    /// Returns every registered name and the state that registers it.
    pub(super) fn registered(&self, problems: &mut Vec<Problem>) -> HashMap<String, usize> {
        let mut registered: HashMap<String, usize> = HashMap::new();
        for (number, chunk) in self.chunks.iter().enumerate() {
            let Some(name) = chunk.arguments.get("register") else {
                continue;
            };
            let Some(name) = name.as_str().filter(|name| is_name(name)) else {
                let message = "`register` must consist of letters, digits, `_` and `-`";
                problems.push(Problem::new(message, chunk.spot.location()));
                continue;
            };
            if let Some(first) = registered.insert(name.to_owned(), number) {
                let problem = Problem::new(
                    format!("`{name}` is registered twice"),
                    chunk.spot.location(),
                );
                problems.push(problem.also("first here", self.chunks[first].spot.location()));
            }
        }
        registered
    }

    /// Refuses uses of unregistered names. States that need other nodes fail if there is no run to
    /// ask them.
    pub(super) fn with_outputs(
        &self,
        chunk: &Chunk,
        said: TypedParameters,
        registered: &HashMap<String, usize>,
        problems: &mut Vec<Problem>,
    ) -> TypedParameters {
        let mut uses = Vec::new();
        said.parameters
            .values()
            .for_each(|value| certain_uses(value, &mut uses));
        for name in uses {
            if name != "node" && !registered.contains_key(&name) {
                let problem = Problem::new(
                    format!("`${{ {name}… }}` is used, but no state registers `{name}`"),
                    chunk.spot.location(),
                );
                problems.push(problem.near(&name, registered.keys().map(String::as_str)));
            }
        }
        let mut reads = Vec::new();
        said.parameters
            .values()
            .for_each(|value| reads_of_nodes(value, &mut reads));
        match (reads.first(), self.other_nodes) {
            (Some((node, name)), OtherNodePolicy::Fail) => TypedParameters::failure(format!(
                "this state reads the output `{name}` of the node `{node}`: it needs a run over both nodes"
            )),
            _ => said,
        }
    }

    /// Returns the outputs that a run must wait for.
    pub(super) fn reads_from_nodes(&self, chunk: &Chunk) -> Map<String, Value> {
        let mut reads = Vec::new();
        chunk
            .arguments
            .values()
            .for_each(|value| reads_of_nodes(value, &mut reads));
        reads_of_nodes(&Value::from(chunk.name.as_str()), &mut reads);
        if reads.is_empty() {
            return Map::new();
        }
        reads.sort();
        reads.dedup();
        let list = reads
            .into_iter()
            .map(|(node, name)| json!({"node": node, "register": name}));
        Map::from_iter([("reads_from_nodes".to_owned(), list.collect())])
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}
