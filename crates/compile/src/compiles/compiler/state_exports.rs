//! Functions by which state templates read data about other nodes:
//! `export.collect`, `export.states` and `query.rows`.

use bunraku_model::catalog::ResourceReference;
use bunraku_states::{Lookup, World, WorldError};
use serde_json::{Map, Value, json};

use super::code_worker::AskServer;
use crate::code_questions::CodeQuestion;
use crate::state_world::TemplateCall;

/// Calls a function, if it is one of these. Blocks.
pub(super) fn call(
    server: &dyn AskServer,
    world: &dyn World,
    call: &TemplateCall<'_>,
) -> Option<Result<Value, WorldError>> {
    let reader = OtherNodesReader { server };
    let arguments = Arguments {
        function: call.function,
        positional: call.positional,
        named: call.named,
    };
    Some(match call.function {
        "export.collect" => reader.collect(world, &arguments).map(Value::Array),
        "export.states" => reader.states(world, &arguments),
        "query.rows" => (arguments.need("query"))
            .and_then(|query| reader.ask(&CodeQuestion::Query(query.clone()))),
        _ => return None,
    })
}

/// Access to other nodes for the templates of one compile.
struct OtherNodesReader<'a> {
    server: &'a dyn AskServer,
}

impl OtherNodesReader<'_> {
    fn ask(&self, question: &CodeQuestion) -> Result<Value, WorldError> {
        let question = serde_json::to_value(question).expect("a question is plain data");
        self.server.ask(question).map_err(WorldError::new)
    }

    /// Returns exported resources of other nodes, by a state function
    /// (`file.managed`) or a resource type (`File`).
    fn collect(
        &self,
        world: &dyn World,
        arguments: &Arguments<'_>,
    ) -> Result<Vec<Value>, WorldError> {
        let wanted = arguments.need("function")?;
        let wanted = wanted
            .as_str()
            .ok_or_else(|| arguments.invalid("`function` must be a string"))?;
        let (type_name, function) = if !wanted.contains('.') {
            (wanted.to_owned(), None)
        } else if let Lookup::Known(known) = world.function(wanted) {
            (known.type_name, Some(wanted))
        } else {
            let message = format!("there is no state function `{wanted}`");
            return Err(arguments.invalid(&message));
        };
        let reference = ResourceReference::new(&type_name, String::new());
        let mut filter: Option<Value> = None;
        for field in ["tag", "title"] {
            if let Some(value) = arguments.named.get(field) {
                let one = json!([field, "==", value]);
                filter = Some(match filter {
                    None => one,
                    Some(other) => json!([other, "and", one]),
                });
            }
        }
        let answer = self.ask(&CodeQuestion::Collect {
            type_name: reference.type_name().to_owned(),
            filter,
        })?;
        let Value::Array(found) = answer else {
            return Ok(Vec::new());
        };
        let is_wanted = |one: &Value| function.is_none_or(|function| one["state"] == function);
        let shown = found.into_iter().filter(is_wanted).map(|one| {
            json!({
                "node": one["certname"],
                "id": one["title"],
                "function": one["state"],
                "name": one["name"],
                "type": one["type"],
                "tags": one["tags"],
                "arguments": one["arguments"],
                "parameters": one["parameters"],
            })
        });
        Ok(shown.collect())
    }

    /// Returns exported states as the text of a state file, one per line. Other
    /// named arguments override those of the states.
    fn states(&self, world: &dyn World, arguments: &Arguments<'_>) -> Result<Value, WorldError> {
        let mut states = String::new();
        let mut exporters: Map<String, Value> = Map::new();
        for one in self.collect(world, arguments)? {
            let (Some(id), Some(function)) = (one["id"].as_str(), one["function"].as_str()) else {
                continue;
            };
            let mut given = one["arguments"].as_object().cloned().unwrap_or_default();
            given.insert("name".to_owned(), one["name"].clone());
            let overrides = arguments.named.iter();
            let overrides = overrides
                .filter(|(name, _)| !["tag", "title", "function"].contains(&name.as_str()));
            given.extend(overrides.map(|(name, value)| (name.clone(), value.clone())));
            let list: Vec<Value> = (given.into_iter())
                .map(|(name, value)| json!({ name: value }))
                .collect();
            if let Some(other) = exporters.insert(id.to_owned(), one["node"].clone()) {
                let (other, node) = (other.as_str(), one["node"].as_str());
                let message = format!(
                    "`{id}` is exported by both {} and {}",
                    other.unwrap_or_default(),
                    node.unwrap_or_default()
                );
                return Err(arguments.invalid(&message));
            }
            // JSON on one line is YAML, too.
            states.push_str(&format!("{}: {}\n", json!(id), json!({ function: list })));
        }
        Ok(Value::String(states))
    }
}

/// The arguments of a call.
struct Arguments<'a> {
    function: &'a str,
    positional: &'a [Value],
    named: &'a Map<String, Value>,
}

impl Arguments<'_> {
    /// Returns the first argument, which is called `name`.
    fn need(&self, name: &str) -> Result<&Value, WorldError> {
        let found = self.positional.first().or_else(|| self.named.get(name));
        found.ok_or_else(|| self.invalid(&format!("the argument `{name}` is missing")))
    }

    fn invalid(&self, message: &str) -> WorldError {
        WorldError::new(format!("`{}`: {message}", self.function))
    }
}
