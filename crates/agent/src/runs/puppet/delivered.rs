//! The released catalog, in the form that Puppet accepts.
//!
//! It uses Puppet's own format, with two additions. The `catalog_uuid` is the run's id, which comes
//! back in the report and proves that Puppet applied this catalog. Files are named by their path on
//! this node, as there is no server to fetch them from. Catalogs that Puppet would apply
//! differently than intended are refused.

use std::path::{Component, Path, PathBuf};

use bunraku_model::catalog::{CatalogSource, Resource, SourceEntry};
use bunraku_model::{Catalog, ContentId, NodeRunId};
use serde_json::Value;

/// The reason why Puppet cannot apply a catalog.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum UnsupportedCatalog {
    #[error("{0} is a state; Puppet only supports resources")]
    State(String),
    #[error("the source `{address}` of {resource} is not in the catalog")]
    Unknown { resource: String, address: String },
}

/// The places on this node that files are copied from.
pub(super) struct SourcePlaces<'a> {
    pub(super) content: &'a dyn Fn(ContentId) -> PathBuf,
    /// The directory for directories.
    pub(super) directories: PathBuf,
}

/// A directory that files are copied from.
#[derive(Debug)]
pub(super) struct DeliveredDirectory {
    place: PathBuf,
    entries: Vec<SourceEntry>,
}

impl DeliveredDirectory {
    /// Creates the directory with its files, which need no further space on the disk.
    pub(super) fn create(&self, places: &SourcePlaces<'_>) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.place)?;
        for entry in &self.entries {
            let is_plain = |part| matches!(part, Component::Normal(_));
            if !Path::new(&entry.path).components().all(is_plain) {
                let text = format!("`{}` leads out of its directory", entry.path);
                return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
            }
            let place = self.place.join(&entry.path);
            match entry.file {
                None => std::fs::create_dir_all(&place)?,
                Some(file) => {
                    std::fs::create_dir_all(place.parent().unwrap_or(&self.place))?;
                    std::fs::hard_link((places.content)(file.content), &place)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the catalog in Puppet's JSON, and the directories that it refers to.
pub(super) fn delivered(
    catalog: &Catalog,
    run: NodeRunId,
    places: &SourcePlaces<'_>,
) -> Result<(Vec<u8>, Vec<DeliveredDirectory>), UnsupportedCatalog> {
    let mut delivered = catalog.clone();
    let mut directories = Vec::new();
    for resource in &mut delivered.resources {
        if resource.state.is_some() || !resource.requisites.is_empty() {
            return Err(UnsupportedCatalog::State(resource.reference().to_string()));
        }
        place_sources(resource, catalog, places, &mut directories)?;
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
    let json = serde_json::to_vec(&delivered).expect("a catalog is plain data");
    Ok((json, directories))
}

fn place_sources(
    resource: &mut Resource,
    catalog: &Catalog,
    places: &SourcePlaces<'_>,
    directories: &mut Vec<DeliveredDirectory>,
) -> Result<(), UnsupportedCatalog> {
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
                let place = (places.content)(file.content);
                *address = Value::String(place.display().to_string());
            }
            Some(CatalogSource::Directory { entries }) => {
                let place = places.directories.join(directories.len().to_string());
                *address = Value::String(place.display().to_string());
                directories.push(DeliveredDirectory {
                    place,
                    entries: entries.clone(),
                });
            }
            // The file is on the node itself or on the web. Puppet handles both without our help.
            None if text.starts_with('/') || text.starts_with("http") => {}
            None if text.starts_with("file:") => {}
            None => {
                let address = text;
                return Err(UnsupportedCatalog::Unknown { resource, address });
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

    fn deliver(resources: Value) -> Result<Value, UnsupportedCatalog> {
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
        let entries = vec![SourceEntry {
            path: "below/a".to_owned(),
            file: None,
        }];
        let directory = CatalogSource::Directory { entries };
        let address = "puppet:///modules/m/d";
        catalog.sources.insert(address.to_owned(), directory);
        let run = NodeRunId(Uuid::from_u128(7));
        let places = SourcePlaces {
            content: &|id| format!("/content/{id}").into(),
            directories: "/sources".into(),
        };
        let (bytes, _) = delivered(&catalog, run, &places)?;
        Ok(serde_json::from_slice(&bytes).expect("JSON"))
    }

    #[test]
    fn it_carries_the_runs_id_and_its_files_are_on_this_node() {
        let resources = json!([{
            "type": "File", "title": "/a", "kind": "compilable_type",
            "parameters": {"source": ["puppet:///modules/m/a", "/local"]},
        }]);
        let shown = deliver(resources).expect("delivered");
        assert_eq!(
            shown["catalog_uuid"],
            "00000000-0000-0000-0000-000000000007"
        );
        assert_eq!(shown["version"], 5);
        assert_eq!(shown["catalog_format"], 2);
        let content = format!("/content/{}", ContentId::of(b"text"));
        let source = &shown["resources"][0]["parameters"]["source"];
        assert_eq!(*source, json!([content, "/local"]));
        for gone in ["metadata", "sources"] {
            assert!(shown.get(gone).is_none(), "{gone}: {shown}");
        }
    }

    #[test]
    fn without_kinds_puppet_finds_out_what_is_a_type() {
        let shown = deliver(json!([{"type": "Notify", "title": "x"}])).expect("delivered");
        assert_eq!(shown["catalog_format"], 1);
    }

    #[test]
    fn a_directory_is_created_from_the_files_in_the_cache() {
        let source = json!({"source": "puppet:///modules/m/d"});
        let file = json!([{"type": "File", "title": "/a", "parameters": source}]);
        let shown = deliver(file).expect("delivered");
        assert_eq!(shown["resources"][0]["parameters"]["source"], "/sources/0");
        let root = tempfile::TempDir::new().expect("a directory");
        let places = SourcePlaces {
            content: &|id| root.path().join(id.to_string()),
            directories: root.path().join("sources"),
        };
        let content = ContentId::of(b"text");
        std::fs::write((places.content)(content), "text").expect("written");
        let create = |path: &str| {
            let entry = |path: &str, file| SourceEntry {
                path: path.to_owned(),
                file,
            };
            let file = SourceFile { content, size: 4 };
            DeliveredDirectory {
                place: places.directories.join("0"),
                entries: vec![entry("empty", None), entry(path, Some(file))],
            }
            .create(&places)
        };
        create("below/a").expect("created");
        let text = std::fs::read_to_string(root.path().join("sources/0/below/a"));
        assert_eq!(text.expect("a file"), "text");
        assert!(root.path().join("sources/0/empty").is_dir());
        create("../outside").expect_err("refused");
        assert!(!root.path().join("sources/outside").exists());
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
            "the source `puppet:///modules/other` of File[/a] is not in the catalog"
        );
        let state = json!([{"type": "File", "title": "/a", "state": {"id": "a", "name": "a", "function": "file.managed"}}]);
        assert!(matches!(deliver(state), Err(UnsupportedCatalog::State(_))));
    }
}
