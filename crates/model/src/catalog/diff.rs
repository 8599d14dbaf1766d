//! The differences between two catalogs of a node.
//!
//! Pure and complete: when two catalogs have different ids, the difference is never empty. Values
//! that are secret in either catalog are compared and never shown. Noise for people (tags,
//! containment of added or removed resources) is kept separate or left out.
//!
//! Absent: the content of files. A caller that has it fills in [`Difference::text`].

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Catalog, CatalogSource, Place, Resource, ResourceReference, SourceFile};
use crate::ContentId;

/// A value in a form that may be shown.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisplayValue {
    Value(Value),
    /// Never shown.
    Secret,
}

/// One named value that differs; `None` where it does not exist.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<DisplayValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<DisplayValue>,
    /// The lines that differ, if both values are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The change of one resource.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ResourceDiff {
    pub resource: ResourceReference,
    /// The place where it is declared, or was declared before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    #[serde(flatten)]
    pub change: ResourceChange,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum ResourceChange {
    Added {
        parameters: BTreeMap<String, DisplayValue>,
    },
    Removed {
        parameters: BTreeMap<String, DisplayValue>,
    },
    Changed {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        parameters: Vec<Difference>,
        /// Changes outside the parameters: tags, requisites, `exported`, …
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        members: Vec<Difference>,
    },
}

/// The added and the removed entries of a list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ListDiff {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// A file that resources refer to, by address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceDiff {
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<ContentId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<ContentId>,
    /// Secret: only the fact that it changed is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// The lines that differ, if both files are text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// All differences between two catalogs.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CatalogDiff {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ResourceDiff>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<SourceDiff>,
    #[serde(default, skip_serializing_if = "ListDiff::is_empty")]
    pub edges: ListDiff,
    /// Differences in the catalog itself: its environment, the resources that it exports, and
    /// members that this build does not know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<Difference>,
    /// The resources that both catalogs have are in a different order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reordered: bool,
}

impl ListDiff {
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    fn of(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Self {
        Self {
            added: after.difference(before).cloned().collect(),
            removed: before.difference(after).cloned().collect(),
        }
    }
}

impl CatalogDiff {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the changes that turn `before` into `after`.
    pub fn between(before: &Catalog, after: &Catalog) -> Self {
        let (old, new) = (by_reference(before), by_reference(after));
        let mut diff = Self {
            resources: resources(&old, &new),
            sources: sources(before, after),
            edges: edges(before, after, &old, &new),
            about: about(before, after),
            reordered: in_common(before, &new) != in_common(after, &old),
        };
        if diff.is_empty() && before.id() != after.id() {
            // Edges whose resources are in neither catalog, or duplicate edges.
            diff.about.push(Difference {
                name: "edges".to_owned(),
                before: Some(DisplayValue::Value(before.edges.len().into())),
                after: Some(DisplayValue::Value(after.edges.len().into())),
                text: None,
            });
        }
        diff
    }
}

/// A reference, and an index among the resources that share it. A catalog should have each
/// reference once, and a difference must not hide duplicates.
type Slot = (ResourceReference, usize);
type Resources<'a> = BTreeMap<Slot, &'a Resource>;

fn by_reference(catalog: &Catalog) -> Resources<'_> {
    let mut all = Resources::new();
    for resource in &catalog.resources {
        let reference = resource.reference();
        let mut nth = 0;
        while all.contains_key(&(reference.clone(), nth)) {
            nth += 1;
        }
        all.insert((reference, nth), resource);
    }
    all
}

fn in_common(catalog: &Catalog, other: &Resources<'_>) -> Vec<ResourceReference> {
    let references = catalog.resources.iter().map(Resource::reference);
    references
        .filter(|reference| other.contains_key(&(reference.clone(), 0)))
        .collect()
}

fn resources(old: &Resources<'_>, new: &Resources<'_>) -> Vec<ResourceDiff> {
    let slots: BTreeSet<&Slot> = old.keys().chain(new.keys()).collect();
    let differing = slots.into_iter().filter_map(|slot| {
        let (before, after) = (old.get(slot).copied(), new.get(slot).copied());
        let change = change(before, after)?;
        let place = after.or(before).map(Resource::place)?;
        Some(ResourceDiff {
            resource: slot.0.clone(),
            place: (place != Place::default()).then(|| place.to_string()),
            change,
        })
    });
    differing.collect()
}

fn change(before: Option<&Resource>, after: Option<&Resource>) -> Option<ResourceChange> {
    match (before, after) {
        (None, None) => None,
        (None, Some(after)) => Some(ResourceChange::Added {
            parameters: display_parameters(after),
        }),
        (Some(before), None) => Some(ResourceChange::Removed {
            parameters: display_parameters(before),
        }),
        (Some(before), Some(after)) => {
            let secret = |name: &str| is_secret(before, name) || is_secret(after, name);
            let parameters = differences(&before.parameters, &after.parameters, secret);
            let members = differences(&members(before), &members(after), |_| false);
            let differs = !parameters.is_empty() || !members.is_empty();
            differs.then_some(ResourceChange::Changed {
                parameters,
                members,
            })
        }
    }
}

fn display_parameters(resource: &Resource) -> BTreeMap<String, DisplayValue> {
    let parameters = resource.parameters.iter();
    parameters
        .map(|(name, value)| {
            let shown = display_value(value, is_secret(resource, name));
            (name.clone(), shown)
        })
        .collect()
}

/// Returns whether the parameter is marked as secret, or its content must not appear in
/// differences.
fn is_secret(resource: &Resource, parameter: &str) -> bool {
    let kept_quiet = resource.parameters.get("show_diff") == Some(&Value::Bool(false))
        || resource.parameters.get("show_changes") == Some(&Value::Bool(false));
    resource.is_sensitive(parameter)
        || kept_quiet && matches!(parameter, "content" | "contents" | "source")
}

fn display_value(value: &Value, secret: bool) -> DisplayValue {
    if secret {
        DisplayValue::Secret
    } else {
        DisplayValue::Value(value.clone())
    }
}

/// Returns everything of a resource that is part of the catalog's id but is not a parameter.
fn members(resource: &Resource) -> Map<String, Value> {
    let mut value = serde_json::to_value(resource).expect("a resource is plain data");
    let mut members = std::mem::take(value.as_object_mut().expect("a struct becomes an object"));
    for place in ["type", "title", "file", "line", "parameters"] {
        members.remove(place);
    }
    if let Some(Value::Array(tags)) = members.get_mut("tags") {
        tags.sort_unstable_by_key(|tag| tag.as_str().map(str::to_owned));
    }
    members
}

fn differences(
    before: &Map<String, Value>,
    after: &Map<String, Value>,
    secret: impl Fn(&str) -> bool,
) -> Vec<Difference> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| {
            let side = |side: &Map<String, Value>| {
                let value = side.get(name)?;
                Some(display_value(value, secret(name)))
            };
            Difference {
                name: name.clone(),
                before: side(before),
                after: side(after),
                text: None,
            }
        })
        .collect()
}

fn sources(before: &Catalog, after: &Catalog) -> Vec<SourceDiff> {
    let (old, new) = (files(&before.sources), files(&after.sources));
    let hidden = secret_addresses(before).chain(secret_addresses(after));
    let hidden: BTreeSet<&str> = hidden.collect();
    let is_hidden = |address: &str| {
        let below = |hidden: &&str| {
            let rest = address.strip_prefix(*hidden);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        hidden.iter().any(below)
    };
    let addresses: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    addresses
        .into_iter()
        .filter(|address| old.get(*address) != new.get(*address))
        .map(|address| {
            let secret = is_hidden(address);
            let side = |files: &BTreeMap<String, Option<ContentId>>| {
                let content = files.get(address).copied().flatten();
                content.filter(|_| !secret)
            };
            SourceDiff {
                address: address.clone(),
                before: side(&old),
                after: side(&new),
                secret,
                text: None,
            }
        })
        .collect()
}

/// Returns the addresses of files that a secret parameter names.
fn secret_addresses(catalog: &Catalog) -> impl Iterator<Item = &str> {
    catalog.resources.iter().flat_map(|resource| {
        let secret = resource.parameters.iter();
        secret
            .filter(|(name, _)| is_secret(resource, name))
            .flat_map(|(_, value)| strings(value))
    })
}

fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(members) => members.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// Returns every file with its content; a directory has none.
fn files(sources: &BTreeMap<String, CatalogSource>) -> BTreeMap<String, Option<ContentId>> {
    let content = |file: &SourceFile| file.content;
    let mut files = BTreeMap::new();
    for (address, source) in sources {
        match source {
            CatalogSource::File(file) => {
                files.insert(address.clone(), Some(content(file)));
            }
            CatalogSource::Directory { entries } => {
                files.insert(format!("{address}/"), None);
                for entry in entries {
                    let path = format!("{address}/{}", entry.path);
                    files.insert(path, entry.file.as_ref().map(content));
                }
            }
        }
    }
    files
}

/// Compares containment between resources that both catalogs have. An added or removed resource
/// brings or takes its edges with it and is listed separately.
fn edges(before: &Catalog, after: &Catalog, old: &Resources<'_>, new: &Resources<'_>) -> ListDiff {
    let in_both = |text: &str| {
        text.parse::<ResourceReference>().is_ok_and(|reference| {
            let slot = (reference, 0);
            old.contains_key(&slot) && new.contains_key(&slot)
        })
    };
    let of = |catalog: &Catalog| -> BTreeSet<String> {
        let edges = catalog.edges.iter();
        edges
            .filter(|edge| in_both(&edge.source) && in_both(&edge.target))
            .map(|edge| format!("{} -> {}", edge.source, edge.target))
            .collect()
    };
    ListDiff::of(&of(before), &of(after))
}

fn about(before: &Catalog, after: &Catalog) -> Vec<Difference> {
    let of = |catalog: &Catalog| {
        let mut about = catalog.steady_members();
        about.insert("name".to_owned(), catalog.name.clone().into());
        if let Some(environment) = &catalog.environment {
            about.insert("environment".to_owned(), environment.clone());
        }
        about
    };
    let mut found = differences(&of(before), &of(after), |_| false);
    found.extend(differences(&exported(before), &exported(after), |_| false));
    found
}

/// Returns the parameters of each exported resource, by `exported Type[title]`. Exports have no
/// secrets. Everything else that is not the same everywhere (tags, requisites) is kept with them.
fn exported(catalog: &Catalog) -> Map<String, Value> {
    let mut exports = Map::new();
    for export in &catalog.exports {
        let Value::Object(mut members) = super::id::canonical_resource(export) else {
            continue;
        };
        for name in ["type", "title", "exported"] {
            members.remove(name);
        }
        let parameters = members.remove("parameters").unwrap_or_default();
        let value = if members.is_empty() {
            parameters
        } else {
            members.insert("parameters".to_owned(), parameters);
            Value::Object(members)
        };
        let mut name = format!("exported {}", export.reference());
        while exports.contains_key(&name) {
            name.push('\'');
        }
        exports.insert(name, value);
    }
    exports
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn catalog(resources: Value) -> Catalog {
        let text = json!({"name": "web-1", "environment": "production", "resources": resources});
        Catalog::from_json(text.to_string().as_bytes()).expect("a catalog")
    }

    fn diff(before: Value, after: Value) -> Value {
        let diff = CatalogDiff::between(&catalog(before), &catalog(after));
        serde_json::to_value(diff).expect("plain data")
    }

    #[test]
    fn a_changed_parameter_shows_both_values_and_nothing_else() {
        let before = json!([
            {"type": "File", "title": "/a", "line": 1, "parameters": {"mode": "0644", "owner": "root"}},
            {"type": "File", "title": "/b", "parameters": {"mode": "0600"}},
        ]);
        let after = json!([
            {"type": "File", "title": "/a", "line": 9, "file": "site.pp", "parameters": {"mode": "0600", "owner": "root"}},
            {"type": "File", "title": "/b", "parameters": {"mode": "0600"}},
        ]);
        assert_eq!(
            diff(before, after),
            json!({"resources": [{
                "resource": "File[/a]", "place": "site.pp:9", "change": "changed",
                "parameters": [{"name": "mode", "before": {"value": "0644"}, "after": {"value": "0600"}}],
            }]})
        );
    }

    #[test]
    fn added_and_removed_resources_are_shown_with_their_parameters() {
        let before =
            json!([{"type": "Package", "title": "telnet", "parameters": {"ensure": "present"}}]);
        let after =
            json!([{"type": "Package", "title": "ssh", "parameters": {"ensure": "present"}}]);
        assert_eq!(
            diff(before, after),
            json!({"resources": [
                {"resource": "Package[ssh]", "change": "added", "parameters": {"ensure": {"value": "present"}}},
                {"resource": "Package[telnet]", "change": "removed", "parameters": {"ensure": {"value": "present"}}},
            ]})
        );
    }

    #[test]
    fn a_secret_on_either_side_is_never_shown() {
        let plain =
            json!([{"type": "User", "title": "u", "parameters": {"password": "old-secret"}}]);
        let marked = json!([{"type": "User", "title": "u", "parameters": {"password": "new-secret"}, "sensitive_parameters": ["password"]}]);
        let rich = json!([{"type": "User", "title": "u", "parameters": {"password": {"__ptype": "Sensitive", "__pvalue": "rich-secret"}}}]);
        let nothing = json!([]);
        for (before, after) in [
            (&plain, &marked),
            (&marked, &plain),
            (&plain, &rich),
            (&rich, &marked),
            (&nothing, &marked),
            (&rich, &nothing),
        ] {
            let printed = diff(before.clone(), after.clone()).to_string();
            assert!(!printed.contains("-secret"), "{printed}");
            assert!(printed.contains("\"secret\""), "{printed}");
        }
    }

    #[test]
    fn a_changed_file_is_shown_by_its_address() {
        let with = |text: &str| {
            let mut catalog = catalog(json!([]));
            let file = SourceFile {
                content: ContentId::of(text.as_bytes()),
                size: text.len() as u64,
            };
            let source = CatalogSource::File(file);
            catalog.sources.insert("salt://a".to_owned(), source);
            catalog
        };
        let diff = CatalogDiff::between(&with("one"), &with("two"));
        assert_eq!(diff.sources.len(), 1);
        assert_eq!(diff.sources[0].address, "salt://a");
        assert_eq!(diff.sources[0].before, Some(ContentId::of(b"one")));
        assert!(CatalogDiff::between(&with("one"), &with("one")).is_empty());
    }

    #[test]
    fn a_file_that_a_secret_parameter_names_is_not_shown() {
        let with = |text: &str, parameters: Value, sensitive: &[&str]| {
            let resources = json!([{"type": "File", "title": "/k", "parameters": parameters, "sensitive_parameters": sensitive}]);
            let mut catalog = catalog(resources);
            let file = SourceFile {
                content: ContentId::of(text.as_bytes()),
                size: text.len() as u64,
            };
            let source = CatalogSource::File(file);
            catalog.sources.insert("salt://key".to_owned(), source);
            catalog
        };
        for (parameters, sensitive) in [
            (json!({"source": "salt://key"}), vec!["source"]),
            (
                json!({"source": ["salt://x", "salt://key"], "show_changes": false}),
                vec![],
            ),
            (json!({"source": "salt://key", "show_diff": false}), vec![]),
        ] {
            let [before, after] =
                ["one", "two"].map(|text| with(text, parameters.clone(), &sensitive));
            let diff = CatalogDiff::between(&before, &after);
            assert!(diff.sources[0].secret, "{parameters}");
            assert_eq!(
                (diff.sources[0].before, diff.sources[0].after),
                (None, None)
            );
        }
        let parameters = json!({"source": "salt://key"});
        let [before, after] = ["one", "two"].map(|text| with(text, parameters.clone(), &[]));
        assert!(!CatalogDiff::between(&before, &after).sources[0].secret);
    }

    #[test]
    fn edges_of_unchanged_resources_are_shown_and_others_are_not() {
        let with = |edges: Value, titles: &[&str]| {
            let resources: Vec<Value> = titles
                .iter()
                .map(|title| json!({"type": "Class", "title": title}))
                .collect();
            let text = json!({"name": "web-1", "resources": resources, "edges": edges});
            Catalog::from_json(text.to_string().as_bytes()).expect("a catalog")
        };
        let before = with(
            json!([{"source": "Class[a]", "target": "Class[b]"}]),
            &["a", "b"],
        );
        let after = with(
            json!([{"source": "Class[b]", "target": "Class[a]"}, {"source": "Class[a]", "target": "Class[c]"}]),
            &["a", "b", "c"],
        );
        let diff = CatalogDiff::between(&before, &after);
        assert_eq!(diff.edges.added, ["Class[b] -> Class[a]"]);
        assert_eq!(diff.edges.removed, ["Class[a] -> Class[b]"]);
    }

    #[test]
    fn edges_that_lead_nowhere_are_still_a_difference() {
        let with = |edges: Value| {
            let text = json!({"name": "web-1", "edges": edges});
            Catalog::from_json(text.to_string().as_bytes()).expect("a catalog")
        };
        let edge = json!({"source": "Class[x]", "target": "Class[y]"});
        let (none, one, two) = (
            with(json!([])),
            with(json!([edge])),
            with(json!([edge, edge])),
        );
        assert!(!CatalogDiff::between(&none, &one).is_empty());
        assert!(!CatalogDiff::between(&one, &two).is_empty());
        assert!(CatalogDiff::between(&one, &one).is_empty());
    }

    fn any_catalog() -> impl Strategy<Value = Catalog> {
        let parameters = proptest::collection::btree_map("[ab]", 0..3_u8, 0..3);
        let tags = proptest::collection::vec("[xy]", 0..3);
        let resource = ("[ABC]", "[abc]", parameters, tags, any::<bool>());
        proptest::collection::vec(resource, 0..5).prop_map(|resources| {
            let resources: Vec<Value> = resources
                .into_iter()
                .map(|(kind, title, parameters, tags, exported)| json!({"type": kind, "title": title, "parameters": parameters, "tags": tags, "exported": exported}))
                .collect();
            catalog(Value::Array(resources))
        })
    }

    proptest! {
        #[test]
        fn different_ids_mean_a_difference_and_equal_ones_mean_none(before in any_catalog(), after in any_catalog()) {
            let diff = CatalogDiff::between(&before, &after);
            prop_assert_eq!(before.id() == after.id(), diff.is_empty(), "{:?}", diff);
        }
    }
}
