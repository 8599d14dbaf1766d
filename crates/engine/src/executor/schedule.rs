//! The state of all nodes: waiting, ready, or finished with a result.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use serde_json::{Map, Value};

use super::gate::{self, GateDecision};
use super::group::Groups;
use super::salt_gate::NoopResult;
use crate::event::RunEnd;
use crate::plan::Node;
use crate::{CatalogPlan, OrderingMode, ResourceResult};

/// The recorded result of a finished node.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct FinishedMark {
    pub(super) done: bool,
    pub(super) failed: bool,
    pub(super) changed: bool,
    /// Noop: the node or something before it would change.
    pub(super) pending: bool,
    /// The node that failed first, for `failed`.
    pub(super) cause: u32,
    /// The node that changed first, for `changed`.
    pub(super) changer: u32,
    /// Salt's result: true, false, or null.
    pub(super) result: Option<bool>,
    /// Changes exist, even if the node failed.
    pub(super) has_changes: bool,
    /// Requisites prevented the node from running.
    pub(super) not_run: bool,
}

/// The maximum number of quick steps that one worker may take at once.
const MOST_AT_ONCE: usize = 64;

/// The next work for a worker.
pub(super) enum WorkItem {
    /// One step, or several quick ones.
    Steps(Vec<(u32, GateDecision)>),
    Group(Vec<(u32, GateDecision)>),
    /// Nothing now: wait for other steps to finish.
    Wait,
    /// No more work in this run.
    Over,
}

/// The scheduling state, protected by one lock.
pub(super) struct Schedule<'p> {
    plan: &'p CatalogPlan,
    waiting: Vec<u32>,
    marks: Vec<FinishedMark>,
    /// Largest first: by priority, then by file order.
    ready: BinaryHeap<(i64, Reverse<(i64, u32)>)>,
    groups: Groups,
    running: usize,
    left: usize,
    /// The number of quick steps that are handed out at once. It grows while all of
    /// them find nothing to do, so that the lock costs little.
    pace: usize,
    /// The number of workers, and how many of them wait.
    pub(super) workers: usize,
    pub(super) idle: usize,
    pub(super) ended: Option<RunEnd>,
    /// Outputs by registered name.
    pub(super) outputs: HashMap<String, Map<String, Value>>,
    /// Results of looking at states, for `prereq`.
    pub(super) looks: HashMap<u32, NoopResult>,
    finished: Vec<ResourceResult>,
}

impl<'p> Schedule<'p> {
    pub(super) fn new(plan: &'p CatalogPlan) -> Self {
        let nodes = plan.graph.nodes() as u32;
        let mut board = Self {
            plan,
            waiting: (0..nodes).map(|node| plan.graph.waits_for(node)).collect(),
            marks: vec![FinishedMark::default(); nodes as usize],
            ready: BinaryHeap::new(),
            groups: Groups::new(plan),
            running: 0,
            left: plan.len(),
            pace: if plan.mode == OrderingMode::Ansible {
                1
            } else {
                4
            },
            workers: 1,
            idle: 0,
            ended: None,
            outputs: HashMap::new(),
            looks: HashMap::new(),
            finished: Vec::with_capacity(plan.steps.len()),
        };
        let free: Vec<u32> = (0..nodes)
            .filter(|node| board.waiting[*node as usize] == 0)
            .collect();
        let containers: Vec<u32> = free
            .into_iter()
            .filter(|node| !board.offer(*node))
            .collect();
        board.pass(containers);
        board
    }

    /// Queues a step. Returns false for a container and for a step that is left out, as
    /// they need no work.
    fn offer(&mut self, node: u32) -> bool {
        let Node::Step(step) = self.plan.node(node) else {
            return false;
        };
        if self.plan.is_left_out(node) {
            return false;
        }
        if !self.groups.hold(node) {
            let order = self.plan.steps[step as usize].order;
            let priority = match self.plan.mode {
                OrderingMode::Genius => i64::from(self.plan.graph.height[node as usize]),
                OrderingMode::Ansible | OrderingMode::JustDoIt => 0,
            };
            self.ready.push((priority, Reverse((order, node))));
        }
        true
    }

    /// Marks nodes that need no work and are not blocked, and all nodes that this unblocks.
    fn pass(&mut self, mut containers: Vec<u32>) {
        while let Some(node) = containers.pop() {
            let mark = gate::passing_mark(self.plan, node, &self.marks);
            self.mark(node, mark, &mut containers);
        }
    }

    fn mark(&mut self, node: u32, mark: FinishedMark, containers: &mut Vec<u32>) {
        self.marks[node as usize] = FinishedMark { done: true, ..mark };
        let plan = self.plan;
        for edge in plan.graph.outgoing(node) {
            let waiting = &mut self.waiting[edge.to as usize];
            *waiting -= 1;
            if *waiting == 0 && !self.offer(edge.to) {
                containers.push(edge.to);
            }
        }
    }

    /// Returns the next piece of work.
    pub(super) fn take(&mut self, cancelled: bool) -> WorkItem {
        if cancelled && self.ended.is_none() {
            self.ended = Some(RunEnd::Interrupted);
        }
        if self.ended.is_some() || self.left == 0 {
            return WorkItem::Over;
        }
        let idle = self.running == 0 && self.ready.is_empty();
        if let Some(members) = self.groups.take(idle) {
            self.running += members.len();
            let gates = members.into_iter().map(|node| (node, self.gate(node)));
            return WorkItem::Group(gates.collect());
        }
        let Some((_, Reverse((_, first)))) = self.ready.pop() else {
            return WorkItem::Wait;
        };
        let mut steps = vec![(first, self.gate(first))];
        if self.is_quick(first) {
            // Leave some steps to the other workers.
            let most = self.pace.min(1 + self.ready.len() / 4);
            while steps.len() < most
                && let Some((_, Reverse((_, next)))) = self.ready.peek().copied()
                && self.is_quick(next)
            {
                self.ready.pop();
                steps.push((next, self.gate(next)));
            }
        }
        self.running += steps.len();
        WorkItem::Steps(steps)
    }

    /// Takes back steps that were not begun.
    pub(super) fn give_back(&mut self, steps: impl Iterator<Item = u32>) {
        for node in steps {
            self.running -= 1;
            self.offer(node);
        }
    }

    fn is_quick(&self, node: u32) -> bool {
        self.plan.steps[node as usize].quick
    }

    /// Returns true if another worker would help. Quick steps keep no more workers busy
    /// than there are cores.
    pub(super) fn wants_another(&self, cores: usize) -> bool {
        let quick = self.pace > 1
            && matches!(self.ready.peek(), Some((_, Reverse((_, node)))) if self.is_quick(*node));
        self.has_work() && (!quick || self.workers - self.idle < cores)
    }

    /// Returns the gate of a state that looked at its targets.
    pub(super) fn gate_with(&self, node: u32, looks: &[NoopResult]) -> GateDecision {
        gate::decide_state(self.plan, node, &self.marks, looks)
    }

    fn gate(&self, node: u32) -> GateDecision {
        gate::decide(self.plan, node, &self.marks)
    }

    pub(super) fn next_number(&self) -> usize {
        self.finished.len() + 1
    }

    /// Marks a step as finished. Steps that waited only for it become ready.
    pub(super) fn finish(&mut self, node: u32, upstream_pending: bool, finished: ResourceResult) {
        let outcome = &finished.outcome;
        let cause = match outcome.status {
            crate::Status::Failed => node,
            _ => self.cause_of(node),
        };
        let mark = FinishedMark {
            done: true,
            failed: outcome.is_failure(),
            changed: outcome.is_change(),
            pending: upstream_pending || outcome.status == crate::Status::Pending,
            cause,
            changer: node,
            result: outcome.result(),
            has_changes: outcome.made_changes(),
            not_run: outcome.kept_from_running(),
        };
        if self.plan.mode != OrderingMode::Ansible && self.is_quick(node) {
            self.pace = match outcome.status {
                crate::Status::Unchanged => (self.pace * 2).min(MOST_AT_ONCE),
                _ => 1,
            };
        }
        self.finished.push(finished);
        self.running -= 1;
        self.left -= 1;
        let mut containers = Vec::new();
        self.mark(node, mark, &mut containers);
        self.pass(containers);
    }

    fn cause_of(&self, node: u32) -> u32 {
        (self.plan.graph.incoming(node).iter())
            .map(|edge| self.marks[edge.from as usize])
            .find(|mark| mark.failed)
            .map_or(node, |mark| mark.cause)
    }

    /// Returns true if another worker could start something now.
    fn has_work(&self) -> bool {
        !self.ready.is_empty() || self.groups.has_complete()
    }

    pub(super) fn marks(&self) -> &[FinishedMark] {
        &self.marks
    }

    /// Returns the steps that never had their turn.
    pub(super) fn never_run(&self) -> Vec<u32> {
        (0..self.plan.steps.len() as u32)
            .filter(|step| !self.marks[*step as usize].done && !self.plan.is_left_out(*step))
            .collect()
    }

    pub(super) fn push(&mut self, finished: ResourceResult) {
        self.finished.push(finished);
    }

    pub(super) fn into_parts(self) -> (Vec<ResourceResult>, Option<RunEnd>) {
        (self.finished, self.ended)
    }
}
