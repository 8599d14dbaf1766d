//! Queries of code: PuppetDB's nested lists, and what collectors find.

use bunraku_model::NodeName;
use bunraku_model::catalog::Resource;
use bunraku_query::{ExportFilter, Index, Limits, Query};
use expect_test::{Expect, expect};
use serde_json::{Value, json};

use crate::fleet::fleet;

fn rows(query: &Value) -> Result<Value, String> {
    let query = Query::parse_in_code(query).map_err(|error| error.to_string())?;
    let answer = fleet().answer(&query, &Limits::default());
    let answer = answer.map_err(|error| error.to_string())?;
    Ok(json!(answer.objects()))
}

/// The names of the nodes that meet a condition, as a nested list.
fn nodes_with(condition: Value) -> Value {
    json!(["from", "nodes", ["extract", "certname", condition]])
}

#[track_caller]
fn same(list: Value, text: &str) {
    let expected = rows(&json!(text)).expect("the text is a query");
    assert_eq!(
        rows(&list).expect("the list is a query"),
        expected,
        "{text}"
    );
    assert_ne!(expected, json!([]), "{text} finds something");
}

#[test]
fn nested_lists_ask_the_same_as_text() {
    same(json!(["from", "nodes"]), "nodes");
    same(
        json!([
            "from",
            "nodes",
            ["extract", ["certname"], ["null?", ["fact", "os"], false]]
        ]),
        "nodes[certname] { facts.os is not null }",
    );
    same(
        json!([
            "from",
            "inventory",
            [
                "extract",
                "certname",
                [
                    "and",
                    ["~", "certname", "^web"],
                    ["not", ["=", "facts.os.family", "RedHat"]]
                ]
            ]
        ]),
        r#"inventory[certname] { certname ~ "^web" and not facts.os.family = "RedHat" }"#,
    );
    same(
        json!([
            "from",
            "resources",
            [
                "extract",
                ["certname", "title"],
                [
                    "or",
                    ["=", "tag", "profile"],
                    ["=", ["parameter", "ensure"], "running"]
                ]
            ]
        ]),
        r#"resources[certname, title] { tags.* = "profile" or parameters.ensure = "running" }"#,
    );
    same(
        json!([
            "from",
            "nodes",
            ["extract", ["certname"], ["null?", "facts", false]],
            ["order_by", [["certname", "desc"]]],
            ["limit", 2],
            ["offset", 1]
        ]),
        "nodes[certname] { facts is not null order by certname desc limit 2 offset 1 }",
    );
    same(
        json!([
            "from",
            "resources",
            [
                "extract",
                ["type", ["function", "count"]],
                ["group_by", "type"]
            ]
        ]),
        "resources[type, count()] { group by type }",
    );
    same(
        nodes_with(json!([
            "subquery",
            "resources",
            ["and", ["=", "type", "Service"], ["=", "title", "nginx"]]
        ])),
        r#"nodes[certname] { resources { type = "Service" and title = "nginx" } }"#,
    );
    let nginx = r#"nodes[certname] { certname in resources[certname] { title = "nginx" } }"#;
    same(
        nodes_with(json!([
            "in",
            "certname",
            [
                "extract",
                "certname",
                ["select_resources", ["=", "title", "nginx"]]
            ]
        ])),
        nginx,
    );
    same(
        nodes_with(json!([
            "in",
            ["certname"],
            [
                "from",
                "resources",
                ["extract", ["certname"], ["=", "title", "nginx"]]
            ]
        ])),
        nginx,
    );
    same(
        nodes_with(json!(["in", "certname", ["array", ["web-1", "x"]]])),
        r#"nodes[certname] { certname in ["web-1", "x"] }"#,
    );
    same(
        json!([
            "from",
            "fact_contents",
            [
                "extract",
                ["certname", "value"],
                ["~>", "path", ["networking", "interfaces", "eth.*", "ip"]]
            ]
        ]),
        r#"fact_contents[certname, value] { path ~> ["networking", "interfaces", "eth.*", "ip"] }"#,
    );
}

#[test]
fn code_gets_puppetdbs_names() {
    let count = rows(&json!("nodes[count()] { certname ~ '^web' }"));
    assert_eq!(count, Ok(json!([{"count": 2}])));
    let inventory = rows(&json!("inventory { certname = 'web-1' }")).expect("rows");
    let names: Vec<&String> = inventory[0].as_object().expect("a row").keys().collect();
    assert_eq!(names, ["certname", "environment", "facts"]);
}

#[test]
fn a_wrong_list_is_an_error_that_names_the_problem() {
    let check = |query: Value, expected: Expect| {
        let said = rows(&query).expect_err("it is wrong");
        expected.assert_eq(&said);
    };
    check(json!([]), expect![["a query must be a list, not []"]]);
    check(
        json!(["nodes"]),
        expect![[r#"a query must begin with ["from", ENTITY, …], not with "nodes""#]],
    );
    check(
        json!(["from", "things"]),
        expect!["unknown entity `things`"],
    );
    check(
        json!(["from", "nodes", ["like", "certname", "x"]]),
        expect!["`like` is not an operator, or has the wrong number of arguments"],
    );
    check(
        json!(["from", "nodes", ["=", "certnam", "x"]]),
        expect!["`nodes` have no field `certnam`"],
    );
    check(
        json!(["from", "nodes", ["=", "certname", {"a": 1}]]),
        expect![[r#"{"a":1} is not a value to compare with"#]],
    );
    let mut deep = json!(["=", "certname", "x"]);
    for _ in 0..100 {
        deep = json!(["not", deep]);
    }
    check(
        json!(["from", "nodes", deep]),
        expect!["this is nested more than 64 levels deep"],
    );
}

#[test]
fn a_query_knows_whether_a_compile_can_change_its_answer() {
    let check = |text: &str| {
        Query::parse_in_code(&json!(text))
            .expect("a query")
            .reads_catalogs()
    };
    assert!(check("resources { }"));
    assert!(check("nodes[certname] { resources { title = 'x' } }"));
    assert!(check("nodes[catalog] { }"));
    assert!(!check("nodes[certname] { facts.role = 'web' }"));
    assert!(!check("facts { name = 'kernel' }"));
}

fn export(title: &str, parameters: Value, tags: &[&str]) -> Resource {
    Resource {
        type_name: "Host".to_owned(),
        title: title.to_owned(),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        parameters: parameters.as_object().cloned().unwrap_or_default(),
        ..Resource::default()
    }
}

fn node(name: &str) -> NodeName {
    NodeName::new(name).expect("a name")
}

fn exporting() -> Index {
    let mut index = fleet();
    index.set_exports(
        &node("web-1"),
        &[
            export("b", json!({"ip": "1"}), &["Web"]),
            export("a", json!({"ip": ["1", "2"]}), &[]),
        ],
    );
    index.set_exports(
        &node("web-2"),
        &[export("c", json!({"ip": "1", "port": 80}), &["web"])],
    );
    index
}

#[test]
fn a_collector_finds_what_matches_by_node_and_title() {
    let check = |filter: Value, expected: &[&str]| {
        let filter = ExportFilter::read(&filter).expect("a filter");
        let index = exporting();
        let found = index.collect("Host", Some(&filter));
        let titles: Vec<&str> = found.map(|one| one.resource.title.as_str()).collect();
        assert_eq!(titles, expected, "{filter:?}");
    };
    let index = exporting();
    let all: Vec<&str> = (index.collect("Host", None))
        .map(|one| one.resource.title.as_str())
        .collect();
    assert_eq!(all, ["a", "b", "c"]);
    assert_eq!(index.collect("File", None).count(), 0);
    check(json!(["tag", "==", "WEB"]), &["b", "c"]);
    check(json!(["tag", "!=", "web"]), &["a"]);
    check(json!(["title", "==", "a"]), &["a"]);
    check(json!(["ip", "==", "1"]), &["b", "c"]);
    check(json!(["ip", "!=", "1"]), &["a"]);
    check(json!(["port", "==", 80]), &["c"]);
    check(json!(["port", "==", "80"]), &[]);
    check(
        json!([["tag", "==", "web"], "and", ["title", "!=", "b"]]),
        &["c"],
    );
    check(
        json!([["title", "==", "a"], "or", ["title", "==", "c"]]),
        &["a", "c"],
    );
    for wrong in [
        json!("x"),
        json!(["a", "=~", "b"]),
        json!([["a"], "==", "b"]),
    ] {
        assert!(ExportFilter::read(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn sums_show_changes_and_leave_a_nodes_own_exports_out() {
    let mut index = exporting();
    let (total, by_node) = index.collected_sums("Host", None);
    let without_one = total.without(by_node[&node("web-1")]);
    let version = index.exports_version("Host");
    index.set_exports(&node("web-1"), &[export("b", json!({"ip": "2"}), &["Web"])]);
    assert_ne!(index.exports_version("Host"), version);
    let (changed, by_node) = index.collected_sums("Host", None);
    assert_ne!(changed, total);
    assert_eq!(changed.without(by_node[&node("web-1")]), without_one);
    // The same resources give the same sum, whatever happened in between.
    index.remove_node(&node("web-1"));
    assert_eq!(index.collected_sums("Host", None).0, without_one);
    assert_eq!(index.collected_sums("Host", None), exporting_only_second());
    index.remove_node(&node("web-2"));
    assert_eq!(index.collect("Host", None).count(), 0);
}

fn exporting_only_second() -> (
    bunraku_query::ExportSum,
    std::collections::BTreeMap<NodeName, bunraku_query::ExportSum>,
) {
    let mut index = fleet();
    index.set_exports(
        &node("web-2"),
        &[export("c", json!({"ip": "1", "port": 80}), &["web"])],
    );
    index.collected_sums("Host", None)
}
