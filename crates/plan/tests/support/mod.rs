//! Graphs and a clock for tests of runs.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bunraku_model::RunId;
use bunraku_plan::run::{Event, RunEnding, RunOptions};
use bunraku_plan::{Application, Component, LocatedName, PlanOptions, RunPlan, Site, StepIndex};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

pub(crate) fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

pub(crate) fn after(milliseconds: i64) -> Timestamp {
    start() + SignedDuration::from_millis(milliseconds)
}

/// Returns the event of a step that ended without changes.
pub(crate) fn ended(step: StepIndex, ending: RunEnding) -> Event {
    Event::Ended {
        step,
        ending,
        changed: 0,
        failed: 0,
        message: None,
        failures: Vec::new(),
        drifted: 0,
    }
}

pub(crate) fn run_id() -> RunId {
    RunId(Uuid::from_u128(0x7f3a))
}

/// Parses a plan. `a -> b`: b waits for a. A line with one name is a node without
/// dependencies.
pub(crate) fn plan(text: &str) -> Arc<RunPlan> {
    let mut needs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let names: Vec<&str> = line.split("->").map(str::trim).collect();
        for name in &names {
            needs.entry(name).or_default();
        }
        for pair in names.windows(2) {
            needs.entry(pair[1]).or_default().push(pair[0]);
        }
    }
    let edges: Vec<(String, Vec<String>)> = needs
        .into_iter()
        .map(|(name, needs)| {
            (
                name.to_owned(),
                needs.into_iter().map(str::to_owned).collect(),
            )
        })
        .collect();
    of_edges(&edges)
}

/// Creates a plan from nodes and the nodes that they wait for.
pub(crate) fn of_edges(edges: &[(String, Vec<String>)]) -> Arc<RunPlan> {
    let components = edges.iter().map(|(name, needs)| Component {
        name: format!("on {name}"),
        nodes: vec![LocatedName::new(name)],
        waits_for: needs
            .iter()
            .map(|need| LocatedName::new(format!("on {need}")))
            .collect(),
        ..Component::default()
    });
    let site = Site {
        environment: "production".to_owned(),
        applications: vec![Application {
            name: "a".to_owned(),
            components: components.collect(),
        }],
        ..Site::default()
    };
    Arc::new(bunraku_plan::plan_site(&site, &PlanOptions::default()).expect("a plan"))
}

/// Creates a graph of `count` nodes with about `edges` edges and no cycles.
pub(crate) fn random(count: usize, edges: usize, random: &mut Random) -> Arc<RunPlan> {
    let mut nodes: Vec<(String, Vec<String>)> = (0..count)
        .map(|number| (format!("n{number:05}"), Vec::new()))
        .collect();
    for _ in 0..edges {
        let (one, other) = (random.below(count), random.below(count));
        if one != other {
            let (early, late) = (one.min(other), one.max(other));
            let name = nodes[early].0.clone();
            if !nodes[late].1.contains(&name) {
                nodes[late].1.push(name);
            }
        }
    }
    of_edges(&nodes)
}

pub(crate) fn step_of(plan: &RunPlan, node: &str) -> StepIndex {
    let at = plan
        .steps
        .iter()
        .position(|step| step.node.as_str() == node);
    StepIndex(u32::try_from(at.expect("a node of the plan")).expect("few steps"))
}

/// A random generator that depends only on its seed (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }
}

/// Forms batches, if the options ask for them: by the text after the last `-` of each name.
pub(crate) fn batched(plan: Arc<RunPlan>, options: &RunOptions) -> Arc<RunPlan> {
    if options.batch_by.is_none() {
        return plan;
    }
    let mut plan = plan.as_ref().clone();
    for step in &mut plan.steps {
        let batch = step.node.as_str().rsplit('-').next();
        step.batch = batch.map(str::to_owned);
    }
    Arc::new(plan)
}
