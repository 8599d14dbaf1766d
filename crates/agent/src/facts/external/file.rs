//! The kind and content of a file in a facts directory.
//!
//! Nothing here may hang: a name can refer to a pipe, a device or a directory.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use super::parse::ParseProblem;

/// The largest file that is read, and the largest output of an executable.
pub(super) const SIZE_LIMIT: usize = 1024 * 1024;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    Json,
    Yaml,
    Text,
    Executable,
    Ignored,
}

/// Determines how to handle a path: by its extension, then by its executable bit.
pub(super) fn kind(path: &Path) -> Result<Kind, ParseProblem> {
    let metadata = path.metadata().map_err(|error| {
        let problem = format!("cannot be inspected: {error}");
        ParseProblem::new(&problem, "repair or remove it")
    })?;
    if metadata.is_dir() {
        return Ok(Kind::Ignored);
    }
    if !metadata.is_file() {
        let problem = format!("is {}, not a file", file_type(&metadata));
        return Err(ParseProblem::new(&problem, "remove it"));
    }
    let ending = path
        .extension()
        .map(|ending| ending.to_string_lossy().to_lowercase());
    Ok(match ending.as_deref() {
        Some("json") => Kind::Json,
        Some("yaml" | "yml") => Kind::Yaml,
        Some("txt") => Kind::Text,
        _ if metadata.mode() & 0o111 == 0 || is_left_over(path) => Kind::Ignored,
        _ => Kind::Executable,
    })
}

fn file_type(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Detects files that editors and package managers leave behind. They keep their executable bit.
fn is_left_over(path: &Path) -> bool {
    const ENDINGS: [&str; 22] = [
        "~",
        ".bak",
        ".orig",
        ".old",
        ".save",
        ".swp",
        ".swo",
        ".tmp",
        ".rej",
        ".disabled",
        ".rpmsave",
        ".rpmorig",
        ".rpmnew",
        ".dpkg-dist",
        ".dpkg-new",
        ".dpkg-old",
        ".dpkg-tmp",
        ".ucf-dist",
        ".bat",
        ".cmd",
        ".com",
        ".exe",
    ];
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase());
    name.is_none_or(|name| ENDINGS.iter().any(|ending| name.ends_with(ending)))
}

/// Returns the bytes of a regular file, up to the limit.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ParseProblem> {
    let failed = |error: std::io::Error| {
        let problem = format!("cannot be read: {error}");
        ParseProblem::new(&problem, "check its permissions")
    };
    // The name may have become a pipe since it was checked. So do not wait for a writer, and check
    // the opened file again.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty());
    let file = File::from(file.map_err(|error| failed(error.into()))?);
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(ParseProblem::new("is no longer a file", "remove it"));
    }
    let mut bytes = Vec::new();
    file.take(SIZE_LIMIT as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() > SIZE_LIMIT {
        return Err(ParseProblem::new(
            "is larger than 1 MiB",
            "facts are small: shorten it",
        ));
    }
    Ok(bytes)
}
