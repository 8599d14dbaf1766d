//! Tests the answers of queries.

use bunraku_query::{Index, Limits, Query};
use expect_test::{Expect, expect};

use crate::fleet::{answer_text, ask, fleet};

fn check(text: &str, expected: Expect) {
    expected.assert_eq(&answer_text(&ask(&fleet(), text)));
}

#[test]
fn the_example_of_the_design_finds_its_nodes() {
    check(
        r#"nodes[certname] { facts.os.family = "Debian" and resources { type = "Class" and title = "Profile::Loadbalancer" } }"#,
        expect!["web-1\n"],
    );
}

#[test]
fn without_a_condition_all_nodes_are_there_by_name() {
    check(
        "nodes[certname, status]",
        expect![[r#"
        db-1  idle
        new-1  new
        web-1  idle
        web-2  lost
    "#]],
    );
    check(
        "nodes[certname] {}",
        expect![[r#"
        db-1
        new-1
        web-1
        web-2
    "#]],
    );
}

#[test]
fn numbers_compare_as_numbers_and_texts_as_texts() {
    check(
        "nodes[certname, facts.processors.count] { facts.processors.count > 4 }",
        expect![[r#"
        db-1  16
        web-2  8
    "#]],
    );
    check(
        "nodes[certname] { facts.processors.count >= 8.0 and facts.processors.count < 16.5 }",
        expect![[r#"
        db-1
        web-2
    "#]],
    );
    check(
        r#"nodes[certname] { facts.processors.count = "4" }"#,
        expect![""],
    );
    check(
        r#"nodes[certname] { facts.processors.count > "3" }"#,
        expect![""],
    );
}

#[test]
fn an_absent_value_is_like_nothing_and_not_is_the_rest() {
    check(
        r#"nodes[certname] { facts.os.family != "Debian" }"#,
        expect!["web-2\n"],
    );
    check(
        r#"nodes[certname] { not facts.os.family = "Debian" }"#,
        expect![[r#"
        new-1
        web-2
    "#]],
    );
    check("nodes[certname] { facts.os is null }", expect!["new-1\n"]);
    // Nodes that PuppetDB would call deactivated or expired are not in the index.
    check(
        "inventory[certname] { facts.os.family = \"Debian\" and nodes { deactivated is null and expired is null } }",
        expect![[r#"
        db-1
        web-1
    "#]],
    );
    check("nodes[certname] { deactivated is not null }", expect![""]);
    check(
        "nodes[certname] { facts is not null and facts.empty is not null }",
        expect![[r#"
        db-1
        web-1
        web-2
    "#]],
    );
}

#[test]
fn regular_expressions_match_anywhere_in_a_text() {
    check(
        r#"nodes[certname] { certname ~ "^web-\d+$" }"#,
        expect![[r#"
        web-1
        web-2
    "#]],
    );
    check(
        r#"nodes[certname] { certname !~ "web|db" }"#,
        expect!["new-1\n"],
    );
    check(
        r#"nodes[certname] { facts.networking.interfaces.eth0.ip ~ "^10\.0\.0\." }"#,
        expect![[r#"
        web-1
        web-2
    "#]],
    );
}

#[test]
fn paths_reach_into_lists_quoted_names_and_any_name() {
    check(
        r#"nodes[facts.processors.models.1, facts.processors.models[0], facts.mountpoints."/var log".size_bytes] { certname = "web-1" }"#,
        expect!["b  a  5\n"],
    );
    check(
        r#"nodes[certname] { facts.networking.interfaces.*.ip = "10.0.1.1" }"#,
        expect!["db-1\n"],
    );
    check(
        r#"nodes[certname] { facts.processors.models.* = "b" and facts.mountpoints.*.size_bytes > 9000 }"#,
        expect!["db-1\n"],
    );
    check(
        r#"nodes[facts.networking.interfaces] { certname = "web-1" }"#,
        expect![[r#"
            {"eth0":{"ip":"10.0.0.1"},"lo":{"ip":"127.0.0.1"}}
        "#]],
    );
    check(
        r#"nodes[facts.processors] { certname = "web-1" }"#,
        expect![[r#"
            {"count":4,"models":["a","b"]}
        "#]],
    );
}

#[test]
fn lists_and_other_queries_give_values_to_be_in() {
    check(
        r#"nodes[certname] { certname in ["web-1", "db-1", "nobody", 3] }"#,
        expect![[r#"
        db-1
        web-1
    "#]],
    );
    check(r#"nodes[certname] { certname in [] }"#, expect![""]);
    check(
        r#"nodes[certname] { certname in resources[certname] { title = "postgresql" } }"#,
        expect!["db-1\n"],
    );
    check(
        r#"nodes[certname] { certname in reports { status = "failed" } }"#,
        expect!["web-1\n"],
    );
    check(
        r#"resources[certname, title] { [certname, title] in events[certname, title] { corrective = true } }"#,
        expect!["web-1  /etc/motd\n"],
    );
    check(
        r#"facts[certname, name] { [certname, value] in nodes[certname, facts.os] and name = "os" }"#,
        expect![[r#"
            db-1  os
            web-1  os
            web-2  os
        "#]],
    );
}

#[test]
fn facts_are_rows_of_their_own() {
    check(
        r#"facts { name = "empty" and certname = "web-1" }"#,
        expect!["web-1  empty  {}  production\n"],
    );
    check(
        r#"facts[certname, value.family] { name = "os" and value.family = "RedHat" }"#,
        expect!["web-2  RedHat\n"],
    );
    check(
        r#"nodes[certname] { facts { name = "processors" and value.count = 16 } }"#,
        expect!["db-1\n"],
    );
    check(
        r#"fact_contents[certname, path, value] { path ~> ["networking", "interfaces", "e.*", "ip"] }"#,
        expect![[r#"
            db-1  ["networking","interfaces","eth0","ip"]  10.0.1.1
            web-1  ["networking","interfaces","eth0","ip"]  10.0.0.1
            web-2  ["networking","interfaces","eth0","ip"]  10.0.0.2
        "#]],
    );
    check(
        r#"fact_contents[certname, path] { value = "b" and path ~> ["processors", "models", 1] and certname ~ "web" }"#,
        expect![[r#"
            web-1  ["processors","models",1]
            web-2  ["processors","models",1]
        "#]],
    );
}

#[test]
fn resources_show_their_parameters_and_no_secrets() {
    check(
        r#"resources[certname, title, parameters.mode] { type = "File" and parameters.mode = "0644" }"#,
        expect![[r#"
        web-1  /etc/motd  0644
        web-2  /etc/motd  0644
    "#]],
    );
    check(
        r#"resources[certname] { parameters.content ~ "hunter" }"#,
        expect![""],
    );
    check(
        r#"resources[parameters.content] { title = "/etc/secret" and certname = "web-1" }"#,
        expect!["[secret]\n"],
    );
    check(
        r#"resources[certname, title] { tags.* = "profile" and not certname = "web-2" }"#,
        expect!["web-1  Profile::Loadbalancer\n"],
    );
    check(
        r#"resources[certname, title, file, line] { line is not null and certname = "web-2" }"#,
        expect!["web-2  /etc/motd  motd.pp  3\n"],
    );
    check(
        r#"classes[certname, name] { certname in ["web-1", "db-1"] }"#,
        expect![[r#"
        db-1  Profile::Database
        web-1  Profile::Loadbalancer
        web-1  settings
    "#]],
    );
}

#[test]
fn reports_and_events_lead_to_nodes() {
    check(
        r#"reports[certname, run, status] { start_time > "2026-11-02" }"#,
        expect![[r#"
        db-1  r3  succeeded
        web-1  r2  failed
    "#]],
    );
    check(
        r#"nodes[certname] { events { resource_title = "/etc/motd" and corrective_change = true } }"#,
        expect!["web-1\n"],
    );
    check(
        r#"nodes[certname] { not reports {} }"#,
        expect![[r#"
        new-1
        web-2
    "#]],
    );
    check(
        r#"resources[certname, title] { type = "Service" and nodes { status = "lost" } }"#,
        expect!["web-2  nginx\n"],
    );
}

#[test]
fn order_limit_and_offset_make_pages() {
    check(
        "nodes[certname, facts.processors.count] { facts is not null order by facts.processors.count desc limit 2 }",
        expect![[r#"
        db-1  16
        web-2  8
    "#]],
    );
    check(
        "nodes[certname] { order by status desc, certname limit 2 offset 1 }",
        expect![[r#"
        web-2
        db-1
    "#]],
    );
    check("nodes[certname] { limit 0 }", expect![""]);
    check("nodes[certname] { offset 9 }", expect![""]);
}

#[test]
fn groups_are_counted_summed_and_ordered() {
    check(
        "nodes[facts.os.family, count()] { facts.os.family is not null group by facts.os.family order by count() desc }",
        expect![[r#"
        Debian  2
        RedHat  1
    "#]],
    );
    check(
        "resources[type, count()] { group by type order by count() desc, type }",
        expect![[r#"
        File  4
        Class  3
        Service  3
    "#]],
    );
    check(
        "nodes { facts.os.family is not null group by facts.os.family order by facts.os.family }",
        expect![[r#"
        Debian
        RedHat
    "#]],
    );
    check("nodes[count()] { certname = \"nobody\" }", expect!["0\n"]);
    check(
        "nodes[count(facts.os), sum(facts.processors.count), avg(facts.processors.count), min(certname), max(certname)]",
        expect!["3  28  9.333333333333334  db-1  web-2\n"],
    );
    check(
        "reports[certname, max(start_time)]",
        expect![[r#"
        db-1  2026-11-02T11:00:00Z
        web-1  2026-11-02T10:00:00Z
    "#]],
    );
    check(
        "resources[title, count()] { type = \"File\" and certname ~ \"web\" }",
        expect![[r#"
        /etc/motd  2
        /etc/secret  2
    "#]],
    );
}

#[test]
fn a_fact_that_no_node_has_is_probably_misspelt() {
    check(
        r#"nodes[certname] { facts.os.famly = "Debian" }"#,
        expect![[r#"
        warning: no node has a fact `os.famly`; did you mean `os.family`?
    "#]],
    );
    check(
        r#"nodes[certname] { resources { title = "x" } or facts.nothing.like.this = 1 }"#,
        expect![[r#"
        warning: no node has a fact `nothing.like.this`
    "#]],
    );
    let nobody = ask(&Index::new(), "nodes { facts.os.family = 1 }");
    assert!(
        nobody.warnings.is_empty(),
        "an empty fleet has no facts at all"
    );
}

#[test]
fn a_target_is_the_nodes_of_whatever_is_found() {
    let index = fleet();
    let nodes = |text: &str| {
        let query = Query::parse_target(text).expect("a target");
        let nodes = index.nodes_matching(&query, &Limits::default());
        nodes
            .expect("answered")
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        nodes(r#"nodes { facts.os.family = "Debian" }"#),
        "db-1 web-1"
    );
    assert_eq!(nodes(r#"resources { type = "File" }"#), "web-1 web-2");
    assert_eq!(nodes("nodes { order by certname desc limit 1 }"), "web-2");
    assert_eq!(nodes(r#"nodes { certname = "nobody" }"#), "");
    let grouped = Query::parse_target("nodes[count()]").expect_err("it names no nodes");
    assert_eq!(grouped.message, "a query with groups does not select nodes");
}

#[test]
fn what_is_removed_is_not_found_any_more() {
    let mut index = fleet();
    index.remove_report(&crate::fleet::name("web-1"), "r2");
    assert_eq!(
        answer_text(&ask(&index, r#"reports[run] { status = "failed" }"#)),
        ""
    );
    index.clear_catalog(&crate::fleet::name("db-1"));
    assert_eq!(
        answer_text(&ask(
            &index,
            r#"nodes[certname] { resources { title = "postgresql" } }"#
        )),
        ""
    );
    index.remove_node(&crate::fleet::name("web-1"));
    index.remove_node(&crate::fleet::name("nobody"));
    assert_eq!(
        answer_text(&ask(&index, "nodes[certname] { facts is not null }")),
        "db-1\nweb-2\n"
    );
    for node in ["web-2", "db-1", "new-1"] {
        index.remove_node(&crate::fleet::name(node));
    }
    assert_eq!(index.size(), Index::new().size(), "nothing is left behind");
}
