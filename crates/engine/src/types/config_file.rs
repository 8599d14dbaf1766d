//! System files that hold one entry for each resource (`/etc/hosts`, `/etc/fstab`, a
//! crontab): read completely, changed by line, replaced atomically.
//!
//! Lines of others stay as they are, byte for byte, even if they are not UTF-8. A link
//! at the file's own path is followed only if root created it.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bunraku_files::StagedFile;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::file::place::{self, Place, PlaceError};
use crate::{StepError, WriteAccess};

/// The lock for edits. Two resources may share one file, and steps run in parallel, so
/// every read before a write holds it. Edits are short, so one lock serves all files.
static EDITING: Mutex<()> = Mutex::new(());

/// The owner and mode of a file that did not exist before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFile {
    pub(crate) mode: u32,
    pub(crate) owner: Option<(u32, u32)>,
}

impl NewFile {
    pub(crate) const PUBLIC: Self = Self {
        mode: 0o644,
        owner: None,
    };
}

/// The new state of a line.
pub(crate) enum LineEdit {
    Keep,
    Remove,
    Become(String),
}

/// Returns the content, or `None` if there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, StepError> {
    let failed = |error| StepError::because(format!("cannot read {}", path.display()), error);
    match trusted(path).and_then(fs::read) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// Reads the file, lets `change` create the new content, and writes that.
pub(crate) fn edit(
    path: &Path,
    new_file: NewFile,
    write_access: &WriteAccess<'_>,
    change: impl FnOnce(&[u8]) -> Vec<u8>,
) -> Result<(), StepError> {
    let _alone = EDITING.lock().unwrap_or_else(PoisonError::into_inner);
    let before = read(path)?;
    let after = change(before.as_deref().unwrap_or_default());
    if before.as_deref() == Some(after.as_slice()) {
        return Ok(());
    }
    put(path, &after, new_file, write_access)
}

/// Calls a function while there are no other edits (for a table that a tool reads and writes).
pub(crate) fn alone<T>(act: impl FnOnce() -> T) -> T {
    let _alone = EDITING.lock().unwrap_or_else(PoisonError::into_inner);
    act()
}

/// Replaces the content atomically.
pub(crate) fn put(
    path: &Path,
    content: &[u8],
    new_file: NewFile,
    write_access: &WriteAccess<'_>,
) -> Result<(), StepError> {
    let failed = |error| StepError::because(format!("cannot write {}", path.display()), error);
    let path = match trusted(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        other => other.map_err(failed)?,
    };
    let parent = path.parent().unwrap_or(Path::new("/"));
    let directory = place::created_directory(parent)
        .map_err(|error| StepError::because(format!("cannot write {}", path.display()), error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match replace_in(&directory, &name, content, new_file) {
        // Containers bind-mount single files such as /etc/hosts. Those cannot be
        // replaced, only written.
        Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
            fs::write(&path, content).map_err(failed)?;
        }
        other => other.map_err(failed)?,
    }
    write_access.sync_directory_later(parent);
    Ok(())
}

/// Removes a file. Succeeds if it is already gone.
pub(crate) fn remove(path: &Path, write_access: &WriteAccess<'_>) -> Result<(), StepError> {
    let failed = || format!("cannot remove {}", path.display());
    let place = match Place::of(path) {
        Err(PlaceError::Missing(_)) => return Ok(()),
        other => other.map_err(|error| StepError::because(failed(), error))?,
    };
    match rustix::fs::unlinkat(&place.directory, &place.name, AtFlags::empty()) {
        Err(error) if error != Errno::NOENT => {
            Err(StepError::because(failed(), io::Error::from(error)))
        }
        _ => {
            write_access.sync_directory_later(path.parent().unwrap_or(Path::new("/")));
            Ok(())
        }
    }
}

/// Writes beside the old file and renames over it. An old file's mode and owner stay. A
/// link of that name is replaced, not followed.
pub(crate) fn replace_in(
    directory: impl AsFd,
    name: &str,
    content: &[u8],
    new_file: NewFile,
) -> io::Result<()> {
    let old = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .ok()
        .filter(|stat| {
            rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::RegularFile
        });
    let (mode, owner) = match &old {
        Some(stat) => (stat.st_mode & 0o7777, Some((stat.st_uid, stat.st_gid))),
        None => (new_file.mode, new_file.owner),
    };
    let mut file = StagedFile::create_in(&directory, OsStr::new(name))?;
    file.write_all(content)?;
    file.set_access(owner.unzip(), mode)?;
    file.complete()?;
    file.publish_unsynced()
}

/// Reads a file in an open directory, unless it is a link.
pub(crate) fn read_in(directory: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(&directory, name, flags, Mode::empty()) {
        Ok(file) => {
            let mut content = Vec::new();
            fs::File::from(file).read_to_end(&mut content)?;
            Ok(Some(content))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the path itself, or the target of root's link.
fn trusted(path: &Path) -> io::Result<PathBuf> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_symlink() {
        return Ok(path.to_owned());
    }
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != me {
        let message = format!(
            "it is a link owned by user {} and is not followed",
            metadata.uid()
        );
        return Err(io::Error::other(message));
    }
    fs::canonicalize(path)
}

/// Returns each line with its line ending, as bytes.
pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split_inclusive(|byte| *byte == b'\n')
}

/// Returns the line as text, without its line ending. Bytes that are not UTF-8 are
/// replaced, so this is for reading only.
pub(crate) fn text(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    line.trim_end_matches(['\n', '\r']).to_owned()
}

/// Rewrites the lines. If none became `entry`, it is added at the end.
pub(crate) fn rewrite(
    content: &[u8],
    entry: Option<String>,
    mut fate: impl FnMut(&str) -> LineEdit,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(content.len() + 64);
    let mut entry = entry;
    for line in lines(content) {
        match fate(&text(line)) {
            LineEdit::Keep => out.extend_from_slice(line),
            LineEdit::Remove => {}
            LineEdit::Become(new) => {
                entry = None;
                out.extend_from_slice(new.as_bytes());
                out.push(b'\n');
            }
        }
    }
    if let Some(entry) = entry {
        if !out.is_empty() && out.last() != Some(&b'\n') {
            out.push(b'\n');
        }
        out.extend_from_slice(entry.as_bytes());
        out.push(b'\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_link_of_the_same_name_is_replaced_and_not_written_through() {
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, place.path().join("keys")).unwrap();
        let directory = fs::File::open(place.path()).unwrap();
        replace_in(&directory, "keys", b"new", NewFile::PUBLIC).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read(place.path().join("keys")).unwrap(), b"new");
        assert!(read_in(&directory, "keys").unwrap().is_some());
    }

    #[test]
    fn an_old_file_keeps_its_mode_and_leaves_nothing_beside_it() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let directory = fs::File::open(place.path()).unwrap();
        replace_in(&directory, "file", b"new", NewFile::PUBLIC).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o640);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    proptest! {
        #[test]
        fn lines_that_are_kept_stay_byte_for_byte(content: Vec<u8>) {
            let same = rewrite(&content, None, |_| LineEdit::Keep);
            prop_assert_eq!(same, content);
        }
    }
}
