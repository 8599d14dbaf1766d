//! Removes the parts that a filter excludes, and keeps the order across the gaps.

use std::collections::BTreeMap;

use super::near::near;
use super::units::{UnitDependency, Units};
use crate::filter::Filter;
use crate::problem::{PlanError, SiteProblem};
use crate::site::Site;

pub(super) fn apply_filter(
    units: Units,
    site: &Site,
    filter: &Filter,
    warnings: &mut Vec<String>,
) -> Result<Units, PlanError> {
    if filter.is_empty() {
        return Ok(units);
    }
    refuse_unknown(&units, site, filter)?;
    let keep: Vec<bool> = units
        .list
        .iter()
        .map(|unit| filter.includes(&site.applications[unit.application].name, &unit.node))
        .collect();
    if !keep.contains(&true) {
        return Err(SiteProblem::new("the filter matches nothing").into());
    }
    warn_of_parts(&units, site, &keep, warnings);
    Ok(contract(&units, &keep))
}

fn refuse_unknown(units: &Units, site: &Site, filter: &Filter) -> Result<(), PlanError> {
    let mut problems = Vec::new();
    for wanted in &filter.instances {
        let names = || site.applications.iter().map(|one| one.name.as_str());
        if !names().any(|name| name == wanted) {
            let problem = SiteProblem::new(format!("no application `{wanted}`"));
            problems.push(match near(wanted, names()) {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
    }
    for pattern in &filter.nodes {
        let names = || units.list.iter().map(|unit| unit.node.as_str());
        if !names().any(|name| pattern.matches(name)) {
            let problem = SiteProblem::new(format!(
                "no node of the site matches `{}`",
                pattern.as_str()
            ));
            problems.push(match near(pattern.as_str(), names()) {
                Some(hint) => problem.hint(hint),
                None => problem,
            });
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(PlanError(problems))
    }
}

fn warn_of_parts(units: &Units, site: &Site, keep: &[bool], warnings: &mut Vec<String>) {
    const MOST: usize = 5;
    let mut missing: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut present = std::collections::BTreeSet::new();
    for (at, unit) in units.list.iter().enumerate() {
        if keep[at] {
            present.insert(unit.application);
        } else {
            missing.entry(unit.application).or_default().push(at)
        }
    }
    for (application, missing) in missing {
        if !present.contains(&application) {
            continue;
        }
        let mut named: Vec<String> = missing
            .iter()
            .take(MOST)
            .map(|at| format!("{} on {}", units.list[*at].component, units.list[*at].node))
            .collect();
        if missing.len() > MOST {
            named.push(format!("{} more", missing.len() - MOST));
        }
        let name = &site.applications[application].name;
        warnings.push(format!(
            "{name} is only partly planned; not included: {}",
            named.join(", ")
        ));
    }
}

/// Returns the kept units. Units that waited for each other through removed ones still wait.
fn contract(units: &Units, keep: &[bool]) -> Units {
    let mut place = vec![usize::MAX; units.list.len()];
    let mut list = Vec::new();
    for (at, unit) in units.list.iter().enumerate() {
        if keep[at] {
            place[at] = list.len();
            list.push(unit.clone());
        }
    }
    let needs = (0..units.list.len())
        .filter(|at| keep[*at])
        .map(|at| {
            let mut found: Vec<UnitDependency> = Vec::new();
            let mut seen = std::collections::HashSet::new();
            let mut waiting: Vec<UnitDependency> = units.needs[at].clone();
            while let Some(need) = waiting.pop() {
                if keep[need.from] {
                    found.push(UnitDependency {
                        from: place[need.from],
                        ..need
                    });
                } else if seen.insert(need.from) {
                    let mut through = need.through.clone();
                    through.push(units.list[need.from].component.clone());
                    waiting.extend(units.needs[need.from].iter().map(|next| UnitDependency {
                        from: next.from,
                        capability: None,
                        through: through.clone(),
                    }));
                }
            }
            found
        })
        .collect();
    Units { list, needs }
}
