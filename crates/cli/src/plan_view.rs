//! A plan as text.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::{Administration, Connection, NodeName};
use bunraku_plan::{PlanStep, RunPlan, plan_differences};
use bunraku_wire::api::NodeSummary;

use crate::output::count;

const RULE: &str = "   ------------------------------------------------------------------\n";

/// Lists applications, then groups of nodes in run order, each with its components and the reasons
/// why it waits.
pub(crate) fn text(plan: &RunPlan) -> String {
    let mut out = format!(
        "Site plan {} for the {} environment\n\n{} on {}:\n\n",
        plan.id.0.short(),
        plan.environment,
        count(plan.applications.len(), "application"),
        count(plan.nodes().len(), "managed node"),
    );
    for application in &plan.applications {
        out.push_str(&format!("        {application}\n"));
    }
    out.push_str("\nNode groups and run order:\n");
    for (number, _) in (1u32..).zip(&plan.groups) {
        out.push_str(RULE);
        let steps = plan.steps.iter().filter(|step| step.group == number);
        let texts: Vec<String> = steps.map(|step| one(plan, step)).collect();
        out.push_str(&texts.join("\n"));
        out.push('\n');
    }
    out
}

fn one(plan: &RunPlan, step: &PlanStep) -> String {
    let mut text = format!("        {}", name(step));
    text.push('\n');
    if let Some(work) = &step.work {
        text.push_str(&format!("                applies {work}\n"));
    }
    for component in &step.components {
        text.push_str(&format!(
            "                {} -> {}\n",
            component.application, component.component
        ));
    }
    for wait in &step.waits_for {
        let other = plan
            .step(wait.step)
            .map_or_else(|| wait.node.to_string(), name);
        let why = wait_reason(wait);
        text.push_str(&format!("                waits for {other}{why}\n"));
    }
    text
}

/// Describes a dependency in a few words.
fn wait_reason(wait: &bunraku_plan::StepDependency) -> String {
    const MOST: usize = 4;
    let needs: BTreeSet<String> = wait
        .reasons
        .iter()
        .map(|reason| match (&reason.needs, reason.through.is_empty()) {
            (Some(needs), _) => needs.clone(),
            (None, true) => format!("after {}", reason.from),
            (None, false) => format!(
                "after {}, through nodes that are not in this plan",
                reason.from
            ),
        })
        .collect();
    let more = needs.len().saturating_sub(MOST);
    let mut shown: Vec<String> = needs.into_iter().take(MOST).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    if shown.is_empty() {
        String::new()
    } else {
        format!(": {}", shown.join(", "))
    }
}

/// Returns the node's name, with the number of the pass if there are several.
pub(crate) fn name(step: &PlanStep) -> String {
    if step.tags.is_empty() {
        step.node.to_string()
    } else {
        format!(
            "{} (pass {}: {})",
            step.node,
            step.pass,
            step.tags.join(", ")
        )
    }
}

/// Formats the differences between the plan of an earlier run and a new one.
pub(crate) fn differences(before: &RunPlan, after: &RunPlan) -> String {
    let differences = plan_differences(before, after);
    let (old, new) = (before.id.0.short(), after.id.0.short());
    if differences.is_empty() {
        return format!("The new plan {new} is the same as before.\n");
    }
    let mut out = format!("Differences from plan {old} to plan {new}:\n");
    for difference in differences {
        out.push_str(&format!("   {difference}\n"));
    }
    out
}

/// Returns warnings about nodes that cannot run now.
pub(crate) fn unfit_nodes(plan: &RunPlan, nodes: &[NodeSummary]) -> Vec<String> {
    let known: BTreeMap<&NodeName, &NodeSummary> =
        nodes.iter().map(|node| (&node.name, node)).collect();
    let planned: BTreeSet<&NodeName> = plan.steps.iter().map(|step| &step.node).collect();
    let warning = |name: &&NodeName| match known.get(*name) {
        None => Some(format!(
            "{name} is unknown: no node with this name has joined"
        )),
        Some(node) => match (&node.status.connection, &node.status.administration) {
            (Connection::Never { .. }, _) => Some(format!("{name} has never connected")),
            (Connection::Lost { reason, .. }, _) => Some(format!("{name} is lost: {reason}")),
            (_, Administration::Disabled { reason, by, .. }) => {
                Some(format!("{name} is disabled by {by}: {reason}"))
            }
            _ => None,
        },
    };
    planned.iter().filter_map(warning).collect()
}
