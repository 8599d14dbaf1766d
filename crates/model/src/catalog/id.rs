//! The catalog id. Equal ids mean that nothing changed for the node.
//!
//! Included: everything that determines the engine's actions, in resource order, the checksums of
//! the files that the catalog names, and the exports, in any order. Excluded: times, uuids, versions and commits (a commit that
//! changes nothing for this node must not look like a change), and the places in source files (a
//! new comment above a resource moves its line and changes nothing else).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Catalog, Resource};
use crate::{ContentId, ContentIdError, canonical_json};

/// Hash of a catalog's canonical content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CatalogId(pub ContentId);

impl fmt::Display for CatalogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CatalogId {
    type Err = ContentIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl Catalog {
    /// Returns the id. Hashes one resource at a time, so that a large catalog is never in memory
    /// twice.
    pub fn id(&self) -> CatalogId {
        let mut hasher = Sha256::new();
        let mut feed = |value: &Value| {
            hasher.update(canonical_json(value).as_bytes());
            hasher.update(b"\n");
        };
        feed(
            &json!({"name": self.name, "environment": self.environment, "other": self.steady_members()}),
        );
        for resource in &self.resources {
            feed(&canonical_resource(resource));
        }
        let mut edges: Vec<_> = self
            .edges
            .iter()
            .map(|edge| (edge.source.as_str(), edge.target.as_str()))
            .collect();
        edges.sort_unstable();
        for (source, target) in edges {
            feed(&json!([source, target]));
        }
        for (address, source) in &self.sources {
            feed(&json!({ address: source }));
        }
        // A catalog without exports has the id that it had before there were exports.
        let mut exports: Vec<String> = (self.exports.iter())
            .map(|export| canonical_json(&canonical_resource(export)))
            .collect();
        exports.sort_unstable();
        for export in exports {
            hasher.update(b"export ");
            hasher.update(export.as_bytes());
            hasher.update(b"\n");
        }
        CatalogId(ContentId::from_digest(hasher.finalize().into()))
    }
}

impl Catalog {
    /// Returns the members that are part of the id, besides name, environment, resources, edges and
    /// files. The ordering mode is one of them only if it is set, as in builds that do not know it:
    /// the ids of catalogs without it stay the same.
    pub(super) fn steady_members(&self) -> Map<String, Value> {
        let mut members = without_times(&self.other);
        if let Some(ordering) = self.ordering {
            members.insert("ordering".to_owned(), json!(ordering));
        }
        members
    }
}

/// Returns a resource without its place and with its tags sorted, because they are a set.
pub(super) fn canonical_resource(resource: &Resource) -> Value {
    let mut value = serde_json::to_value(resource).expect("a resource is plain data");
    let members = value.as_object_mut().expect("a struct becomes an object");
    members.remove("file");
    members.remove("line");
    if let Some(Value::Array(tags)) = members.get_mut("tags") {
        tags.sort_unstable_by_key(|tag| tag.as_str().map(str::to_owned));
    }
    value
}

fn without_times(other: &Map<String, Value>) -> Map<String, Value> {
    let volatile = [
        "transaction_uuid",
        "producer_timestamp",
        "job_id",
        "timestamp",
    ];
    other
        .iter()
        .filter(|(key, _)| !volatile.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
