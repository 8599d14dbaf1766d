//! Programs that must be installed for a command, and how to get them.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Returns the program of this name in PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// Refuses to go on without a program in PATH.
pub(crate) fn require(program: &str, why: &str, package: &str) -> Result<(), Failure> {
    match find(program) {
        Some(_) => Ok(()),
        None => Err(missing(program, why, package)),
    }
}

/// Refuses to go on without a program at this place.
pub(crate) fn require_file(file: &Path, why: &str, package: &str) -> Result<(), Failure> {
    if file.is_file() {
        Ok(())
    } else {
        Err(missing(&file.display().to_string(), why, package))
    }
}

fn missing(program: &str, why: &str, package: &str) -> Failure {
    Failure::new(format!("{program} is not installed; {why}")).hint(format!(
        "on Debian and Ubuntu, install it with `apt-get install {package}`"
    ))
}
