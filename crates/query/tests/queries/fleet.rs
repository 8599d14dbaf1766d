//! A small fleet to query.

use bunraku_model::NodeName;
use bunraku_model::catalog::Catalog;
use bunraku_query::{Index, Limits, Query, QueryAnswer};
use serde_json::{Map, Value, json};

pub(crate) fn name(text: &str) -> NodeName {
    NodeName::new(text).expect("a test's name is valid")
}

pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => panic!("not an object: {other}"),
    }
}

pub(crate) fn catalog(value: Value) -> Catalog {
    serde_json::from_value(value).expect("a catalog")
}

/// Two web servers, a database, and a node that has not reported yet.
pub(crate) fn fleet() -> Index {
    let mut index = Index::new();
    let facts = |family: &str, count: u64, ip: &str| {
        object(json!({
            "os": {"family": family, "name": family.to_lowercase(), "release": {"major": "12"}},
            "processors": {"count": count, "models": ["a", "b"]},
            "networking": {"interfaces": {"eth0": {"ip": ip}, "lo": {"ip": "127.0.0.1"}}},
            "mountpoints": {"/": {"size_bytes": 1000 * count}, "/var log": {"size_bytes": 5}},
            "empty": {},
        }))
    };
    index.set_facts(&name("web-1"), &facts("Debian", 4, "10.0.0.1"));
    index.set_facts(&name("web-2"), &facts("RedHat", 8, "10.0.0.2"));
    index.set_facts(&name("db-1"), &facts("Debian", 16, "10.0.1.1"));
    for (node, status) in [
        ("web-1", "idle"),
        ("web-2", "lost"),
        ("db-1", "idle"),
        ("new-1", "new"),
    ] {
        let fields = json!({"status": status, "environment": "production"});
        index.set_fields(&name(node), object(fields));
    }
    index.set_catalog(&name("web-1"), &web("a"));
    index.set_catalog(&name("web-2"), &web("b"));
    index.set_catalog(
        &name("db-1"),
        &catalog(json!({"name": "db-1", "resources": [
            {"type": "Class", "title": "Profile::Database"},
            {"type": "Service", "title": "postgresql", "parameters": {"ensure": "running"}},
        ]})),
    );
    for (node, run, status, changed, at) in [
        ("web-1", "r1", "succeeded", 2, "2026-11-01T10:00:00Z"),
        ("web-1", "r2", "failed", 1, "2026-11-02T10:00:00Z"),
        ("db-1", "r3", "succeeded", 0, "2026-11-02T11:00:00Z"),
    ] {
        let report = json!({"status": status, "changed": changed, "start_time": at});
        let events = match changed {
            0 => Vec::new(),
            _ => vec![object(json!({
                "type": "File", "title": "/etc/motd", "status": "changed", "property": "content",
                "corrective": status == "failed", "time": at,
            }))],
        };
        index.set_report(&name(node), run, object(report), events);
    }
    index
}

fn web(motd: &str) -> Catalog {
    catalog(
        json!({"name": "web", "classes": ["profile::loadbalancer", "settings"], "resources": [
            {"type": "Class", "title": "Profile::Loadbalancer", "tags": ["class", "profile"]},
            {"type": "File", "title": "/etc/motd", "file": "motd.pp", "line": 3,
                "parameters": {"ensure": "file", "mode": "0644", "content": motd}},
            {"type": "File", "title": "/etc/secret", "sensitive_parameters": ["content"],
                "parameters": {"content": "hunter2"}},
            {"type": "Service", "title": "nginx", "parameters": {"ensure": "running"}},
        ]}),
    )
}

pub(crate) fn ask(index: &Index, text: &str) -> QueryAnswer {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{}", error.render(text)));
    index.answer(&query, &Limits::default()).expect("answered")
}

/// Prints each row on a line, followed by the warnings.
pub(crate) fn answer_text(answer: &QueryAnswer) -> String {
    let mut text = String::new();
    for row in &answer.rows {
        let cells: Vec<String> = row
            .iter()
            .map(|value| match value {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            })
            .collect();
        text.push_str(&cells.join("  "));
        text.push('\n');
    }
    for warning in &answer.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text
}
