//! Two plans compared: which steps are the same, and what differs.

use std::collections::{BTreeMap, BTreeSet};

use bunraku_model::NodeName;
use bunraku_wire::api::ordered_runs::{
    PlanStep, PlannedComponent, PlannedWork, RunPlan, StepIndex,
};
use serde::Serialize;
use serde_json::Value;

/// One difference between two plans.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PlanDifference {
    /// The node that it concerns. `None` for the plan as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    pub change: String,
}

impl std::fmt::Display for PlanDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}: {}", self.change),
            None => f.write_str(&self.change),
        }
    }
}

/// Returns the steps of a plan that are the same in an earlier plan and succeeded there. A step that
/// waits for a changed one runs again.
pub fn unchanged_steps(
    before: &RunPlan,
    plan: &RunPlan,
    succeeded: impl Fn(StepIndex) -> bool,
) -> Vec<StepIndex> {
    let known: BTreeMap<(&NodeName, u32), (StepIndex, &PlanStep)> = (0..)
        .map(StepIndex)
        .zip(&before.steps)
        .map(|(index, step)| ((&step.node, step.pass), (index, step)))
        .collect();
    let mut unchanged = BTreeSet::new();
    let same_kind = before.options.noop == plan.options.noop && before.subject == plan.subject;
    for (index, step) in (0..).map(StepIndex).zip(&plan.steps) {
        let earlier = known.get(&(&step.node, step.pass));
        let is_done = earlier.is_some_and(|(earlier, old)| {
            succeeded(*earlier)
                && is_same_work(old, step)
                && old.components == step.components
                && old.tags == step.tags
        });
        let rests_on_done = (step.waits_for.iter()).all(|wait| unchanged.contains(&wait.step));
        if same_kind && is_done && rests_on_done {
            unchanged.insert(index);
        }
    }
    unchanged.into_iter().collect()
}

/// Returns what differs between two plans, the plan as a whole first, then node by node.
pub fn plan_differences(before: &RunPlan, after: &RunPlan) -> Vec<PlanDifference> {
    let mut changes = Vec::new();
    let mut whole = |change: String| changes.push(PlanDifference { node: None, change });
    if before.environment != after.environment {
        let (old, new) = (&before.environment, &after.environment);
        whole(format!("environment: {old} -> {new}"));
    }
    if before.code_id != after.code_id {
        let text = |code: &Option<String>| code.clone().unwrap_or_else(|| "none".to_owned());
        let (old, new) = (text(&before.code_id), text(&after.code_id));
        whole(format!("code: {old} -> {new}"));
    }
    for change in value_changes(&json(&before.options), &json(&after.options)) {
        whole(format!("option {change}"));
    }
    for change in value_changes(&json(&before.subject), &json(&after.subject)) {
        whole(format!("request {change}"));
    }
    let (old, new) = (by_node(before), by_node(after));
    let nodes: BTreeSet<&NodeName> = old.keys().chain(new.keys()).copied().collect();
    for node in nodes {
        let found = match (old.get(node), new.get(node)) {
            (Some(_), None) => vec!["no longer in the plan".to_owned()],
            (None, Some(steps)) => vec![match &steps[0].work {
                Some(work) => format!("new in the plan, with {work}"),
                None => "new in the plan".to_owned(),
            }],
            (Some(old), Some(new)) => step_changes(old, new),
            (None, None) => Vec::new(),
        };
        changes.extend(found.into_iter().map(|change| PlanDifference {
            node: Some(node.clone()),
            change,
        }));
    }
    changes
}

fn is_same_work(one: &PlanStep, other: &PlanStep) -> bool {
    match (&one.work, &other.work) {
        (Some(one), Some(other)) => one.is_same(other),
        (one, other) => one == other,
    }
}

fn by_node(plan: &RunPlan) -> BTreeMap<&NodeName, Vec<&PlanStep>> {
    let mut nodes: BTreeMap<&NodeName, Vec<&PlanStep>> = BTreeMap::new();
    for step in &plan.steps {
        nodes.entry(&step.node).or_default().push(step);
    }
    nodes
}

fn step_changes(old: &[&PlanStep], new: &[&PlanStep]) -> Vec<String> {
    let mut changes = Vec::new();
    if old.len() != new.len() {
        changes.push(format!("runs {} times instead of {}", new.len(), old.len()));
    }
    for (old, new) in old.iter().zip(new) {
        if !is_same_work(old, new) {
            let text = |work: &Option<PlannedWork>| {
                work.as_ref()
                    .map_or_else(|| "unknown work".to_owned(), PlannedWork::to_string)
            };
            changes.push(format!("{} -> {}", text(&old.work), text(&new.work)));
        }
        if old.tags != new.tags {
            let text = |tags: &[String]| match tags {
                [] => "everything".to_owned(),
                tags => tags.join(", "),
            };
            changes.push(format!("tags: {} -> {}", text(&old.tags), text(&new.tags)));
        }
        let waits = |step: &PlanStep| -> BTreeSet<String> {
            let nodes = step.waits_for.iter().map(|wait| wait.node.to_string());
            nodes.collect()
        };
        let (before, after) = (waits(old), waits(new));
        for node in after.difference(&before) {
            changes.push(format!("now waits for {node}"));
        }
        for node in before.difference(&after) {
            changes.push(format!("no longer waits for {node}"));
        }
        changes.extend(component_changes(&old.components, &new.components));
    }
    changes
}

fn component_changes(old: &[PlannedComponent], new: &[PlannedComponent]) -> Vec<String> {
    let names = |list: &'_ [PlannedComponent]| -> BTreeMap<(String, String), PlannedComponent> {
        let named = list.iter().map(|one| {
            let name = (one.application.clone(), one.component.clone());
            (name, one.clone())
        });
        named.collect()
    };
    let (old, new) = (names(old), names(new));
    let mut changes = Vec::new();
    for (name @ (_, component), one) in &new {
        let Some(before) = old.get(name) else {
            changes.push(format!("{component} added"));
            continue;
        };
        let parameters: BTreeSet<&String> = (before.parameters.keys())
            .chain(one.parameters.keys())
            .filter(|name| before.parameters.get(*name) != one.parameters.get(*name))
            .collect();
        for parameter in parameters {
            changes.push(format!("{component}: `{parameter}` has another value"));
        }
        if (&before.produces, &before.consumes) != (&one.produces, &one.consumes) {
            changes.push(format!("{component}: other capabilities"));
        }
    }
    for (_, component) in old.keys().filter(|name| !new.contains_key(*name)) {
        changes.push(format!("{component} removed"));
    }
    changes
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("plain data")
}

/// Returns the members of two objects that differ: `noop: false -> true`.
fn value_changes(before: &Value, after: &Value) -> Vec<String> {
    let empty = serde_json::Map::new();
    let (before, after) = (
        before.as_object().unwrap_or(&empty),
        after.as_object().unwrap_or(&empty),
    );
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => "none".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| {
            let (old, new) = (text(before.get(name)), text(after.get(name)));
            format!("{name}: {old} -> {new}")
        })
        .collect()
}
