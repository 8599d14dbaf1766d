//! Copies of repositories and archives that this server keeps to fetch less.
//!
//! All of them can be removed at any time: code itself is stored with its
//! environment. So the age of the last use decides.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Code, CodeError, io};

impl Code {
    /// Removes copies that nothing has used for long, and returns their number.
    pub async fn remove_unused_copies(&self) -> Result<usize, CodeError> {
        let now = SystemTime::from(self.clock.now());
        let Some(before) = now.checked_sub(self.options.keep_copies) else {
            return Ok(0);
        };
        let mirrors = self.mirrors.remove_unused(before).await;
        let mirrors = mirrors.map_err(io("remove an unused copy of a repository"))?;
        let forge = self.forge.clone();
        let archives = super::blocking(move || {
            let removed = forge.remove_unused(before);
            removed.map_err(io("remove an unused archive"))
        })
        .await?;
        Ok(mirrors + archives)
    }
}

/// Returns the paths in a directory; none if it does not exist.
pub(super) fn entries_of(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
