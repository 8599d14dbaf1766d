//! Salt's rules for whether a state may run, given the results of the states before it. Pure.
//!
//! Salt evaluates all requisites of a state together and lets the strongest answer win:
//! a failure, then `prereq`, then `onfail`, then `onchanges`, then a change to refresh
//! for. Follows Salt's `_check_requisites`.

use super::schedule::FinishedMark;
use crate::plan::{CatalogPlan, Edge, EdgeKind};

/// The result of looking at a state in noop. Null means "would change".
#[derive(Clone, PartialEq, Debug)]
pub(super) enum NoopResult {
    /// It may not run: a dependency failed.
    Blocked(u32),
    /// Its own requisites do not request it.
    NotAskedFor(&'static str),
    /// It was observed.
    Result(Option<bool>, Option<String>),
}

/// The combined answer of all requisites of a state.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Answer {
    Run {
        refreshed_by: Option<u32>,
    },
    /// The nodes that failed first, at least one.
    Failed(Vec<u32>),
    NotAskedFor(&'static str),
}

#[derive(Default, Clone, Copy)]
struct Facts {
    fail: bool,
    met: bool,
    change: bool,
    onfail: bool,
    onchanges: bool,
    onchanges_met: bool,
}

impl Facts {
    fn add(&mut self, other: Self) {
        self.fail |= other.fail;
        self.met |= other.met;
        self.change |= other.change;
        self.onfail |= other.onfail;
        self.onchanges |= other.onchanges;
        self.onchanges_met |= other.onchanges_met;
    }
}

/// Returns the answer for a state. `looks` are the looks at its `prereq` targets.
/// `with_prerequisites` is false for a look at the state itself.
pub(super) fn answer(
    plan: &CatalogPlan,
    node: u32,
    marks: &[FinishedMark],
    looks: &[NoopResult],
    with_prerequisites: bool,
) -> Answer {
    let edges = || {
        plan.graph
            .incoming(node)
            .iter()
            .filter(move |edge| match edge.kind {
                EdgeKind::Order => false,
                EdgeKind::Prereq => with_prerequisites,
                _ => true,
            })
    };
    let mut all = Facts::default();
    let mut kinds: Vec<(EdgeKind, bool, u32)> = edges().map(kind_of).collect();
    kinds.sort_by_key(|(kind, all, group)| (*kind as u8, *all, *group));
    kinds.dedup();
    for kind in kinds {
        all.add(one_kind(
            kind,
            edges().filter(|edge| kind_of(edge) == kind),
            marks,
        ));
    }
    let refused = looks.iter().any(|look| {
        !matches!(
            look,
            NoopResult::Result(Some(true) | None, _) | NoopResult::NotAskedFor(_)
        )
    });
    let would_change = looks
        .iter()
        .any(|look| matches!(look, NoopResult::Result(None, _)));
    let would_not = looks.iter().any(|look| {
        matches!(
            look,
            NoopResult::Result(Some(true), _) | NoopResult::NotAskedFor(_)
        )
    });
    if all.fail || refused {
        let blocked = looks.iter().find_map(|look| match look {
            NoopResult::Blocked(cause) => Some(*cause),
            NoopResult::Result(..) | NoopResult::NotAskedFor(_) => None,
        });
        let mut failed: Vec<u32> = Vec::new();
        for mark in edges().map(|edge| marks[edge.from as usize]) {
            if mark.result == Some(false) && !failed.contains(&mark.cause) {
                failed.push(mark.cause);
            }
        }
        let probed = plan
            .probes
            .get(&node)
            .and_then(|targets| targets.first().copied());
        if failed.is_empty() {
            failed.push(blocked.or(probed).unwrap_or(node));
        }
        return Answer::Failed(failed);
    }
    if would_not {
        // One target that would change is enough, regardless of other requisites.
        return if would_change {
            run(&all, edges(), marks)
        } else {
            Answer::NotAskedFor("prereq")
        };
    }
    if all.onfail && !all.onchanges_met {
        Answer::NotAskedFor("onfail")
    } else if all.onchanges && !all.onchanges_met {
        Answer::NotAskedFor("onchanges")
    } else if all.onfail && !all.change {
        Answer::NotAskedFor("onfail")
    } else {
        run(&all, edges(), marks)
    }
}

fn run<'a>(all: &Facts, edges: impl Iterator<Item = &'a Edge>, marks: &[FinishedMark]) -> Answer {
    let changer = || {
        let mut watched = edges.filter(|edge| edge.kind == EdgeKind::Refresh);
        watched
            .find(|edge| marks[edge.from as usize].has_changes)
            .map(|edge| edge.from)
    };
    Answer::Run {
        refreshed_by: if all.change { changer() } else { None },
    }
}

/// Returns the group of an edge: `require`, `require_any`, …. A `prereq` makes its
/// target require it. `onfail` and `onfail_any` are answered separately.
fn kind_of(edge: &Edge) -> (EdgeKind, bool, u32) {
    match edge.kind {
        EdgeKind::Prereq => (EdgeKind::Require, true, 0),
        EdgeKind::OnFail => (EdgeKind::OnFail, edge.all, edge.group),
        kind => (kind, edge.all, 0),
    }
}

fn one_kind<'a>(
    (kind, all, _): (EdgeKind, bool, u32),
    edges: impl Iterator<Item = &'a Edge>,
    marks: &[FinishedMark],
) -> Facts {
    let mut facts = Facts::default();
    for edge in edges {
        let mark = marks[edge.from as usize];
        match kind {
            EdgeKind::OnFail if mark.result == Some(true) => facts.onfail = true,
            EdgeKind::OnFail => facts.met |= !mark.not_run,
            EdgeKind::OnChanges if mark.result == Some(false) || !mark.has_changes => {
                facts.onchanges = true;
            }
            EdgeKind::OnChanges => facts.onchanges_met = true,
            _ if mark.result == Some(false) => facts.fail = true,
            EdgeKind::Refresh if mark.has_changes => facts.change = true,
            _ => facts.met |= !mark.not_run,
        }
    }
    // Not a rule of Salt, which has no `onchanges_all`.
    if all && kind == EdgeKind::OnChanges && facts.onchanges {
        facts.onchanges_met = false;
    }
    if !all {
        if facts.met || facts.change {
            facts.fail = false;
        }
        if facts.onchanges_met {
            facts.onchanges = false;
            facts.fail = false;
        }
        if facts.met {
            facts.onfail = false;
        }
    }
    facts
}
