//! The boxes of a plan's picture, and their positions.
//!
//! A small number of steps is shown one by one. Many steps are bundled: steps of one group
//! that run the same kinds of components and wait for the same bundles become one box, so
//! that 400 nodes stay a picture of an application.

use std::collections::{BTreeMap, BTreeSet};

use super::shorten;
use bunraku_wire::api::ordered_runs::{PlanStep, RunPlan};

/// Maximum number of single steps. More steps are bundled.
const MOST_SINGLE: usize = 40;
/// Maximum number of bundles. More bundles are bundled again, regardless of what they wait
/// for.
const MOST_BUNDLES: usize = 60;
const WIDTH: f64 = 250.0;
const GAP_X: f64 = 110.0;
const GAP_Y: f64 = 18.0;
const LINE: f64 = 17.0;
const TITLE: f64 = 24.0;
pub(super) const TOP: f64 = 84.0;
pub(super) const MARGIN: f64 = 28.0;

pub(super) struct Layout {
    pub(super) boxes: Vec<Bundle>,
    pub(super) edges: Vec<Edge>,
    pub(super) width: f64,
    pub(super) height: f64,
    /// The start of each group's column.
    pub(super) columns: Vec<f64>,
}

pub(super) struct Bundle {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    /// The full text, shown on hover.
    pub(super) full: String,
    pub(super) group: u32,
    pub(super) count: usize,
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) full: String,
}

pub(super) fn layout(plan: &RunPlan) -> Layout {
    let bundle_of = bundles(plan);
    let count = bundle_of.iter().max().map_or(0, |last| last + 1);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (step, bundle) in bundle_of.iter().enumerate() {
        members[*bundle].push(step);
    }
    let mut boxes: Vec<Bundle> = members.iter().map(|steps| bundle(plan, steps)).collect();
    let edges = without_implied_edges(edges(plan, &bundle_of), boxes.len());
    let (width, height, columns) = place(&mut boxes, &edges);
    Layout {
        boxes,
        edges,
        width,
        height,
        columns,
    }
}

/// Returns the bundle of each step, numbered in order of the steps.
fn bundles(plan: &RunPlan) -> Vec<usize> {
    if plan.steps.len() <= MOST_SINGLE {
        return (0..plan.steps.len()).collect();
    }
    let mut fine: Vec<usize> = Vec::with_capacity(plan.steps.len());
    let mut seen: BTreeMap<(u32, BTreeSet<&str>, BTreeSet<usize>), usize> = BTreeMap::new();
    for step in &plan.steps {
        let before = step
            .waits_for
            .iter()
            .map(|wait| fine[wait.step.at()])
            .collect();
        let next = seen.len();
        fine.push(
            *seen
                .entry((step.group, kinds(step), before))
                .or_insert(next),
        );
    }
    if seen.len() <= MOST_BUNDLES {
        return fine;
    }
    let mut seen: BTreeMap<(u32, BTreeSet<&str>), usize> = BTreeMap::new();
    let coarse: Vec<usize> = plan
        .steps
        .iter()
        .map(|step| {
            let next = seen.len();
            *seen.entry((step.group, kinds(step))).or_insert(next)
        })
        .collect();
    if seen.len() <= MOST_BUNDLES * 2 {
        return coarse;
    }
    plan.steps
        .iter()
        .map(|step| step.group as usize - 1)
        .collect()
}

/// Returns the type of a component: `Lamp::Webapp` for `Lamp::Webapp[app1-1]`.
fn kind(component: &str) -> &str {
    component.split('[').next().unwrap_or(component)
}

fn kinds(step: &PlanStep) -> BTreeSet<&str> {
    step.components
        .iter()
        .map(|component| kind(&component.component))
        .collect()
}

/// Returns a range such as `web-01 … web-14`, without the domain if it is the same.
fn from_to(first: &str, last: &str) -> String {
    match (first.split_once('.'), last.split_once('.')) {
        (Some((first, domain)), Some((last, same))) if domain == same => {
            format!("{first} … {last}")
        }
        _ => format!("{first} … {last}"),
    }
}

fn bundle(plan: &RunPlan, steps: &[usize]) -> Bundle {
    const CHARACTERS: usize = 32;
    const MOST_LINES: usize = 8;
    let first = &plan.steps[steps[0]];
    let name = |step: &PlanStep| {
        if step.tags.is_empty() {
            step.node.to_string()
        } else {
            format!("{} (pass {})", step.node, step.pass)
        }
    };
    let (title, mut lines) = match steps {
        [_] => {
            let lines: Vec<String> = first
                .components
                .iter()
                .map(|component| component.component.clone())
                .collect();
            (name(first), lines)
        }
        _ => {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for step in steps {
                for component in &plan.steps[*step].components {
                    *counts.entry(kind(&component.component)).or_default() += 1;
                }
            }
            let last = &plan.steps[steps[steps.len() - 1]];
            let mut lines = vec![from_to(first.node.as_str(), last.node.as_str())];
            lines.extend(
                counts
                    .iter()
                    .map(|(kind, count)| format!("{count} × {kind}")),
            );
            (format!("{} nodes", steps.len()), lines)
        }
    };
    if lines.len() > MOST_LINES {
        let more = lines.len() - (MOST_LINES - 1);
        lines.truncate(MOST_LINES - 1);
        lines.push(format!("and {more} more"));
    }
    let full: Vec<String> = steps.iter().map(|step| name(&plan.steps[*step])).collect();
    Bundle {
        height: TITLE + LINE * lines.len() as f64 + 8.0,
        title: shorten(&title, CHARACTERS - 4),
        lines: lines.iter().map(|line| shorten(line, CHARACTERS)).collect(),
        full: full.join("\n"),
        group: first.group,
        count: steps.len(),
        x: 0.0,
        y: 0.0,
        width: WIDTH,
    }
}

fn edges(plan: &RunPlan, bundle_of: &[usize]) -> Vec<Edge> {
    let mut between: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
    for (at, step) in plan.steps.iter().enumerate() {
        for wait in &step.waits_for {
            let pair = (bundle_of[wait.step.at()], bundle_of[at]);
            if pair.0 == pair.1 {
                continue;
            }
            let reasons = between.entry(pair).or_default();
            if reasons.len() < 20 {
                reasons.extend(wait.reasons.iter().map(ToString::to_string));
            }
        }
    }
    between
        .into_iter()
        .map(|((from, to), reasons)| Edge {
            from,
            to,
            full: reasons.into_iter().collect::<Vec<_>>().join("\n"),
        })
        .collect()
}

/// Removes edges that a longer path implies: a box that waits for the web servers need not
/// show that it also waits for their database.
fn without_implied_edges(edges: Vec<Edge>, boxes: usize) -> Vec<Edge> {
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); boxes];
    for edge in &edges {
        after[edge.from].push(edge.to);
    }
    let around = |from: usize, to: usize| {
        let mut seen = vec![false; boxes];
        let mut waiting: Vec<usize> = after[from].clone();
        waiting.retain(|next| *next != to);
        while let Some(one) = waiting.pop() {
            if one == to {
                return true;
            }
            if !std::mem::replace(&mut seen[one], true) {
                waiting.extend(&after[one]);
            }
        }
        false
    };
    let kept = edges.iter().map(|edge| !around(edge.from, edge.to));
    let kept: Vec<bool> = kept.collect();
    let mut kept = kept.into_iter();
    edges
        .into_iter()
        .filter(|_| kept.next().unwrap_or(true))
        .collect()
}

/// Places the boxes in columns by group, each near the middle of its neighbours.
fn place(boxes: &mut [Bundle], edges: &[Edge]) -> (f64, f64, Vec<f64>) {
    let groups = boxes.iter().map(|one| one.group).max().unwrap_or(0) as usize;
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); groups];
    for (at, one) in boxes.iter().enumerate() {
        columns[one.group as usize - 1].push(at);
    }
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); boxes.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); boxes.len()];
    for edge in edges {
        before[edge.to].push(edge.from);
        after[edge.from].push(edge.to);
    }
    let tallest = columns
        .iter()
        .map(|column| column_height(column, boxes))
        .fold(0.0, f64::max);
    for column in &columns {
        stack(column, boxes, tallest);
    }
    for _ in 0..3 {
        for column in &mut columns {
            sort_by_neighbours(column, boxes, &before);
            stack(column, boxes, tallest);
        }
        for column in columns.iter_mut().rev() {
            sort_by_neighbours(column, boxes, &after);
            stack(column, boxes, tallest);
        }
    }
    let starts = (0..groups).map(|number| MARGIN + number as f64 * (WIDTH + GAP_X));
    let width = MARGIN * 2.0 + groups as f64 * (WIDTH + GAP_X) - GAP_X;
    (width.max(420.0), TOP + tallest + MARGIN, starts.collect())
}

fn column_height(column: &[usize], boxes: &[Bundle]) -> f64 {
    let all: f64 = column.iter().map(|at| boxes[*at].height + GAP_Y).sum();
    all - GAP_Y
}

/// Sorts a column by the middle of each box's neighbours. Boxes without neighbours stay.
fn sort_by_neighbours(column: &mut [usize], boxes: &[Bundle], neighbours: &[Vec<usize>]) {
    let center = |at: usize| boxes[at].y + boxes[at].height / 2.0;
    let middle = |at: usize| match neighbours[at].len() {
        0 => center(at),
        count => {
            neighbours[at]
                .iter()
                .map(|other| center(*other))
                .sum::<f64>()
                / count as f64
        }
    };
    column.sort_by(|one, other| {
        let by_middle = middle(*one).total_cmp(&middle(*other));
        by_middle.then(one.cmp(other))
    });
}

fn stack(column: &[usize], boxes: &mut [Bundle], tallest: f64) {
    let mut y = TOP + (tallest - column_height(column, boxes)) / 2.0;
    for at in column {
        let number = boxes[*at].group as f64 - 1.0;
        boxes[*at].x = MARGIN + number * (WIDTH + GAP_X);
        boxes[*at].y = y;
        y += boxes[*at].height + GAP_Y;
    }
}
