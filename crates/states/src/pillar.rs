//! Data for states ("pillar"): files selected by a top file and merged.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::jinja::{Renderer, Scope, taint};
use crate::matcher::Subject;
use crate::merge::merge;
use crate::problem::{CompileError, Problem};
use crate::sls::{Files, Shadow, Spot, root_map};
use crate::top;
use crate::world::{Tree, World};

const DEEPEST_INCLUDE: usize = 64;

/// Renders and merges the data of a node. `over` wins over all files. With `facts`, they must not
/// create structure.
pub(crate) fn read(
    world: &Arc<dyn World>,
    node: &str,
    grains: &Map<String, Value>,
    over: &Map<String, Value>,
    facts: Option<&Map<String, Value>>,
) -> Result<Map<String, Value>, CompileError> {
    let scope = Arc::new(Scope::new(
        Arc::clone(world),
        node,
        grains.clone(),
        over.clone(),
    ));
    let renderer = Renderer::new(Tree::Pillar, Arc::clone(&scope));
    let shadow = facts.map(|facts| {
        let scope = scope.shadow(taint::encoded(grains), over.clone());
        Renderer::shadow(Tree::Pillar, Arc::new(scope), facts)
    });
    let files = Files {
        tree: Tree::Pillar,
        world: &**world,
        renderer: &renderer,
        shadow: shadow.as_ref().map(|renderer| Shadow {
            renderer,
            may_target: true,
        }),
    };
    let subject = Subject {
        node,
        grains,
        pillar: over,
    };
    let mut data = Value::Object(Map::new());
    let mut problems = Vec::new();
    for chosen in top::read(&files, subject)?.into_iter().flatten() {
        let mut seen = HashSet::new();
        match one(&files, &chosen.sls, Some(&chosen.spot), &mut seen, 0) {
            Ok(Some(found)) => merge(&mut data, found),
            Ok(None) if chosen.ignore_missing => {}
            Ok(None) => problems.push(missing(&files, &chosen.sls, &chosen.spot)),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(CompileError(problems));
    }
    merge(&mut data, Value::Object(over.clone()));
    match data {
        Value::Object(data) => Ok(data),
        _ => Ok(Map::new()),
    }
}

fn missing(files: &Files<'_>, sls: &str, spot: &Spot) -> Problem {
    let names = files.names().unwrap_or_default();
    Problem::new(format!("no data file `{sls}`"), spot.location())
        .near(sls, names.iter().map(String::as_str))
}

/// Reads one file with its includes. Its own data wins over theirs.
fn one(
    files: &Files<'_>,
    sls: &str,
    from: Option<&Spot>,
    seen: &mut HashSet<String>,
    depth: usize,
) -> Result<Option<Value>, Problem> {
    if depth > DEEPEST_INCLUDE || !seen.insert(sls.to_owned()) {
        return Ok(Some(Value::Object(Map::new())));
    }
    let Some((path, source)) = files.find(sls)? else {
        return match from {
            Some(spot) if depth > 0 => Err(missing(files, sls, spot)),
            _ => Ok(None),
        };
    };
    let file = files.read(sls, &path, source)?;
    let mut data = Value::Object(Map::new());
    let mut own = Map::new();
    for (key, value) in root_map(&file)? {
        if key.as_text() != Some("include") {
            own.insert(key.key_text(), value.to_json());
            continue;
        }
        for item in value.as_list().unwrap_or_default() {
            let spot = Spot::of(&file.text, item);
            let name = match (item.as_text(), item.as_map()) {
                (Some(name), _) => name.to_owned(),
                (None, Some([(name, _)])) => name.key_text(),
                _ => {
                    return Err(Problem::new(
                        "an include must be the name of a data file",
                        spot.location(),
                    ));
                }
            };
            let name = crate::high::absolute(&file, &name, &spot)?;
            if let Some(mut found) = one(files, &name, Some(&spot), seen, depth + 1)? {
                if let Some(key) = nested_key(item) {
                    found = key.rsplit(':').fold(found, |inner, part| {
                        Value::Object(Map::from_iter([(part.to_owned(), inner)]))
                    });
                }
                merge(&mut data, found);
            }
        }
    }
    merge(&mut data, Value::Object(own));
    Ok(Some(data))
}

/// Returns the key of `- web: {key: sites}`, which puts the file's data below `sites`.
fn nested_key(item: &crate::yaml::Node) -> Option<String> {
    let [(_, options)] = item.as_map()? else {
        return None;
    };
    let (_, value) = options
        .as_map()?
        .iter()
        .find(|(key, _)| key.as_text() == Some("key"))?;
    value.as_text().map(str::to_owned)
}
