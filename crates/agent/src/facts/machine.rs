//! The machine that facts are read from: a root directory.
//!
//! Nothing here may hang or exhaust memory. Only regular files are read, they are opened without
//! blocking, and their size is limited.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

use super::group::GroupError;

/// The largest file that is read completely. On a machine with a thousand processors, /proc/cpuinfo
/// has about two million bytes.
pub(super) const READ_LIMIT: u64 = 16 * 1024 * 1024;

pub(super) struct Machine {
    root: PathBuf,
}

impl Machine {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns whether the running kernel belongs to this machine, so that querying it (netlink,
    /// cpuid, user database) makes sense.
    pub(super) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the actual path of a path on the machine.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    pub(super) fn is_directory(&self, path: &str) -> bool {
        self.path(path).is_dir()
    }

    pub(super) fn bytes(&self, path: &str) -> Result<Vec<u8>, GroupError> {
        let path = self.path(path);
        self.open(&path)
            .and_then(read_regular)
            .map_err(|source| GroupError::Read { path, source })
    }

    /// Returns the text of a file. Bytes that are not UTF-8 become U+FFFD.
    pub(super) fn text(&self, path: &str) -> Result<String, GroupError> {
        Ok(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    /// Returns the text of a file that may be missing.
    pub(super) fn optional(&self, path: &str) -> Option<String> {
        self.text(path).ok()
    }

    /// Returns the first line of a sysfs-like file, trimmed, unless it is empty.
    pub(super) fn attribute(&self, path: &str) -> Option<String> {
        let text = self.optional(path)?;
        let line = text.trim();
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// Returns the names in a directory, sorted. Returns none if the directory does not exist.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = self.path(path).read_dir() else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Opens a file. Below a test root, a link to `/…` refers to that root, not to ours.
    fn open(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        if !self.is_live() {
            let directory = rustix::fs::openat(
                CWD,
                &self.root,
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            let inside = path.strip_prefix(&self.root).unwrap_or(path);
            match rustix::fs::openat2(
                directory,
                inside,
                flags,
                Mode::empty(),
                ResolveFlags::IN_ROOT,
            ) {
                // Kernels before 5.6 do not support it.
                Err(rustix::io::Errno::NOSYS) => {}
                opened => return Ok(File::from(opened?)),
            }
        }
        Ok(File::from(rustix::fs::openat(
            CWD,
            path,
            flags,
            Mode::empty(),
        )?))
    }
}

/// Reads a file, which must be regular and not too large.
fn read_regular(file: File) -> io::Result<Vec<u8>> {
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(READ_LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > READ_LIMIT {
        return Err(io::Error::other("larger than 16 MiB"));
    }
    Ok(bytes)
}
