//! Turns a site into a plan, or into a list of everything that is wrong with the site.

mod cycle;
mod filtered;
mod graph;
mod near;
mod outputs;
mod passes;
mod units;

use std::collections::BTreeMap;

use crate::filter::Filter;
use crate::problem::PlanError;
use crate::site::Site;
use bunraku_wire::api::ordered_runs::{
    DependencyReason, OrderedRunSubject, PlanId, PlanStep, PlannedComponent, RunOptions, RunPlan,
    StepDependency, StepIndex,
};
use graph::Graph;
use units::{Unit, Units};

/// Options of planning.
#[derive(Clone, Debug, Default)]
pub struct PlanOptions {
    pub filter: Filter,
    /// Runs nodes in passes if they wait for each other in a cycle.
    pub passes: bool,
}

/// Plans a site. Problems in parts that the filter leaves out become warnings.
pub fn plan_site(site: &Site, options: &PlanOptions) -> Result<RunPlan, PlanError> {
    let (mut whole, found) = units::read(site);
    let mut warnings = site.notes.clone();
    outputs::add(site, &mut whole, &mut warnings);
    let cycles = cycle::between_components(&whole);
    let (mut problems, left_out) = filtered::concerned(found, site, &options.filter);
    let (cycles, cycles_left_out) = filtered::concerned(cycles, site, &options.filter);
    warnings.extend(left_out.into_iter().chain(cycles_left_out));
    let filtered = filtered::apply_filter(whole, site, &options.filter, &mut warnings);
    let units = filtered.unwrap_or_else(|PlanError(unknown)| {
        problems.extend(unknown);
        Units::default()
    });
    // Components in a cycle put their nodes into one as well: that is not another problem.
    let groups = if cycles.is_empty() {
        assigned(&units, options)
    } else {
        Err(PlanError(cycles))
    };
    match groups {
        Ok(groups) if problems.is_empty() => Ok(planned(site, &units, &groups, warnings)),
        Ok(_) => Err(PlanError(problems)),
        Err(PlanError(more)) => {
            problems.extend(more);
            Err(PlanError(problems))
        }
    }
}

/// Returns the step that each unit belongs to: by node, or by node and pass.
fn assigned(units: &Units, options: &PlanOptions) -> Result<Vec<(usize, u32)>, PlanError> {
    let nodes = units.node_numbers();
    let by_node: Vec<(usize, u32)> = nodes.iter().map(|node| (*node, 1)).collect();
    match cycle::between_nodes(units, &by_node) {
        None => Ok(by_node),
        Some(_) if options.passes => Ok(passes::split(units, &nodes)),
        Some(problem) => Err(problem.into()),
    }
}

fn planned(site: &Site, units: &Units, groups: &[(usize, u32)], warnings: Vec<String>) -> RunPlan {
    let mut members: BTreeMap<(usize, u32), Vec<usize>> = BTreeMap::new();
    for (unit, group) in groups.iter().enumerate() {
        members.entry(*group).or_default().push(unit);
    }
    let number: BTreeMap<(usize, u32), usize> = members.keys().copied().zip(0..).collect();
    let waits = waits(units, groups, &number);
    let graph = Graph::new(
        waits
            .iter()
            .map(|waits| waits.keys().copied().collect())
            .collect(),
    );
    let levels = graph.levels();
    let members: Vec<Vec<usize>> = members.into_values().collect();

    let mut order: Vec<usize> = (0..members.len()).collect();
    let first = |step: usize| &units.list[members[step][0]];
    let pass = |step: usize| groups[members[step][0]].1;
    order.sort_by_key(|step| (levels[*step], &first(*step).node, pass(*step)));
    let mut place = vec![0u32; order.len()];
    for (at, step) in (0..).zip(&order) {
        place[*step] = at;
    }
    let in_passes: std::collections::BTreeSet<usize> = groups
        .iter()
        .filter(|(_, pass)| *pass > 1)
        .map(|(node, _)| *node)
        .collect();
    let steps: Vec<PlanStep> = order
        .iter()
        .map(|step| PlanStep {
            node: first(*step).node.clone(),
            pass: pass(*step),
            group: levels[*step],
            components: components(site, units, &members[*step]),
            waits_for: waited(units, &members, &place, &waits[*step]),
            tags: if in_passes.contains(&groups[members[*step][0]].0) {
                tags(units, &members[*step])
            } else {
                Vec::new()
            },
            batch: None,
            work: None,
        })
        .collect();
    finished(site, units, steps, warnings)
}

fn finished(site: &Site, units: &Units, steps: Vec<PlanStep>, warnings: Vec<String>) -> RunPlan {
    let mut groups: Vec<Vec<_>> = Vec::new();
    for step in &steps {
        let at = step.group as usize;
        groups.resize_with(groups.len().max(at), Vec::new);
        groups[at - 1].push(step.node.clone());
    }
    let mut applications: Vec<String> = units
        .list
        .iter()
        .map(|unit| site.applications[unit.application].name.clone())
        .collect();
    applications.sort();
    applications.dedup();
    let mut plan = RunPlan {
        id: PlanId(bunraku_model::ContentId::of(b"")),
        environment: site.environment.clone(),
        code_id: site.code_id.clone(),
        applications,
        groups,
        steps,
        options: RunOptions::default(),
        subject: OrderedRunSubject::default(),
        warnings,
    };
    plan.id = plan.identity();
    plan
}

/// For each step, the steps that it waits for, each with the edges between units.
type StepWaits = BTreeMap<usize, Vec<(usize, usize)>>;

fn waits(
    units: &Units,
    groups: &[(usize, u32)],
    number: &BTreeMap<(usize, u32), usize>,
) -> Vec<StepWaits> {
    let mut waits: Vec<StepWaits> = vec![StepWaits::new(); number.len()];
    for (unit, needs) in units.needs.iter().enumerate() {
        let step = number[&groups[unit]];
        for (at, need) in needs.iter().enumerate() {
            let from = number[&groups[need.from]];
            if from != step {
                waits[step].entry(from).or_default().push((unit, at));
            }
        }
    }
    // The passes of a node run one after the other.
    for ((node, pass), step) in number {
        if let Some(before) = number.get(&(*node, pass.saturating_sub(1))) {
            waits[*step].entry(*before).or_default();
        }
    }
    waits
}

fn waited(
    units: &Units,
    members: &[Vec<usize>],
    place: &[u32],
    waits: &StepWaits,
) -> Vec<StepDependency> {
    let mut waited: Vec<StepDependency> = waits
        .iter()
        .map(|(from, edges)| {
            let mut reasons: Vec<DependencyReason> = edges
                .iter()
                .map(|(unit, at)| reason(units, *unit, *at))
                .collect();
            reasons.sort();
            reasons.dedup();
            StepDependency {
                node: units.list[members[*from][0]].node.clone(),
                step: StepIndex(place[*from]),
                reasons,
            }
        })
        .collect();
    waited.sort_by_key(|wait| wait.step);
    waited
}

fn reason(units: &Units, unit: usize, at: usize) -> DependencyReason {
    let need = &units.needs[unit][at];
    DependencyReason {
        component: units.list[unit].component.clone(),
        needs: need.capability.clone(),
        from: units.list[need.from].component.clone(),
        through: need.through.clone(),
    }
}

fn components(site: &Site, units: &Units, members: &[usize]) -> Vec<PlannedComponent> {
    let one = |unit: &Unit| PlannedComponent {
        application: site.applications[unit.application].name.clone(),
        component: unit.component.clone(),
        produces: unit.produces.clone(),
        consumes: unit.consumes.clone(),
        parameters: unit.parameters.clone(),
    };
    let mut components: Vec<_> = members.iter().map(|unit| one(&units.list[*unit])).collect();
    components.sort();
    components
}

fn tags(units: &Units, members: &[usize]) -> Vec<String> {
    let mut tags: Vec<String> = members
        .iter()
        .flat_map(|unit| units.list[*unit].tags.clone())
        .collect();
    tags.sort();
    tags.dedup();
    tags
}
