//! The description of a module's type, as the common table has it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use bunraku_module::{ParameterEntry, StateEntry, TypeEntry};

use crate::{ParameterSpec, StateFunction, TypeSpec};

/// Built-in types are described by constants, so descriptions live forever. Those of
/// modules are created once for each signed content: an agent that runs for years holds
/// one for each version that it has seen.
static KNOWN: Mutex<Option<HashMap<(String, String), &'static TypeSpec>>> = Mutex::new(None);

pub(super) fn of(content: &str, entry: &TypeEntry) -> &'static TypeSpec {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_with(HashMap::new);
    known
        .entry((content.to_owned(), entry.name.clone()))
        .or_insert_with(|| Box::leak(Box::new(made(entry))))
}

fn made(entry: &TypeEntry) -> TypeSpec {
    let parameters = entry.properties.iter().chain(&entry.parameters);
    TypeSpec {
        name: kept(&entry.name),
        aliases: &[],
        summary: kept(&entry.summary),
        name_parameter: kept(&entry.name_parameter),
        parameters: Vec::leak(parameters.map(parameter).collect()),
        states: Vec::leak(states(entry).iter().map(state).collect()),
        example: "[]",
    }
}

fn parameter(entry: &ParameterEntry) -> ParameterSpec {
    ParameterSpec {
        name: kept(&entry.name),
        doc: kept(&entry.doc),
    }
}

fn states(entry: &TypeEntry) -> Vec<StateEntry> {
    if !entry.states.is_empty() {
        return entry.states.clone();
    }
    let usual: &[(&str, &[(&str, &str)])] = if entry.has_ensure() {
        &[
            ("managed", &[]),
            ("present", &[("ensure", "present")]),
            ("absent", &[("ensure", "absent")]),
        ]
    } else {
        &[("managed", &[])]
    };
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    (usual.iter())
        .map(|(function, implies)| StateEntry {
            function: format!("{}.{function}", entry.name),
            implies: implies.iter().map(owned).collect(),
        })
        .collect()
}

fn state(entry: &StateEntry) -> StateFunction {
    let implies = entry.implies.iter();
    StateFunction {
        function: kept(&entry.function),
        implies: Vec::leak(
            implies
                .map(|(name, value)| (kept(name), kept(value)))
                .collect(),
        ),
        arguments: &[],
    }
}

fn kept(text: &str) -> &'static str {
    String::leak(text.to_owned())
}
