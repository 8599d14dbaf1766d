//! The high state: every declaration of all selected files, in one place.
//!
//! The order of work is Salt's: files are rendered with their includes, `extend` is applied,
//! everything is checked, the `_in` forms and `use` are reversed, and excluded declarations are
//! removed.

mod extend;
mod load;
mod read;
mod requisite_in;

use std::collections::HashMap;

use serde_json::Value;

pub(crate) use load::{Loader, absolute};

use crate::problem::Problem;
use crate::sls::Spot;

/// The keywords whose values are lists of references.
pub(crate) const REQUISITES: [&str; 12] = [
    "require",
    "require_any",
    "watch",
    "watch_any",
    "prereq",
    "onfail",
    "onfail_any",
    "onfail_all",
    "onchanges",
    "onchanges_any",
    "listen",
    "onfail_stop",
];
pub(crate) const REQUISITES_IN: [&str; 8] = [
    "require_in",
    "watch_in",
    "onfail_in",
    "onchanges_in",
    "prereq_in",
    "listen_in",
    "use",
    "use_in",
];

/// All declarations by id, in the order of reading.
#[derive(Default)]
pub(crate) struct HighState {
    pub(crate) ids: Vec<IdDeclaration>,
    by_id: HashMap<String, usize>,
    extends: Vec<IdDeclaration>,
    excludes: Vec<Exclude>,
    /// The files that were read, including those without declarations.
    pub(crate) files: Vec<String>,
}

/// One id with its states.
#[derive(Clone)]
pub(crate) struct IdDeclaration {
    pub(crate) id: String,
    pub(crate) sls: String,
    pub(crate) included_from: Vec<String>,
    pub(crate) states: Vec<StateDeclaration>,
    pub(crate) spot: Spot,
}

/// A state declaration: `file` with `managed` and its arguments.
#[derive(Clone)]
pub(crate) struct StateDeclaration {
    pub(crate) module: String,
    pub(crate) items: Vec<Item>,
    pub(crate) spot: Spot,
}

/// One item of a state's list.
#[derive(Clone)]
pub(crate) enum Item {
    Function(String, Spot),
    Arguments(Vec<Argument>),
}

#[derive(Clone)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) value: ArgumentValue,
    pub(crate) spot: Spot,
}

#[derive(Clone)]
pub(crate) enum ArgumentValue {
    Plain(Value),
    References(Vec<RequisiteTarget>),
}

/// The target of a requisite.
#[derive(Clone)]
pub(crate) struct RequisiteTarget {
    /// The state module, `sls`, or `id` for a bare name.
    pub(crate) module: String,
    pub(crate) name: String,
    pub(crate) spot: Spot,
}

/// A declaration to exclude.
pub(crate) enum Exclude {
    Sls(String),
    Id(String),
}

impl HighState {
    pub(crate) fn get(&self, id: &str) -> Option<&IdDeclaration> {
        self.by_id.get(id).map(|position| &self.ids[*position])
    }

    fn get_mut(&mut self, id: &str) -> Option<&mut IdDeclaration> {
        self.by_id.get(id).map(|position| &mut self.ids[*position])
    }

    fn insert(&mut self, declared: IdDeclaration) {
        self.by_id.insert(declared.id.clone(), self.ids.len());
        self.ids.push(declared);
    }

    /// Applies everything that changes declarations.
    pub(crate) fn settle(mut self, notes: &mut Vec<Problem>) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        self.apply_extends(false, &mut problems);
        read::verify(&self, &mut problems);
        if !problems.is_empty() {
            return Err(problems);
        }
        self.turn_around(&mut problems, notes);
        self.apply_excludes();
        if problems.is_empty() {
            Ok(self)
        } else {
            Err(problems)
        }
    }

    fn apply_excludes(&mut self) {
        let excludes = std::mem::take(&mut self.excludes);
        if excludes.is_empty() {
            return;
        }
        self.ids.retain(|declared| {
            !excludes.iter().any(|exclude| match exclude {
                Exclude::Id(id) => *id == declared.id,
                Exclude::Sls(sls) => crate::matcher::matches_glob(sls, &declared.sls),
            })
        });
        self.by_id = self
            .ids
            .iter()
            .enumerate()
            .map(|(at, declared)| (declared.id.clone(), at))
            .collect();
    }

    fn excludes_sls(&self, sls: &str) -> bool {
        self.excludes
            .iter()
            .any(|exclude| matches!(exclude, Exclude::Sls(name) if name == sls))
    }

    /// Searches, as Salt does, for the target of an `extend` or an `_in`: the id, or a state that
    /// has the name among its arguments.
    fn find_name(&self, name: &str, module: &str, strict: bool) -> Vec<String> {
        if let Some(declared) = self.get(name)
            && (!strict || declared.state(module).is_some())
        {
            return vec![name.to_owned()];
        }
        if module == "sls" {
            return self
                .ids
                .iter()
                .filter(|one| one.sls == name)
                .map(|one| one.id.clone())
                .collect();
        }
        let named = |declared: &&IdDeclaration| {
            declared.state(module).is_some_and(|state| {
                state.arguments().any(|argument| {
                    matches!(&argument.value, ArgumentValue::Plain(Value::String(text)) if text == name)
                })
            })
        };
        self.ids
            .iter()
            .filter(named)
            .map(|declared| declared.id.clone())
            .collect()
    }
}

impl IdDeclaration {
    pub(crate) fn state(&self, module: &str) -> Option<&StateDeclaration> {
        self.states.iter().find(|state| state.module == module)
    }
}

impl StateDeclaration {
    pub(crate) fn arguments(&self) -> impl Iterator<Item = &Argument> {
        self.items.iter().flat_map(|item| match item {
            Item::Arguments(arguments) => arguments.as_slice(),
            Item::Function(..) => &[],
        })
    }

    pub(crate) fn function(&self) -> Option<&str> {
        self.items.iter().find_map(|item| match item {
            Item::Function(name, _) => Some(name.as_str()),
            Item::Arguments(_) => None,
        })
    }
}
