//! The definitions of the endpoints, and the document derived from them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bunraku_model::{NodeName, TriggerName};
use bunraku_wire::endpoints::{
    self, Access, Definition, DisableNode, Endpoint, FireTrigger, ListNodes, ListReports, Locate,
    ReportsQuery, ScopePlace,
};
use serde_json::Value;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_access_table_is_the_one_that_was_reviewed() {
    let mut table: Vec<String> = endpoints::all()
        .map(|known| {
            let needs = known
                .needs
                .map(|needs| format!(" {} {:?}", needs.verb, needs.place))
                .unwrap_or_default();
            let Definition {
                verb,
                template,
                access,
                ..
            } = known;
            format!("{verb} {template} {access:?}{needs}")
        })
        .collect();
    table.sort();
    let reviewed = include_str!("access_table.txt");
    assert_eq!(table.join("\n"), reviewed.trim_end());
}

#[test]
fn no_two_endpoints_share_a_name_or_a_route() {
    let (mut names, mut routes) = (BTreeSet::new(), BTreeSet::new());
    for known in endpoints::all() {
        assert!(names.insert(known.name), "{}", known.name);
        let route = (known.verb, known.template);
        assert!(routes.insert(route), "{} {}", known.verb, known.template);
    }
}

#[test]
fn every_value_in_a_path_has_a_type() {
    let document = endpoints::openapi_document();
    for known in endpoints::all() {
        let method = known.verb.as_str().to_lowercase();
        let operation = &document["paths"][known.template][&method];
        let parameters = operation["parameters"].as_array();
        let in_path: Vec<&str> = parameters
            .into_iter()
            .flatten()
            .filter(|parameter| parameter["in"] == "path")
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        assert_eq!(
            in_path,
            known.parameters().collect::<Vec<_>>(),
            "{}",
            known.template
        );
    }
}

/// An operator is never let in by the role in the certificate alone.
#[test]
fn every_endpoint_for_operators_names_a_verb_and_where_its_scope_is() {
    for known in endpoints::all() {
        let is_for_operators = match known.access {
            Access::Anonymous | Access::AnyRole | Access::OwnNode => false,
            Access::Operator
            | Access::OperatorOrServer
            | Access::OwnNodeOrOperator
            | Access::NodeOrOperator => true,
        };
        assert_eq!(known.needs.is_some(), is_for_operators, "{}", known.name);
        let in_path = |wanted: &str| known.parameters().any(|name| name == wanted);
        match known.needs.map(|needs| needs.place) {
            Some(ScopePlace::Environment) => assert!(in_path("environment"), "{}", known.name),
            Some(ScopePlace::Node) => assert!(in_path("node"), "{}", known.name),
            Some(ScopePlace::Everything | ScopePlace::Each) | None => {}
        }
    }
}

#[test]
fn own_node_endpoints_have_a_node_in_their_path() {
    for known in endpoints::all() {
        if matches!(known.access, Access::OwnNode | Access::OwnNodeOrOperator) {
            assert!(
                known.parameters().any(|name| name == "node"),
                "{}",
                known.template
            );
        }
    }
}

#[test]
fn a_location_has_the_values_in_path_and_query() {
    let node: NodeName = "web-1".parse().expect("a name");
    assert_eq!(ListNodes.location().as_str(), "/v1/nodes");
    assert_eq!(DisableNode.at(&node).as_str(), "/v1/nodes/web-1/disable");
    let trigger: TriggerName = "db moved".parse().expect("a name");
    let fire = FireTrigger.at(&trigger);
    assert_eq!(fire.as_str(), "/v1/triggers/db%20moved/fire");
    let query = ReportsQuery {
        node: Some(node),
        limit: Some(5),
        after: Some("a&b".to_owned()),
        ..ReportsQuery::default()
    };
    let reports = ListReports.with_query((), &query);
    assert_eq!(
        reports.as_str(),
        "/v1/reports?node=web-1&failed=false&unfinished=false&limit=5&after=a%26b"
    );
}

#[test]
fn the_checked_in_document_is_current() {
    let path = workspace().join("docs/openapi.json");
    let text = std::fs::read_to_string(&path).expect("docs/openapi.json");
    let checked_in: Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        checked_in == endpoints::openapi_document(),
        "docs/openapi.json is out of date: run scripts/openapi"
    );
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    let document = endpoints::openapi_document();
    let mut open = vec![&document];
    let mut references = 0;
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let pointer = reference.strip_prefix('#').expect("a local reference");
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                    references += 1;
                }
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
    assert!(references > 200, "only {references} references");
}

#[test]
fn a_public_validator_accepts_the_document() {
    let script = workspace().join("scripts/openapi-validate");
    let output = std::process::Command::new(script)
        .output()
        .expect("scripts/openapi-validate runs");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
