//! `salt['grains.get'](…)`: the execution functions that templates call.
//!
//! Functions over data are answered here. Everything else goes to the world, once for each set of
//! arguments, so that rendering a file again gives the same text.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, ValueKind};
use minijinja::{Error, State, Value};
use serde_json::{Map, Value as Json};

use super::filters::invalid;
use super::mutable::{Dict, from_json, owned, to_json};
use super::python;
use super::taint;
use super::traverse::traverse;
use crate::matcher::{Subject, matches_compound, matches_glob};
use crate::merge::merge;
use crate::world::World;

/// The data that the functions can access.
pub(crate) struct Scope {
    pub(crate) world: Arc<dyn World>,
    pub(crate) node: String,
    pub(crate) grains: Map<String, Json>,
    pub(crate) pillar: Map<String, Json>,
    pub(crate) grains_value: Value,
    pub(crate) pillar_value: Value,
    pub(crate) opts: Value,
    answers: Arc<Mutex<HashMap<String, Json>>>,
    /// Answers of the world get stand-ins: they may contain facts of other nodes.
    is_shadow: bool,
}

impl std::fmt::Debug for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scope")
    }
}

impl Scope {
    pub(crate) fn new(
        world: Arc<dyn World>,
        node: &str,
        grains: Map<String, Json>,
        pillar: Map<String, Json>,
    ) -> Self {
        let opts = serde_json::json!({
            "id": node, "saltenv": "base", "test": false, "file_client": "local",
            "state_top": "top.sls", "renderer": "jinja|yaml",
        });
        Self {
            world,
            node: node.to_owned(),
            grains_value: from_json(&Json::Object(grains.clone())),
            pillar_value: from_json(&Json::Object(pillar.clone())),
            grains,
            pillar,
            opts: from_json(&opts),
            answers: Arc::default(),
            is_shadow: false,
        }
    }

    /// Creates the scope of a shadow rendering, with these encoded data. The world is asked once
    /// for both.
    pub(crate) fn shadow(&self, grains: Map<String, Json>, pillar: Map<String, Json>) -> Self {
        Self {
            answers: Arc::clone(&self.answers),
            is_shadow: true,
            ..Self::new(Arc::clone(&self.world), &self.node, grains, pillar)
        }
    }

    fn subject(&self) -> Subject<'_> {
        Subject {
            node: &self.node,
            grains: &self.grains,
            pillar: &self.pillar,
        }
    }
}

/// The variable `salt`.
#[derive(Debug)]
pub(crate) struct Salt(pub(crate) Arc<Scope>);

/// `salt['pillar.get']`, or `salt.pillar`.
#[derive(Debug)]
struct Function {
    scope: Arc<Scope>,
    name: String,
}

impl Object for Salt {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = key.as_str()?.to_owned();
        Some(Value::from_object(Function {
            scope: Arc::clone(&self.0),
            name,
        }))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }

    fn is_true(self: &Arc<Self>) -> bool {
        true
    }
}

impl Object for Function {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let name = format!("{}.{}", self.name, key.as_str()?);
        Some(Value::from_object(Self {
            scope: Arc::clone(&self.scope),
            name,
        }))
    }

    fn call(self: &Arc<Self>, _state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        call(&self.scope, &self.name, args)
    }

    fn call_method(
        self: &Arc<Self>,
        _state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        call(&self.scope, &format!("{}.{method}", self.name), args)
    }
}

/// Arguments of a Python function: by position or by name.
struct Arguments {
    positional: Vec<Value>,
    named: Kwargs,
}

impl Arguments {
    fn read(args: &[Value]) -> Result<Self, Error> {
        let (positional, named): (&[Value], Kwargs) = minijinja::value::from_args(args)?;
        Ok(Self {
            positional: positional.to_vec(),
            named,
        })
    }

    fn get(&self, position: usize, name: &str) -> Option<Value> {
        let named = || {
            self.named
                .has(name)
                .then(|| self.named.get(name).ok())
                .flatten()
        };
        self.positional.get(position).cloned().or_else(named)
    }

    fn text(&self, position: usize, name: &str) -> Result<String, Error> {
        let value = self
            .get(position, name)
            .ok_or_else(|| invalid(format!("the argument `{name}` is missing")))?;
        Ok(python::text(&value))
    }
}

fn call(scope: &Arc<Scope>, name: &str, args: &[Value]) -> Result<Value, Error> {
    let arguments = Arguments::read(args)?;
    match name {
        "grains.get" => get(&scope.grains_value, &arguments),
        "pillar.get" => get(&scope.pillar_value, &arguments),
        "config.get" => config(scope, &arguments),
        "grains.items" => Ok(scope.grains_value.clone()),
        "pillar.items" | "pillar.raw" => Ok(scope.pillar_value.clone()),
        "grains.item" | "pillar.item" => items(scope, name, &arguments),
        "grains.has_value" => {
            let key = arguments.text(0, "key")?;
            Ok(Value::from(
                traverse(&scope.grains_value, &key, ":").is_some_and(|value| value.is_true()),
            ))
        }
        "pillar.keys" => {
            let found =
                traverse(&scope.pillar_value, &arguments.text(0, "key")?, ":").unwrap_or_default();
            Ok(super::mutable::List::value(found.try_iter()?))
        }
        "grains.filter_by" => filter_by(scope, &arguments),
        "defaults.merge" | "slsutil.merge" | "slsutil.update" => merge_values(&arguments),
        "match.glob" => Ok(Value::from(matches_glob(
            &arguments.text(0, "tgt")?,
            &scope.node,
        ))),
        "match.compound" | "match.grain" | "match.pillar" | "match.list" => {
            matched(scope, name, &arguments)
        }
        "test.echo" => Ok(Value::from(arguments.text(0, "text")?)),
        _ => ask(scope, name, &arguments),
    }
}

/// Implements `get(key, default='', merge=False, delimiter=':')`.
fn get(data: &Value, arguments: &Arguments) -> Result<Value, Error> {
    let key = arguments.text(0, "key")?;
    let default = arguments
        .get(1, "default")
        .filter(|default| !default.is_undefined());
    let delimiter = arguments
        .get(usize::MAX, "delimiter")
        .map_or(":".to_owned(), |value| python::text(&value));
    let found = traverse(data, &key, &delimiter);
    let merges = arguments
        .get(2, "merge")
        .is_some_and(|merge| merge.is_true());
    match (found, default) {
        (Some(found), Some(default)) if merges && default.kind() == ValueKind::Map => {
            let mut merged = to_json(&default);
            merge(&mut merged, to_json(&found));
            Ok(from_json(&merged))
        }
        (Some(found), _) => Ok(found),
        (None, Some(default)) => Ok(owned(&default)),
        (None, None) => Ok(Value::from("")),
    }
}

fn config(scope: &Scope, arguments: &Arguments) -> Result<Value, Error> {
    let key = arguments.text(0, "key")?;
    let found = [&scope.opts, &scope.grains_value, &scope.pillar_value]
        .into_iter()
        .find_map(|data| traverse(data, &key, ":"));
    let default = arguments.get(1, "default");
    Ok(found.or(default).unwrap_or_else(|| Value::from("")))
}

fn items(scope: &Scope, name: &str, arguments: &Arguments) -> Result<Value, Error> {
    let data = if name.starts_with("grains") {
        &scope.grains_value
    } else {
        &scope.pillar_value
    };
    let pairs = arguments.positional.iter().map(|key| {
        let found = traverse(data, &python::text(key), ":");
        (key.clone(), found.unwrap_or_else(|| Value::from("")))
    });
    Ok(Dict::value(pairs))
}

/// Implements `filter_by(lookup, grain='os_family', merge=None, default='default', base=None)`.
fn filter_by(scope: &Scope, arguments: &Arguments) -> Result<Value, Error> {
    let lookup = arguments
        .get(0, "lookup_dict")
        .ok_or_else(|| invalid("the argument `lookup_dict` is missing"))?;
    let grain = arguments
        .get(1, "grain")
        .map_or("os_family".to_owned(), |value| python::text(&value));
    let default = arguments
        .get(3, "default")
        .map_or("default".to_owned(), |value| python::text(&value));
    let value = traverse(&scope.grains_value, &grain, ":");
    let wanted: Vec<String> = match &value {
        Some(value) if value.kind() == ValueKind::Seq => {
            value.try_iter()?.map(|item| python::text(&item)).collect()
        }
        Some(value) => vec![python::text(value)],
        None => Vec::new(),
    };
    let lookup = to_json(&lookup);
    let lookup = lookup
        .as_object()
        .ok_or_else(|| invalid("`lookup_dict` must be a map"))?;
    let by_pattern = |wanted: &String| {
        (lookup.get(wanted)).or_else(|| {
            lookup
                .iter()
                .find(|(key, _)| matches_glob(key, wanted))
                .map(|(_, found)| found)
        })
    };
    let found = wanted
        .iter()
        .find_map(by_pattern)
        .or_else(|| lookup.get(&default));
    let mut answer = match arguments.get(4, "base").map(|base| python::text(&base)) {
        Some(base) => {
            let mut answer = lookup.get(&base).cloned().unwrap_or(Json::Null);
            if let Some(found) = found {
                merge(&mut answer, found.clone());
            }
            answer
        }
        None => found.cloned().unwrap_or(Json::Null),
    };
    if let Some(over) = arguments.get(2, "merge").filter(|over| !over.is_none()) {
        if answer.is_null() {
            answer = Json::Object(Map::new());
        }
        merge(&mut answer, to_json(&over));
    }
    Ok(from_json(&answer))
}

fn merge_values(arguments: &Arguments) -> Result<Value, Error> {
    let mut values = arguments
        .positional
        .iter()
        .filter(|value| value.kind() == ValueKind::Map)
        .map(to_json);
    let mut merged = values.next().ok_or_else(|| invalid("nothing to merge"))?;
    values.for_each(|over| merge(&mut merged, over));
    Ok(from_json(&merged))
}

fn matched(scope: &Scope, name: &str, arguments: &Arguments) -> Result<Value, Error> {
    let expression = arguments.text(0, "tgt")?;
    let expression = match name {
        "match.grain" => format!("G@{expression}"),
        "match.pillar" => format!("I@{expression}"),
        "match.list" => format!("L@{expression}"),
        _ => expression,
    };
    matches_compound(&expression, scope.subject())
        .map(Value::from)
        .map_err(|error| invalid(error.to_string()))
}

/// Functions whose answer is text with structure of its own: each state is JSON, in which no value
/// can add another one.
const QUOTED_ANSWERS: &[&str] = &["export.states"];

fn ask(scope: &Scope, name: &str, arguments: &Arguments) -> Result<Value, Error> {
    if !name.contains('.') {
        return Err(invalid(format!(
            "`{name}` is a module: call one of its functions"
        )));
    }
    let plain = |value: &Value| taint::decoded_value(to_json(value));
    let positional: Vec<Json> = arguments.positional.iter().map(plain).collect();
    let mut named = Map::new();
    for key in arguments.named.args() {
        named.insert(key.to_owned(), plain(&arguments.named.get::<Value>(key)?));
    }
    let question = serde_json::json!([name, positional, named]).to_string();
    let known = scope
        .answers
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(&question)
        .cloned();
    let answer = match known {
        Some(answer) => answer,
        None => {
            let answer = scope
                .world
                .call(name, &positional, &named)
                .map_err(|error| invalid(error.to_string()))?;
            let mut answers = scope.answers.lock().unwrap_or_else(PoisonError::into_inner);
            answers.insert(question, answer.clone());
            answer
        }
    };
    if scope.is_shadow && !QUOTED_ANSWERS.contains(&name) {
        return Ok(from_json(&taint::encoded_value(&answer)));
    }
    Ok(from_json(&answer))
}
