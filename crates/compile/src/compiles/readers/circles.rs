//! Finds a circle of nodes that collect from each other. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bunraku_model::NodeName;

/// Returns the shortest way from a node, over those that feed it, back to
/// itself. `feeders` returns the nodes whose exports a node collects.
pub(super) fn find<'a>(
    start: &'a NodeName,
    feeders: impl Fn(&'a NodeName) -> BTreeSet<&'a NodeName>,
) -> Option<Vec<NodeName>> {
    let mut reached_from: BTreeMap<&NodeName, &NodeName> = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(node) = open.pop_front() {
        for feeder in feeders(node) {
            if feeder == start {
                return Some(nodes_of_circle(start, node, &reached_from));
            }
            if !reached_from.contains_key(feeder) {
                reached_from.insert(feeder, node);
                open.push_back(feeder);
            }
        }
    }
    None
}

/// Returns the nodes of a circle in the direction in which resources flow.
fn nodes_of_circle(
    start: &NodeName,
    last: &NodeName,
    reached_from: &BTreeMap<&NodeName, &NodeName>,
) -> Vec<NodeName> {
    let mut nodes = vec![start.clone()];
    let mut at = last;
    while at != start {
        nodes.push(at.clone());
        match reached_from.get(at) {
            Some(before) => at = before,
            None => break,
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a<b` means that `a` collects from `b`.
    fn check(edges: &str, start: &str) -> String {
        let name = |text: &str| NodeName::new(text).expect("a name");
        let mut feeders: BTreeMap<NodeName, BTreeSet<NodeName>> = BTreeMap::new();
        for edge in edges.split_whitespace() {
            let (reader, feeder) = edge.split_once('<').expect("an edge");
            feeders
                .entry(name(reader))
                .or_default()
                .insert(name(feeder));
        }
        let start = name(start);
        let found = find(&start, |node| {
            feeders.get(node).into_iter().flatten().collect()
        });
        let nodes = found.unwrap_or_default();
        let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
        names.join(" -> ")
    }

    #[test]
    fn a_circle_is_named_in_the_direction_of_its_resources() {
        assert_eq!(check("a<b b<a", "a"), "a -> b");
        // What `a` exports reaches `c`, then `b`, then `a` again.
        assert_eq!(check("a<b b<c c<a", "a"), "a -> c -> b");
        assert_eq!(check("a<b b<c c<d d<a c<a", "a"), "a -> c -> b");
    }

    #[test]
    fn a_node_that_only_collects_is_in_no_circle() {
        assert_eq!(check("monitor<a monitor<b a<b b<a", "monitor"), "");
        assert_eq!(check("a<b b<c", "a"), "");
    }
}
