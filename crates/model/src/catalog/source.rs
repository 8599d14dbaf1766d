//! The files that a catalog refers to, by address and by content.
//!
//! A *static* catalog lists every file that its resources refer to (`salt://web/nginx.conf`,
//! `puppet:///modules/ntp/ntp.conf`) with the hash of its content. So a changed file is a changed
//! catalog, and a node fetches content only by its hash.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Catalog;
use crate::ContentId;

/// The address of the plugins (types, providers, functions and facts) of an environment's Puppet
/// modules: one gzip-compressed tar archive with `lib` and `facts.d` of all modules, merged.
pub const PLUGINS_ADDRESS: &str = "plugins:modules";

/// The file or directory at an address.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum CatalogSource {
    File(SourceFile),
    /// Everything below it, by path. Directories come before their contents.
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

/// One entry below a directory; an entry without content is a directory itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceEntry {
    /// Relative to the directory, with slashes.
    pub path: String,
    #[serde(flatten)]
    pub file: Option<SourceFile>,
}

impl CatalogSource {
    /// Returns every file in it.
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
    /// Returns the contents that this catalog refers to, each once, in order.
    pub fn contents(&self) -> BTreeSet<ContentId> {
        self.sources
            .values()
            .flat_map(CatalogSource::files)
            .map(|file| file.content)
            .collect()
    }
}
