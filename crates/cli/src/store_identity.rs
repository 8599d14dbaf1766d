//! Notices that the files of the embedded store were copied, as a restore does.
//!
//! A file beside the database names the database file itself: its number in the file system, and
//! when it was created. A copy has others. A snapshot of a whole file system, rolled back, does
//! not; then an operator runs `bunraku backup restored`.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::failure::Failure;

pub(crate) struct StoreIdentity {
    database: PathBuf,
    noted: PathBuf,
}

impl StoreIdentity {
    pub(crate) fn of(directory: &Path) -> Self {
        Self {
            database: directory.join("store.sqlite"),
            noted: directory.join("identity"),
        }
    }

    /// Returns `true` if the database is a copy of the one that was noted. Without a note, as in
    /// directories of earlier versions, it is not known to be one.
    pub(crate) fn is_copied(&self) -> bool {
        let (Ok(noted), Some(current)) = (std::fs::read_to_string(&self.noted), self.current())
        else {
            return false;
        };
        noted.trim() != current
    }

    /// Notes the database as it is. Called when the restore is noted in the store.
    pub(crate) fn note(&self) -> Result<(), Failure> {
        if let Some(current) = self.current() {
            bunraku_files::replace(&self.noted, current.as_bytes(), 0o600)?;
        }
        Ok(())
    }

    fn current(&self) -> Option<String> {
        let metadata = std::fs::metadata(&self.database).ok()?;
        let created = metadata.created().ok();
        let created = created.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let created = created.map_or(0, |since| since.as_nanos());
        Some(format!("{} {created}", metadata.ino()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_shows_and_a_change_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let identity = StoreIdentity::of(directory.path());
        assert!(!identity.is_copied(), "there is nothing yet");
        let database = directory.path().join("store.sqlite");
        std::fs::write(&database, "a").unwrap();
        assert!(!identity.is_copied(), "a directory of an earlier version");
        identity.note().unwrap();
        std::fs::write(&database, "b").unwrap();
        assert!(!identity.is_copied());
        let copy = directory.path().join("copy");
        std::fs::copy(&database, &copy).unwrap();
        std::fs::rename(&copy, &database).unwrap();
        assert!(identity.is_copied());
        identity.note().unwrap();
        assert!(!identity.is_copied());
    }
}
