//! A plan as text.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::{Administration, Connection, NodeName};
use bunraku_plan::{Plan, Step};
use bunraku_wire::api::NodeSummary;

const RULE: &str = "   ------------------------------------------------------------------\n";

/// Lists applications, then groups of nodes in run order, each with its components and the reasons
/// why it waits.
pub(crate) fn text(plan: &Plan) -> String {
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

fn one(plan: &Plan, step: &Step) -> String {
    let mut text = format!("        {}", name(step));
    text.push('\n');
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
        let why = why(wait);
        text.push_str(&format!("                waits for {other}{why}\n"));
    }
    text
}

/// Describes a dependency in a few words.
fn why(wait: &bunraku_plan::Wait) -> String {
    const MOST: usize = 4;
    let needs: BTreeSet<String> = wait
        .reasons
        .iter()
        .map(|reason| match (&reason.needs, reason.through.is_empty()) {
            (Some(needs), _) => needs.clone(),
            (None, true) => format!("after {}", reason.from),
            (None, false) => format!("after {}, through what is left out", reason.from),
        })
        .collect();
    let more = needs.len().saturating_sub(MOST);
    let mut shown: Vec<String> = needs.into_iter().take(MOST).collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    match shown.is_empty() {
        true => String::new(),
        false => format!(": {}", shown.join(", ")),
    }
}

/// Returns the node's name, with the number of the pass if there are several.
pub(crate) fn name(step: &Step) -> String {
    match step.tags.is_empty() {
        true => step.node.to_string(),
        false => format!(
            "{} (pass {}: {})",
            step.node,
            step.pass,
            step.tags.join(", ")
        ),
    }
}

/// Formats a count: `1 node`, `4 nodes`.
pub(crate) fn count(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}

/// Returns warnings about nodes that cannot run now.
pub(crate) fn unfit_nodes(plan: &Plan, nodes: &[NodeSummary]) -> Vec<String> {
    let known: BTreeMap<&NodeName, &NodeSummary> =
        nodes.iter().map(|node| (&node.name, node)).collect();
    let planned: BTreeSet<&NodeName> = plan.steps.iter().map(|step| &step.node).collect();
    let warning = |name: &&NodeName| match known.get(*name) {
        None => Some(format!("{name} is unknown: no such node ever joined")),
        Some(node) => match (&node.status.connection, &node.status.administration) {
            (Connection::Never { .. }, _) => Some(format!("{name} never connected")),
            (Connection::Lost { reason, .. }, _) => Some(format!("{name} is lost: {reason}")),
            (_, Administration::Disabled { reason, by, .. }) => {
                Some(format!("{name} is disabled by {by}: {reason}"))
            }
            _ => None,
        },
    };
    planned.iter().filter_map(warning).collect()
}
