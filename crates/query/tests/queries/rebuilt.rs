//! An index that was changed piece by piece answers like one that is built from
//! scratch, and holds no more data.

use std::collections::BTreeMap;

use bunraku_query::Index;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::fleet::{answer_text, ask, catalog, name, object};

/// The state of a node in the index.
#[derive(Clone, Default)]
struct Node {
    fields: Map<String, Value>,
    facts: Option<Map<String, Value>>,
    resources: Option<Vec<Value>>,
    reports: BTreeMap<String, u8>,
}

#[derive(Clone, Debug)]
enum Change {
    Fields(u8, Option<u8>),
    Facts(u8, Vec<(u8, u8)>),
    Catalog(u8, Vec<(u8, u8)>),
    NoCatalog(u8),
    Report(u8, u8, u8),
    NoReport(u8, u8),
    Remove(u8),
}

fn change() -> impl Strategy<Value = Change> {
    let node = 0..6_u8;
    let pairs = || proptest::collection::vec((0..5_u8, 0..4_u8), 0..6);
    prop_oneof![
        (node.clone(), proptest::option::of(0..3_u8))
            .prop_map(|(node, value)| Change::Fields(node, value)),
        (node.clone(), pairs()).prop_map(|(node, facts)| Change::Facts(node, facts)),
        (node.clone(), pairs()).prop_map(|(node, resources)| Change::Catalog(node, resources)),
        node.clone().prop_map(Change::NoCatalog),
        (node.clone(), 0..3_u8, 0..3_u8)
            .prop_map(|(node, run, status)| Change::Report(node, run, status)),
        (node.clone(), 0..3_u8).prop_map(|(node, run)| Change::NoReport(node, run)),
        node.prop_map(Change::Remove),
    ]
}

/// Creates values of every shape at the same few paths.
fn facts(pairs: &[(u8, u8)]) -> Map<String, Value> {
    let value = |path: u8, value: u8| match (path, value) {
        (0, 3) => json!({"deep": {"er": value}, "list": [value, "x", null]}),
        (1, _) => json!([value, [value], {}]),
        (2, 0) => Value::Null,
        (3, _) => json!(format!("text {value}")),
        _ => json!(value),
    };
    pairs
        .iter()
        .map(|(path, number)| (format!("f{path}"), value(*path, *number)))
        .collect()
}

fn resources(pairs: &[(u8, u8)]) -> Vec<Value> {
    let kinds = ["File", "Class", "Service"];
    let resource = |(kind, number): &(u8, u8)| {
        json!({
            "type": kinds[*kind as usize % 3], "title": format!("t{number}"), "parameters": {"ensure": kind},
        })
    };
    pairs.iter().map(resource).collect()
}

fn report(status: u8) -> (Map<String, Value>, Vec<Map<String, Value>>) {
    let event = |number: u8| {
        object(json!({"status": "changed", "type": "File", "title": format!("t{number}")}))
    };
    let report = json!({"status": (["succeeded", "failed", "interrupted"][status as usize]), "changed": status});
    (object(report), (0..status).map(event).collect())
}

fn feed(index: &mut Index, node: u8, state: &Node) {
    let node = name(&format!("n-{node}"));
    index.set_fields(&node, state.fields.clone());
    if let Some(facts) = &state.facts {
        index.set_facts(&node, facts);
    }
    if let Some(resources) = &state.resources {
        index.set_catalog(
            &node,
            &catalog(json!({"name": "n", "resources": resources})),
        );
    }
    for (run, status) in &state.reports {
        let (report, events) = report(*status);
        index.set_report(&node, run, report, events);
    }
}

fn apply(index: &mut Index, nodes: &mut BTreeMap<u8, Node>, change: Change) {
    let named = |node: u8| name(&format!("n-{node}"));
    match change {
        Change::Fields(node, value) => {
            let state = nodes.entry(node).or_default();
            match value {
                None => state.fields.remove("status"),
                Some(value) => state.fields.insert("status".to_owned(), json!(value)),
            };
            index.set_fields(&named(node), object(json!({"status": value})));
        }
        Change::Facts(node, pairs) => {
            index.set_facts(&named(node), &facts(&pairs));
            nodes.entry(node).or_default().facts = Some(facts(&pairs));
        }
        Change::Catalog(node, pairs) => {
            let value = json!({"name": "n", "resources": resources(&pairs)});
            index.set_catalog(&named(node), &catalog(value));
            nodes.entry(node).or_default().resources = Some(resources(&pairs));
        }
        Change::NoCatalog(node) => {
            index.clear_catalog(&named(node));
            if let Some(state) = nodes.get_mut(&node) {
                state.resources = None;
            }
        }
        Change::Report(node, run, status) => {
            let (row, events) = report(status);
            index.set_report(&named(node), &format!("r{run}"), row, events);
            let state = nodes.entry(node).or_default();
            state.reports.insert(format!("r{run}"), status);
        }
        Change::NoReport(node, run) => {
            index.remove_report(&named(node), &format!("r{run}"));
            if let Some(state) = nodes.get_mut(&node) {
                state.reports.remove(&format!("r{run}"));
            }
        }
        Change::Remove(node) => {
            index.remove_node(&named(node));
            nodes.remove(&node);
        }
    }
}

const QUESTIONS: &[&str] = &[
    "nodes",
    "nodes[certname, facts]",
    "nodes[certname] { facts.f0 = 1 }",
    "nodes[certname] { not facts.f0 > 1 or facts.f3 ~ \"2\" }",
    "nodes[certname] { facts.f0.deep is not null }",
    "nodes[certname] { facts.f2 is null }",
    "nodes[certname] { facts.f1.* = 2 or facts.f0.list.1 = \"x\" }",
    "nodes[facts.f4, count()] { group by facts.f4 }",
    "facts",
    "facts[certname, value] { value > 1 and name != \"f0\" }",
    "fact_contents",
    "fact_contents { path ~> [\"f.\", \".*\"] and not value = 2 }",
    "resources",
    "resources { type = \"File\" and title in [\"t1\", \"t2\"] }",
    "resources { parameters.ensure > 2 or certname = \"n-1\" }",
    "resources[type, count(), max(parameters.ensure)]",
    "nodes[certname] { resources { type = \"Class\" } and not classes { name = \"t1\" } }",
    "classes",
    "reports",
    "events { status = \"changed\" order by title desc limit 3 }",
    "nodes[certname] { status > 0 and reports { status = \"failed\" } }",
    "resources { [certname, title] in events[certname, title] {} }",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_index_that_was_changed_answers_like_one_that_is_rebuilt(
        changes in proptest::collection::vec(change(), 0..60)
    ) {
        let (mut index, mut nodes) = (Index::new(), BTreeMap::new());
        for change in changes {
            apply(&mut index, &mut nodes, change);
        }
        // In reverse order, so that nothing has the same number as before.
        let mut rebuilt = Index::new();
        for (node, state) in nodes.iter().rev() {
            feed(&mut rebuilt, *node, state);
        }
        for question in QUESTIONS {
            prop_assert_eq!(
                answer_text(&ask(&index, question)),
                answer_text(&ask(&rebuilt, question)),
                "{}", question
            );
        }
        prop_assert_eq!(index.size(), rebuilt.size(), "nothing is left of what was");
        // The index also matches the facts.
        for (node, state) in &nodes {
            let shown = answer_text(&ask(&index, &format!("nodes[facts.f4] {{ certname = \"n-{node}\" }}")));
            let fact = state.facts.as_ref().and_then(|facts| facts.get("f4"));
            let wanted = fact.cloned().unwrap_or_default();
            let warning = shown.find("warning").unwrap_or(shown.len());
            prop_assert_eq!(shown[..warning].trim_end(), wanted.to_string());
        }
    }
}
