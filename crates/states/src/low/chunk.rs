//! From declarations to single states: functions, names, arguments.

use serde_json::{Map, Value};

use crate::high::{ArgumentValue, HighState, RequisiteTarget, StateDeclaration};
use crate::sls::Spot;

/// One state.
pub(crate) struct Chunk {
    pub(crate) module: String,
    pub(crate) function: String,
    pub(crate) id: String,
    pub(crate) name: String,
    /// The `name` of a state with `pkgs`: requisites may refer to it.
    pub(crate) shared_name: Option<String>,
    pub(crate) sls: String,
    pub(crate) included_from: Vec<String>,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) requisites: Vec<(String, Vec<RequisiteTarget>)>,
    pub(crate) order: Value,
    /// Set if the state is for other nodes: true, or tags.
    pub(crate) export: Value,
    /// The position in `names`, from 1; 0 without `names`.
    pub(crate) name_order: usize,
    pub(crate) spot: Spot,
}

impl Chunk {
    pub(crate) fn full_function(&self) -> String {
        format!("{}.{}", self.module, self.function)
    }
}

/// Returns all states in order of declaration.
pub(crate) fn chunks(high: &HighState) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    for declared in &high.ids {
        for state in &declared.states {
            let base = |chunks: &mut Vec<Chunk>, names: &[Value]| {
                let chunk = one(state, &declared.id, &declared.sls, &declared.included_from);
                if names.is_empty() {
                    chunks.push(chunk);
                    return;
                }
                for (index, entry) in names.iter().enumerate() {
                    chunks.push(named(&chunk, entry, index + 1));
                }
            };
            let names = names_of(state);
            if !names.is_empty() || state.module != "pkg" {
                base(&mut chunks, &names);
                continue;
            }
            let first = chunks.len();
            base(&mut chunks, &packages_of(state));
            let name = state
                .arguments()
                .find_map(|argument| match &argument.value {
                    ArgumentValue::Plain(Value::String(name)) if argument.name == "name" => {
                        Some(name)
                    }
                    _ => None,
                });
            for chunk in &mut chunks[first..] {
                chunk.shared_name = name.cloned();
            }
        }
    }
    chunks
}

fn names_of(state: &StateDeclaration) -> Vec<Value> {
    let mut names: Vec<Value> = Vec::new();
    for argument in state
        .arguments()
        .filter(|argument| argument.name == "names")
    {
        if let ArgumentValue::Plain(Value::Array(list)) = &argument.value {
            for name in list {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
    }
    names
}

/// Returns the `pkgs` of a package state: one state for each, which the engine combines into one
/// transaction where it can. `- nginx: 1.22` also requests a version.
fn packages_of(state: &StateDeclaration) -> Vec<Value> {
    let lists = state.arguments().filter(|argument| argument.name == "pkgs");
    let entries = lists.filter_map(|argument| match &argument.value {
        ArgumentValue::Plain(Value::Array(list)) => Some(list),
        _ => None,
    });
    (entries.flatten())
        .map(|entry| match entry {
            Value::Object(members) => (members.iter())
                .map(|(name, version)| (name.clone(), serde_json::json!([{"version": version}])))
                .collect::<Map<_, _>>()
                .into(),
            other => other.clone(),
        })
        .collect()
}

/// Creates one state. Later arguments of the same name win, including requisites.
fn one(state: &StateDeclaration, id: &str, sls: &str, included_from: &[String]) -> Chunk {
    let mut chunk = Chunk {
        module: state.module.clone(),
        function: state.function().unwrap_or_default().to_owned(),
        id: id.to_owned(),
        name: id.to_owned(),
        shared_name: None,
        sls: sls.to_owned(),
        included_from: included_from.to_vec(),
        arguments: Map::new(),
        requisites: Vec::new(),
        order: Value::Null,
        export: Value::Null,
        name_order: 0,
        spot: state.spot.clone(),
    };
    for argument in state.arguments() {
        match (&argument.value, argument.name.as_str()) {
            (_, "names" | "state") => {}
            (_, "pkgs") if state.module == "pkg" => {}
            (ArgumentValue::Plain(Value::String(name)), "name") => chunk.name = name.clone(),
            (_, "name") => chunk.name = id.to_owned(),
            (ArgumentValue::Plain(order), "order") => chunk.order = order.clone(),
            (ArgumentValue::Plain(export), "export") => chunk.export = export.clone(),
            (ArgumentValue::Plain(value), name) => {
                chunk.arguments.insert(name.to_owned(), value.clone());
            }
            (ArgumentValue::References(wanted), name) => {
                chunk.requisites.retain(|(known, _)| known != name);
                chunk.requisites.push((name.to_owned(), wanted.clone()));
            }
        }
    }
    chunk
}

/// Creates the state for an entry of `names`: a name, or a name with its own arguments.
fn named(base: &Chunk, entry: &Value, name_order: usize) -> Chunk {
    let mut chunk = Chunk {
        module: base.module.clone(),
        function: base.function.clone(),
        id: base.id.clone(),
        name: String::new(),
        shared_name: None,
        sls: base.sls.clone(),
        included_from: base.included_from.clone(),
        arguments: base.arguments.clone(),
        requisites: base.requisites.clone(),
        order: base.order.clone(),
        export: base.export.clone(),
        name_order,
        spot: base.spot.clone(),
    };
    match entry {
        Value::Object(members) => {
            for (name, overrides) in members.iter().take(1) {
                chunk.name = name.clone();
                let maps = overrides
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_object);
                for (key, value) in maps.flatten() {
                    match key.as_str() {
                        "order" => chunk.order = value.clone(),
                        "export" => chunk.export = value.clone(),
                        _ => {
                            chunk.arguments.insert(key.clone(), value.clone());
                        }
                    }
                }
            }
        }
        Value::String(name) => chunk.name = name.clone(),
        other => chunk.name = other.to_string(),
    }
    chunk
}
