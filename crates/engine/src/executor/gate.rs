//! Decides if a node may run, given the results of the nodes before it. Pure.

use super::salt_gate::{self, Answer, NoopResult};
use super::schedule::FinishedMark;
use crate::Reason;
use crate::plan::{CatalogPlan, Edge, EdgeKind};

/// The combined decision of the edges into a node.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum GateDecision {
    Run {
        /// A change of this node refreshes it.
        refreshed_by: Option<u32>,
        /// Noop: something before it would change.
        upstream_pending: bool,
    },
    /// It does not run, for these reasons: every dependency that failed, or another reason.
    Skip(Vec<Reason>),
    /// A state with `prereq`: its targets have to be looked at first.
    Look,
}

/// Returns the decision for a state, by Salt's rules.
pub(super) fn decide_state(
    plan: &CatalogPlan,
    node: u32,
    marks: &[FinishedMark],
    looks: &[NoopResult],
) -> GateDecision {
    let reference = |node: u32| plan.reference_of(node).clone();
    match salt_gate::answer(plan, node, marks, looks, true) {
        Answer::Run { refreshed_by } => GateDecision::Run {
            refreshed_by,
            // Each state that would change may create what this one needs: states run in order.
            upstream_pending: marks.iter().take(node as usize).any(|mark| mark.pending)
                || (plan.graph.incoming(node).iter()).any(|edge| marks[edge.from as usize].pending),
        },
        Answer::NotAskedFor(requisite) => {
            GateDecision::Skip(vec![Reason::NotAskedFor { requisite }])
        }
        Answer::Failed(causes) => {
            // Would it run if no other state looked at it?
            let alone = salt_gate::answer(plan, node, marks, looks, false);
            let reason = |cause: u32| match alone {
                Answer::Failed(_) => Reason::DependencyFailed(reference(cause)),
                _ => Reason::PrerequisiteFailed(reference(cause)),
            };
            GateDecision::Skip(causes.into_iter().map(reason).collect())
        }
    }
}

/// Returns the decision of all edges into a step.
pub(super) fn decide(plan: &CatalogPlan, node: u32, marks: &[FinishedMark]) -> GateDecision {
    if plan.steps[node as usize].state.is_some() {
        return if plan.probes.contains_key(&node) {
            GateDecision::Look
        } else {
            decide_state(plan, node, marks, &[])
        };
    }
    let incoming = plan.graph.incoming(node);
    let mark = |edge: &Edge| marks[edge.from as usize];
    let mut refreshed_by = None;
    for edge in incoming {
        if matches!(edge.kind, EdgeKind::Refresh | EdgeKind::Contain) && mark(edge).changed {
            refreshed_by.get_or_insert(mark(edge).changer);
        }
    }
    let mut reasons: Vec<Reason> = Vec::new();
    for (position, edge) in incoming.iter().enumerate() {
        let first_of_group = edge.group == 0
            || !incoming[..position]
                .iter()
                .any(|earlier| earlier.group == edge.group);
        if !first_of_group {
            continue;
        }
        let members = incoming.iter().filter(|other| {
            if edge.group == 0 {
                std::ptr::eq(*other, edge)
            } else {
                other.group == edge.group
            }
        });
        let reason = refusal(plan, edge, members, marks);
        reasons.extend(reason.filter(|reason| !reasons.contains(reason)));
    }
    if !reasons.is_empty() {
        // Failures are the answer. Without any, the first other reason is.
        let is_failure = |reason: &Reason| !matches!(reason, Reason::NotAskedFor { .. });
        if reasons.iter().any(is_failure) {
            reasons.retain(is_failure);
        }
        if !is_failure(&reasons[0]) {
            reasons.truncate(1);
        }
        return GateDecision::Skip(reasons);
    }
    GateDecision::Run {
        refreshed_by,
        upstream_pending: incoming.iter().any(|edge| mark(edge).pending),
    }
}

/// Returns why a group of edges (often a single one) blocks the node, if it does.
fn refusal<'a>(
    plan: &CatalogPlan,
    edge: &Edge,
    mut members: impl Iterator<Item = &'a Edge> + Clone,
    marks: &[FinishedMark],
) -> Option<Reason> {
    let mark = |member: &Edge| marks[member.from as usize];
    let failed = members.clone().map(mark).find(|mark| mark.failed);
    let culprit = |mark: FinishedMark| plan.reference_of(mark.cause).clone();
    match edge.kind {
        EdgeKind::Require | EdgeKind::Refresh | EdgeKind::Contain => {
            let held = if edge.all {
                failed.is_some()
            } else {
                members.all(|member| mark(member).failed)
            };
            held.then(|| Reason::DependencyFailed(culprit(failed.expect("one member failed"))))
        }
        EdgeKind::Prereq => failed.map(|mark| Reason::PrerequisiteFailed(culprit(mark))),
        EdgeKind::OnChanges => {
            let mut fires = members.map(|member| mark(member).changed && !mark(member).failed);
            let asked = if edge.all {
                fires.all(|fires| fires)
            } else {
                fires.any(|fires| fires)
            };
            (!asked).then_some(Reason::NotAskedFor {
                requisite: "onchanges",
            })
        }
        EdgeKind::OnFail => {
            let asked = if edge.all {
                members.all(|member| mark(member).failed)
            } else {
                failed.is_some()
            };
            (!asked).then_some(Reason::NotAskedFor {
                requisite: "onfail",
            })
        }
        EdgeKind::Order => None,
    }
}

/// Returns the mark that a node without work passes on. A node that is left out passes
/// on no change, and counts as one that had nothing to do.
pub(super) fn passing_mark(plan: &CatalogPlan, node: u32, marks: &[FinishedMark]) -> FinishedMark {
    let mark = container_mark(plan, node, marks);
    if plan.is_left_out(node) {
        FinishedMark {
            changed: false,
            result: Some(!mark.failed),
            ..mark
        }
    } else {
        mark
    }
}

/// Returns a container's mark. It passes on failures and refreshes, and does nothing itself.
fn container_mark(plan: &CatalogPlan, node: u32, marks: &[FinishedMark]) -> FinishedMark {
    let mut mark = FinishedMark {
        done: true,
        cause: node,
        ..FinishedMark::default()
    };
    for edge in plan.graph.incoming(node) {
        let before = marks[edge.from as usize];
        mark.pending |= before.pending;
        let passes = matches!(edge.kind, EdgeKind::Refresh | EdgeKind::Contain);
        if before.changed && passes && !mark.changed {
            mark.changed = true;
            mark.changer = before.changer;
        }
        if before.failed && edge.kind != EdgeKind::Order && !mark.failed {
            mark.failed = true;
            mark.cause = before.cause;
        }
    }
    mark
}
