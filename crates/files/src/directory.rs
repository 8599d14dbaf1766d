//! Directories: private ones, and names that survive a crash.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a directory that only its owner can enter, with its parents.
pub fn create_private_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Makes names in a directory durable.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Makes the name of this file durable.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    sync_directory(parent_of(path))
}

/// Moves a file or directory that is complete and synced into place, and makes
/// its name durable. Both names must be on one file system.
pub fn move_into_place(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::rename(from, to)?;
    sync_directory_of(to)
}

pub(crate) fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
