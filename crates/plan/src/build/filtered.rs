//! Removes the parts that a filter excludes, and keeps the order across the gaps.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::NodeName;

use super::near::near;
use super::units::{FoundProblem, UnitDependency, Units};
use crate::filter::Filter;
use crate::problem::{PlanError, SiteProblem};
use crate::site::{Component, Site};

/// Separates the problems of the parts that the filter keeps from those of the parts that it leaves
/// out. The latter are returned as warnings.
pub(super) fn concerned(
    found: Vec<FoundProblem>,
    site: &Site,
    filter: &Filter,
) -> (Vec<SiteProblem>, Vec<String>) {
    let is_kept = |(application, name): &(usize, String)| {
        let application = &site.applications[*application];
        let components = application.components.iter();
        let mut components = components.filter(|one| one.name == *name);
        filter.is_empty() || components.any(|one| keeps(filter, &application.name, one))
    };
    let (kept, left_out): (Vec<FoundProblem>, Vec<FoundProblem>) =
        (found.into_iter()).partition(|found| found.components.iter().any(is_kept));
    let warning = |found: FoundProblem| {
        let SiteProblem {
            message, details, ..
        } = found.problem;
        let details: String = details.iter().map(|line| format!("\n  {line}")).collect();
        format!("in a part that is not included: {message}{details}")
    };
    (
        kept.into_iter().map(|found| found.problem).collect(),
        left_out.into_iter().map(warning).collect(),
    )
}

/// Returns `true` if the filter keeps the component on one of its nodes. A component without a node
/// is kept with its application, unless the filter selects nodes.
fn keeps(filter: &Filter, application: &str, component: &Component) -> bool {
    let nodes = component.nodes.iter();
    let mut nodes = nodes.filter_map(|node| NodeName::new(node.name.clone()).ok());
    if component.nodes.is_empty() {
        filter.selects_no_nodes() && filter.keeps_application(application)
    } else {
        nodes.any(|node| filter.includes(application, &node))
    }
}

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
    warn_of_producers(&units, site, &keep, warnings);
    Ok(contract(&units, &keep))
}

fn refuse_unknown(units: &Units, site: &Site, filter: &Filter) -> Result<(), PlanError> {
    let mut problems = Vec::new();
    for wanted in &filter.instances {
        let names = || site.applications.iter().map(|one| one.name.as_str());
        if !names().any(|name| name == wanted) {
            let problem = SiteProblem::new(format!("no application `{wanted}`"));
            let hint = near(wanted, names()).or_else(|| listed(names().collect()));
            problems.push(match hint {
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

/// Returns a hint with the applications of a site.
fn listed(names: Vec<&str>) -> Option<String> {
    const MOST: usize = 10;
    let more = match names.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let first: Vec<&str> = names.iter().copied().take(MOST).collect();
    (!first.is_empty()).then(|| format!("the site has {}{more}", first.join(", ")))
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

/// Warns of components in applications that are left out completely, if a kept component needs
/// them.
fn warn_of_producers(units: &Units, site: &Site, keep: &[bool], warnings: &mut Vec<String>) {
    let kept = || (0..units.list.len()).filter(|at| keep[*at]);
    let present: BTreeSet<usize> = kept().map(|at| units.list[at].application).collect();
    let mut missing = BTreeSet::new();
    for at in kept() {
        for need in units.needs[at].iter().filter(|need| !keep[need.from]) {
            let from = &units.list[need.from];
            if !present.contains(&from.application) {
                let what = match &need.capability {
                    Some(capability) => format!("needs {capability} from"),
                    None => "comes after".to_owned(),
                };
                missing.insert(format!(
                    "{} {what} {} of {} on {}, which is not in this plan: it must already be in place",
                    units.list[at].component,
                    from.component,
                    site.applications[from.application].name,
                    from.node
                ));
            }
        }
    }
    warnings.extend(missing);
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
