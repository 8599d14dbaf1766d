//! Refused catalogs, and the order of accepted ones, compared as text.

use expect_test::{Expect, expect};
use serde_json::{Value, json};

use super::*;
use crate::types::testing::catalog;

fn refused(resources: Value, expected: Expect) {
    let error = CatalogPlan::new(
        &catalog(resources),
        &Registry::standard(),
        PlanOptions::default(),
    );
    expected.assert_eq(&error.err().expect("refused").to_string());
}

fn explained(mode: OrderingMode, resources: Value, expected: Expect) {
    let plan = CatalogPlan::new(
        &catalog(resources),
        &Registry::standard(),
        PlanOptions {
            mode,
            ..PlanOptions::default()
        },
    )
    .expect("a plan");
    let lines = plan
        .explain()
        .map(|one| format!("{}: {}\n", one.reference, one.reasons.join("; ")));
    expected.assert_eq(&lines.collect::<String>());
}

#[test]
fn unknown_types_and_parameters_are_all_named_with_near_names() {
    refused(
        json!([
            {"type": "Flie", "title": "/x", "file": "site.pp", "line": 3},
            {"type": "File", "title": "/y", "parameters": {"contnet": "x"}},
            {"type": "Notify", "title": "n", "parameters": {"withpath": "perhaps"}},
        ]),
        expect![[r#"
            Flie[/x] (site.pp:3): no resource type `Flie`; did you mean `file`?
            File[/y] (the catalog): the type `file` has no parameter `contnet`; did you mean `content` or `context`?
            Notify[n] (the catalog): `withpath` must be true or false, not `"perhaps"`"#]],
    );
}

#[test]
fn a_reference_to_nothing_is_refused_with_near_names() {
    refused(
        json!([
            {"type": "Notify", "title": "configure", "parameters": {"require": ["Notify[confgure]", "x"]}},
        ]),
        expect![[r#"
            Notify[configure] (the catalog): `require` refers to Notify[confgure], which is not in the catalog; did you mean `Notify[configure]`?
            Notify[configure] (the catalog): `require` contains `x`, which is not a reference"#]],
    );
}

#[test]
fn a_resource_that_is_declared_twice_names_both_places() {
    refused(
        json!([
            {"type": "Notify", "title": "n", "file": "a.pp", "line": 1},
            {"type": "Notify", "title": "n", "file": "b.pp", "line": 2},
        ]),
        expect!["Notify[n] (b.pp:2): it is declared twice, first at a.pp:1"],
    );
}

#[test]
fn a_cycle_shows_its_whole_path_with_places() {
    refused(
        json!([
            {"type": "Notify", "title": "a", "file": "site.pp", "line": 1, "parameters": {"require": "Notify[c]"}},
            {"type": "Notify", "title": "b", "file": "site.pp", "line": 2, "parameters": {"require": "Notify[a]"}},
            {"type": "Notify", "title": "c", "file": "site.pp", "line": 3, "parameters": {"subscribe": "Notify[b]"}},
            {"type": "Notify", "title": "behind", "parameters": {"require": "Notify[c]"}},
        ]),
        expect![[r#"
            dependency cycle:
              Notify[a] (site.pp:1)
                then, by require:
              Notify[b] (site.pp:2)
                then, by subscribe:
              Notify[c] (site.pp:3)
                then, by require:
              Notify[a] (site.pp:1)"#]],
    );
}

#[test]
fn a_resource_that_requires_itself_is_a_cycle() {
    refused(
        json!([{"type": "Notify", "title": "a", "parameters": {"require": "Notify[a]"}}]),
        expect![[r#"
            dependency cycle:
              Notify[a] (the catalog)
                then, by require:
              Notify[a] (the catalog)"#]],
    );
}

#[test]
fn a_file_comes_after_the_nearest_directory_above_it_unless_declared_otherwise() {
    explained(
        OrderingMode::Genius,
        json!([
            {"type": "File", "title": "/a/b/c", "parameters": {"content": ""}},
            {"type": "File", "title": "/a", "parameters": {"ensure": "directory"}},
            {"type": "File", "title": "/z/y", "parameters": {"content": "", "before": "File[/z]"}},
            {"type": "File", "title": "/z", "parameters": {"ensure": "directory"}},
        ]),
        expect![[r#"
            File[/a]: 
            File[/z/y]: not after File[/z] (its directory): the declared order takes precedence
            File[/a/b/c]: after File[/a] (its directory, inferred)
            File[/z]: after File[/z/y] (before)
        "#]],
    );
}

#[test]
fn states_have_inferred_order_in_genius_mode_only() {
    let origin = |id: &str| json!({"id": id, "name": id, "function": "file.managed"});
    let resources = json!([
        {"type": "File", "title": "/a/b", "parameters": {"content": ""}, "state": origin("/a/b")},
        {"type": "File", "title": "/a", "parameters": {"ensure": "directory"}, "state": origin("/a")},
    ]);
    explained(
        OrderingMode::Ansible,
        resources.clone(),
        expect![[r#"
        File[/a/b]: 
        File[/a]: 
    "#]],
    );
    explained(
        OrderingMode::Genius,
        resources,
        expect![[r#"
        File[/a]: 
        File[/a/b]: after File[/a] (its directory, inferred)
    "#]],
    );
}

#[test]
fn a_name_that_is_registered_twice_is_refused() {
    refused(
        json!([
            {"type": "Test", "title": "a", "parameters": {"register": "x"}},
            {"type": "Test", "title": "b", "parameters": {"register": "x"}},
        ]),
        expect!["Test[b] (the catalog): `x` is registered twice, first by Test[a]"],
    );
}
