//! The record of unpacked content, to detect later if it is still in place.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::DesiredArchive;
use crate::types::config_file::{self, NewFile};
use crate::{ReadAccess, StepError, WriteAccess};

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
    fn file(desired: &DesiredArchive, access: &ReadAccess<'_>) -> PathBuf {
        let name = hex::encode(Sha256::digest(format!(
            "{}\0{}",
            desired.path, desired.source
        )));
        access
            .run
            .state_directory
            .join("archives")
            .join(format!("{}.json", &name[..32]))
    }

    /// Loads the record. One that cannot be read counts as missing: the archive is unpacked again.
    pub(super) fn load(
        desired: &DesiredArchive,
        access: &ReadAccess<'_>,
    ) -> Result<Option<Self>, StepError> {
        let content = config_file::read(&Self::file(desired, access))?;
        Ok(content.and_then(|content| serde_json::from_slice(&content).ok()))
    }

    pub(super) fn save(
        &self,
        desired: &DesiredArchive,
        write_access: &WriteAccess<'_>,
    ) -> Result<(), StepError> {
        let content = serde_json::to_vec(self).expect("texts and numbers can be written");
        let private = NewFile {
            mode: 0o600,
            owner: None,
        };
        config_file::put(
            &Self::file(desired, write_access),
            &content,
            private,
            write_access,
        )
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
