//! Reverses `require_in`, `watch_in` and similar forms; handles `use` and `use_in`.

use super::{
    Argument, ArgumentValue, HighState, IdDeclaration, Item, REQUISITES_IN, RequisiteTarget,
    StateDeclaration, read,
};
use crate::problem::Problem;

/// The arguments that `use` does not copy: Salt's list.
const NOT_BORROWED: [&str; 15] = [
    "name",
    "names",
    "require_in",
    "watch_in",
    "onfail_in",
    "onchanges_in",
    "use",
    "use_in",
    "prereq_in",
    "require",
    "watch",
    "prereq",
    "onfail",
    "onfail_stop",
    "onchanges",
];

impl HighState {
    /// Reverses the forms. After this, no state has a relevant `_in` form (except `listen_in`) or
    /// `use`.
    pub(super) fn turn_around(&mut self, problems: &mut Vec<Problem>, notes: &mut Vec<Problem>) {
        let mut extends: Vec<IdDeclaration> = Vec::new();
        for declared in &self.ids {
            for state in &declared.states {
                for argument in state.arguments() {
                    let ArgumentValue::References(wanted) = &argument.value else {
                        continue;
                    };
                    for wanted in wanted {
                        self.one(declared, state, argument, wanted, &mut extends, notes);
                    }
                }
            }
        }
        self.extends = extends;
        self.apply_extends(true, problems);
    }

    fn one(
        &self,
        declared: &IdDeclaration,
        state: &StateDeclaration,
        argument: &Argument,
        wanted: &RequisiteTarget,
        extends: &mut Vec<IdDeclaration>,
        notes: &mut Vec<Problem>,
    ) {
        let word = argument.name.as_str();
        if !REQUISITES_IN.contains(&word) || word == "listen_in" {
            return;
        }
        let Some(targets) = self.targets(wanted) else {
            // Salt silently ignores these.
            let message = format!(
                "`{word}` refers to `{}`, which does not exist; it has no effect",
                wanted.name
            );
            let ids = self.ids.iter().map(|declared| declared.id.as_str());
            notes.push(Problem::new(message, wanted.spot.location()).near(&wanted.name, ids));
            return;
        };
        for (name, module) in targets {
            match word {
                "use" => {
                    for source in self.find_name(&name, &module, true) {
                        let Some(from) = self.get(&source).and_then(|from| from.state(&module))
                        else {
                            continue;
                        };
                        add(
                            extends,
                            declared,
                            &declared.id,
                            &state.module,
                            state,
                            borrowed(from, state),
                        );
                    }
                }
                "use_in" => {
                    for target in self.find_name(&name, &module, true) {
                        let Some(to) = self.get(&target).and_then(|to| to.state(&module)) else {
                            continue;
                        };
                        add(
                            extends,
                            declared,
                            &target,
                            &module,
                            state,
                            borrowed(state, to),
                        );
                    }
                }
                _ => {
                    let requisite = word.trim_end_matches("_in");
                    let reference = RequisiteTarget {
                        module: state.module.clone(),
                        name: declared.id.clone(),
                        spot: argument.spot.clone(),
                    };
                    let argument = Argument {
                        name: requisite.to_owned(),
                        value: ArgumentValue::References(vec![reference]),
                        spot: argument.spot.clone(),
                    };
                    add(
                        extends,
                        declared,
                        &name,
                        &module,
                        state,
                        vec![Item::Arguments(vec![argument])],
                    );
                }
            }
        }
    }

    /// Returns the ids and modules that the requisite refers to.
    fn targets(&self, wanted: &RequisiteTarget) -> Option<Vec<(String, String)>> {
        match wanted.module.as_str() {
            "sls" => {
                let of_file = self.ids.iter().filter(|one| one.sls == wanted.name);
                Some(
                    of_file
                        .flat_map(|one| {
                            one.states
                                .iter()
                                .map(|state| (one.id.clone(), state.module.clone()))
                        })
                        .collect(),
                )
            }
            "id" => {
                if let Some(declared) = self.get(&wanted.name) {
                    let module = declared.states.first()?.module.clone();
                    return Some(vec![(wanted.name.clone(), module)]);
                }
                let named = self.ids.iter().rev().find_map(|declared| {
                    let state = declared.states.iter().find(|state| {
                        state.arguments().any(|argument| {
                            argument.name == "name" && read::text_of(argument) == Some(&wanted.name)
                        })
                    })?;
                    Some((declared.id.clone(), state.module.clone()))
                });
                named.map(|found| vec![found])
            }
            module => Some(vec![(wanted.name.clone(), module.to_owned())]),
        }
    }
}

/// Returns the items that `use` copies: all except names, requisites and arguments that already
/// exist.
fn borrowed(from: &StateDeclaration, to: &StateDeclaration) -> Vec<Item> {
    let has = |name: &str| to.arguments().any(|argument| argument.name == name);
    (from.items.iter())
        .filter(|item| match item {
            Item::Function(..) => false,
            Item::Arguments(arguments) => match arguments.as_slice() {
                [one] => {
                    let name = one.name.as_str();
                    !NOT_BORROWED.contains(&name) && !has(name)
                }
                _ => false,
            },
        })
        .cloned()
        .collect()
}

fn add(
    extends: &mut Vec<IdDeclaration>,
    by: &IdDeclaration,
    id: &str,
    module: &str,
    state: &StateDeclaration,
    items: Vec<Item>,
) {
    extends.push(IdDeclaration {
        id: id.to_owned(),
        sls: by.sls.clone(),
        included_from: Vec::new(),
        states: vec![StateDeclaration {
            module: module.to_owned(),
            items,
            spot: state.spot.clone(),
        }],
        spot: state.spot.clone(),
    });
}
