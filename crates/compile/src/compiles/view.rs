//! The queue as one server sees it, in the order of compilation.
//!
//! Pure: changes go in, the next node of each environment comes out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use bunraku_model::{EnvironmentName, NodeName};
use bunraku_store::Revision;
use bunraku_wire::api::CompileReason;
use jiff::Timestamp;

use super::queue::QueueEntry;

/// A node's place: urgent nodes come first, then those that have waited longest.
type QueuePosition = (u8, Timestamp, NodeName);

/// A node's request, as it was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueuedRequest {
    pub(super) revision: Revision,
    /// A person asked for it.
    pub(super) asked: bool,
}

#[derive(Default)]
pub(super) struct QueueView {
    waiting: HashMap<NodeName, (QueueEntry, Revision)>,
    order: BTreeMap<EnvironmentName, BTreeSet<QueuePosition>>,
    claimed: HashSet<NodeName>,
}

impl QueueView {
    pub(super) fn put(&mut self, node: NodeName, entry: QueueEntry, modified: Revision) {
        self.remove(&node);
        let place = (entry.priority(), entry.since, node.clone());
        let places = self.order.entry(entry.environment.clone()).or_default();
        places.insert(place);
        self.waiting.insert(node, (entry, modified));
    }

    pub(super) fn remove(&mut self, node: &NodeName) {
        let Some((entry, _)) = self.waiting.remove(node) else {
            return;
        };
        if let Some(places) = self.order.get_mut(&entry.environment) {
            places.remove(&(entry.priority(), entry.since, node.clone()));
            if places.is_empty() {
                self.order.remove(&entry.environment);
            }
        }
    }

    pub(super) fn claim(&mut self, node: NodeName) {
        self.claimed.insert(node);
    }

    pub(super) fn release(&mut self, node: &NodeName) {
        self.claimed.remove(node);
    }

    pub(super) fn environments(&self) -> Vec<EnvironmentName> {
        self.order.keys().cloned().collect()
    }

    /// Returns the next nodes of an environment that are not being compiled, up to a limit.
    pub(super) fn next(
        &self,
        environment: &EnvironmentName,
        most: usize,
        busy: impl Fn(&NodeName) -> bool,
    ) -> Vec<(NodeName, QueuedRequest)> {
        let places = self.order.get(environment).into_iter().flatten();
        places
            .map(|(_, _, node)| node)
            .filter(|node| !self.claimed.contains(*node) && !busy(node))
            .take(most)
            .filter_map(|node| {
                let (entry, revision) = self.waiting.get(node)?;
                let request = QueuedRequest {
                    revision: *revision,
                    asked: entry.reasons.contains(&CompileReason::Person),
                };
                Some((node.clone(), request))
            })
            .collect()
    }

    /// Returns the number of nodes per priority, and the time of the oldest request.
    pub(super) fn depth(&self) -> BTreeMap<u8, (usize, Timestamp)> {
        let mut depth: BTreeMap<u8, (usize, Timestamp)> = BTreeMap::new();
        for (priority, since, _) in self.order.values().flatten() {
            let known = depth.entry(*priority).or_insert((0, *since));
            known.0 += 1;
            known.1 = known.1.min(*since);
        }
        depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(environment: &str, reason: CompileReason, second: i64) -> QueueEntry {
        let at = Timestamp::from_second(second).expect("a time");
        QueueEntry {
            environment: EnvironmentName::new(environment).expect("a name"),
            reasons: vec![reason],
            since: at,
            requested: at,
        }
    }

    fn node(name: &str) -> NodeName {
        NodeName::new(name).expect("a name")
    }

    fn next(view: &QueueView, environment: &str) -> Vec<String> {
        let environment = EnvironmentName::new(environment).expect("a name");
        let next = view.next(&environment, 10, |_| false);
        next.into_iter().map(|(node, _)| node.to_string()).collect()
    }

    #[test]
    fn a_person_comes_before_code_before_facts_and_then_who_waits_longest() {
        let mut view = QueueView::default();
        let entries = [
            ("facts", "p", CompileReason::Facts, 1),
            ("late", "p", CompileReason::Code, 9),
            ("hook", "p", CompileReason::Hook, 5),
            ("person", "p", CompileReason::Person, 20),
            ("other", "q", CompileReason::Facts, 0),
        ];
        for (number, (name, environment, reason, at)) in (1..).zip(entries) {
            view.put(node(name), entry(environment, reason, at), Revision(number));
        }
        assert_eq!(next(&view, "p"), ["person", "hook", "late", "facts"]);
        assert_eq!(next(&view, "q"), ["other"]);
    }

    #[test]
    fn what_somebody_is_at_is_passed_over_until_it_is_free() {
        let mut view = QueueView::default();
        view.put(node("a"), entry("p", CompileReason::Facts, 1), Revision(1));
        view.claim(node("a"));
        assert!(next(&view, "p").is_empty());
        view.release(&node("a"));
        assert_eq!(next(&view, "p"), ["a"]);
    }

    #[test]
    fn a_newer_request_moves_a_node_and_leaves_no_trace_of_the_old_one() {
        let mut view = QueueView::default();
        view.put(node("a"), entry("p", CompileReason::Facts, 1), Revision(1));
        view.put(node("a"), entry("q", CompileReason::Person, 1), Revision(2));
        assert!(next(&view, "p").is_empty());
        assert_eq!(next(&view, "q"), ["a"]);
        assert_eq!(view.environments().len(), 1);
        assert_eq!(view.depth().len(), 1);
        view.remove(&node("a"));
        assert!(view.environments().is_empty());
    }
}
