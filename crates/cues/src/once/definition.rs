//! Definitions of once tasks, checked and in one form. Pure.
//!
//! The JSON belongs to the deploy host: fields that are not named here are passed
//! on unchanged. Fields that are named here are checked, so that a mistake is
//! reported when the definition is written and not when the command runs.

use std::collections::BTreeMap;

use bunraku_model::{NodeMatcher, NodeName};
use bunraku_wire::api::once::OnceAction;
use serde_json::{Map, Value};

use super::sites::Sites;

/// The error for an invalid definition.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the definition's `{place}` {why}")]
pub(crate) struct DefinitionError {
    place: String,
    why: String,
}

pub(super) fn invalid(place: impl Into<String>, why: impl Into<String>) -> DefinitionError {
    DefinitionError {
        place: place.into(),
        why: why.into(),
    }
}

/// The number of times that a failed attempt may be repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Retry {
    Never,
    Times(u64),
    Always,
}

/// The hosts whose fragments make the set complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Expected {
    Nobody,
    Number(u64),
    Hosts(Vec<NodeName>),
    /// Every node that this query finds when it is evaluated.
    Query(String),
}

/// A parsed definition.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Definition {
    /// The JSON, with `sites` as site → hosts, whatever their original place and form.
    pub document: Map<String, Value>,
    pub work: OnceAction,
    pub retry: Retry,
    pub expected: Expected,
    /// The only hosts that may run it; empty means the hosts that operators permit.
    pub init_on: Vec<NodeMatcher>,
    /// The hosts that may contribute a fragment, besides the expected ones.
    pub contributors: Vec<NodeMatcher>,
}

impl Definition {
    pub(crate) fn parse(mut document: Map<String, Value>) -> Result<Self, DefinitionError> {
        check_instance(&document)?;
        for place in ["permissions", "environment"] {
            is_object(document.get(place), place)?;
        }
        texts(document.get("services"), "services")?;
        deploy_directory(document.get("deploy_dir"), "deploy_dir")?;
        normalise_sites(&mut document, "sites")?;
        if let Some(Value::Object(deploy)) = document.get_mut("deploy") {
            deploy_directory(deploy.get("deploy_dir"), "deploy.deploy_dir")?;
            normalise_sites(deploy, "deploy.sites")?;
        }
        Ok(Self {
            work: work(&document)?,
            retry: retry(document.get("retry"))?,
            expected: expected(document.get("expected_hosts"))?,
            init_on: matchers(document.get("init_on"), "init_on")?,
            contributors: matchers(document.get("contributors"), "contributors")?,
            document,
        })
    }

    /// Merges definition and fragments into the input of the command.
    pub(crate) fn merged(
        &self,
        fragments: &BTreeMap<NodeName, Map<String, Value>>,
    ) -> Map<String, Value> {
        let mut document = self.document.clone();
        if fragments.is_empty() {
            return document;
        }
        add_hosts(&mut document, fragments);
        let parts = fragments
            .iter()
            .map(|(host, fragment)| (host.to_string(), Value::Object(fragment.clone())))
            .collect();
        document.insert("fragments".to_owned(), Value::Object(parts));
        document
    }
}

/// Adds the hosts that contributed to the sites. These are the sites of `deploy`,
/// where moku reads them, if it has any.
fn add_hosts(
    document: &mut Map<String, Value>,
    fragments: &BTreeMap<NodeName, Map<String, Value>>,
) {
    let mut placed = fragments
        .iter()
        .filter_map(|(host, fragment)| Some((host, datacentre(fragment)?)))
        .peekable();
    if placed.peek().is_none() {
        return;
    }
    let nested = document
        .get("deploy")
        .and_then(|deploy| deploy.get("sites"));
    let within = match (nested.is_some(), document.get_mut("deploy")) {
        (true, Some(Value::Object(deploy))) => deploy,
        _ => document,
    };
    // A parsed definition has valid sites.
    let known = within.get("sites");
    let mut sites = known
        .and_then(|sites| Sites::parse(sites, "sites").ok())
        .unwrap_or_default();
    for (host, site) in placed {
        sites.move_to(host, site);
    }
    within.insert("sites".to_owned(), sites.to_value());
}

/// The site that a fragment names for its host.
fn datacentre(fragment: &Map<String, Value>) -> Option<&str> {
    fragment
        .get("datacentre")
        .or_else(|| fragment.get("datacenter"))?
        .as_str()
}

fn work(document: &Map<String, Value>) -> Result<OnceAction, DefinitionError> {
    match (document.get("command"), document.get("states")) {
        (Some(_), Some(_)) => Err(invalid("states", "excludes `command`; set one of them")),
        (Some(Value::String(text)), None) if !text.trim().is_empty() => {
            Ok(OnceAction::Shell(text.clone()))
        }
        (Some(command @ Value::Array(_)), None) => {
            let words = texts(Some(command), "command")?;
            match words.first() {
                Some(program) if !program.is_empty() => Ok(OnceAction::Command(words)),
                _ => Err(invalid("command", "has no program")),
            }
        }
        (Some(_), None) => Err(invalid("command", "must be a string or a list of strings")),
        (None, Some(Value::String(path))) if path.starts_with('/') => {
            Ok(OnceAction::States(path.clone()))
        }
        (None, Some(_)) => Err(invalid(
            "states",
            "must be the absolute path of a state file",
        )),
        (None, None) => Err(invalid(
            "command",
            "is missing: it defines what an init runs",
        )),
    }
}

fn retry(value: Option<&Value>) -> Result<Retry, DefinitionError> {
    match value {
        None => Ok(Retry::Never),
        Some(Value::String(text)) if text == "never" => Ok(Retry::Never),
        Some(Value::String(text)) if text == "always" => Ok(Retry::Always),
        Some(Value::Number(number)) if number.is_u64() => {
            Ok(Retry::Times(number.as_u64().unwrap_or(0)))
        }
        Some(_) => Err(invalid("retry", "must be `never`, `always` or a number")),
    }
}

fn expected(value: Option<&Value>) -> Result<Expected, DefinitionError> {
    let place = "expected_hosts";
    match value {
        None | Some(Value::Null) => Ok(Expected::Nobody),
        Some(Value::Number(number)) => number
            .as_u64()
            .map(Expected::Number)
            .ok_or_else(|| invalid(place, "must be a non-negative integer")),
        Some(list @ Value::Array(_)) => Ok(Expected::Hosts(names(Some(list), place)?)),
        Some(Value::Object(object)) => match (object.get("query"), object.len()) {
            (Some(Value::String(query)), 1) => Ok(Expected::Query(query.clone())),
            _ => Err(invalid(place, "must be `{\"query\": \"…\"}`")),
        },
        Some(_) => Err(invalid(
            place,
            "must be a number, a list of hosts or a query",
        )),
    }
}

/// Checks that `source`, `deploy`, `infrastructure` and `dev` are repositories.
fn check_instance(document: &Map<String, Value>) -> Result<(), DefinitionError> {
    is_object(document.get("instance"), "instance")?;
    let Some(Value::Object(instance)) = document.get("instance") else {
        return Ok(());
    };
    for part in ["source", "deploy", "infrastructure", "dev"] {
        let place = format!("instance.{part}");
        is_object(instance.get(part), &place)?;
        let Some(Value::Object(repository)) = instance.get(part) else {
            continue;
        };
        for key in ["url", "commitish"] {
            match repository.get(key) {
                Some(Value::String(text)) if !text.is_empty() => {}
                None if key == "commitish" => {}
                _ => return Err(invalid(format!("{place}.{key}"), "must be a string")),
            }
        }
    }
    Ok(())
}

fn deploy_directory(value: Option<&Value>, place: &str) -> Result<(), DefinitionError> {
    match value {
        None => Ok(()),
        Some(Value::String(path)) if path.starts_with('/') => Ok(()),
        Some(_) => Err(invalid(place, "must be an absolute path")),
    }
}

fn is_object(value: Option<&Value>, place: &str) -> Result<(), DefinitionError> {
    match value {
        None | Some(Value::Object(_)) => Ok(()),
        Some(_) => Err(invalid(place, "must be an object")),
    }
}

fn texts(value: Option<&Value>, place: &str) -> Result<Vec<String>, DefinitionError> {
    let refuse = || invalid(place, "must be a list of strings");
    match value {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(refuse))
            .collect(),
        Some(_) => Err(refuse()),
    }
}

fn names(value: Option<&Value>, place: &str) -> Result<Vec<NodeName>, DefinitionError> {
    texts(value, place)?
        .into_iter()
        .map(|text| {
            NodeName::new(text).map_err(|error| invalid(place, format!("is invalid: {error}")))
        })
        .collect()
}

fn matchers(value: Option<&Value>, place: &str) -> Result<Vec<NodeMatcher>, DefinitionError> {
    texts(value, place)?
        .into_iter()
        .map(|text| {
            text.parse()
                .map_err(|error| invalid(place, format!("is invalid: {error}")))
        })
        .collect()
}

/// Converts `sites` to the standard form, if there are any.
fn normalise_sites(within: &mut Map<String, Value>, place: &str) -> Result<(), DefinitionError> {
    if let Some(sites) = within.get_mut("sites") {
        *sites = Sites::parse(sites, place)?.to_value();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(value: Value) -> Result<Definition, String> {
        let Value::Object(document) = value else {
            panic!("a test's definition is an object")
        };
        Definition::parse(document).map_err(|error| error.to_string())
    }

    #[test]
    fn both_forms_of_sites_become_one() {
        let by_host =
            parse(json!({"command": "true", "sites": {"a": "ann-arbor", "b": "chicago"}}));
        let by_datacentre =
            parse(json!({"command": "true", "sites": {"chicago": ["b"], "ann-arbor": ["a"]}}));
        let sites = json!({"ann-arbor": ["a"], "chicago": ["b"]});
        assert_eq!(by_host.expect("valid").document["sites"], sites);
        assert_eq!(by_datacentre.expect("valid").document["sites"], sites);
        let inverted = json!({"user": "u", "nodes": {"a": "x", "b": "x"}});
        let nested = parse(json!({"command": "true", "deploy": {"sites": inverted}}));
        assert_eq!(
            nested.expect("valid").document["deploy"]["sites"],
            json!({"user": "u", "x": ["a", "b"]})
        );
    }

    #[test]
    fn mistakes_are_reported_with_their_location() {
        for (definition, shown) in [
            (
                json!({}),
                "the definition's `command` is missing: it defines what an init runs",
            ),
            (
                json!({"command": []}),
                "the definition's `command` has no program",
            ),
            (
                json!({"command": 1}),
                "the definition's `command` must be a string or a list of strings",
            ),
            (
                json!({"command": "x", "states": "/a.sls"}),
                "the definition's `states` excludes `command`; set one of them",
            ),
            (
                json!({"states": "a.sls"}),
                "the definition's `states` must be the absolute path of a state file",
            ),
            (
                json!({"command": "x", "retry": "often"}),
                "the definition's `retry` must be `never`, `always` or a number",
            ),
            (
                json!({"command": "x", "retry": -1}),
                "the definition's `retry` must be `never`, `always` or a number",
            ),
            (
                json!({"command": "x", "expected_hosts": -1}),
                "the definition's `expected_hosts` must be a non-negative integer",
            ),
            (
                json!({"command": "x", "expected_hosts": {"q": 1}}),
                "the definition's `expected_hosts` must be `{\"query\": \"…\"}`",
            ),
            (
                json!({"command": "x", "sites": {"a": ["h"], "b": ["h"]}}),
                "the definition's `sites` has `h` in both `a` and `b`",
            ),
            (
                json!({"command": "x", "instance": {"source": {"commitish": "main"}}}),
                "the definition's `instance.source.url` must be a string",
            ),
            (
                json!({"command": "x", "deploy_dir": "srv"}),
                "the definition's `deploy_dir` must be an absolute path",
            ),
            (
                json!({"command": "x", "services": "a"}),
                "the definition's `services` must be a list of strings",
            ),
        ] {
            assert_eq!(
                parse(definition.clone()).expect_err("wrong"),
                shown,
                "{definition}"
            );
        }
    }

    #[test]
    fn fragments_stand_beside_the_definition_and_add_their_sites() {
        let definition = parse(json!({"command": ["true"], "sites": {"a": "x"}, "own": 1}));
        let mut fragments = BTreeMap::new();
        let part = json!({"datacentre": "y", "port": 80});
        fragments.insert(
            NodeName::new("b").expect("a name"),
            part.as_object().expect("an object").clone(),
        );
        let merged = definition.expect("valid").merged(&fragments);
        assert_eq!(merged["sites"], json!({"x": ["a"], "y": ["b"]}));
        assert_eq!(merged["fragments"]["b"]["port"], 80);
        assert_eq!(merged["own"], 1);
        let moku = parse(json!({"command": "x", "deploy": {"sites": {"user": "u", "x": ["a"]}}}));
        let merged = moku.expect("valid").merged(&fragments);
        let sites = json!({"user": "u", "x": ["a"], "y": ["b"]});
        assert_eq!(merged["deploy"]["sites"], sites);
        assert_eq!(merged.get("sites"), None);
    }
}
