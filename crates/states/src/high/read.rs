//! From YAML to declarations, with the checks that need no other file.

use std::sync::Arc;

use serde_json::Value;

use super::{
    Argument, ArgumentValue, Exclude, HighState, IdDeclaration, Item, REQUISITES, REQUISITES_IN,
    RequisiteTarget, StateDeclaration,
};
use crate::jinja::Text;
use crate::problem::Problem;
use crate::sls::{Sls, Spot};
use crate::yaml::{Node, Yaml};

/// The kind of one top-level key of a file.
pub(super) enum Part {
    Includes(Vec<(String, Spot)>),
    Extends(Vec<IdDeclaration>),
    Excludes(Vec<Exclude>),
    Declared(IdDeclaration),
}

pub(super) fn part(file: &Sls, key: &Node, value: &Node) -> Result<Part, Problem> {
    let reader = Reader {
        sls: &file.name,
        text: &file.text,
    };
    match key.as_text() {
        Some("include") => reader.includes(value).map(Part::Includes),
        Some("extend") => {
            let pairs = value.as_map().ok_or_else(|| {
                reader.problem(
                    value,
                    format!("`extend` must be a map of ids, not {}", value.kind()),
                )
            })?;
            let declared = pairs.iter().map(|(key, value)| reader.declared(key, value));
            declared.collect::<Result<_, _>>().map(Part::Extends)
        }
        Some("exclude") => reader.excludes(value).map(Part::Excludes),
        _ => reader.declared(key, value).map(Part::Declared),
    }
}

struct Reader<'a> {
    sls: &'a str,
    text: &'a Arc<Text>,
}

impl Reader<'_> {
    fn spot(&self, node: &Node) -> Spot {
        Spot::of(self.text, node)
    }

    fn problem(&self, node: &Node, message: impl Into<String>) -> Problem {
        Problem::new(message, self.spot(node).location())
    }

    fn includes(&self, value: &Node) -> Result<Vec<(String, Spot)>, Problem> {
        let items = value.as_list().ok_or_else(|| {
            self.problem(
                value,
                format!("`include` must be a list, not {}", value.kind()),
            )
        })?;
        (items.iter())
            .map(|item| match (item.as_text(), item.as_map()) {
                (Some(name), _) => Ok((name.to_owned(), self.spot(item))),
                // `- base: x` names the environment as well.
                (None, Some([(_, name)])) if name.as_text().is_some() => {
                    Ok((name.key_text(), self.spot(name)))
                }
                _ => Err(self.problem(item, "an include must be the name of a state file")),
            })
            .collect()
    }

    fn excludes(&self, value: &Node) -> Result<Vec<Exclude>, Problem> {
        let items = value.as_list().ok_or_else(|| {
            self.problem(
                value,
                format!("`exclude` must be a list, not {}", value.kind()),
            )
        })?;
        let mut excludes = Vec::new();
        for item in items {
            match (item.as_text(), item.as_map()) {
                (Some(sls), _) => excludes.push(Exclude::Sls(sls.to_owned())),
                (None, Some([(kind, name)])) => match kind.as_text() {
                    Some("sls") => excludes.push(Exclude::Sls(name.key_text())),
                    Some("id") => excludes.push(Exclude::Id(name.key_text())),
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(excludes)
    }

    fn declared(&self, key: &Node, value: &Node) -> Result<IdDeclaration, Problem> {
        let Some(id) = key.as_text() else {
            return Err(self
                .problem(
                    key,
                    format!(
                        "the id `{}` must be a string, not {}",
                        key.key_text(),
                        key.kind()
                    ),
                )
                .hint("put it in quotes"));
        };
        let mut states: Vec<StateDeclaration> = Vec::new();
        match &value.value {
            // `id: test.nop`
            Yaml::Text(short) if short.contains('.') => states.push(self.short(short, value)),
            Yaml::Map(pairs) => {
                for (name, body) in pairs {
                    let state = self.state(id, name, body)?;
                    if let Some(known) = states.iter().find(|known| known.module == state.module) {
                        let message =
                            format!("`{id}` has two states of the module `{}`", state.module);
                        return Err(self
                            .problem(name, message)
                            .also("the first one", known.spot.location())
                            .hint("give one of them its own id and a `name`"));
                    }
                    states.push(state);
                }
            }
            _ => {
                return Err(self.problem(
                    value,
                    format!("the id `{id}` must be a map, not {}", value.kind()),
                ));
            }
        }
        Ok(IdDeclaration {
            id: id.to_owned(),
            sls: self.sls.to_owned(),
            included_from: Vec::new(),
            states,
            spot: self.spot(key),
        })
    }

    fn short(&self, text: &str, node: &Node) -> StateDeclaration {
        let (module, rest) = text.split_once('.').unwrap_or((text, ""));
        let function = rest.split('.').next().unwrap_or(rest);
        StateDeclaration {
            module: module.to_owned(),
            items: vec![Item::Function(function.to_owned(), self.spot(node))],
            spot: self.spot(node),
        }
    }

    fn state(&self, id: &str, name: &Node, body: &Node) -> Result<StateDeclaration, Problem> {
        let key = name.key_text();
        let items = match &body.value {
            Yaml::List(items) => items,
            Yaml::Null => {
                return Err(self
                    .problem(
                        name,
                        format!("`{key}` of `{id}` ends in a colon but has no arguments"),
                    )
                    .hint(format!("write `{id}: {key}`, or `{key}: []`")));
            }
            _ => {
                return Err(self
                    .problem(
                        body,
                        format!("`{key}` of `{id}` must be a list, not {}", body.kind()),
                    )
                    .hint("write each argument as an item: `- name: value`"));
            }
        };
        let mut state = StateDeclaration {
            module: key.clone(),
            items: Vec::new(),
            spot: self.spot(name),
        };
        for item in items {
            match &item.value {
                Yaml::Text(function) => state
                    .items
                    .push(Item::Function(function.clone(), self.spot(item))),
                Yaml::Map(pairs) if !pairs.is_empty() => {
                    let arguments: Result<_, _> = pairs
                        .iter()
                        .map(|(key, value)| self.argument(key, value))
                        .collect();
                    state.items.push(Item::Arguments(arguments?));
                }
                _ => {}
            }
        }
        if let Some((module, function)) = key.split_once('.') {
            state.module = module.to_owned();
            let function = function.split('.').next().unwrap_or(function);
            state
                .items
                .push(Item::Function(function.to_owned(), self.spot(name)));
        }
        Ok(state)
    }

    fn argument(&self, key: &Node, value: &Node) -> Result<Argument, Problem> {
        let name = key.key_text();
        let is_requisite = REQUISITES.contains(&name.as_str());
        let is_turned = REQUISITES_IN.contains(&name.as_str());
        let value = if is_requisite || is_turned {
            ArgumentValue::References(self.references(&name, key, value, is_turned)?)
        } else {
            if name == "names" && value.as_list().is_none() {
                return Err(self.problem(
                    value,
                    format!("`names` must be a list, not {}", value.kind()),
                ));
            }
            if name == "order" && !is_order(value) {
                let message = format!(
                    "`order` must be a number, `first` or `last`, not {}",
                    shown(value)
                );
                return Err(self.problem(value, message));
            }
            ArgumentValue::Plain(value.to_json())
        };
        Ok(Argument {
            name,
            value,
            spot: self.spot(key),
        })
    }

    fn references(
        &self,
        word: &str,
        key: &Node,
        value: &Node,
        turned: bool,
    ) -> Result<Vec<RequisiteTarget>, Problem> {
        let items = match &value.value {
            Yaml::List(items) => items,
            // The `_in` forms may also be a map.
            Yaml::Map(pairs) if turned => {
                return pairs
                    .iter()
                    .filter_map(|(module, name)| self.pair(word, module, name).transpose())
                    .collect();
            }
            _ => {
                return Err(self
                    .problem(
                        key,
                        format!("`{word}` must be a list, not {}", value.kind()),
                    )
                    .hint("write `- module: id` below it"));
            }
        };
        let mut wanted = Vec::new();
        for item in items {
            match &item.value {
                Yaml::Text(name) => {
                    wanted.push(RequisiteTarget {
                        module: "id".to_owned(),
                        name: name.clone(),
                        spot: self.spot(item),
                    });
                }
                Yaml::Map(pairs) if pairs.len() == 1 => {
                    wanted.extend(self.pair(word, &pairs[0].0, &pairs[0].1)?)
                }
                _ => {
                    let message = format!(
                        "an item of `{word}` must be `module: id` or a name, not {}",
                        item.kind()
                    );
                    return Err(self.problem(item, message));
                }
            }
        }
        Ok(wanted)
    }

    fn pair(
        &self,
        word: &str,
        module: &Node,
        name: &Node,
    ) -> Result<Option<RequisiteTarget>, Problem> {
        let module_name = module.key_text();
        if let Some((first, _)) = module_name.split_once('.') {
            return Err(self
                .problem(
                    module,
                    format!("`{word}` needs the name of a module, and `{module_name}` has a dot"),
                )
                .hint(format!("did you mean `{first}`?")));
        }
        if name.is_null() {
            return Ok(None);
        }
        let Some(text) = name.as_text() else {
            let message = format!(
                "`{word}: {module_name}` must be the name of a state, not {}",
                name.kind()
            );
            return Err(self.problem(name, message).hint("put it in quotes"));
        };
        Ok(Some(RequisiteTarget {
            module: module_name,
            name: text.to_owned(),
            spot: self.spot(name),
        }))
    }
}

fn is_order(value: &Node) -> bool {
    match value.to_json() {
        Value::Number(_) | Value::Null => true,
        Value::String(word) => word == "first" || word == "last",
        _ => false,
    }
}

fn shown(value: &Node) -> String {
    match value.as_text() {
        Some(text) => format!("the text `{text}`"),
        None => value.kind().to_owned(),
    }
}

/// Checks that each state has exactly one function.
pub(super) fn verify(high: &HighState, problems: &mut Vec<Problem>) {
    for declared in &high.ids {
        for state in &declared.states {
            let functions: Vec<(&String, &Spot)> = (state.items.iter())
                .filter_map(|item| match item {
                    Item::Function(name, spot) => Some((name, spot)),
                    Item::Arguments(_) => None,
                })
                .collect();
            let place = || state.spot.location();
            for (name, spot) in &functions {
                if name.trim().contains(' ') {
                    let message = format!("expected a function, found `{name}`");
                    problems.push(Problem::new(message, spot.location()).hint("is a `:` missing?"));
                }
            }
            match functions.as_slice() {
                [_] => {}
                [] => {
                    let message =
                        format!("`{}` of `{}` has no function", state.module, declared.id);
                    let hint = format!(
                        "write `{}.FUNCTION`, or `- FUNCTION` below it",
                        state.module
                    );
                    problems.push(Problem::new(message, place()).hint(hint));
                }
                many => {
                    let names: Vec<&str> = many.iter().map(|(name, _)| name.as_str()).collect();
                    let message = format!(
                        "`{}` of `{}` has {} functions: {}",
                        state.module,
                        declared.id,
                        many.len(),
                        names.join(", ")
                    );
                    problems.push(
                        Problem::new(message, place())
                            .hint("choose one; is a `:` missing after an argument?"),
                    );
                }
            }
        }
    }
}

/// Returns the plain text of an argument, if it is one.
pub(super) fn text_of(argument: &Argument) -> Option<&str> {
    match &argument.value {
        ArgumentValue::Plain(Value::String(text)) => Some(text),
        _ => None,
    }
}
