//! Runs that are limited to tags: which resources run, are skipped, and pass on changes.

use bunraku_model::Catalog;
use serde_json::{Value, json};

use crate::types::testing::lines;
use crate::{
    ApplyOptions, Cancellation, CatalogPlan, InvalidTag, PlanOptions, Registry, Summary, apply_plan,
};

fn catalog(resources: Value, edges: Value) -> Catalog {
    let catalog = json!({"name": "test", "resources": resources, "edges": edges});
    serde_json::from_value(catalog).expect("a catalog")
}

fn tagged(catalog: &Catalog, tags: &[&str]) -> Result<CatalogPlan, InvalidTag> {
    let tags: Vec<String> = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let plan = CatalogPlan::new(catalog, &Registry::standard(), PlanOptions::default());
    plan.unwrap_or_else(|error| panic!("{error}"))
        .only_tagged(catalog, &tags)
}

fn run(catalog: &Catalog, tags: &[&str]) -> Summary {
    let state = tempfile::tempdir().expect("a directory");
    let plan = tagged(catalog, tags).expect("tags");
    let how = ApplyOptions::new(state.path(), Cancellation::new().expect("a pipe"), &());
    apply_plan(&plan, how).expect("a record of the run")
}

/// Returns the titles of the resources that ran, sorted.
fn ran(catalog: &Catalog, tags: &[&str]) -> Vec<String> {
    let summary = run(catalog, tags);
    let finished = summary.finished.iter();
    let mut titles: Vec<String> = finished
        .map(|one| one.reference.title().to_owned())
        .collect();
    titles.sort();
    titles
}

fn notify(title: &str) -> Value {
    json!({"type": "Notify", "title": title})
}

#[test]
fn type_title_class_and_tags_of_ones_own_select() {
    let catalog = catalog(
        json!([
            {"type": "Class", "title": "Profile::Web"},
            notify("inside"),
            {"type": "Notify", "title": "own", "tags": ["Release"]},
            {"type": "Notify", "title": "parameter", "parameters": {"tag": ["nightly"]}},
            {"type": "Exec", "title": "/bin/true"},
        ]),
        json!([{"source": "Class[Profile::Web]", "target": "Notify[inside]"}]),
    );
    assert_eq!(ran(&catalog, &["profile::web"]), ["inside"]);
    assert_eq!(ran(&catalog, &["WEB"]), ["inside"], "segments, in any case");
    assert_eq!(ran(&catalog, &["release", "nightly"]), ["own", "parameter"]);
    assert_eq!(ran(&catalog, &["exec"]), ["/bin/true"]);
    assert_eq!(ran(&catalog, &["own"]), ["own"], "a title");
    assert_eq!(ran(&catalog, &["nobody"]), Vec::<String>::new());
    assert_eq!(ran(&catalog, &[]).len(), 4, "without tags, all");
}

#[test]
fn what_puppet_tagged_is_tagged_as_puppet_says() {
    // A class that was included elsewhere first: contained, but not tagged by its container.
    let catalog = catalog(
        json!([
            {"type": "Class", "title": "A", "tags": ["class", "a"]},
            {"type": "Notify", "title": "x", "tags": ["notify", "b"]},
        ]),
        json!([{"source": "Class[A]", "target": "Notify[x]"}]),
    );
    assert_eq!(ran(&catalog, &["a"]), Vec::<String>::new());
    assert_eq!(ran(&catalog, &["b"]), ["x"]);
}

#[test]
fn what_is_required_and_left_out_counts_as_done() {
    let catalog = catalog(
        json!([
            {"type": "Exec", "title": "fails", "parameters": {"command": "/bin/false"}},
            {"type": "Notify", "title": "behind", "tags": ["wanted"], "parameters": {"require": "Exec[fails]"}},
        ]),
        json!([]),
    );
    let summary = run(&catalog, &["wanted"]);
    assert_eq!(lines(&summary), "Notify[behind] changed");
    assert!(summary.succeeded());
}

#[test]
fn a_failure_is_passed_on_by_what_is_left_out_and_a_change_is_not() {
    let catalog = catalog(
        json!([
            {"type": "Exec", "title": "fails", "tags": ["wanted"], "parameters": {"command": "/bin/false"}},
            {"type": "Notify", "title": "between", "parameters": {"require": "Exec[fails]"}},
            {"type": "Notify", "title": "behind", "tags": ["wanted"], "parameters": {"require": "Notify[between]"}},
            {"type": "Exec", "title": "changes", "tags": ["wanted"], "parameters": {"command": "/bin/true"}},
            {"type": "Exec", "title": "hears", "parameters": {"command": "/bin/true", "refreshonly": true, "subscribe": "Exec[changes]"}},
            {"type": "Exec", "title": "hears of that", "tags": ["wanted"], "parameters": {"command": "/bin/true", "refreshonly": true, "subscribe": "Exec[hears]"}},
        ]),
        json!([]),
    );
    let transcript = lines(&run(&catalog, &["wanted"]));
    assert!(transcript.contains("Exec[fails] failed"), "{transcript}");
    assert!(
        transcript.contains("Notify[behind] skipped"),
        "{transcript}"
    );
    assert!(transcript.contains("Exec[changes] changed"), "{transcript}");
    assert!(
        transcript.contains("Exec[hears of that] unchanged"),
        "{transcript}"
    );
    assert!(
        !transcript.contains("between") && !transcript.contains("Exec[hears] "),
        "{transcript}"
    );
}

#[test]
fn an_invalid_tag_is_refused() {
    let catalog = catalog(json!([notify("x")]), json!([]));
    let refused = tagged(&catalog, &["web", "a b"]).err();
    assert_eq!(refused, Some(InvalidTag("a b".to_owned())));
}
