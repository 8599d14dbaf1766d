//! `salt['grains.get'](…)`: the execution functions that templates call.
//!
//! Functions over data are answered here. Everything else goes to the world, once for each set of
//! arguments, so that rendering a file again gives the same text.

mod data;
mod files;
mod merging;
mod texts;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr};
use minijinja::{Error, State, Value};
use serde_json::{Map, Value as Json};

use super::conversion::{from_json, ordered_from_json, to_json};
use super::filters::invalid;
use super::python;
use super::taint;
use crate::matcher::{Subject, matches_glob};
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
            "state_top": "top.sls", "renderer": "jinja|yaml", "failhard": false,
            "pillarenv": null, "master": "salt", "user": "root", "hash_type": "sha256",
            "state_aggregate": false, "ipv6": null, "root_dir": "/", "cachedir": "/var/cache/salt/minion",
            "conf_file": "/etc/salt/minion", "pki_dir": "/etc/salt/pki/minion",
            "file_roots": {"base": ["/srv/salt"]}, "pillar_roots": {"base": ["/srv/pillar"]},
            "__cli": "salt-call", "__role": "minion",
        });
        Self {
            world,
            node: node.to_owned(),
            grains_value: from_json(&Json::Object(grains.clone())),
            pillar_value: ordered_from_json(&Json::Object(pillar.clone())),
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

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        call(state, &self.scope, &self.name, args)
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        call(state, &self.scope, &format!("{}.{method}", self.name), args)
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

    fn required(&self, position: usize, name: &str) -> Result<Value, Error> {
        self.get(position, name)
            .ok_or_else(|| invalid(format!("the argument `{name}` is missing")))
    }

    fn text(&self, position: usize, name: &str) -> Result<String, Error> {
        Ok(python::text(&self.required(position, name)?))
    }

    fn is_true(&self, position: usize, name: &str, default: bool) -> bool {
        self.get(position, name)
            .map_or(default, |value| value.is_true())
    }
}

fn call(
    state: &State<'_, '_>,
    scope: &Arc<Scope>,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let arguments = Arguments::read(args)?;
    match name {
        "grains.get" => data::grain(scope, &arguments),
        "pillar.get" => data::pillar(scope, &arguments),
        "pillar.fetch" => data::fetch(scope, &arguments),
        "config.get" | "config.option" => data::config(scope, &arguments),
        "grains.items" => Ok(scope.grains_value.clone()),
        "pillar.items" | "pillar.raw" => Ok(scope.pillar_value.clone()),
        "grains.item" | "pillar.item" => data::items(scope, name, &arguments),
        "grains.has_value" => data::has_value(scope, &arguments),
        "grains.fetch" => data::grain(scope, &arguments),
        "pillar.keys" => data::keys(scope, &arguments),
        "grains.filter_by" => data::filter_by(&scope.grains_value, "os_family", &arguments),
        "pillar.filter_by" => data::filter_by(&scope.pillar_value, "role", &arguments),
        "match.glob" => Ok(Value::from(matches_glob(
            &arguments.text(0, "tgt")?,
            &scope.node,
        ))),
        "match.compound" | "match.grain" | "match.pillar" | "match.list" => {
            data::matched(scope, name, &arguments)
        }
        "defaults.merge" => merging::defaults_merge(&arguments),
        "defaults.update" => merging::defaults_update(&arguments),
        "defaults.deepcopy" => merging::deep_copy(&arguments.required(0, "source")?),
        "slsutil.merge" => merging::merge(&arguments),
        "slsutil.merge_all" => merging::merge_all(&arguments),
        "slsutil.update" => merging::update_in_place(&arguments),
        "slsutil.serialize" => texts::serialize(state, &arguments),
        "slsutil.deserialize" => texts::deserialize(&arguments),
        "slsutil.boolstr" => texts::boolstr(&arguments),
        "slsutil.renderer" => texts::rendered(state, &arguments),
        "file.dirname" | "file.basename" | "file.join" | "file.normpath" => {
            texts::path(name, &arguments)
        }
        "cp.list_states" => files::list_states(scope),
        "test.echo" => Ok(Value::from(arguments.text(0, "text")?)),
        // Templates write to Salt's log. The reader of a compiled tree has no use for it.
        _ if name.starts_with("log.") => Ok(Value::from(true)),
        _ => ask(scope, name, &arguments),
    }
}

/// The functions over data that are answered here, and the modules that a machine answers.
const KNOWN_MODULES: [&str; 11] = [
    "cmd.",
    "config.",
    "defaults.",
    "environ.",
    "file.",
    "grains.",
    "log.",
    "match.",
    "pillar.",
    "slsutil.",
    "test.",
];

/// Implements the test `callable`: a macro, or an execution function that exists here. Templates ask
/// before they call one that Salt may lack.
pub(super) fn is_callable(value: &Value) -> bool {
    match value.downcast_object::<Function>() {
        Some(function) => (KNOWN_MODULES.iter()).any(|module| function.name.starts_with(module)),
        None => value.kind() == minijinja::value::ValueKind::Plain,
    }
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
