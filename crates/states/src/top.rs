//! Top files: the SLS files for each node.

use crate::jinja::Text;
use crate::matcher::{Subject, is_pattern, matches, matches_glob};
use crate::problem::Problem;
use crate::sls::{Files, Spot, root_map};
use crate::yaml::Node;
use std::sync::Arc;

/// A selected SLS, and the line that selects it.
pub(crate) struct SelectedSls {
    pub(crate) sls: String,
    pub(crate) spot: Spot,
    pub(crate) ignore_missing: bool,
}

/// Reads `top.sls`. Returns nothing if there is none.
pub(crate) fn read(
    files: &Files<'_>,
    subject: Subject<'_>,
) -> Result<Option<Vec<SelectedSls>>, Problem> {
    let Some((path, source)) = files.find("top")? else {
        return Ok(None);
    };
    let top = files.read("top", &path, source)?;
    let mut chosen: Vec<SelectedSls> = Vec::new();
    for (environment, targets) in root_map(&top)? {
        if environment.key_text() != "base" {
            continue;
        }
        let refuse =
            |node: &Node, what: &str| Problem::new(what, Spot::of(&top.text, node).location());
        let targets = match targets.as_map() {
            Some(targets) => targets,
            None if targets.is_null() => &[],
            None => {
                return Err(refuse(
                    targets,
                    "an environment of a top file must be a map of targets",
                ));
            }
        };
        for (target, list) in targets {
            let mut found = one_target(&top.text, target, list, subject)?;
            chosen.append(&mut found);
        }
    }
    let names = if chosen.iter().any(|one| is_pattern(&one.sls)) {
        files.names()?
    } else {
        Vec::new()
    };
    let mut all: Vec<SelectedSls> = Vec::new();
    for one in chosen {
        let mut expanded: Vec<&String> = names
            .iter()
            .filter(|name| matches_glob(&one.sls, name))
            .collect();
        if expanded.is_empty() || !is_pattern(&one.sls) {
            expanded = vec![&one.sls];
        }
        for sls in expanded {
            if all.iter().all(|known| known.sls != *sls) {
                all.push(SelectedSls {
                    sls: sls.clone(),
                    spot: one.spot.clone(),
                    ignore_missing: one.ignore_missing,
                });
            }
        }
    }
    Ok(Some(all))
}

fn one_target(
    text: &Arc<Text>,
    target: &Node,
    list: &Node,
    subject: Subject<'_>,
) -> Result<Vec<SelectedSls>, Problem> {
    let alone = [list.clone()];
    let items = match list.as_list() {
        Some(items) => items,
        None if list.as_text().is_some() => &alone,
        None if list.is_null() => &[],
        None => {
            return Err(Problem::new(
                "a target in a top file must have a list",
                Spot::of(text, list).location(),
            ));
        }
    };
    let option = |name: &str| {
        let maps = items.iter().filter_map(Node::as_map).flatten();
        maps.clone()
            .find(|(key, _)| key.as_text() == Some(name))
            .map(|(_, value)| value.clone())
    };
    let kind = option("match").and_then(|value| value.as_text().map(str::to_owned));
    let ignore_missing =
        option("ignore_missing").is_some_and(|value| value.value == crate::yaml::Yaml::Bool(true));
    let matched = matches(
        kind.as_deref().unwrap_or("compound"),
        &target.key_text(),
        subject,
    );
    let matched = matched
        .map_err(|error| Problem::new(error.to_string(), Spot::of(text, target).location()))?;
    if !matched {
        return Ok(Vec::new());
    }
    let names = items
        .iter()
        .filter_map(|item| Some((item, item.as_text()?)));
    Ok(names
        .map(|(item, sls)| SelectedSls {
            sls: sls.to_owned(),
            spot: Spot::of(text, item),
            ignore_missing,
        })
        .collect())
}
