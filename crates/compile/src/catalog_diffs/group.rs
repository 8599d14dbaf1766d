//! Groups equal changes of many nodes, so that each is shown once. Pure.

use std::collections::BTreeMap;

use bunraku_model::NodeName;
use bunraku_model::catalog::{CatalogDiff, ListDiff};
use bunraku_wire::api::FleetChange;

/// One change per group: a resource, a file, or anything else in a catalog. The
/// most widespread changes come first. Changes on equally many nodes are sorted
/// by their text.
#[derive(Default)]
pub(super) struct Groups {
    by_text: BTreeMap<String, FleetChange>,
}

impl Groups {
    pub(super) fn add(&mut self, node: &NodeName, diff: CatalogDiff) {
        for change in single_changes(diff) {
            let key = serde_json::to_string(&change).expect("differences are plain data");
            let group = self.by_text.entry(key).or_insert_with(|| FleetChange {
                nodes: Vec::new(),
                change,
            });
            group.nodes.push(node.clone());
        }
    }

    pub(super) fn finish(self) -> Vec<FleetChange> {
        let mut groups: Vec<FleetChange> = self.by_text.into_values().collect();
        for group in &mut groups {
            group.nodes.sort_unstable();
            group.nodes.dedup();
        }
        // Changes on the same nodes stay together.
        groups.sort_by(|one, other| {
            let widest = other.nodes.len().cmp(&one.nodes.len());
            widest.then_with(|| one.nodes.cmp(&other.nodes))
        });
        groups
    }
}

/// Splits a diff into single changes.
fn single_changes(diff: CatalogDiff) -> Vec<CatalogDiff> {
    let mut changes = Vec::new();
    for mut resource in diff.resources {
        // An equal change on a different line counts as the same change.
        resource.place = None;
        changes.push(CatalogDiff {
            resources: vec![resource],
            ..CatalogDiff::default()
        });
    }
    for source in diff.sources {
        changes.push(CatalogDiff {
            sources: vec![source],
            ..CatalogDiff::default()
        });
    }
    let edges = |added: Vec<String>, removed: Vec<String>| CatalogDiff {
        edges: ListDiff { added, removed },
        ..CatalogDiff::default()
    };
    changes.extend(
        diff.edges
            .added
            .into_iter()
            .map(|edge| edges(vec![edge], Vec::new())),
    );
    changes.extend(
        diff.edges
            .removed
            .into_iter()
            .map(|edge| edges(Vec::new(), vec![edge])),
    );
    for about in diff.about {
        changes.push(CatalogDiff {
            about: vec![about],
            ..CatalogDiff::default()
        });
    }
    if diff.reordered {
        changes.push(CatalogDiff {
            reordered: true,
            ..CatalogDiff::default()
        });
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use bunraku_model::Catalog;
    use serde_json::json;

    fn catalog(node: &str, motd: &str, extra: bool) -> Catalog {
        let mut resources = vec![
            json!({"type": "File", "title": "/etc/motd", "line": node.len(), "parameters": {"content": motd}}),
        ];
        if extra {
            resources.push(json!({"type": "Package", "title": "nginx", "parameters": {}}));
        }
        let text = json!({"name": node, "resources": resources}).to_string();
        Catalog::from_json(text.as_bytes()).expect("a catalog")
    }

    #[test]
    fn equal_changes_are_shown_once_with_all_their_nodes() {
        let nodes = ["db-1", "web-10", "web-2"];
        let diffs = nodes.map(|node| {
            let (before, after) = (
                catalog(node, "old", false),
                catalog(node, "new", node != "db-1"),
            );
            let name = NodeName::new(node).expect("a name");
            (name, CatalogDiff::between(&before, &after))
        });
        let mut groups = Groups::default();
        for (node, diff) in diffs {
            groups.add(&node, diff);
        }
        let groups = groups.finish();
        let printed: Vec<(usize, String)> = groups
            .iter()
            .map(|group| {
                (
                    group.nodes.len(),
                    group.change.resources[0].resource.to_string(),
                )
            })
            .collect();
        assert_eq!(
            printed,
            [
                (3, "File[/etc/motd]".to_owned()),
                (2, "Package[nginx]".to_owned())
            ]
        );
    }

    #[test]
    fn nothing_of_a_difference_is_lost_by_taking_it_apart() {
        let text = json!({"name": "a", "resources": [{"type": "A", "title": "1"}, {"type": "B", "title": "1"}],
            "edges": [{"source": "A[1]", "target": "B[1]"}]});
        let before = Catalog::from_json(text.to_string().as_bytes()).expect("a catalog");
        let text = json!({"name": "b", "resources": [{"type": "B", "title": "1"}, {"type": "A", "title": "1"}, {"type": "C", "title": "1"}],
            "edges": [{"source": "B[1]", "target": "A[1]"}]});
        let after = Catalog::from_json(text.to_string().as_bytes()).expect("a catalog");
        let whole = CatalogDiff::between(&before, &after);
        let parts = single_changes(whole.clone());
        assert_eq!(parts.len(), 5, "{parts:?}");
        assert!(parts.iter().any(|part| part.reordered));
        assert!(parts.iter().all(|part| !part.is_empty()));
    }
}
