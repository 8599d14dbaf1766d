//! Reading catalogs as Puppet writes them, and writing them back.

use serde_json::json;

use super::*;

/// A catalog as `puppet catalog compile` 7.23 wrote it, shortened.
const FROM_PUPPET: &str = r#"{
  "tags": ["settings", "a", "class"], "name": "x.y", "version": 1794776647, "code_id": null,
  "catalog_uuid": "c9180fb7-7dc2-492f-b44b-5c1dc849b080", "catalog_format": 2, "environment": "production",
  "resources": [
    {"type": "Stage", "title": "main", "tags": ["stage"], "exported": false, "kind": "compilable_type", "parameters": {"name": "main"}},
    {"type": "Class", "title": "A", "tags": ["class", "a"], "file": "/m.pp", "line": 3, "exported": false, "kind": "class"},
    {"type": "File", "title": "/x", "tags": ["file"], "file": "/m.pp", "line": 1, "exported": false, "kind": "compilable_type",
     "parameters": {"content": "s3", "before": ["Exec[e]"]}, "sensitive_parameters": ["content"]},
    {"type": "Exec", "title": "e", "tags": ["exec"], "exported": false, "kind": "compilable_type",
     "parameters": {"environment": {"__ptype": "Sensitive", "__pvalue": ["A=b"]}}, "ext_parameters": {"k": 1}}
  ],
  "edges": [{"source": "Stage[main]", "target": "Class[A]"}, {"source": "Class[A]", "target": "File[/x]"}],
  "classes": ["settings", "a"], "recursive_metadata": {"/d": []}
}"#;

fn catalog() -> Catalog {
    Catalog::from_json(FROM_PUPPET.as_bytes()).expect("Puppet's own form")
}

#[test]
fn a_catalog_of_puppet_is_written_back_without_loss() {
    let written = serde_json::to_value(catalog()).expect("plain data");
    let original: Value = serde_json::from_str(FROM_PUPPET).expect("JSON");
    assert_eq!(written, original);
}

#[test]
fn secrets_are_known_by_name_and_by_wrapping() {
    let catalog = catalog();
    assert!(catalog.resources[2].is_sensitive("content"));
    assert!(!catalog.resources[2].is_sensitive("before"));
    assert!(catalog.resources[3].is_sensitive("environment"));
    assert_eq!(
        *plain(&catalog.resources[3].parameters["environment"]),
        json!(["A=b"])
    );
}

#[test]
fn times_uuids_commits_and_places_do_not_change_the_id() {
    let (one, mut other) = (catalog(), catalog());
    other.version = Some(json!("later"));
    other.catalog_uuid = Some(json!("another"));
    other.code_id = Some(json!("a commit"));
    other.resources[2].line = Some(99);
    other.resources[1].tags.reverse();
    other.edges.reverse();
    assert_eq!(one.id(), other.id());
}

#[test]
fn parameters_edges_and_the_order_of_resources_do() {
    let id = catalog().id();
    let mut content = catalog();
    content.resources[2].parameters["content"] = json!("other");
    let mut edges = catalog();
    edges.edges.pop();
    let mut order = catalog();
    order.resources.swap(2, 3);
    let mut metadata = catalog();
    metadata.other["recursive_metadata"] = json!({"/d": [{"checksum": "x"}]});
    for changed in [content, edges, order, metadata] {
        assert_ne!(changed.id(), id);
    }
}

#[test]
fn the_ordering_mode_is_part_of_the_id_only_if_it_is_set() {
    let without = catalog();
    assert_eq!(without.ordering, None, "catalogs of older builds have none");
    let with = Catalog {
        ordering: Some(crate::OrderingMode::Ansible),
        ..catalog()
    };
    assert_ne!(with.id(), without.id());
    // A build that does not know the member keeps it in `other`, and computes the same id.
    let mut unknown = catalog();
    unknown
        .other
        .insert("ordering".to_owned(), json!("ansible"));
    assert_eq!(with.id(), unknown.id());
    let written = serde_json::to_vec(&with).expect("plain data");
    assert_eq!(Catalog::from_json(&written).expect("a catalog"), with);
    let diff = CatalogDiff::between(&without, &with);
    assert_eq!(diff.about[0].name, "ordering");
}

#[test]
fn the_id_of_a_catalog_without_an_ordering_mode_never_changes() {
    let id = catalog().id().to_string();
    assert_eq!(
        id,
        "3698a3d8585fc9a448f9b4255afaf17a0edad43fdc4628ac76352a0be6312bcd"
    );
}

#[test]
fn an_ordering_mode_that_this_build_does_not_know_is_refused_by_name() {
    let text = r#"{"name": "a", "resources": [], "ordering": "backwards"}"#;
    let error = Catalog::from_json(text.as_bytes()).expect_err("unknown");
    let source = std::error::Error::source(&error).expect("the reason");
    assert!(source.to_string().contains("backwards"), "{source}");
}

#[test]
fn rich_values_become_what_a_type_reads() {
    let hash = json!({"__ptype": "Hash", "__pvalue": [1, {"__ptype": "Default"}, "k", {"__ptype": "Sensitive", "__pvalue": 2}]});
    assert_eq!(*plain(&hash), json!({"1": "default", "k": 2}));
    let binary = json!({"__ptype": "Binary", "__pvalue": "AAE="});
    assert_eq!(*plain(&binary), binary);
}

#[test]
fn references_read_titles_with_brackets_and_refuse_other_text() {
    let reference: ResourceReference = "apache::vhost[a[1]]".parse().expect("a reference");
    assert_eq!(
        (reference.type_name(), reference.title()),
        ("Apache::Vhost", "a[1]")
    );
    for text in ["", "File", "File[x", "[x]", "/x[y]"] {
        assert!(text.parse::<ResourceReference>().is_err(), "{text}");
    }
}

#[test]
fn requisites_travel_in_members_that_puppet_ignores() {
    let resource: Resource = serde_json::from_value(json!({
        "type": "Exec", "title": "e", "exported": false,
        "requisites": [{"kind": "onfail", "group": "all", "targets": ["File[/x]"]}],
        "state": {"id": "e", "name": "true", "function": "cmd.run"},
    }))
    .expect("our form");
    assert_eq!(resource.requisites[0].kind, RequisiteKind::OnFail);
    assert_eq!(resource.requisites[0].group, Group::All);
    assert_eq!(resource.state.as_ref().expect("given").function, "cmd.run");
}

#[test]
fn something_else_is_refused() {
    for text in ["", "[]", "{}", r#"{"name": 1}"#] {
        assert!(Catalog::from_json(text.as_bytes()).is_err(), "{text}");
    }
}

#[test]
fn the_content_of_a_file_is_part_of_the_id_and_survives_writing() {
    let with = |text: &str| {
        let mut catalog = catalog();
        let file = SourceFile {
            content: crate::ContentId::of(text.as_bytes()),
            size: text.len() as u64,
        };
        let entries = vec![
            SourceEntry {
                path: "d".to_owned(),
                file: None,
            },
            SourceEntry {
                path: "d/f".to_owned(),
                file: Some(file),
            },
        ];
        let sources = [
            ("salt://f".to_owned(), CatalogSource::File(file)),
            ("salt://t".to_owned(), CatalogSource::Directory { entries }),
        ];
        catalog.sources = sources.into();
        catalog
    };
    assert_ne!(with("a").id(), with("b").id());
    assert_ne!(with("a").id(), catalog().id());
    assert_eq!(with("a").contents().len(), 1);
    let text = serde_json::to_vec(&with("a")).expect("plain data");
    assert_eq!(Catalog::from_json(&text).expect("own text"), with("a"));
}
