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

/// Returns the schema of a member of a request (`plan.id`), `None` if there is no such member, and
/// null if its parent has no fixed members.
fn member_schema(document: &Value, schema: &Value, path: &str) -> Option<Value> {
    let mut schema = resolved(document, schema);
    for name in path.split('.') {
        if schema.get("properties").is_none() {
            return Some(Value::Null);
        }
        schema = resolved(document, schema["properties"].get(name)?);
    }
    Some(schema)
}

fn resolved(document: &Value, schema: &Value) -> Value {
    let reference = schema["$ref"].as_str().or_else(|| {
        let one = schema["oneOf"].as_array()?;
        one.iter().find_map(|it| it["$ref"].as_str())
    });
    match reference {
        Some(reference) => {
            let pointer = reference.trim_start_matches('#');
            resolved(document, document.pointer(pointer).expect("a schema"))
        }
        None => schema.clone(),
    }
}

#[test]
fn audit_records_name_objects_and_contain_members_that_exist_and_are_no_secrets() {
    use bunraku_wire::endpoints::Audited;

    let document = endpoints::openapi_document();
    let mut actions = BTreeSet::new();
    for known in endpoints::all() {
        assert!(actions.insert(known.action()), "{}", known.name);
        let path: Vec<&str> = known.parameters().collect();
        if known.audited == Audited::Change && known.object.is_none() {
            let kind = path.first().unwrap_or(&"");
            assert!(
                !["name", "id"].contains(kind),
                "{} has no object",
                known.name
            );
        }
        let method = known.verb.as_str().to_lowercase();
        let operation = &document["paths"][known.template][&method];
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        let named = known.object.map(|(_, member)| member);
        for member in known.details.iter().copied().chain(named) {
            let place = format!("{} of {}", member, known.name);
            if path.contains(&member) {
                continue;
            }
            let schema = member_schema(&document, body, member);
            let schema = schema.unwrap_or_else(|| panic!("{place} does not exist"));
            let is_suspect = ["secret", "token", "password", "key", "pem", "proof", "log"]
                .iter()
                .any(|word| member.contains(word));
            let is_harmless = ["integer", "boolean"]
                .iter()
                .any(|it| schema["type"] == **it);
            assert!(!is_suspect || is_harmless, "{place} may be a secret");
        }
    }
}

#[test]
fn only_reads_and_routine_of_nodes_are_left_out_of_the_audit_log() {
    use bunraku_wire::endpoints::{Access, Audited, Verb};

    let (mut left_out, mut by_service) = (Vec::new(), Vec::new());
    for known in endpoints::all() {
        match known.audited {
            Audited::Change => assert_ne!(known.access, Access::Anonymous, "{}", known.name),
            Audited::ByService => by_service.push(known.name),
            Audited::No | Audited::Routine if known.verb != Verb::Get => {
                left_out.push(known.name);
            }
            Audited::No | Audited::Routine => {}
        }
    }
    left_out.sort_unstable();
    by_service.sort_unstable();
    // Reviewed: their services record the change in its transaction.
    assert_eq!(
        by_service,
        [
            "Join",
            "JoinCluster",
            "JoinClusterOverSsh",
            "ReceiveEvents",
            "ReceivePush",
            "ReceiveRepositoryPush",
            "RenewCertificate",
        ]
    );
    // Reviewed: each of these changes nothing, or is a node's normal operation.
    assert_eq!(
        left_out,
        [
            "AddReportEvents",
            "AnswerCommand",
            "BindPlan",
            "CheckAccess",
            "CheckOnceStanding",
            "CompareWithPuppet",
            "KeepOnceClaim",
            "OfferRevocationLists",
            "ProposeCatalogs",
            "QueryNodeNames",
            "RenewLock",
            "ReportActivity",
            "ReportQueue",
            "RunQuery",
            "ShowCompiles",
            "SubmitFacts",
            "TestReactors",
        ]
    );
}
