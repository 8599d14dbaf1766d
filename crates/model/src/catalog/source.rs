//! The files that a catalog refers to, by address and by content.
//!
//! A *static* catalog names every file that its resources speak of
//! (`salt://web/nginx.conf`, `puppet:///modules/ntp/ntp.conf`) with the hash
//! of its content, so that a changed file is a changed catalog, and a node
//! fetches content by its hash and nothing else.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Catalog;
use crate::ContentId;

/// What lies at an address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum CatalogSource {
    File(SourceFile),
    /// Everything below it, by path, directories before what is in them.
    Directory {
        entries: Vec<SourceEntry>,
    },
}

/// The content of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceFile {
    pub content: ContentId,
    pub size: u64,
}

/// One thing below a directory; a directory itself if it has no content.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceEntry {
    /// Relative to the directory, with slashes.
    pub path: String,
    #[serde(flatten)]
    pub file: Option<SourceFile>,
}

impl CatalogSource {
    /// Every file in it.
    pub fn files(&self) -> impl Iterator<Item = SourceFile> + '_ {
        let (one, entries) = match self {
            Self::File(file) => (Some(*file), [].as_slice()),
            Self::Directory { entries } => (None, entries.as_slice()),
        };
        one.into_iter()
            .chain(entries.iter().filter_map(|entry| entry.file))
    }
}

impl Catalog {
    /// The contents that this catalog refers to, each once, in order.
    pub fn contents(&self) -> BTreeSet<ContentId> {
        self.sources
            .values()
            .flat_map(CatalogSource::files)
            .map(|file| file.content)
            .collect()
    }
}
