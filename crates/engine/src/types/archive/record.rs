//! The record of unpacked content, to detect later if it is still in place.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Wish;
use crate::types::config_file::{self, NewFile};
use crate::{Hands, Sight, StepError};

#[derive(Serialize, Deserialize, Default)]
pub(crate) struct Record {
    pub(super) checksum: String,
    pub(super) entries: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) path: String,
    /// The size of a file. `None` for a directory or a link.
    pub(super) size: Option<u64>,
}

impl Record {
    fn file(wish: &Wish, sight: &Sight<'_>) -> PathBuf {
        let name = hex::encode(Sha256::digest(format!("{}\0{}", wish.path, wish.source)));
        sight
            .run
            .state_directory
            .join("archives")
            .join(format!("{}.json", &name[..32]))
    }

    /// Loads the record. One that cannot be read counts as missing: the archive is unpacked again.
    pub(super) fn load(wish: &Wish, sight: &Sight<'_>) -> Result<Option<Self>, StepError> {
        let content = config_file::read(&Self::file(wish, sight))?;
        Ok(content.and_then(|content| serde_json::from_slice(&content).ok()))
    }

    pub(super) fn save(&self, wish: &Wish, hands: &Hands<'_>) -> Result<(), StepError> {
        let content = serde_json::to_vec(self).expect("texts and numbers can be written");
        let private = NewFile {
            mode: 0o600,
            owner: None,
        };
        config_file::put(&Self::file(wish, hands), &content, private, hands)
    }

    /// Returns the first entry that is missing or differs from what was unpacked.
    pub(super) fn missing(&self, directory: &Path) -> Option<String> {
        let differs = |entry: &&Entry| match directory.join(&entry.path).symlink_metadata() {
            Err(_) => true,
            Ok(metadata) => entry
                .size
                .is_some_and(|size| !metadata.is_file() || metadata.len() != size),
        };
        self.entries
            .iter()
            .find(differs)
            .map(|entry| entry.path.clone())
    }
}
