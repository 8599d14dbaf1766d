//! The error for a file or directory that cannot be used.

use std::io;
use std::path::{Path, PathBuf};

/// A failed operation on a file.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}", path.display())]
pub struct FileError {
    pub doing: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// Adds the file to an error: `.map_err(FileError::when("write", &path))`.
    pub fn when(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self {
            doing,
            path,
            source,
        }
    }
}
