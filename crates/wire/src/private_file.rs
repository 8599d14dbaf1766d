//! Files that are whole or absent, and that only their owner can read.
//!
//! A file is written beside its place, synced, and moved into place; then
//! the directory is synced. A crash leaves the old file or the new one.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// More than any certificate file holds; a larger one is not ours.
const LARGEST: u64 = 64 << 20;

/// Makes a directory that only its owner can enter, with its parents.
pub fn create_private_directory(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

/// Replaces a file, with this mode, in one step.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    replace_for(path, content, mode, None)
}

/// Replaces a file that belongs to someone else, in one step.
pub fn replace_for(
    path: &Path,
    content: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let beside = write_beside(path, content, mode)?;
    let given = match owner {
        Some((user, group)) => std::os::unix::fs::chown(&beside, Some(user), Some(group)),
        None => Ok(()),
    };
    let moved = given.and_then(|()| std::fs::rename(&beside, path));
    if moved.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    moved?;
    sync_directory_of(path)
}

/// Creates a file in one step. An existing one stays, and is an error of
/// kind [`io::ErrorKind::AlreadyExists`]: of two at once, one wins.
pub fn create(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let beside = write_beside(path, content, mode)?;
    let linked = std::fs::hard_link(&beside, path);
    let _ = std::fs::remove_file(&beside);
    linked?;
    sync_directory_of(path)
}

fn write_beside(path: &Path, content: &[u8], mode: u32) -> io::Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}.{number}.new", std::process::id()));
    let beside = path.with_file_name(name);
    // A leftover of a crashed process with the same id is nobody's.
    let _ = std::fs::remove_file(&beside);
    let written = write_new(&beside, content, mode);
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written.map(|()| beside)
}

fn write_new(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    // The umask may have taken bits that a public file needs.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Reads a small text file.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the file is too large",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_file_is_private_and_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        create(&path, b"one", 0o600).unwrap();
        let again = create(&path, b"two", 0o600).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(read_text(&path).unwrap(), "one");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_replaced_file_takes_the_new_mode_and_leaves_nothing_beside_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("certificate");
        std::fs::write(&path, "old").unwrap();
        replace(&path, b"new", 0o644).unwrap();
        assert_eq!(read_text(&path).unwrap(), "new");
        assert_eq!(directory.path().read_dir().unwrap().count(), 1);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
    }
}
