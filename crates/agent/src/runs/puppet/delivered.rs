//! The released catalog, in the form that Puppet accepts.
//!
//! It uses Puppet's own format, with two additions. The `catalog_uuid` is the run's id, which comes
//! back in the report and proves that Puppet applied this catalog. Files are named by their path on
//! this node, as there is no server to fetch them from. Catalogs that Puppet would apply
//! differently than intended are refused.

use std::path::PathBuf;

use bunraku_model::catalog::{CatalogSource, Resource};
use bunraku_model::{Catalog, ContentId, NodeRunId};
use serde_json::Value;

/// The reason why Puppet cannot apply a catalog.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum Undeliverable {
    #[error("{0} is a state, and Puppet knows resources only")]
    State(String),
    #[error("{resource} has the source `{address}`, a directory, which Puppet cannot be given")]
    Directory { resource: String, address: String },
    #[error("{resource} has the source `{address}`, which the catalog does not hold")]
    Unknown { resource: String, address: String },
}

/// Returns the catalog in Puppet's JSON.
pub(super) fn delivered(
    catalog: &Catalog,
    run: NodeRunId,
    content: impl Fn(ContentId) -> PathBuf,
) -> Result<Vec<u8>, Undeliverable> {
    let mut delivered = catalog.clone();
    for resource in &mut delivered.resources {
        if resource.state.is_some() || !resource.requisites.is_empty() {
            return Err(Undeliverable::State(resource.reference().to_string()));
        }
        place_sources(resource, catalog, &content)?;
    }
    delivered.sources.clear();
    delivered.catalog_uuid = Some(Value::String(run.to_string()));
    // The metadata refers to files by the addresses that were replaced.
    delivered.other.shift_remove("metadata");
    delivered.other.shift_remove("recursive_metadata");
    let has_kinds = (delivered.resources.iter()).all(|one| one.kind.is_some());
    if !has_kinds {
        // In this older format, Puppet itself determines what is a type.
        delivered.catalog_format = Some(Value::from(1));
    }
    Ok(serde_json::to_vec(&delivered).expect("a catalog is plain data"))
}

fn place_sources(
    resource: &mut Resource,
    catalog: &Catalog,
    content: &impl Fn(ContentId) -> PathBuf,
) -> Result<(), Undeliverable> {
    if resource.type_name != "File" {
        return Ok(());
    }
    let reference = resource.reference().to_string();
    let addresses = match resource.parameters.get_mut("source") {
        Some(Value::Array(several)) => several.iter_mut().collect(),
        Some(one) => vec![one],
        None => Vec::new(),
    };
    for address in addresses {
        let Value::String(text) = &*address else {
            continue;
        };
        let (resource, text) = (reference.clone(), text.clone());
        match catalog.sources.get(&text) {
            Some(CatalogSource::File(file)) => {
                *address = Value::String(content(file.content).display().to_string());
            }
            Some(CatalogSource::Directory { .. }) => {
                let address = text;
                return Err(Undeliverable::Directory { resource, address });
            }
            // The file is on the node itself or on the web. Puppet handles both without our help.
            None if text.starts_with('/') || text.starts_with("http") => {}
            None if text.starts_with("file:") => {}
            None => {
                let address = text;
                return Err(Undeliverable::Unknown { resource, address });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bunraku_model::catalog::SourceFile;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn deliver(resources: Value) -> Result<Value, Undeliverable> {
        let text = json!({
            "name": "dev1", "catalog_format": 2, "catalog_uuid": "other", "version": 5,
            "metadata": {"/a": {"content_uri": "puppet:///x"}}, "resources": resources,
        });
        let mut catalog = Catalog::from_json(text.to_string().as_bytes()).expect("a catalog");
        let file = CatalogSource::File(SourceFile {
            content: ContentId::of(b"text"),
            size: 4,
        });
        let address = "puppet:///modules/m/a";
        catalog.sources.insert(address.to_owned(), file);
        let entries = Vec::new();
        let directory = CatalogSource::Directory { entries };
        let address = "puppet:///modules/m/d";
        catalog.sources.insert(address.to_owned(), directory);
        let run = NodeRunId(Uuid::from_u128(7));
        let bytes = delivered(&catalog, run, |id| format!("/content/{id}").into())?;
        Ok(serde_json::from_slice(&bytes).expect("JSON"))
    }

    #[test]
    fn it_carries_the_runs_id_and_its_files_are_on_this_node() {
        let resources = json!([{
            "type": "File", "title": "/a", "kind": "compilable_type",
            "parameters": {"source": ["puppet:///modules/m/a", "/local"]},
        }]);
        let told = deliver(resources).expect("delivered");
        assert_eq!(told["catalog_uuid"], "00000000-0000-0000-0000-000000000007");
        assert_eq!(told["version"], 5);
        assert_eq!(told["catalog_format"], 2);
        let content = format!("/content/{}", ContentId::of(b"text"));
        let source = &told["resources"][0]["parameters"]["source"];
        assert_eq!(*source, json!([content, "/local"]));
        for gone in ["metadata", "sources"] {
            assert!(told.get(gone).is_none(), "{gone}: {told}");
        }
    }

    #[test]
    fn without_kinds_puppet_finds_out_what_is_a_type() {
        let told = deliver(json!([{"type": "Notify", "title": "x"}])).expect("delivered");
        assert_eq!(told["catalog_format"], 1);
    }

    #[test]
    fn what_puppet_would_fetch_or_take_otherwise_is_refused() {
        let file = |source: &str| {
            let source = json!({"source": source});
            deliver(json!([{"type": "File", "title": "/a", "parameters": source}]))
                .expect_err("refused")
                .to_string()
        };
        assert_eq!(
            file("puppet:///modules/other"),
            "File[/a] has the source `puppet:///modules/other`, which the catalog does not hold"
        );
        assert!(file("puppet:///modules/m/d").contains("a directory"));
        let state = json!([{"type": "File", "title": "/a", "state": {"id": "a", "name": "a", "function": "file.managed"}}]);
        assert!(matches!(deliver(state), Err(Undeliverable::State(_))));
    }
}
