//! A file that is written under a temporary name in its final directory.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Uid, fchmod, fchown, linkat, openat, renameat, unlinkat,
};

use crate::directory::parent_of;

/// The maximum length of a file name, in bytes.
const LONGEST_NAME: usize = 255;

/// A new file that only we can access until it is published. Dropping it removes it.
#[derive(Debug)]
pub struct StagedFile {
    directory: OwnedFd,
    name: OsString,
    beside: OsString,
    /// Closed once the content is complete and on disk.
    file: Option<File>,
    is_published: bool,
}

impl StagedFile {
    /// Starts a file for this path.
    pub fn create(path: &Path) -> io::Result<Self> {
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let directory = OwnedFd::from(File::open(parent_of(path))?);
        Self::start(directory, name)
    }

    /// Starts a file for this name in an open directory. Nothing is written elsewhere, even if the
    /// directory's path changes.
    pub fn create_in(directory: impl AsFd, name: &OsStr) -> io::Result<Self> {
        Self::start(directory.as_fd().try_clone_to_owned()?, name)
    }

    fn start(directory: OwnedFd, name: &OsStr) -> io::Result<Self> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let beside = temporary_name(name);
        let file = openat(&directory, &beside, flags, Mode::from_raw_mode(0o600))?;
        Ok(Self {
            directory,
            name: name.to_owned(),
            beside,
            file: Some(File::from(file)),
            is_published: false,
        })
    }

    /// Returns the file's name before it is published.
    pub fn temporary_name(&self) -> &OsStr {
        &self.beside
    }

    fn open(&self) -> io::Result<&File> {
        self.file
            .as_ref()
            .ok_or_else(|| io::Error::other("the file is complete"))
    }

    /// Sets owner and mode. The owner comes first, because changing it clears the set-user bit. The
    /// mode is set regardless of the umask.
    pub fn set_access(&self, (uid, gid): (Option<u32>, Option<u32>), mode: u32) -> io::Result<()> {
        let file = self.open()?;
        if uid.is_some() || gid.is_some() {
            fchown(file, uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
        }
        Ok(fchmod(file, Mode::from_raw_mode(mode))?)
    }

    /// Writes the content to disk and closes the file. It can then be checked, and even executed,
    /// under its temporary name.
    pub fn complete(&mut self) -> io::Result<()> {
        match self.file.take() {
            Some(file) => file.sync_all(),
            None => Ok(()),
        }
    }

    /// Moves the file into place. Content and name are on disk afterwards.
    pub fn publish(mut self) -> io::Result<()> {
        self.complete()?;
        self.rename()?;
        Ok(rustix::fs::fsync(&self.directory)?)
    }

    /// Moves the file into place without waiting for the disk. Use it for many files whose
    /// directory is synced at the end. Call [`StagedFile::complete`] first for content that must
    /// survive a crash.
    pub fn publish_unsynced(mut self) -> io::Result<()> {
        self.rename()
    }

    /// Moves the file into place, unless the name is taken: then the error is of kind
    /// [`io::ErrorKind::AlreadyExists`]. Of two concurrent calls, one wins.
    pub fn publish_new(mut self) -> io::Result<()> {
        self.complete()?;
        let (directory, flags) = (&self.directory, AtFlags::empty());
        linkat(directory, &self.beside, directory, &self.name, flags)?;
        Ok(rustix::fs::fsync(directory)?)
    }

    fn rename(&mut self) -> io::Result<()> {
        renameat(&self.directory, &self.beside, &self.directory, &self.name)?;
        self.is_published = true;
        Ok(())
    }
}

impl Write for StagedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.open()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.open()?.flush()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = unlinkat(&self.directory, &self.beside, AtFlags::empty());
        }
    }
}

/// Returns a hidden name for a temporary file that nobody can guess. So nobody can take it first in
/// a directory that others can write to. The end of the name stays, because programs that check a
/// file use its extension.
pub(crate) fn temporary_name(name: &OsStr) -> OsString {
    let random = RandomState::new().build_hasher().finish();
    let mut temporary = OsString::from(format!(".bunraku-{random:016x}-"));
    let room = LONGEST_NAME - temporary.len();
    let bytes = name.as_bytes();
    let end = &bytes[bytes.len().saturating_sub(room)..];
    temporary.push(OsStr::from_bytes(end));
    temporary
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_dropped_file_leaves_the_old_one_and_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, "old").unwrap();
        let mut staged = StagedFile::create(&path).unwrap();
        staged.write_all(b"half").unwrap();
        drop(staged);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(place.path().read_dir().unwrap().count(), 1);
    }

    #[test]
    fn a_published_file_has_its_mode_and_replaces_a_link_without_following_it() {
        let place = tempfile::tempdir().unwrap();
        let (path, victim) = (place.path().join("file"), place.path().join("victim"));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        let directory = File::open(place.path()).unwrap();
        let mut staged = StagedFile::create_in(&directory, OsStr::new("file")).unwrap();
        staged.write_all(b"new").unwrap();
        staged.set_access((None, None), 0o640).unwrap();
        staged.publish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o640);
        assert_eq!(place.path().read_dir().unwrap().count(), 2);
    }

    #[test]
    fn the_longest_name_that_a_file_may_have_can_be_staged_and_keeps_its_extension() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(format!("{}.conf", "ä".repeat(125)));
        let staged = StagedFile::create(&path).unwrap();
        let temporary = Path::new(staged.temporary_name());
        assert_eq!(temporary.extension(), Some(OsStr::new("conf")));
        staged.publish().unwrap();
        assert!(path.exists());
    }
}
